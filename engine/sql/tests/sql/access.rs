//! What accounts may do, by what was granted to them.

use access::{Need, Rights, reads};
use placement::api::{Grants, Level, User};
use sqlparser::ast::Statement;
use syntax::names::TableName;
use syntax::parser::parse_sql;
use types::Privileges;

fn rights(grants: Grants) -> Rights {
    let (name, host) = ("a".to_owned(), "%".to_owned());
    Rights::of_account(&User { name, host, credentials: vec![], grants }, "10.0.0.1")
}

fn select(database: &str, table: &str) -> Need {
    Need::to_select(TableName { database: database.into(), table: table.into() })
}

#[test]
fn the_most_specific_pattern_counts_alone() {
    let mut grants = Grants::default();
    for (pattern, of) in
        [("d%", Privileges::SELECT), ("db_1", Privileges::INSERT), ("a\\_b", Privileges::SELECT)]
    {
        grants.databases.insert(pattern.into(), of);
    }
    let rights = rights(grants);
    assert!(rights.check(&select("dx", "t")).is_ok());
    assert!(rights.check(&select("db_1", "t")).is_err());
    assert!(rights.check(&select("dbx1", "t")).is_err());
    assert!(rights.check(&select("a_b", "t")).is_ok());
    assert!(rights.check(&select("axb", "t")).is_err());
    assert!(rights.check(&select("e", "t")).is_err());
    assert!(rights.check(&select("information_schema", "tables")).is_ok());
    assert_eq!(rights.check(&select("information_schema", "cluster_info")).unwrap_err().code, 1227);
    let error = rights.check(&select("e", "t")).unwrap_err();
    assert_eq!(error.message, "SELECT command denied to user 'a'@'10.0.0.1' for table 't'");
}

#[test]
fn a_pattern_is_granted_by_who_holds_that_pattern() {
    let give = Privileges::SELECT.and(Privileges::GRANT_OPTION);
    let mut grants = Grants::default();
    grants.databases.insert("ab".into(), give);
    grants.databases.insert("x_".into(), give);
    let rights = rights(grants);
    let may = |pattern: &str| {
        rights.check_grant(&Level::Database(pattern.into()), Privileges::SELECT).is_ok()
    };
    assert!(may("ab") && may("x_") && may("x\\_"));
    assert!(!may("a_") && !may("%") && !may("x%") && !may("b"));
    let insert = rights.check_grant(&Level::Database("ab".into()), Privileges::INSERT);
    assert_eq!(insert.unwrap_err().code, 1044);
    let all = rights.check_grant(&Level::Everything, Privileges::NONE);
    assert_eq!(all.unwrap_err().code, 1045);
}

#[test]
fn a_name_of_with_hides_a_table_within_its_query_only() {
    let names = |sql: &str| {
        let Statement::Query(query) = parse_sql(sql).unwrap() else { panic!("{sql}") };
        let names = reads(&*query, "d").unwrap().into_iter().map(|name| name.table);
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("WITH s AS (SELECT 1 FROM t) SELECT * FROM s, dual"), "t");
    assert_eq!(names("SELECT * FROM (WITH s AS (SELECT 1) SELECT * FROM s) x, s"), "s");
    assert_eq!(
        names("SELECT (SELECT MAX(a) FROM e.u) FROM t WHERE EXISTS (SELECT 1 FROM v)"),
        "u t v"
    );
}

#[test]
fn who_has_something_on_a_table_sees_it_and_its_database_only() {
    let mut grants = Grants::default();
    grants.tables.insert(("d".into(), "t".into()), Privileges::INSERT);
    let rights = rights(grants);
    assert!(rights.sees_database("D") && rights.sees_table("d", "T"));
    assert!(!rights.sees_database("e") && !rights.sees_table("d", "u"));
    assert!(rights.check(&Need::SomethingIn("d".into())).is_ok());
    assert_eq!(rights.check(&Need::SomethingIn("e".into())).unwrap_err().code, 1044);
}
