//! Rows or columns: every rule of the router, one line each.

use std::collections::BTreeMap;

use execution::router::{QueryFacts, TableFacts, allowed, route, route_without_narrow};
use syntax::hints::Engine;

fn table(name: &str) -> TableFacts {
    TableFacts {
        name: format!("d.{name}"),
        aliases: vec![name.into()],
        stored: true,
        replicas: 1,
        available: true,
        complete: false,
        written: false,
        narrow: false,
    }
}

fn query(tables: Vec<TableFacts>) -> QueryFacts {
    QueryFacts {
        tables,
        hints: BTreeMap::new(),
        rows_allowed: true,
        columns_allowed: true,
        locking: false,
        tier: true,
        fallback: false,
    }
}

#[test]
fn full_scans_of_available_tables_go_to_columns() {
    assert_eq!(route(&query(vec![table("a")])).engine, Engine::Columns);
}

#[test]
fn access_by_key_goes_to_rows_unless_another_table_is_scanned() {
    let narrow = TableFacts { narrow: true, ..table("a") };
    assert_eq!(route(&query(vec![narrow.clone()])).engine, Engine::Rows);
    assert_eq!(route(&query(vec![narrow, table("b")])).engine, Engine::Columns);
}

#[test]
fn one_table_that_needs_rows_takes_the_query_there() {
    let reasons: [fn(&mut TableFacts); 4] =
        [|t| t.written = true, |t| t.replicas = 0, |t| t.available = false, |t| t.stored = false];
    for spoil in reasons {
        let mut spoilt = table("a");
        spoil(&mut spoilt);
        let routed = route(&query(vec![spoilt, table("b")]));
        assert_eq!(routed.engine, Engine::Rows);
        assert!(routed.warnings.is_empty());
    }
}

#[test]
fn columns_that_are_away_are_no_reason_to_scan_rows() {
    let away = TableFacts { available: false, complete: true, ..table("a") };
    assert_eq!(route(&query(vec![away.clone()])).engine, Engine::Columns);
    let narrow = TableFacts { narrow: true, ..away.clone() };
    assert_eq!(route(&query(vec![narrow])).engine, Engine::Rows);
    let mut facts = query(vec![away.clone()]);
    facts.fallback = true;
    assert_eq!(route(&facts).engine, Engine::Rows);
    let mut facts = query(vec![away]);
    (facts.fallback, facts.rows_allowed) = (true, false);
    assert_eq!(route(&facts).engine, Engine::Columns);
}

#[test]
fn a_hint_that_cannot_be_followed_warns() {
    let missing = TableFacts { available: false, ..table("a") };
    let mut facts = query(vec![missing]);
    facts.hints.insert("a".into(), Engine::Columns);
    let routed = route(&facts);
    assert_eq!(routed.engine, Engine::Rows);
    assert_eq!(routed.warnings.len(), 1);
}

#[test]
fn hints_decide_where_both_would_do() {
    let mut facts = query(vec![table("a")]);
    facts.hints.insert("a".into(), Engine::Rows);
    assert_eq!(route(&facts).engine, Engine::Rows);
    let mut facts = query(vec![TableFacts { narrow: true, ..table("a") }]);
    facts.hints.insert("a".into(), Engine::Columns);
    assert_eq!(route(&facts).engine, Engine::Columns);
}

#[test]
fn the_session_can_forbid_an_engine() {
    let mut facts = query(vec![table("a")]);
    facts.columns_allowed = false;
    assert_eq!(route(&facts).engine, Engine::Rows);
    let mut facts = query(vec![TableFacts { narrow: true, ..table("a") }]);
    facts.rows_allowed = false;
    assert_eq!(route(&facts).engine, Engine::Columns);
    let mut facts = query(vec![TableFacts { available: false, ..table("a") }]);
    facts.rows_allowed = false;
    assert!(route(&facts).refused.is_some());
    let mut facts = query(vec![table("a")]);
    facts.locking = true;
    assert_eq!(route(&facts).engine, Engine::Rows);
}

#[test]
fn allowed_engines_go_by_tidbs_names_too() {
    assert_eq!(allowed("tikv, tidb"), (true, false));
    assert_eq!(allowed("columns"), (false, true));
}

#[test]
fn how_a_table_is_accessed_matters_only_where_both_engines_would_do() {
    let settled =
        |mut facts: QueryFacts| route_without_narrow(&mut facts).map(|route| route.engine);
    assert_eq!(settled(query(vec![table("a")])), None);
    let mut facts = query(vec![table("a"), table("b")]);
    facts.hints.insert("a".into(), Engine::Columns);
    // Columns answer, but what is said of the other table depends on its access.
    assert_eq!(settled(facts.clone()), None);
    facts.hints.insert("b".into(), Engine::Columns);
    assert_eq!(settled(facts), Some(Engine::Columns));
    let mut facts = query(vec![table("a")]);
    facts.rows_allowed = false;
    assert_eq!(settled(facts.clone()), Some(Engine::Columns));
    facts.tables[0].available = false;
    assert_eq!(settled(facts), Some(Engine::Rows));
    assert_eq!(settled(query(vec![TableFacts { replicas: 0, ..table("a") }])), Some(Engine::Rows));
    assert_eq!(settled(query(Vec::new())), Some(Engine::Rows));
}
