//! Literals that are not UTF-8: between quotes a client may send any bytes.
//!
//! Only literals are rewritten, each into `_binary X'…'` of the same bytes; a statement
//! that is UTF-8 is never touched. Bytes outside of literals that are no UTF-8 are refused.

use std::borrow::Cow;

use values::error::{SqlResult, wrong_utf8_at};

use crate::dialect::Mysql;

/// The statement as text, quoted as a session's dialect quotes.
pub fn to_text<'a>(sql: &'a [u8], dialect: &Mysql) -> SqlResult<Cow<'a, str>> {
    if let Ok(text) = std::str::from_utf8(sql) {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(sql.len() + 64);
    let backslashes = !dialect.plain_backslashes;
    let literal = |byte: u8| byte == b'\'' || (byte == b'"' && !dialect.ansi_quotes);
    let mut at = 0;
    while let Some(byte) = sql.get(at) {
        let rest = sql.get(at..).unwrap_or_default();
        let end = at
            + match byte {
                byte if literal(*byte) => quoted(rest, *byte, backslashes),
                b'`' | b'"' => quoted(rest, *byte, false),
                b'#' => until(rest, b"\n"),
                b'-' if rest.starts_with(b"-- ") => until(rest, b"\n"),
                b'/' if rest.starts_with(b"/*") && !rest.starts_with(b"/*!") => until(rest, b"*/"),
                _ => plain(rest),
            };
        let piece = sql.get(at..end).unwrap_or_default();
        match std::str::from_utf8(piece) {
            Ok(text) => out.push_str(text),
            Err(_) if literal(*byte) => {
                // What it means is bytes and no number, unless an introducer says what it is.
                out.push_str(if introduced(&out) { " X'" } else { " _binary X'" });
                hexadecimal(piece, backslashes, &mut out);
            }
            // A comment says nothing.
            Err(_) if [&b"#"[..], b"-- ", b"/*"].iter().any(|mark| piece.starts_with(mark)) => {
                out.push(' ');
            }
            Err(error) => {
                let at = at + error.valid_up_to();
                return Err(wrong_utf8_at(at));
            }
        }
        at = end;
    }
    Ok(Cow::Owned(out))
}

/// Length of what stands outside of literals, names and comments; at least one byte.
fn plain(rest: &[u8]) -> usize {
    let special = |byte: &u8| matches!(byte, b'\'' | b'"' | b'`' | b'#' | b'-' | b'/');
    rest.iter().skip(1).position(special).map_or(rest.len(), |at| at + 1)
}

/// Length of a quoted piece with its quotes; all that is left if it does not end.
fn quoted(rest: &[u8], quote: u8, backslashes: bool) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        if *byte == b'\\' && backslashes {
            at += 2;
        } else if *byte != quote {
            at += 1;
        } else if rest.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return at + 1;
        }
    }
    rest.len()
}

fn until(rest: &[u8], end: &[u8]) -> usize {
    let found = rest.windows(end.len()).skip(1).position(|window| window == end);
    found.map_or(rest.len(), |at| at + 1 + end.len())
}

/// Whether a statement ends with the word before a literal that says its character set.
fn introduced(sql: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let before = sql.trim_end();
    let word = before.trim_end_matches(part).len();
    before.get(word..).is_some_and(|word| word.starts_with('_'))
}

/// The rest of the `X'…'` of what a quoted literal means.
fn hexadecimal(literal: &[u8], backslashes: bool, out: &mut String) {
    let Some((quote, inner)) = literal.split_first() else { return };
    let mut bytes = inner.strip_suffix(&[*quote]).unwrap_or(inner).iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let meant = match byte {
            b'\\' if backslashes => match bytes.next() {
                Some(b'0') => 0,
                Some(b'b') => 8,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'Z') => 0x1A,
                // These two keep their backslash, for LIKE.
                Some(kept @ (b'%' | b'_')) => {
                    out.push_str("5C");
                    kept
                }
                Some(other) => other,
                None => b'\\',
            },
            byte if byte == *quote => {
                bytes.next_if_eq(quote);
                byte
            }
            byte => byte,
        };
        out.push_str(&format!("{meant:02X}"));
    }
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &[u8]) -> String {
        to_text(sql, &Mysql::default())
            .map_or_else(|error| format!("{}", error.code), Cow::into_owned)
    }

    #[test]
    fn only_literals_that_are_no_text_are_rewritten() {
        assert_eq!(read("SELECT 'é'".as_bytes()), "SELECT 'é'");
        assert_eq!(
            read(b"SELECT 'a', '\xff\\'\\0''b', 'c'"),
            "SELECT 'a',  _binary X'FF27002762', 'c'"
        );
        assert_eq!(read(b"SELECT _binary\"\xfe\"\"\", `a'b`"), "SELECT _binary X'FE22', `a'b`");
        assert_eq!(read(b"SELECT 1 /* \xff ' */, '\x80'"), "SELECT 1  ,  _binary X'80'");
        assert_eq!(read(b"-- \xff'\nSELECT '\xff'"), " SELECT  _binary X'FF'");
        assert_eq!(read(b"SELECT \xff"), "1300");
        assert_eq!(read(b"SELECT `\xff`"), "1300");
        assert_eq!(read(b"SELECT 1 -\xff"), "1300");
        let plain = Mysql { plain_backslashes: true, ..Mysql::default() };
        let read = to_text(b"SELECT '\\\xff'", &plain);
        assert_eq!(read.unwrap_or_default(), "SELECT  _binary X'5CFF'");
    }
}
