//! Corrections: what they say for each difference, and that they hold any text.

use super::*;
use crate::class::{Class, Rule};
use crate::schema::{Column, Compared};

fn plan() -> Plan {
    let text = Class::Text { padded: false };
    let of = |name: &str, class, collation: Option<&str>| {
        let column = Column {
            name: name.into(),
            class,
            type_name: "t".into(),
            nullable: true,
            collation: collation.map(str::to_owned),
            is_cast: false,
        };
        Compared { source: column.clone(), target: column, rule: Rule::exact(class) }
    };
    Plan {
        columns: vec![
            of("id", Class::Int, None),
            of("v", text, Some("utf8mb4_general_ci")),
            of("b", Class::Binary, None),
        ],
        key: vec![0],
        notes: Vec::new(),
    }
}

fn row(id: i32, v: Option<&str>, b: Option<&str>) -> Values {
    vec![Some(id.to_string()), v.map(str::to_owned), b.map(str::to_owned)]
}

#[test]
fn statements_touch_what_was_compared_and_nothing_else() {
    let plan = plan();
    let table = FixTable { dialect: Dialect::Plain, table: "`d`.`t`", plan: &plan };
    let changed = Difference::Changed {
        columns: vec![1],
        source: row(1, Some("it's"), None),
        target: row(1, Some("a\\b\n"), None),
    };
    assert_eq!(
        table.statement(Pass::Update, &changed).unwrap(),
        "UPDATE `d`.`t` SET `v` = 'it''s' WHERE `id` = 1 AND `id` = 1 \
         AND CAST(`v` AS BINARY) = CONVERT(X'615C620A' USING utf8mb4) AND `b` IS NULL;"
    );
    let extra = Difference::Extra { target: row(2, None, Some("00FF")) };
    assert_eq!(
        table.statement(Pass::Delete, &extra).unwrap(),
        "DELETE FROM `d`.`t` WHERE `id` = 2 AND `id` = 2 AND `v` IS NULL AND `b` = X'00FF';"
    );
    let missing = Difference::Missing { source: row(3, Some(""), None) };
    assert_eq!(
        table.statement(Pass::Insert, &missing).unwrap(),
        "INSERT INTO `d`.`t` (`id`, `v`, `b`) VALUES (3, '', NULL);"
    );
    assert_eq!(table.statement(Pass::Delete, &missing), None);
    let isobar = FixTable { dialect: Dialect::Isobar, ..table };
    let statement = isobar.statement(Pass::Update, &changed).unwrap();
    assert!(statement.contains("`v` = 'a\\\\b\\n'"), "{statement}");
    assert_eq!(statement.lines().count(), 1);
}

#[test]
fn transactions_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fix.sql");
    let plan = plan();
    let table = FixTable { dialect: Dialect::Plain, table: "`t`", plan: &plan };
    let mut fix = Fix::create(&path, "a\n; DROP TABLE x", "b").unwrap();
    for id in 0..1201 {
        fix.write(&table, Pass::Delete, &Difference::Extra { target: row(id, None, None) })
            .unwrap();
    }
    fix.finish().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("START TRANSACTION;"), count("DELETE"), count("COMMIT;")), (3, 1201, 3));
    assert_eq!(count("; DROP"), 0, "a name cannot leave its comment");
}
