//! JSON documents: what one is, and the one text that each has.
//!
//! A stored document is always in normal form, so that a document has one text only. Everything in
//! this module is pure: no Arrow, no planner, no session. Nothing here may hand out a text that is no
//! valid JSON, or read one otherwise than it is written: numbers keep every bit, which is why the
//! texts are read here and not by serde_json (its doubles of 17 digits may be one unit off, and a
//! document that is read and written again and again would drift).

mod change;
mod order;
mod path;
mod read;
mod search;

use std::cmp::Ordering;
use std::fmt::Write;

pub use change::{Mode, append, insert_cell, merge_patch, merge_preserve, put, remove};
pub use order::{contains, key, overlaps, same};
pub use path::{BadPath, Path};
pub use read::parse;
pub use search::search;

/// Most levels of a document; a scalar has one.
pub const DEEPEST: usize = 100;

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub enum Doc {
    /// `null`, which is a value and not SQL's NULL.
    Null,
    /// `true` and `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond the signed ones.
    UInt(u64),
    /// Any other number; never NaN or infinite.
    Double(f64),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Doc>),
    /// Members by name.
    Object(Object),
}

/// Why a text is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no JSON: what is wrong, and behind how many bytes.
    Text(&'static str, usize),
    /// It has more levels than [`DEEPEST`].
    TooDeep,
}

/// The members of an object, each name once, in the order of the normal form: shorter names first,
/// names of one length by their bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(Vec<(String, Doc)>);

fn order_of_names(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

impl Object {
    /// An object of these members; of several with one name the last one stays.
    pub fn new(mut members: Vec<(String, Doc)>) -> Self {
        members.sort_by(|(a, _), (b, _)| order_of_names(a, b));
        members.dedup_by(|later, earlier| {
            let twice = later.0 == earlier.0;
            if twice {
                std::mem::swap(later, earlier);
            }
            twice
        });
        Object(members)
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| order_of_names(known, name))
    }

    /// The member of a name.
    pub fn get(&self, name: &str) -> Option<&Doc> {
        let at = self.find(name).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The member of a name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Doc> {
        let at = self.find(name).ok()?;
        self.0.get_mut(at).map(|(_, value)| value)
    }

    /// Adds a member, or replaces the one of its name.
    pub fn set(&mut self, name: String, value: Doc) {
        match self.find(&name) {
            Ok(at) => {
                if let Some((_, old)) = self.0.get_mut(at) {
                    *old = value;
                }
            }
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    /// Takes the member of a name out.
    pub fn remove(&mut self, name: &str) -> Option<Doc> {
        let at = self.find(name).ok()?;
        Some(self.0.remove(at).1)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All members, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Doc)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The members of two objects; `met` says what becomes of one that `other` has, from what this
    /// one has of that name.
    fn combined(self, other: Object, met: impl Fn(Option<Doc>, Doc) -> Option<Doc>) -> Object {
        let mut known: Vec<(String, Option<Doc>)> =
            self.0.into_iter().map(|(name, value)| (name, Some(value))).collect();
        let mut added = Vec::new();
        for (name, value) in other.0 {
            match known.binary_search_by(|(known, _)| order_of_names(known, &name)) {
                Ok(at) => {
                    if let Some((_, slot)) = known.get_mut(at) {
                        *slot = met(slot.take(), value);
                    }
                }
                Err(_) => added.extend(met(None, value).map(|value| (name, value))),
            }
        }
        let kept = known.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Object::new(kept.chain(added).collect())
    }
}

impl Doc {
    /// The text in normal form: members in order, one blank behind `,` and `:`.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Doc::Null => out.push_str("null"),
            Doc::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            // Writing to a String cannot fail.
            Doc::Int(n) => _ = write!(out, "{n}"),
            Doc::UInt(n) => _ = write!(out, "{n}"),
            Doc::Double(n) => out.push_str(&double(*n)),
            Doc::String(text) => quote(text, out),
            Doc::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { ", " });
                    item.write(out);
                }
                out.push(']');
            }
            Doc::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { ", " });
                    quote(name, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The text over several lines, two blanks for each level (JSON_PRETTY).
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write_pretty(0, &mut out);
        out
    }

    fn write_pretty(&self, level: usize, out: &mut String) {
        let line = |level: usize, out: &mut String| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", level));
        };
        match self {
            Doc::Array(items) if !items.is_empty() => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    line(level + 1, out);
                    item.write_pretty(level + 1, out);
                }
                line(level, out);
                out.push(']');
            }
            Doc::Object(members) if !members.is_empty() => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    line(level + 1, out);
                    quote(name, out);
                    out.push_str(": ");
                    value.write_pretty(level + 1, out);
                }
                line(level, out);
                out.push('}');
            }
            other => other.write(out),
        }
    }

    /// What MySQL calls its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Doc::Null => "NULL",
            Doc::Bool(_) => "BOOLEAN",
            Doc::Int(_) => "INTEGER",
            Doc::UInt(_) => "UNSIGNED INTEGER",
            Doc::Double(_) => "DOUBLE",
            Doc::String(_) => "STRING",
            Doc::Array(_) => "ARRAY",
            Doc::Object(_) => "OBJECT",
        }
    }

    /// How many levels it has.
    pub fn depth(&self) -> usize {
        let deepest = match self {
            Doc::Array(items) => items.iter().map(Doc::depth).max(),
            Doc::Object(members) => members.iter().map(|(_, value)| value.depth()).max(),
            _ => None,
        };
        1 + deepest.unwrap_or(0)
    }

    /// How many items or members it has; a scalar is one.
    pub fn length(&self) -> usize {
        match self {
            Doc::Array(items) => items.len(),
            Doc::Object(members) => members.len(),
            _ => 1,
        }
    }

    /// As text without quotes: a text itself, anything else in normal form.
    pub fn unquoted(self) -> String {
        match self {
            Doc::String(text) => text,
            other => other.text(),
        }
    }
}

/// MySQL's spelling of a double, which always shows that it is one.
fn double(n: f64) -> String {
    let size = n.abs();
    if n != 0.0 && !(1e-15..1e15).contains(&size) {
        return format!("{n:e}");
    }
    let text = format!("{n}");
    if text.contains('.') { text } else { format!("{text}.0") }
}

/// Appends a text in quotes.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A text in normal form.
pub fn normal(text: &str) -> Result<String, Fault> {
    Ok(parse(text)?.text())
}

/// For fuzzers: arbitrary text as a document and as a path, one applied to the other. Reaching the
/// end without a panic, in normal form, is all that is asked.
pub fn fuzz_json(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (front, back) = text.split_once('\n').unwrap_or((&text, &text));
    let (document, path) = (parse(back), Path::parse(front));
    if let Ok(document) = &document {
        let normal = document.text();
        assert_eq!(parse(&normal).map(|again| again.text()), Ok(normal));
        if let Ok(path) = path {
            let found = path.find(document).len();
            let mut changed = document.clone();
            if path.is_plain() {
                put(&mut changed, &path, Doc::Null, Mode::Set);
                append(&mut changed, &path, Doc::Bool(true));
                remove(&mut changed, &path);
            }
            assert!(found <= 1 || !path.is_plain());
        }
    }
}

#[cfg(test)]
mod tests;
