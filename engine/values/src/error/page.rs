//! The page of all errors, `docs/reference/errors.md`: made from the table, and compared with it.
//!
//! `UPDATE_DOCS=1 cargo test -p isobar-values` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::{
    accounts, cluster, connections, data, definitions, foreign_keys, json, names, queries, sessions,
};

/// An error as the table has it.
pub(super) struct Known {
    /// MySQL's number.
    pub number: u16,
    /// SQLSTATE.
    pub state: &'static str,
    /// The message, with its arguments in braces.
    pub message: &'static str,
    /// When it is raised.
    pub when: &'static str,
}

const SUBJECTS: [(&str, &[Known]); 10] = [
    ("Names", names::TABLE),
    ("Statements", queries::TABLE),
    ("Definitions", definitions::TABLE),
    ("Foreign keys", foreign_keys::TABLE),
    ("Values", data::TABLE),
    ("JSON", json::TABLE),
    ("Accounts and privileges", accounts::TABLE),
    ("Sessions", sessions::TABLE),
    ("Connections", connections::TABLE),
    ("The cluster", cluster::TABLE),
];

const HEAD: &str = "\
# Errors

Every error and warning that a MySQL client of Isobar can get, for who looks one up or handles it in a program.

The numbers and SQLSTATEs are MySQL's own, and so are most messages; those from 8000 on are of this cluster. Words in
braces stand for what a message names. After 1213 the transaction was rolled back: run it again. After 8501 nobody knows
whether the commit was carried out: look before you repeat it. A Flight client gets codes of its own
(`ISOBAR-UNAVAILABLE: …`), which the same number and message may follow.

Made from the table in `engine/values/src/error/`: change that, and run
`UPDATE_DOCS=1 cargo test -p isobar-values errors_are_listed`.
";

fn all() -> impl Iterator<Item = &'static Known> {
    SUBJECTS.iter().flat_map(|(_, table)| table.iter())
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (subject, table) in SUBJECTS {
        _ = write!(
            page,
            "\n## {subject}\n\n| number | state | message | when |\n|---|---|---|---|\n"
        );
        let mut sorted: Vec<&Known> = table.iter().collect();
        sorted.sort_by_key(|known| known.number);
        for Known { number, state, message, when } in sorted {
            let (message, when) = (cell(message), cell(when));
            // A message may hold backticks itself.
            let quote = if message.contains('`') { "``" } else { "`" };
            let blank = if message.starts_with('`') { " " } else { "" };
            _ = writeln!(page, "| {number} | {state} | {quote}{blank}{message}{quote} | {when} |");
        }
    }
    page
}

#[test]
fn errors_are_listed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, page()).unwrap();
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listed, page(), "write {} anew: UPDATE_DOCS=1", path.display());
}

#[test]
fn one_number_has_one_state() {
    let mut states = BTreeMap::new();
    for known in all() {
        let state = states.entry(known.number).or_insert(known.state);
        assert_eq!(*state, known.state, "error {}", known.number);
        assert!(known.state.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()));
    }
}

#[test]
fn no_error_stands_there_twice() {
    let mut met = BTreeSet::new();
    for known in all() {
        assert!(met.insert((known.number, known.message)), "{} {}", known.number, known.message);
    }
}
