//! Syntax of MySQL and TiDB that is not supported: the error names it, so that its sender does not look
//! for a mistake in the statement.
//!
//! Only statements that could not be parsed come here: none that can is ever refused.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A piece of a part.
#[derive(Clone, Copy)]
enum Piece {
    /// A word, not quoted.
    Word(&'static str),
    /// A number.
    Number,
    /// `(`.
    Opened,
    /// `)`.
    Closed,
    /// Neither of `(`, `,` and `.`, behind which a word is a name.
    NoName,
}

use Piece::{Closed, NoName, Number, Opened, Word};
use values::error::{SqlError, unsupported};

const CHARSET: &str = "columns of ASCII or UNICODE (texts are utf8mb4)";

/// Unsupported parts by their tokens, and how the error names them.
const PARTS: &[(&[Piece], &str)] = &[
    (
        &[Word("UPDATE"), Word("WAIT"), Number],
        "FOR UPDATE WAIT n (SET innodb_lock_wait_timeout = n first)",
    ),
    (
        &[Word("SHARE"), Word("WAIT"), Number],
        "FOR SHARE WAIT n (SET innodb_lock_wait_timeout = n first)",
    ),
    (&[Word("INTO"), Word("OUTFILE")], "INTO OUTFILE (the client can write the rows that it gets)"),
    (&[Word("INTO"), Word("DUMPFILE")], "INTO DUMPFILE (the client can write what it gets)"),
    (&[Word("VECTOR"), Word("INDEX")], "VECTOR INDEX"),
    (&[Word("VECTOR"), Word("KEY")], "VECTOR KEY"),
    (&[Word("LOCATION"), Word("LABELS")], "SET TIFLASH REPLICA … LOCATION LABELS (leave them out)"),
    (&[Word("STORAGE"), Word("DISK")], "STORAGE DISK (leave it out: rows are on disk)"),
    (&[Word("STORAGE"), Word("MEMORY")], "STORAGE MEMORY (leave it out: rows are on disk)"),
    (&[Closed, Word("GLOBAL")], "GLOBAL indexes (leave the word out: there are no partitions)"),
    (&[NoName, Word("AUTO_RANDOM")], "AUTO_RANDOM (AUTO_INCREMENT gives numbers)"),
    (&[NoName, Word("ZEROFILL")], "ZEROFILL (LPAD() shows numbers with zeros)"),
    (
        &[NoName, Word("NONCLUSTERED")],
        "NONCLUSTERED (leave it out: rows are clustered by their primary key)",
    ),
    (&[NoName, Word("CLUSTERED")], "CLUSTERED but behind a primary key"),
    (
        &[Word("DOUBLE"), Word("PRECISION"), Opened, Number],
        "DOUBLE PRECISION(m,d) columns (use DOUBLE or DECIMAL)",
    ),
    (&[Word("REAL"), Opened, Number], "REAL(m,d) columns (use DOUBLE or DECIMAL)"),
    (&[Word("CHAR"), Opened, Number, Closed, Word("ASCII")], CHARSET),
    (&[Word("CHAR"), Opened, Number, Closed, Word("UNICODE")], CHARSET),
    (&[Word("CHAR"), Opened, Number, Closed, Word("BYTE")], "CHAR(n) BYTE (use BINARY(n))"),
    (&[Word("VARCHAR"), Opened, Number, Closed, Word("ASCII")], CHARSET),
    (&[Word("VARCHAR"), Opened, Number, Closed, Word("UNICODE")], CHARSET),
    (
        &[Word("VARCHAR"), Opened, Number, Closed, Word("BYTE")],
        "VARCHAR(n) BYTE (use VARBINARY(n))",
    ),
    (&[NoName, Word("TEXT"), Word("ASCII")], CHARSET),
    (&[NoName, Word("TEXT"), Word("UNICODE")], CHARSET),
    (&[Word("WEIGHT_STRING")], "WEIGHT_STRING(… AS …) (CAST its argument)"),
];

/// The error of a statement that could not be parsed, by its tokens: a syntax error only if it has no
/// unsupported part.
pub(super) fn explain(error: SqlError, tokens: &[TokenWithSpan]) -> SqlError {
    let solid: Vec<&Token> = tokens
        .iter()
        .map(|token| &token.token)
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .collect();
    let has = |part: &[Piece]| {
        solid.windows(part.len()).any(|window| window.iter().zip(part).all(|(t, p)| is(t, *p)))
    };
    match PARTS.iter().find(|part| has(part.0)) {
        Some((_, named)) => unsupported(named),
        None => error,
    }
}

fn is(token: &Token, piece: Piece) -> bool {
    match (piece, token) {
        (Word(wanted), Token::Word(word)) => {
            word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted)
        }
        (Number, Token::Number(..)) | (Opened, Token::LParen) | (Closed, Token::RParen) => true,
        (NoName, token) => !matches!(token, Token::LParen | Token::Comma | Token::Period),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::parse;

    #[test]
    fn unsupported_syntax_is_named() {
        for (text, named) in [
            ("SELECT * FROM t FOR UPDATE WAIT 5", "FOR UPDATE WAIT n"),
            ("SELECT a FROM t FOR SHARE WAIT 5", "FOR SHARE WAIT n"),
            ("SELECT a FROM t INTO OUTFILE 'x'", "INTO OUTFILE"),
            ("SELECT a INTO DUMPFILE 'x' FROM t", "INTO DUMPFILE"),
            ("CREATE TABLE t (a BIGINT PRIMARY KEY AUTO_RANDOM(5))", "AUTO_RANDOM"),
            ("CREATE TABLE t (a INT(4) ZEROFILL)", "ZEROFILL"),
            ("CREATE TABLE t (a DOUBLE PRECISION(8,2))", "DOUBLE PRECISION(m,d)"),
            ("CREATE TABLE t (a REAL(8,2) NOT NULL)", "REAL(m,d)"),
            ("CREATE TABLE t (a CHAR(10) ASCII)", "ASCII or UNICODE"),
            ("CREATE TABLE t (a VARCHAR(10) unicode NULL)", "ASCII or UNICODE"),
            ("CREATE TABLE t (a TEXT ASCII)", "ASCII or UNICODE"),
            ("CREATE TABLE t (a VARCHAR(10) BYTE)", "use VARBINARY(n)"),
            ("CREATE TABLE t (a INT PRIMARY KEY NONCLUSTERED)", "NONCLUSTERED"),
            ("CREATE TABLE t (a INT STORAGE DISK)", "STORAGE DISK"),
            ("CREATE INDEX i ON t (a) GLOBAL", "GLOBAL indexes"),
            ("ALTER TABLE t SET TIFLASH REPLICA 2 LOCATION LABELS 'rack'", "LOCATION LABELS"),
            ("SELECT WEIGHT_STRING(a AS CHAR(3)) FROM t", "WEIGHT_STRING"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.code == 1235 && error.message.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_stays_a_syntax_error() {
        for wrong in [
            "SELECT 1 FROM t FOR UPDATE WAIT",
            "CREATE TABLE t (zerofill INT, b INT INT)",
            "CREATE TABLE t (a INT, `wait` INT,)",
            "SELECT 1 FORM t WHERE",
            "SELECT 1; SELECT 2;",
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.code, 1064, "{wrong}: {error}");
        }
        parse("CREATE TABLE t (zerofill INT, wait INT, storage INT, auto_random INT)").unwrap();
        parse("SELECT zerofill, t.clustered FROM t WHERE wait = 5").unwrap();
    }
}
