//! Lines of a file for LOAD DATA, cut into fields as MySQL cuts them.
//!
//! It allocates one line at a time and never reads ahead of it.

use crate::statement::LoadData;

/// A field: text, or none for NULL (`\N`, or the bare word NULL where fields are enclosed).
pub type Field = Option<String>;

/// How to cut.
#[derive(Clone, Copy, Debug)]
pub struct Format<'a> {
    /// Between fields; not empty.
    pub separator: &'a [u8],
    /// Behind a line; not empty.
    pub line_end: &'a [u8],
    /// Around a field that may hold any of these.
    pub quote: Option<u8>,
    /// Before a byte that is meant as it is.
    pub escape: Option<u8>,
}

impl<'a> Format<'a> {
    /// The format that a statement describes.
    pub fn new(load: &'a LoadData) -> Self {
        Format {
            separator: load.separator.as_bytes(),
            line_end: load.line_end.as_bytes(),
            quote: load.quote,
            escape: load.escape,
        }
    }
}

/// One record and the line of the file that it begins on, from 1.
pub struct Record {
    /// Line.
    pub line: usize,
    /// Fields; `Err` names the field, from 1, that is not UTF-8.
    pub fields: Result<Vec<Field>, usize>,
}

/// The records of a file.
pub struct Records<'a> {
    rest: &'a [u8],
    line: usize,
    format: Format<'a>,
}

impl<'a> Records<'a> {
    /// Records from the beginning.
    pub fn new(file: &'a [u8], format: Format<'a>) -> Self {
        Records { rest: file, line: 1, format }
    }

    /// What has not been read yet. A record that reaches the end of a piece of a file may not be
    /// whole.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn field(&mut self) -> (Vec<u8>, bool, bool) {
        let enclosed =
            self.format.quote.is_some() && self.rest.first().copied() == self.format.quote;
        if enclosed {
            self.rest = &self.rest[1..];
        }
        let mut bytes = Vec::new();
        let mut null = false;
        loop {
            let Some((byte, after)) = self.rest.split_first() else {
                return (bytes, enclosed, null);
            };
            if Some(*byte) == self.format.escape
                && let Some((escaped, after)) = after.split_first()
            {
                null |= !enclosed && bytes.is_empty() && *escaped == b'N';
                bytes.push(unescaped(*escaped));
                self.rest = after;
                continue;
            }
            if enclosed && Some(*byte) == self.format.quote {
                if after.first().copied() == self.format.quote {
                    bytes.push(*byte);
                    self.rest = &after[1..];
                    continue;
                }
                let ends = after.is_empty()
                    || after.starts_with(self.format.separator)
                    || after.starts_with(self.format.line_end);
                if ends {
                    self.rest = after;
                    return (bytes, enclosed, null);
                }
            }
            let ends = !enclosed
                && (self.rest.starts_with(self.format.separator)
                    || self.rest.starts_with(self.format.line_end));
            if ends {
                return (bytes, enclosed, null);
            }
            self.line += usize::from(*byte == b'\n');
            bytes.push(*byte);
            self.rest = after;
        }
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'0' => 0,
        b'b' => 8,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'Z' => 26,
        other => other,
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let mut fields = Vec::new();
        let mut bad = None;
        loop {
            let (bytes, enclosed, null) = self.field();
            let is_null = (null && bytes == b"N")
                || (!enclosed && self.format.quote.is_some() && bytes == b"NULL");
            match String::from_utf8(bytes) {
                Ok(text) => fields.push(if is_null { None } else { Some(text) }),
                Err(_) => _ = bad.get_or_insert(fields.len() + 1),
            }
            // A line may end in what also separates fields, as in `|\n`: the longer reading wins.
            if let Some(rest) = self.rest.strip_prefix(self.format.line_end) {
                self.line += self.format.line_end.iter().filter(|byte| **byte == b'\n').count();
                self.rest = rest;
            } else if let Some(rest) = self.rest.strip_prefix(self.format.separator) {
                self.rest = rest;
                continue;
            }
            break;
        }
        Some(Record {
            line,
            fields: match bad {
                Some(at) => Err(at),
                None => Ok(fields),
            },
        })
    }
}
