//! The page of all optimizer hints, `docs/reference/hints.md`: made from the table, and compared with it.
//!
//! `UPDATE_DOCS=1 cargo test -p isobar-syntax hints_are_listed` writes it.

use std::fmt::Write;
use std::path::Path;

use super::{ENGINES, Effect, Engine, HINTS, Hint, parse};

const HEAD: &str = "\
# Optimizer hints

Every hint that a comment `/*+ … */` right behind SELECT may hold: for who chooses an engine for a query, or brings
queries that were written for MySQL or TiDB. When to choose one: [routing and hints](routing-and-hints.md#choosing).

Several hints stand in one comment, with blanks or commas between them, in upper or lower case. The first text that is none
of these hints is reported with all that follows it in the comment (warning 1064), is not followed, and does not fail
the statement. Behind INSERT, REPLACE, UPDATE and DELETE `RESOURCE_GROUP` is followed and no other; what is no hint is
reported there, too.

Made from the table in `engine/syntax/src/hints/known.rs`: change that, and run
`UPDATE_DOCS=1 cargo test -p isobar-syntax hints_are_listed`.
";

const IDLE: &str = "\
Hints of MySQL 8.0 that choose among plans with the same rows. Isobar makes its plans without them. `SET_VAR` is not
among them: whoever writes it counts on its effect, so it is reported.
";

/// A row for each hint of one kind.
fn rows(page: &mut String, followed: bool) {
    for hint in HINTS.iter().filter(|hint| (hint.effect != Effect::PlanChoice) == followed) {
        let Hint { name, arguments, meaning, .. } = hint;
        _ = writeln!(page, "| `{name}({arguments})` | {meaning} |");
    }
}

/// The names of an engine: `A`, `B` or `C`.
fn names(engine: Engine) -> String {
    let names = ENGINES.iter().filter(|(_, other)| *other == engine);
    let names: Vec<String> = names.map(|(name, _)| format!("`{name}`")).collect();
    let (last, others) = names.split_last().unwrap();
    format!("{} or {last}", others.join(", "))
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Followed\n\n| hint | what it asks for |\n|---|---|\n");
    rows(&mut page, true);
    let (columns, rows_too) = (names(Engine::Columns), names(Engine::Rows));
    _ = writeln!(page, "\nAn engine is {columns} for columns, {rows_too} for rows.");
    _ = write!(page, "\n## Taken, without effect\n\n{IDLE}");
    page.push_str("\n| hint | what it asks MySQL for |\n|---|---|\n");
    rows(&mut page, false);
    page
}

#[test]
fn hints_are_listed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/hints.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listed, page(), "write {} anew: UPDATE_DOCS=1", path.display());
}

#[test]
fn every_hint_says_what_it_asks_for_and_is_taken() {
    for Hint { name, effect, meaning, .. } in HINTS {
        assert!(meaning.ends_with('.'), "{name}: {meaning}");
        let arguments = match effect {
            Effect::Engines => "ROWS[t]",
            Effect::Milliseconds => "7",
            Effect::Group => "rg",
            Effect::PlanChoice => "t",
        };
        let text = format!("{}({arguments})", name.to_lowercase());
        assert_eq!(parse(&text).unknown, None, "{name}");
    }
}

#[test]
fn hints_stand_in_order() {
    let idle: Vec<&str> = HINTS
        .iter()
        .skip_while(|hint| hint.effect != Effect::PlanChoice)
        .map(|hint| hint.name)
        .collect();
    assert!(idle.is_sorted(), "{idle:?}");
    assert_eq!(HINTS.len() - idle.len(), 3, "those that are followed come first");
}
