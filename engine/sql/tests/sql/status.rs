//! The page of all status variables, `docs/reference/status.md`: made from the table, and compared with it; and SHOW
//! STATUS, which lists the same.
//!
//! `UPDATE_DOCS=1 cargo test -p isobar-sql --test sql status_variables_are_listed` writes the page.

use std::fmt::Write;
use std::path::Path;

use sql::session::status::{About, STATUS, StatusVariable};

use super::harness::{engine, rows, session};

const HEAD: &str = "\
# Status variables

Every variable that `SHOW STATUS` lists: for who wonders how a query was answered, or watches a SQL node. `SHOW SESSION
STATUS` and `SHOW GLOBAL STATUS` list the same.

What is about the *last query* is about the session's last one that has begun to answer: a query that fails before its first
row leaves it as it was, and in a new session all are empty. [Routing](routing-and-hints.md#how-the-last-query-was-answered)
has an example. What is about the *node* is about the SQL node that answers, since it started.

What a query is bound to is kept for others that differ in nothing but the numbers and texts that they compare with in
`WHERE` and `ON`, sent as text or prepared, by any session of the node: `Isobar_bound_queries_…` count that.

Made from the table in `engine/sql/src/session/admin/status.rs`: change that, and run
`UPDATE_DOCS=1 cargo test -p isobar-sql --test sql status_variables_are_listed`.

| name | about | what it says |
|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for StatusVariable { name, about, meaning, .. } in STATUS {
        let about = match about {
            About::LastQuery => "last query",
            About::Node => "node",
        };
        _ = writeln!(page, "| `{name}` | {about} | {meaning} |");
    }
    page
}

#[test]
fn status_variables_are_listed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/status.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listed, page(), "write {} anew: UPDATE_DOCS=1", path.display());
}

#[test]
fn every_status_variable_says_what_it_is() {
    for StatusVariable { name, meaning, .. } in STATUS {
        assert!(meaning.ends_with('.'), "{name}: {meaning}");
    }
    assert!(STATUS.is_sorted_by_key(|variable| variable.name));
}

#[tokio::test]
async fn show_status_lists_the_same() {
    let mut session = session(&engine());
    let shown = rows(&mut session, "SHOW STATUS").await.unwrap();
    let names: Vec<&str> = shown.iter().filter_map(|row| row.split('|').next()).collect();
    let known: Vec<&str> = STATUS.iter().map(|variable| variable.name).collect();
    assert_eq!(names, known);
    for line in ["Questions|2", "Threads_connected|0", "Uptime|1"] {
        assert!(shown.iter().any(|row| row == line), "{line}: {shown:?}");
    }
}
