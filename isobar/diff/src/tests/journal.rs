//! Checkpoints: torn, damaged, of other runs, finished.

use super::*;

fn parameters() -> Parameters {
    Parameters {
        source: "a".into(),
        target: "b".into(),
        wishes: Wishes::default(),
        condition: None,
        rows: (10, 5),
        reading: "Columns false".into(),
    }
}

fn chunk(number: usize) -> Line {
    let differences = vec![Difference::Missing { source: vec![Some(format!("\n{number}")), None] }];
    Line::Chunk { table: "t".into(), chunk: number, digests: Default::default(), differences }
}

fn numbers(journal: &Journal) -> Vec<usize> {
    let mut found = Vec::new();
    journal
        .chunks("t", |number, _, differences| {
            assert_eq!(
                differences,
                [Difference::Missing { source: vec![Some(format!("\n{number}")), None] }]
            );
            found.push(number);
            Ok(())
        })
        .unwrap();
    found
}

#[test]
fn a_torn_line_does_not_count_and_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let (mut journal, tokens) = Journal::open(&path, Existing::Refuse, &parameters()).unwrap();
    assert_eq!(tokens, None);
    journal.begin(parameters(), [Some("token".into()), None]).unwrap();
    for number in [3, 1, 2] {
        journal.write(&chunk(number)).unwrap();
    }
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    for length in ends[0]..=whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let (journal, tokens) = Journal::open(&path, Existing::Resume, &parameters()).unwrap();
        assert_eq!(tokens, Some([Some("token".into()), None]));
        let complete = ends.iter().filter(|end| **end <= length).count() - 1;
        let mut expected = [3, 1, 2][..complete].to_vec();
        expected.sort_unstable();
        assert_eq!(numbers(&journal), expected, "{length}");
    }
}

#[test]
fn only_its_own_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let open = |existing, parameters: &Parameters| Journal::open(&path, existing, parameters);
    let (mut journal, _) = open(Existing::Resume, &parameters()).unwrap();
    journal.begin(parameters(), [None, None]).unwrap();
    journal.write(&chunk(1)).unwrap();
    let text = open(Existing::Refuse, &parameters()).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("--resume") && text.contains("--restart"), "{text}");
    let other = Parameters { condition: Some("id > 1".into()), ..parameters() };
    let text = open(Existing::Resume, &other).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("--where"), "{text}");
    assert!(open(Existing::Resume, &parameters()).unwrap().1.is_some());
    // Damage in the middle is not taken for an end.
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[20] = b'\n';
    std::fs::write(&path, &damaged).unwrap();
    let text = open(Existing::Resume, &parameters()).map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("line 1: is damaged"), "{text}");
    assert!(open(Existing::Restart, &parameters()).unwrap().1.is_none());
    // A finished one gives way.
    std::fs::write(&path, &whole).unwrap();
    let (mut journal, _) = open(Existing::Resume, &parameters()).unwrap();
    journal.write(&Line::End).unwrap();
    let (journal, tokens) = open(Existing::Refuse, &parameters()).unwrap();
    assert!(tokens.is_none() && numbers(&journal).is_empty());
}

#[test]
fn keys_of_every_kind_come_back() {
    use crate::range::Part;
    let cuts = vec![vec![
        Part::Int(i128::from(u64::MAX) * 3),
        Part::Decimal(arrow::datatypes::i256::MIN, "-1.5".into()),
        Part::Float(0.1),
        Part::Text("\u{0}\"é\n".into()),
    ]];
    let mut journal = Journal::temporary().unwrap();
    let line = Line::Table {
        table: "t".into(),
        rows: (1, u64::MAX),
        cuts: cuts.clone(),
        columns: Vec::new(),
    };
    journal.write(&line).unwrap();
    let mut found = Vec::new();
    journal
        .read(|line| {
            let Line::Table { rows, cuts, .. } = line else { panic!("another line") };
            found.push((rows, cuts));
            Ok(())
        })
        .unwrap();
    assert_eq!(found, [((1, u64::MAX), cuts)]);
}
