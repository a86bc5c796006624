//! Paths into a document: `$.a[0]`, `$.*`, `$[last-1]`, `$[0 to 2]`, `$**.b`.
//!
//! Read from what clients send. A step costs no more than the document has values, however many
//! `**` a path has.

use std::collections::HashSet;

use super::{Doc, parse, quote};

/// A path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    legs: Vec<Leg>,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leg {
    /// `.name`
    Member(String),
    /// `.*`
    AnyMember,
    /// `[n]`
    Cell(Index),
    /// `[*]`
    AnyCell,
    /// `[m to n]`
    Range(Index, Index),
    /// `**`
    Ellipsis,
}

/// A place in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// So many from the front.
    First(usize),
    /// So many from the back.
    Last(usize),
}

impl Index {
    /// Where it is in an array of a length; beyond it that is the end that it lies beyond.
    pub fn place(self, length: usize) -> usize {
        match self {
            Index::First(n) => n.min(length),
            Index::Last(n) => length.saturating_sub(n + 1),
        }
    }

    /// Where it is, if it is there.
    pub fn within(self, length: usize) -> Option<usize> {
        match self {
            Index::First(n) => Some(n).filter(|n| *n < length),
            Index::Last(n) => length.checked_sub(n + 1),
        }
    }
}

/// Where a text stops being a path, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPath(pub usize);

/// Largest index, as MySQL's.
const MOST: u64 = u32::MAX as u64;

impl Path {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<Path, BadPath> {
        let mut scanner = Scanner { text, at: 0 };
        let legs = scanner.path();
        let bad = |at: usize| BadPath(text.get(..at).map_or(at, |front| front.chars().count()));
        Ok(Path { legs: legs.map_err(bad)? })
    }

    /// Whether it leads to one value at most.
    pub fn is_plain(&self) -> bool {
        self.legs.iter().all(|leg| matches!(leg, Leg::Member(_) | Leg::Cell(_)))
    }

    /// Whether it is `$`.
    pub fn is_root(&self) -> bool {
        self.legs.is_empty()
    }

    /// Whether its last step is into an array.
    pub fn ends_in_cell(&self) -> bool {
        matches!(self.legs.last(), Some(Leg::Cell(_)))
    }

    pub(super) fn legs(&self) -> &[Leg] {
        &self.legs
    }

    /// All values that it leads to, in the document's order.
    pub fn find<'a>(&self, document: &'a Doc) -> Vec<&'a Doc> {
        let mut found = vec![document];
        for leg in &self.legs {
            let mut next = Vec::new();
            found.into_iter().for_each(|from| leg.step(from, &mut next));
            // Only `**` leads to a value by more than one way; others behind it do so, too.
            if !self.is_plain() {
                let mut seen = HashSet::new();
                next.retain(|value| seen.insert(std::ptr::from_ref::<Doc>(value)));
            }
            found = next;
        }
        found
    }
}

impl Leg {
    fn step<'a>(&self, from: &'a Doc, next: &mut Vec<&'a Doc>) {
        match (self, from) {
            (Leg::Member(name), Doc::Object(members)) => next.extend(members.get(name)),
            (Leg::AnyMember, Doc::Object(members)) => {
                next.extend(members.iter().map(|(_, value)| value));
            }
            (Leg::Cell(index), Doc::Array(items)) => {
                next.extend(index.within(items.len()).and_then(|at| items.get(at)));
            }
            // Anything else is an array of itself.
            (Leg::Cell(index), other) => next.extend(index.within(1).map(|_| other)),
            (Leg::AnyCell, Doc::Array(items)) => next.extend(items),
            (Leg::Range(from, to), Doc::Array(items)) => {
                let (start, end) = bounds(*from, *to, items.len());
                next.extend(items.get(start..end).unwrap_or_default());
            }
            (Leg::Range(from, to), other) => {
                let (start, end) = bounds(*from, *to, 1);
                next.extend((start < end).then_some(other));
            }
            (Leg::Ellipsis, from) => everything(from, next),
            _ => {}
        }
    }
}

/// First and last but one place of a range.
fn bounds(from: Index, to: Index, length: usize) -> (usize, usize) {
    let end = match to {
        Index::First(n) => n.saturating_add(1).min(length),
        Index::Last(n) => length.saturating_sub(n),
    };
    (from.place(length), end)
}

/// A value and all that is in it, the outer before the inner.
fn everything<'a>(from: &'a Doc, next: &mut Vec<&'a Doc>) {
    next.push(from);
    match from {
        Doc::Array(items) => items.iter().for_each(|item| everything(item, next)),
        Doc::Object(members) => members.iter().for_each(|(_, value)| everything(value, next)),
        _ => {}
    }
}

/// Appends a step to a member, as MySQL spells it.
pub(super) fn spell_member(name: &str, out: &mut String) {
    out.push('.');
    if is_name(name) { out.push_str(name) } else { quote(name, out) }
}

/// Whether a name needs no quotes in a path.
fn is_name(name: &str) -> bool {
    let starts = |c: char| c.is_alphabetic() || matches!(c, '_' | '$');
    let goes_on =
        |c: char| starts(c) || c.is_alphanumeric() || matches!(c, '\u{200c}' | '\u{200d}');
    let mut characters = name.chars();
    characters.next().is_some_and(starts) && characters.all(goes_on)
}

struct Scanner<'a> {
    text: &'a str,
    /// Always between two characters.
    at: usize,
}

/// A result, or the byte that is wrong.
type Scanned<T> = Result<T, usize>;

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn take(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        self.at += if found { what.len() } else { 0 };
        found
    }

    fn path(&mut self) -> Scanned<Vec<Leg>> {
        self.blanks();
        if !self.take("$") {
            return Err((self.at + 1).min(self.text.len()));
        }
        let mut legs = Vec::new();
        loop {
            self.blanks();
            if self.rest().is_empty() {
                break;
            }
            legs.push(self.leg()?);
        }
        // What `**` stands before is what it looks for.
        if legs.last() == Some(&Leg::Ellipsis) { Err(self.at) } else { Ok(legs) }
    }

    fn leg(&mut self) -> Scanned<Leg> {
        if self.take("**") {
            return if self.rest().starts_with('*') { Err(self.at) } else { Ok(Leg::Ellipsis) };
        }
        if self.take(".") {
            self.blanks();
            return if self.take("*") { Ok(Leg::AnyMember) } else { self.member() };
        }
        if self.take("[") { self.cell() } else { Err(self.at) }
    }

    fn member(&mut self) -> Scanned<Leg> {
        let rest = self.rest();
        if rest.starts_with('"') {
            let end = closing_quote(rest).ok_or(self.at)?;
            let quoted = rest.get(..end).unwrap_or_default();
            let Ok(Doc::String(name)) = parse(quoted) else { return Err(self.at) };
            self.at += end;
            return Ok(Leg::Member(name));
        }
        let end = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '.' | '[' | '*');
        let name = rest.split(end).next().unwrap_or_default();
        if !is_name(name) {
            return Err(self.at);
        }
        self.at += name.len();
        Ok(Leg::Member(name.to_owned()))
    }

    fn cell(&mut self) -> Scanned<Leg> {
        self.blanks();
        let leg = if self.take("*") {
            Leg::AnyCell
        } else {
            let from = self.index()?;
            self.blanks();
            if self.take("to") { self.range(from)? } else { Leg::Cell(from) }
        };
        self.blanks();
        if self.take("]") { Ok(leg) } else { Err(self.at) }
    }

    fn range(&mut self, from: Index) -> Scanned<Leg> {
        self.blanks();
        let to = self.index()?;
        let backwards = match (from, to) {
            (Index::First(from), Index::First(to)) => from > to,
            (Index::Last(from), Index::Last(to)) => from < to,
            _ => false,
        };
        if backwards { Err(self.at) } else { Ok(Leg::Range(from, to)) }
    }

    fn index(&mut self) -> Scanned<Index> {
        if !self.take("last") {
            return Ok(Index::First(self.number()?));
        }
        self.blanks();
        if !self.take("-") {
            return Ok(Index::Last(0));
        }
        self.blanks();
        Ok(Index::Last(self.number()?))
    }

    fn number(&mut self) -> Scanned<usize> {
        let rest = self.rest();
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let n = rest.get(..digits).and_then(|digits| digits.parse::<u64>().ok());
        let n = n.filter(|n| *n <= MOST).ok_or(self.at)?;
        self.at += digits;
        usize::try_from(n).map_err(|_| self.at)
    }
}

/// Behind the quote that ends what the first one of a text begins.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}
