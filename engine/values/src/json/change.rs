//! Documents changed at a path, and merged.
//!
//! Paths must be plain ([`Path::is_plain`]); a step that is not leads nowhere.

use super::path::Leg;
use super::{Doc, Object, Path};

/// What a write does with a value that is there, and with one that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Replaces the one, adds the other.
    Set,
    /// Adds only.
    Insert,
    /// Replaces only.
    Replace,
}

fn find_mut<'a>(legs: &[Leg], document: &'a mut Doc) -> Option<&'a mut Doc> {
    let mut here = document;
    for leg in legs {
        here = match (leg, here) {
            (Leg::Member(name), Doc::Object(members)) => members.get_mut(name)?,
            (Leg::Cell(index), Doc::Array(items)) => {
                let at = index.within(items.len())?;
                items.get_mut(at)?
            }
            // Anything else is an array of itself.
            (Leg::Cell(index), other) => index.within(1).map(|_| other)?,
            _ => return None,
        };
    }
    Some(here)
}

/// Writes a value at a path. Nothing is added where what should hold it is not there.
pub fn put(document: &mut Doc, path: &Path, value: Doc, mode: Mode) {
    if let Some(found) = find_mut(path.legs(), document) {
        if mode != Mode::Insert {
            *found = value;
        }
        return;
    }
    let Some((last, front)) = path.legs().split_last().filter(|_| mode != Mode::Replace) else {
        return;
    };
    match (last, find_mut(front, document)) {
        (Leg::Member(name), Some(Doc::Object(members))) => members.set(name.clone(), value),
        (Leg::Cell(index), Some(Doc::Array(items))) => {
            items.insert(index.place(items.len()), value);
        }
        (Leg::Cell(index), Some(other)) => {
            let mut items = vec![std::mem::replace(other, Doc::Null)];
            items.insert(index.place(1), value);
            *other = Doc::Array(items);
        }
        _ => {}
    }
}

/// Takes the value at a path out, if it is there.
pub fn remove(document: &mut Doc, path: &Path) {
    let Some((last, front)) = path.legs().split_last() else { return };
    match (last, find_mut(front, document)) {
        (Leg::Member(name), Some(Doc::Object(members))) => {
            members.remove(name);
        }
        (Leg::Cell(index), Some(Doc::Array(items))) => {
            if let Some(at) = index.within(items.len()) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

/// Appends a value to the array at a path; anything else there becomes an array first.
pub fn append(document: &mut Doc, path: &Path, value: Doc) {
    match find_mut(path.legs(), document) {
        Some(Doc::Array(items)) => items.push(value),
        Some(other) => {
            let old = std::mem::replace(other, Doc::Null);
            *other = Doc::Array(vec![old, value]);
        }
        None => {}
    }
}

/// Puts a value into an array before what stands at the path, or at the end that it lies beyond.
pub fn insert_cell(document: &mut Doc, path: &Path, value: Doc) {
    let Some((Leg::Cell(index), front)) = path.legs().split_last() else { return };
    if let Some(Doc::Array(items)) = find_mut(front, document) {
        items.insert(index.place(items.len()), value);
    }
}

/// RFC 7396: members of the patch replace those of the document, `null` takes them out.
pub fn merge_patch(document: Doc, patch: Doc) -> Doc {
    let Doc::Object(patch) = patch else { return patch };
    let members = match document {
        Doc::Object(members) => members,
        _ => Object::default(),
    };
    Doc::Object(members.combined(patch, |old, new| match new {
        Doc::Null => None,
        new => Some(merge_patch(old.unwrap_or(Doc::Null), new)),
    }))
}

/// Both documents: objects member by member, anything else as one array.
pub fn merge_preserve(first: Doc, second: Doc) -> Doc {
    match (first, second) {
        (Doc::Object(first), Doc::Object(second)) => {
            Doc::Object(first.combined(second, |old, new| {
                Some(match old {
                    Some(old) => merge_preserve(old, new),
                    None => new,
                })
            }))
        }
        (first, second) => {
            let mut items = items_of(first);
            items.extend(items_of(second));
            Doc::Array(items)
        }
    }
}

fn items_of(document: Doc) -> Vec<Doc> {
    match document {
        Doc::Array(items) => items,
        other => vec![other],
    }
}
