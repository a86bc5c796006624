//! Splits the text of a query into its statements.
//!
//! Knows MySQL's quotes and comments, and nothing else of SQL. The pieces are parts of the input:
//! not a byte is changed.

/// Returns the statements of a text, without their semicolons; pieces that hold only blanks and
/// comments are left out, so `SELECT 1;` is one statement and an empty text none.
///
/// `backslash_escapes` is off under sql_mode NO_BACKSLASH_ESCAPES.
///
/// A text that ends with a zero, as mysqlslap sends it, is one without, as for MySQL.
pub fn split(text: &[u8], backslash_escapes: bool) -> Vec<&[u8]> {
    let mut statements = Vec::new();
    let mut rest = text.strip_suffix(b"\0").unwrap_or(text);
    while !rest.is_empty() {
        let (length, matters) = statement_length(rest, backslash_escapes);
        let (statement, tail) = rest.split_at(length);
        if matters {
            statements.push(statement.trim_ascii());
        }
        rest = tail.strip_prefix(b";").unwrap_or(tail);
    }
    statements
}

/// Bytes before the semicolon that ends the first statement, and whether it is one.
fn statement_length(text: &[u8], backslash_escapes: bool) -> (usize, bool) {
    let mut matters = false;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (step, blank) = match rest {
            [b';', ..] => return (at, matters),
            [quote @ (b'\'' | b'"' | b'`'), ..] => {
                (quoted_length(rest, *quote, backslash_escapes && *quote != b'`'), false)
            }
            [b'#', ..] => (line_length(rest), true),
            [b'-', b'-'] => (2, true),
            [b'-', b'-', after, ..] if after.is_ascii_whitespace() || after.is_ascii_control() => {
                (line_length(rest), true)
            }
            // `/*!` and `/*+` hold code; a piece with nothing else is still a statement.
            [b'/', b'*', after, ..] => (comment_length(rest), !matches!(after, b'!' | b'+' | b'T')),
            [b'/', b'*'] => (2, true),
            [byte, ..] => (1, byte.is_ascii_whitespace()),
            [] => break,
        };
        matters |= !blank;
        at += step;
    }
    (text.len(), matters)
}

/// Length of a quoted piece that begins here, up to the end of the text if it is not closed.
/// A doubled quote inside reads as two quoted pieces in a row, which comes to the same.
fn quoted_length(text: &[u8], quote: u8, backslash_escapes: bool) -> usize {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        at += match byte {
            b'\\' if backslash_escapes => 2,
            byte if byte == quote => return at + 1,
            _ => 1,
        };
    }
    text.len()
}

/// Length of the rest of a line, its end included.
fn line_length(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1)
}

/// Length of a `/* … */` comment that begins here, up to the end of the text if not closed.
fn comment_length(text: &[u8]) -> usize {
    let body = text.get(2..).unwrap_or_default();
    body.windows(2).position(|pair| pair == b"*/").map_or(text.len(), |end| end + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let expected: Vec<&[u8]> = expected.iter().map(|piece| piece.as_bytes()).collect();
        assert_eq!(split(text.as_bytes(), true), expected);
    }

    #[test]
    fn semicolons_end_statements() {
        check("SELECT 1", &["SELECT 1"]);
        check("SELECT 1;", &["SELECT 1"]);
        check(" SELECT 1 ; SELECT 2\n;", &["SELECT 1", "SELECT 2"]);
        check("", &[]);
        check(" ; ;; ", &[]);
        check("SELECT 1\0", &["SELECT 1"]);
        check("\0", &[]);
    }

    #[test]
    fn quotes_and_comments_hide_them() {
        check("SELECT ';' ; b", &["SELECT ';'", "b"]);
        check(r"SELECT 'it''s;', 'it\'s;'; b", &[r"SELECT 'it''s;', 'it\'s;'", "b"]);
        check(r#"SELECT "a;\";", `b;\`; c"#, &[r#"SELECT "a;\";", `b;\`"#, "c"]);
        check("a -- b;\n c; d", &["a -- b;\n c", "d"]);
        check("a --b; c", &["a --b", "c"]);
        check("a # b;\n; c", &["a # b;", "c"]);
        check("a /* ; */ b; c", &["a /* ; */ b", "c"]);
        check("a /* ; ", &["a /* ;"]);
        check("a '; ", &["a ';"]);
    }

    #[test]
    fn comments_alone_are_no_statement_but_code_comments_are() {
        check("-- x\n; /* y */ ; SELECT 1 -- z", &["SELECT 1 -- z"]);
        check("/*!40101 SET NAMES utf8 */;", &["/*!40101 SET NAMES utf8 */"]);
    }

    #[test]
    fn backslashes_are_plain_under_no_backslash_escapes() {
        let text = br"SELECT '\'; SELECT 2";
        assert_eq!(split(text, false), [&br"SELECT '\'"[..], b"SELECT 2"]);
        assert_eq!(split(text, true), [&br"SELECT '\'; SELECT 2"[..]]);
    }
}
