//! Where in a document texts are (JSON_SEARCH).

use std::collections::HashSet;
use std::fmt::Write;

use super::Doc;
use super::path::spell_member;

/// The paths of all texts that `matches` likes in some parts of a document, or only of the first.
pub fn search(
    document: &Doc,
    parts: &[&Doc],
    all: bool,
    matches: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let parts = parts.iter().map(|part| std::ptr::from_ref::<Doc>(part)).collect();
    let mut search = Search { parts, all, matches, found: Vec::new() };
    search.visit(document, &mut "$".to_owned(), false);
    search.found
}

struct Search<'a> {
    /// The parts by their addresses: equal values in other places are none of them.
    parts: HashSet<*const Doc>,
    all: bool,
    matches: &'a dyn Fn(&str) -> bool,
    found: Vec<String>,
}

impl Search<'_> {
    fn visit(&mut self, here: &Doc, path: &mut String, inside: bool) {
        let inside = inside || self.parts.contains(&std::ptr::from_ref(here));
        if !self.all && !self.found.is_empty() {
            return;
        }
        let end = path.len();
        match here {
            Doc::String(text) if inside && (self.matches)(text) => self.found.push(path.clone()),
            Doc::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    // Writing to a String cannot fail.
                    _ = write!(path, "[{at}]");
                    self.visit(item, path, inside);
                    path.truncate(end);
                }
            }
            Doc::Object(members) => {
                for (name, value) in members.iter() {
                    spell_member(name, path);
                    self.visit(value, path, inside);
                    path.truncate(end);
                }
            }
            _ => {}
        }
    }
}
