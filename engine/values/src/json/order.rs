//! How documents compare: by kind first (null, numbers, texts, objects, arrays, truth values), then
//! by value.
//!
//! There is one definition, the key: bytes whose order is the order of the documents. Equal
//! documents have equal keys even where their texts differ (1 and 1.0), and only they.

use super::Doc;

const NULL: u8 = 1;
const NUMBER: u8 = 2;
const STRING: u8 = 3;
const OBJECT: u8 = 4;
const ARRAY: u8 = 5;
const BOOLEAN: u8 = 6;
/// Ends an array: less than any kind, so that a front of an array comes before it.
const END: u8 = 0;

/// The bytes that a document sorts by.
pub fn key(document: &Doc) -> Vec<u8> {
    let mut out = Vec::new();
    write(document, &mut out);
    out
}

/// Whether two documents are equal.
pub fn same(a: &Doc, b: &Doc) -> bool {
    match (a, b) {
        (Doc::String(a), Doc::String(b)) => a == b,
        (Doc::Int(a), Doc::Int(b)) => a == b,
        _ => key(a) == key(b),
    }
}

fn write(document: &Doc, out: &mut Vec<u8>) {
    match document {
        Doc::Null => out.push(NULL),
        Doc::Bool(truth) => out.extend([BOOLEAN, u8::from(*truth)]),
        Doc::Int(n) => whole(i128::from(*n), out),
        Doc::UInt(n) => whole(i128::from(*n), out),
        Doc::Double(n) => number(*n, 0, out),
        Doc::String(text) => {
            out.push(STRING);
            bytes(text, out);
        }
        Doc::Array(items) => {
            out.push(ARRAY);
            items.iter().for_each(|item| write(item, out));
            out.push(END);
        }
        Doc::Object(members) => {
            out.push(OBJECT);
            out.extend((members.len() as u64).to_be_bytes());
            for (name, value) in members.iter() {
                out.extend((name.len() as u64).to_be_bytes());
                out.extend(name.as_bytes());
                write(value, out);
            }
        }
    }
}

/// The double nearest to a whole number, and how far that is from it.
fn whole(n: i128, out: &mut Vec<u8>) {
    let near = n as f64;
    number(near, (n - near as i128) as i16, out);
}

/// A double, and what is to be added to it: at most 1024 for numbers of 64 bits.
fn number(near: f64, rest: i16, out: &mut Vec<u8>) {
    // There is one zero.
    let bits = if near == 0.0 { 0 } else { near.to_bits() };
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.push(NUMBER);
    out.extend(ordered.to_be_bytes());
    out.extend((rest.cast_unsigned() ^ 0x8000).to_be_bytes());
}

/// Bytes with an end that is less than any that may follow.
fn bytes(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend([0, 1]);
}

/// Whether a document holds another (JSON_CONTAINS).
pub fn contains(document: &Doc, candidate: &Doc) -> bool {
    match (document, candidate) {
        (Doc::Object(members), Doc::Object(wanted)) => wanted
            .iter()
            .all(|(name, value)| members.get(name).is_some_and(|member| contains(member, value))),
        (Doc::Array(items), Doc::Array(wanted)) => wanted.iter().all(|value| match value {
            Doc::Array(_) => {
                let mut arrays = items.iter().filter(|item| matches!(item, Doc::Array(_)));
                arrays.any(|item| contains(item, value))
            }
            value => items.iter().any(|item| contains(item, value)),
        }),
        (Doc::Array(items), value) => items.iter().any(|item| contains(item, value)),
        (Doc::Object(_), _) => false,
        (scalar, value) => same(scalar, value),
    }
}

/// Whether two documents have an item or a member in common (JSON_OVERLAPS).
pub fn overlaps(a: &Doc, b: &Doc) -> bool {
    match (a, b) {
        (Doc::Object(a), Doc::Object(b)) => {
            a.iter().any(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        (Doc::Array(a), Doc::Array(b)) => {
            let keys: std::collections::HashSet<Vec<u8>> = b.iter().map(key).collect();
            a.iter().any(|item| keys.contains(&key(item)))
        }
        (Doc::Array(items), other) | (other, Doc::Array(items)) => {
            items.iter().any(|item| same(item, other))
        }
        (a, b) => same(a, b),
    }
}
