//! Random pairs of tables with planted differences: all are found, and nothing else.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};

use super::*;
use crate::class::{Class, Rule};
use crate::compare::{Difference, Row, compare};
use crate::digest::row_digest;
use crate::range::Part;

type Table = BTreeMap<(i128, String), Option<String>>;

fn key(key: &(i128, String)) -> Key {
    vec![Part::Int(key.0), Part::Text(key.1.clone())]
}

fn rules() -> Vec<Rule> {
    let text = Rule::exact(Class::Text { padded: false });
    vec![Rule::exact(Class::Int), text, text]
}

fn rows(table: &Table, range: &Range) -> Vec<Row> {
    let all = table.iter().map(|(k, v)| Row {
        key: key(k),
        values: vec![Some(k.0.to_string()), Some(k.1.clone()), v.clone()],
    });
    all.filter(|row| range.holds(&row.key)).collect()
}

fn digest(table: &Table, range: &Range) -> Digest {
    rows(table, range).iter().fold(Digest::default(), |mut sum, row| {
        sum.add(Digest { rows: 1, sum: row_digest(&row.values, &rules()) });
        sum
    })
}

fn random_text(rng: &mut impl Rng) -> Option<String> {
    const TEXTS: [&str; 8] = ["", "a", "a ", "N", "1:a", "é☃", "a,N", "\u{0}'\\"];
    rng.random_bool(0.8).then(|| TEXTS[rng.random_range(0..TEXTS.len())].to_owned())
}

fn random_key(rng: &mut impl Rng) -> (i128, String) {
    // Dense in places, far apart in others.
    let n = if rng.random_bool(0.7) {
        rng.random_range(0..200)
    } else {
        i128::from(rng.random::<i64>())
    };
    (n, ["", "x", "y", "é"][rng.random_range(0..4)].to_owned())
}

/// Runs the machine over two tables; the differences and the most rows fetched at once.
fn run(source: &Table, target: &Table, chunks: Vec<Range>, leaf: u64) -> (Vec<Difference>, u64) {
    let mut machine = Bisect::new(chunks, leaf, 4);
    let (mut found, mut most, mut steps) = (Vec::new(), 0, 0);
    while let Some(request) = machine.next_request() {
        steps += 1;
        assert!(steps < 1000, "it does not end");
        match request {
            Request::Digests(ranges) => {
                let digests = ranges.iter().map(|r| (digest(source, r), digest(target, r)));
                machine.digests(digests.collect()).unwrap();
            }
            Request::Cuts(cuts) => machine.keys(
                cuts.iter()
                    .map(|cut| {
                        let side = if cut.side == Side::Source { source } else { target };
                        let rows = rows(side, &cut.range);
                        assert_eq!(rows.len() as u64, cut.rows);
                        rows.into_iter()
                            .step_by(cut.rows.div_ceil(cut.pieces) as usize)
                            .map(|r| r.key)
                            .collect()
                    })
                    .collect(),
            ),
            Request::Rows(leaves) => {
                for (range, rows_there) in leaves {
                    most = most.max(rows_there);
                    found.extend(compare(rows(source, &range), rows(target, &range), &rules()));
                }
            }
        }
    }
    (found, most)
}

#[test]
fn planted_differences_are_found_and_no_others() {
    for seed in 0..300 {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut source = Table::new();
        for _ in 0..rng.random_range(0..300) {
            source.insert(random_key(&mut rng), random_text(&mut rng));
        }
        let mut target = source.clone();
        let mut expected: BTreeMap<(i128, String), &str> = BTreeMap::new();
        for _ in 0..[0, 1, 5, 60][rng.random_range(0..4)] {
            let picked = match source.len() {
                0 => random_key(&mut rng),
                n if rng.random_bool(0.7) => {
                    source.keys().nth(rng.random_range(0..n)).unwrap().clone()
                }
                _ => random_key(&mut rng),
            };
            if rng.random_bool(0.3) {
                target.remove(&picked);
            } else {
                target.insert(picked.clone(), random_text(&mut rng));
            }
            let kind = match (source.get(&picked), target.get(&picked)) {
                (a, b) if a == b => None,
                (Some(_), None) => Some("missing"),
                (None, Some(_)) => Some("extra"),
                _ => Some("changed"),
            };
            match kind {
                Some(kind) => expected.insert(picked, kind),
                None => expected.remove(&picked),
            };
        }
        let cuts = source.keys().step_by(50).map(key).collect();
        let (found, most) = run(&source, &target, Range::all().cut(cuts), 8);
        let found: BTreeMap<(i128, String), &str> = found
            .iter()
            .map(|difference| {
                let (values, kind) = match difference {
                    Difference::Missing { source } => (source, "missing"),
                    Difference::Extra { target } => (target, "extra"),
                    Difference::Changed { source, .. } => (source, "changed"),
                    Difference::Repeated { .. } => panic!("no key is repeated"),
                };
                let texts = |at: usize| values[at].clone().unwrap();
                ((texts(0).parse().unwrap(), texts(1)), kind)
            })
            .collect();
        assert_eq!(found, expected, "seed {seed}");
        assert!(most <= 8, "seed {seed}: {most} rows fetched at once");
    }
}

#[test]
fn parts_that_do_not_come_to_the_whole_are_reported() {
    let mut machine = Bisect::new(vec![Range::all()], 2, 4);
    let of = |rows, sum| Digest { rows, sum };
    assert_eq!(machine.next_request(), Some(Request::Digests(vec![Range::all()])));
    machine.digests(vec![(of(10, 7), of(9, 6))]).unwrap();
    let Some(Request::Cuts(cuts)) = machine.next_request() else { panic!("a cut was due") };
    assert_eq!((cuts[0].side, cuts[0].pieces), (Side::Source, 4));
    machine.keys(vec![vec![vec![Part::Int(5)]]]);
    machine.next_request();
    let moved = machine.digests(vec![(of(5, 1), of(5, 6)), (of(5, 6), of(5, 0))]).unwrap_err();
    assert_eq!((moved.side, moved.before.rows, moved.after.rows), (Side::Target, 9, 10));
}

#[test]
fn a_range_that_nothing_cuts_is_fetched_whole() {
    let mut machine = Bisect::new(vec![Range::all()], 2, 4);
    machine.digests(vec![(Digest { rows: 10, sum: 7 }, Digest::default())]).unwrap();
    machine.keys(vec![Vec::new()]);
    assert_eq!(machine.next_request(), Some(Request::Rows(vec![(Range::all(), 10)])));
    assert_eq!(machine.next_request(), None);
}
