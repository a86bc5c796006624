//! Statements as servers get them: conditions of ranges, literals, digests.

use super::*;
use crate::schema::Column;

fn column(name: &str, class: Class, collation: Option<&str>) -> Column {
    Column {
        name: name.into(),
        class,
        type_name: "t".into(),
        nullable: false,
        collation: collation.map(str::to_owned),
        is_cast: false,
    }
}

fn table(dialect: Dialect) -> TableSql {
    let text = Class::Text { padded: false };
    let columns = [
        (column("id", Class::Int, None), Rule::exact(Class::Int)),
        (column("na`me", text, Some("utf8mb4_general_ci")), Rule::exact(text)),
        (column("at", Class::DateTime, None), Rule::exact(Class::DateTime)),
    ];
    let columns = columns.iter().map(|(c, rule)| Expressed::new(dialect, c, *rule)).collect();
    TableSql {
        dialect,
        table: "`d`.`t`".into(),
        columns,
        key: vec![0, 1],
        condition: Some("id > 0 OR id < 0".into()),
    }
}

fn key(id: i128, name: &str) -> Vec<Part> {
    vec![Part::Int(id), Part::Text(name.into())]
}

#[test]
fn a_range_of_a_composite_key_is_one_condition() {
    let range = Range { low: Some(key(1, "a'b")), high: Some(key(5, "z")) };
    assert_eq!(
        table(Dialect::Isobar).count(&range),
        "SELECT COUNT(*) FROM `d`.`t` WHERE `id` >= 1 AND (`id` > 1 OR (`id` = 1 AND `na``me` > 'a\\'b')) \
         AND `id` <= 5 AND (`id` < 5 OR (`id` = 5 AND `na``me` <= 'z')) AND (id > 0 OR id < 0)"
    );
    let plain = table(Dialect::Plain);
    let sql = plain.nth(&Range { low: None, high: Some(key(5, "z")) }, 7);
    assert!(sql.contains("CAST(`na``me` AS BINARY) <= 'z'"), "{sql}");
    assert!(sql.ends_with("ORDER BY `id`, CAST(`na``me` AS BINARY) LIMIT 1 OFFSET 7"), "{sql}");
    let all = TableSql { condition: None, ..plain };
    assert_eq!(all.count(&Range::all()), "SELECT COUNT(*) FROM `d`.`t`");
}

#[test]
fn labels_are_ordered_as_texts_on_every_server() {
    let text = Class::Text { padded: false };
    for collation in ["utf8mb4_bin", "utf8mb4_nopad_bin"] {
        let labelled =
            Column { type_name: "enum('b','a')".into(), ..column("e", text, Some(collation)) };
        let order = |dialect| Expressed::new(dialect, &labelled, Rule::exact(text)).order;
        assert_eq!(order(Dialect::Plain), "CAST(`e` AS BINARY)");
        assert_eq!(order(Dialect::Isobar), "CAST(`e` AS CHAR)");
    }
}

#[test]
fn digests_take_in_every_column_and_null() {
    assert_eq!(
        table(Dialect::Isobar).digest(&Range::all()),
        "SELECT COUNT(*), BIT_XOR(isobar_digest(`id`,`na``me`,`at`)) FROM `d`.`t` WHERE (id > 0 OR id < 0)"
    );
    let sql = table(Dialect::Plain).digest(&Range::all());
    for piece in [
        "IFNULL(`id`,'N')",
        "IFNULL(CONCAT(LENGTH(`na``me`),':',`na``me`),'N')",
        "IFNULL(CAST(`at` AS DATETIME(6)),'N')",
    ] {
        assert!(sql.contains(piece), "{piece} in {sql}");
    }
}

#[test]
fn both_dialects_fetch_a_value_in_one_form() {
    let bits = Column { type_name: "bit(8)".into(), ..column("b", Class::Int, None) };
    let year = Column { type_name: "year".into(), ..column("y", Class::Int, None) };
    for (column, form) in [
        (bits, "(`b` + 0)"),
        (year, "(`y` + 0)"),
        (column("f", Class::Float, None), "(`f` + 0e0)"),
        (column("v", Class::Binary, None), "HEX(`v`)"),
        (column("i", Class::Int, None), "`i`"),
    ] {
        for dialect in [Dialect::Isobar, Dialect::Plain] {
            let sql = Expressed::new(dialect, &column, Rule::exact(column.class));
            assert_eq!(sql.value, form, "{dialect:?}");
        }
        // What is looked up is the column, for its index.
        let sql = Expressed::new(Dialect::Isobar, &column, Rule::exact(column.class));
        assert_eq!(sql.exact(), name(&column.name));
    }
}

#[test]
fn literals_hold_any_value() {
    let text = Class::Text { padded: false };
    assert_eq!(literal(text, "a'b\\c\0\n"), "'a\\'b\\\\c\\0\\n'");
    assert_eq!(literal(Class::Int, "-5"), "-5");
    // What is no number is never spliced in as one.
    assert_eq!(literal(Class::Int, "1 OR 1"), "'1 OR 1'");
    assert_eq!(literal(Class::Binary, "00FF"), "X'00FF'");
    assert_eq!(literal(Class::Binary, "' OR"), "'\\' OR'");
    assert_eq!(literal(Class::DateTime, "2013-01-02 03:04:05.000000"), "'2013-01-02 03:04:05'");
}

#[test]
fn rules_change_what_is_digested() {
    let column = column("c", Class::Decimal(2), None);
    let rule = Rule { trim_zeros: true, ..Rule::exact(Class::Decimal(4)) };
    let sql = Expressed::new(Dialect::Isobar, &column, rule);
    assert_eq!(sql.spelled, "TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST(`c` AS CHAR)))");
    assert_eq!(sql.value, "`c`");
    let whole = Column { class: Class::Int, ..column.clone() };
    assert_eq!(Expressed::new(Dialect::Isobar, &whole, rule).spelled, "CAST(`c` AS CHAR)");
    let text =
        Rule { fold_case: true, trim_spaces: true, ..Rule::exact(Class::Text { padded: true }) };
    let char = Column { class: Class::Text { padded: true }, ..column };
    assert_eq!(Expressed::new(Dialect::Isobar, &char, text).spelled, "LOWER(RTRIM(`c`))");
}
