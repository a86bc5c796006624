//! Comments that hold code: `/*!NNNNN … */` of MySQL and `/*T![feature] … */` of TiDB.
//!
//! What is not for us becomes blanks, so that errors name the places of the text that was sent.
//! Quotes and plain comments are passed over: nothing in them is code.

use std::borrow::Cow;

use crate::dialect::Mysql;

/// What we understand, as MySQL's version writes it in comments: those for later ones are not for
/// us. In this one CHECK constraints are enforced, unless such a comment says otherwise.
const VERSION: u32 = 80_016;

/// The text with code out of its comments.
pub fn opened<'a>(sql: &'a str, dialect: &Mysql) -> Cow<'a, str> {
    if !sql.contains("/*!") && !sql.contains("/*T!") {
        return sql.into();
    }
    let bytes = sql.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    // How many comments with code are open: their ends are no code.
    let mut open = 0u32;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let length = match rest {
            [quote @ (b'\'' | b'"' | b'`'), ..] => {
                let name = *quote == b'`' || (*quote == b'"' && dialect.ansi_quotes);
                quoted(rest, *quote, !name && !dialect.plain_backslashes)
            }
            [b'#', ..] => line(rest),
            [b'-', b'-', after, ..] if after.is_ascii_whitespace() => line(rest),
            [b'/', b'*', b'!', ..] | [b'/', b'*', b'T', b'!', ..] => {
                let (length, ours) = header(rest);
                let length = if ours { length } else { comment(rest) };
                open += u32::from(ours);
                blank(&mut out, at, length);
                length
            }
            [b'*', b'/', ..] if open > 0 => {
                open -= 1;
                blank(&mut out, at, 2);
                2
            }
            [b'/', b'*', ..] => comment(rest),
            _ => 1,
        };
        at += length;
    }
    // Only whole comments and their marks were blanked: what is left is UTF-8.
    match String::from_utf8(out) {
        Ok(text) => text.into(),
        Err(_) => sql.into(),
    }
}

fn blank(out: &mut [u8], at: usize, length: usize) {
    let end = (at + length).min(out.len());
    for byte in out.get_mut(at..end).unwrap_or_default() {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// Length of what stands before the code of a comment, and whether it is for us.
fn header(text: &[u8]) -> (usize, bool) {
    let count = |from: usize, wanted: fn(u8) -> bool| {
        text.iter().skip(from).take_while(|byte| wanted(**byte)).count()
    };
    if text.get(2) == Some(&b'T') {
        let feature = match text.get(4) {
            Some(b'[') => count(4, |byte| byte != b']') + 1,
            _ => 0,
        };
        return (4 + feature, true);
    }
    // Five digits or six; fewer are the code's own.
    let digits = count(3, |byte| byte.is_ascii_digit()).min(6);
    if digits < 5 {
        return (3, true);
    }
    let written = text.get(3..3 + digits).and_then(|d| std::str::from_utf8(d).ok());
    let version = written.and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX);
    (3 + digits, version <= VERSION)
}

fn quoted(text: &[u8], quote: u8, escapes: bool) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        at += match byte {
            b'\\' if escapes => 2,
            byte if byte == quote => return at + 1,
            _ => 1,
        };
    }
    text.len()
}

fn line(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1)
}

fn comment(text: &[u8]) -> usize {
    let body = text.get(2..).unwrap_or_default();
    body.windows(2).position(|pair| pair == b"*/").map_or(text.len(), |end| end + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str, expected: &str) {
        let opened = opened(sql, &Mysql::default());
        let words: Vec<&str> = opened.split_whitespace().collect();
        assert_eq!(words.join(" "), expected);
        assert_eq!(opened.len(), sql.len());
    }

    #[test]
    fn code_comes_out_of_comments_for_our_version_and_older_ones() {
        check("SELECT /*! 1 */ + /*!40101 2 */", "SELECT 1 + 2");
        check("SELECT 1 /*!80016 + 1 */ /*!80017 + 2 */ /*!99999 'x' */", "SELECT 1 + 1");
        check("SELECT 1 /*!080017 + 2*/ /*!100000 + 3*/", "SELECT 1");
        check("a /*T! b */ /*T![auto_rand] c(5) */ d", "a b c(5) d");
        check("/*!50001 a /*!80099 b */ c */ d", "a c d");
    }

    #[test]
    fn quotes_and_plain_comments_are_left_alone() {
        for text in ["'/*!40101 x */'", "\"/*T! y */\"", "`/*! z */`", r"'\'/*!1*/'"] {
            check(text, text);
        }
        check("a /* '/*! */ /*! b */", "a /* '/*! */ b");
        check("a -- /*! b\n /*! c */", "a -- /*! b c");
        check("a # /*! b\n c", "a # /*! b c");
    }

    #[test]
    fn what_is_cut_short_is_no_reason_to_panic() {
        for text in ["/*!", "/*T!", "/*T![", "/*!99999", "/*!4 x", "'/*!", "é/*!99999 é"] {
            _ = opened(text, &Mysql::default());
        }
    }
}
