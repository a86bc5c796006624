//! The page of all system variables, `docs/reference/variables.md`: made from the table, and compared with it.
//!
//! `UPDATE_DOCS=1 cargo test -p isobar-values variables_are_listed` writes it.

use std::fmt::Write;
use std::path::Path;

use super::{Scope, VARIABLES, Variable};

const HEAD: &str = "\
# System variables

Every variable that `SHOW VARIABLES` lists: for who sets one, or wonders what a client has set.

`SET name = …` is for the session, `SET GLOBAL name = …` for sessions that begin from then on, where the table says
*both*; what is *everybody*'s is set by `SET GLOBAL` alone and is the same for all sessions at once. *Fixed* is what nobody
can set. Any other name is error 1193.

Made from the table in `engine/values/src/variables/mod.rs`: change that, and run
`UPDATE_DOCS=1 cargo test -p isobar-values variables_are_listed`.

| name | at first | set for | what it does |
|---|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for variable in VARIABLES {
        let Variable { name, default, scope, effect } = variable;
        let scope = match scope {
            Scope::Fixed => "fixed",
            Scope::Session => "session",
            Scope::Both => "both",
            Scope::Everybody => "everybody",
        };
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        let default = default.replace(',', ", ");
        _ = writeln!(page, "| `{name}` | {default} | {scope} | {effect} |");
    }
    page
}

#[test]
fn variables_are_listed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/variables.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listed, page(), "write {} anew: UPDATE_DOCS=1", path.display());
}

#[test]
fn variables_stand_in_order() {
    let sorted = VARIABLES.windows(2).all(|pair| match pair {
        [one, other] => one.name < other.name,
        _ => true,
    });
    assert!(sorted);
}
