//! CSV values of each kind, and lines that are broken.

use super::*;

fn form() -> CsvForm {
    CsvForm { delimiter: b',', null: "\\N".into() }
}

#[test]
fn values_are_read_as_their_kind() {
    let ok = |class, text: &str| read(class, text, "\\N").unwrap().unwrap_or_else(|| "NULL".into());
    let text = Class::Text { padded: false };
    assert_eq!([ok(text, ""), ok(text, "\\N"), ok(text, " a ")], ["", "NULL", " a "]);
    assert_eq!(
        [ok(Class::Int, "+007"), ok(Class::Int, ""), ok(Class::Int, "true")],
        ["7", "NULL", "1"]
    );
    assert_eq!(ok(Class::Int, "18446744073709551615"), "18446744073709551615");
    let decimals =
        ["1.5", "-0.001", "+00.10", "-0", ".5", "12"].map(|text| ok(Class::Decimal(2), text));
    assert_eq!(decimals, ["1.50", "-0.001", "0.10", "0.00", "0.50", "12.00"]);
    assert_eq!([ok(Class::Float, "1e2"), ok(Class::Float, "0.1")], ["100", "0.1"]);
    assert_eq!(ok(Class::DateTime, "2013-01-02T03:04:05.5Z"), "2013-01-02 03:04:05.500000");
    assert_eq!(ok(Class::Timestamp, "2013-01-02"), "2013-01-02 00:00:00.000000");
    assert_eq!(ok(Class::Binary, "0x00ff"), "00FF");
    for (class, wrong) in [
        (Class::Int, "1.5"),
        (Class::Int, "0x10"),
        (Class::Decimal(2), "1,5"),
        (Class::Decimal(2), "1e5"),
        (Class::Decimal(2), "."),
        (Class::Float, "one"),
        (Class::Date, "2013-02-29"),
        (Class::DateTime, "yesterday"),
        (Class::Binary, "xyz"),
        (Class::Time, "noon"),
    ] {
        assert_eq!(read(class, wrong, "\\N"), Err(class.name()), "{wrong}");
    }
}

#[test]
fn a_broken_line_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let names = ["v".to_owned(), "id".to_owned()];
        let classes = [Class::Text { padded: false }, Class::Int];
        let mut rows = Vec::new();
        let mut take = |values, _: &dyn Fn() -> String| {
            rows.push(values);
            Ok(())
        };
        scan(&file, &form(), &names, &classes, &mut take).map_err(|error| error.to_string())?;
        Ok::<_, String>(rows)
    };
    let rows = run("\u{feff}id,V\n1,\"two\nlines\"\n2,\\N\n").unwrap();
    assert_eq!(
        rows,
        [vec![Some("two\nlines".into()), Some("1".into())], vec![None, Some("2".into())]]
    );
    for (text, words) in [
        ("id,v\n1,a\n2\n", "line 3"),
        ("id,v\n1,a\nx,b\n", "line 3: column id: 'x' is no whole number"),
        ("id,w\n1,a\n", "column v is missing"),
        ("id,\n1,a\n", "line 1"),
        ("", "line 1"),
    ] {
        let error = run(text).unwrap_err();
        assert!(error.contains(words) && error.contains("t.csv"), "{error}");
    }
    std::fs::write(&file, b"id,v\n1,\xff\n").unwrap();
    assert!(columns(&file, &form()).is_ok());
}
