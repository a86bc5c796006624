//! Redundant words that sqlparser does not know: CLUSTERED behind a primary key, USING BTREE before its columns,
//! BINARY behind the type of a column of texts, the character set in a CAST, the braces of ODBC's `{OJ … }`, `.*`
//! behind the tables of a DELETE. They are removed before it parses.
//!
//! Tokens go or stay; none becomes another.

use std::collections::BTreeSet;

use sqlparser::tokenizer::{Token, TokenWithSpan};
use values::error::{SqlResult, unsupported};

use crate::charsets::check_charset;

/// What a parenthesis or a brace opens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    /// CAST or CONVERT.
    Cast,
    /// The columns of a primary key.
    Key,
    /// The length of a type of texts.
    Length,
    /// `{OJ`: which of the tokens the brace is.
    Join(usize),
    Other,
}

/// Types of texts with something in parentheses behind them.
const SIZED: [&str; 4] = ["CHAR", "VARCHAR", "TEXT", "ENUM"];

/// The tokens without such words.
///
/// # Errors
///
/// A CAST to a text that is not UTF-8.
pub(super) fn remove(mut tokens: Vec<TokenWithSpan>) -> SqlResult<Vec<TokenWithSpan>> {
    let concerned = |token: &TokenWithSpan| {
        token.token == Token::LBrace
            || ["BINARY", "CLUSTERED", "CHARACTER", "CHARSET", "USING"]
                .iter()
                .any(|word| is(&token.token, word))
    };
    let first = tokens.iter().find(|token| !matches!(token.token, Token::Whitespace(_)));
    let deletes = first.is_some_and(|first| is(&first.token, "DELETE"));
    if !deletes && !tokens.iter().any(concerned) {
        return Ok(tokens);
    }
    let gone = to_go(&tokens, deletes)?;
    let mut at = 0;
    tokens.retain(|_| {
        at += 1;
        !gone.contains(&(at - 1))
    });
    Ok(tokens)
}

/// Positions of the tokens that go. `deletes` says that tables of a DELETE come first.
fn to_go(tokens: &[TokenWithSpan], mut deletes: bool) -> SqlResult<BTreeSet<usize>> {
    let solid: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let token = |nth: usize| solid.get(nth).map(|at| &tokens[*at].token);
    let word = |nth: Option<usize>, wanted: &str| {
        nth.and_then(token).is_some_and(|token| is(token, wanted))
    };
    let defines = word(Some(0), "CREATE") || word(Some(0), "ALTER");
    let attribute =
        |nth: usize| defines && is_attribute(|back| nth.checked_sub(back).and_then(token));
    let (mut gone, mut opened, mut closed) = (BTreeSet::new(), Vec::new(), Opened::Other);
    for (nth, at) in solid.iter().enumerate() {
        let Some(found) = token(nth) else { break };
        let (one, two) = (nth.checked_sub(1), nth.checked_sub(2));
        let behind_key = word(one, "KEY") && word(two, "PRIMARY");
        let just_closed = std::mem::replace(&mut closed, Opened::Other);
        deletes = deletes && !is(found, "WHERE");
        match found {
            Token::Period if deletes && opened.is_empty() => {
                if let (Some(Token::Mul), Some(star)) = (token(nth + 1), solid.get(nth + 1)) {
                    gone.extend([*at, *star]);
                }
            }
            Token::LParen if word(one, "CAST") || word(one, "CONVERT") => opened.push(Opened::Cast),
            Token::LParen if behind_key => opened.push(Opened::Key),
            Token::LParen if defines && SIZED.iter().any(|ty| word(one, ty)) => {
                opened.push(Opened::Length);
            }
            Token::LBrace if word(Some(nth + 1), "OJ") => opened.push(Opened::Join(nth)),
            Token::LParen | Token::LBrace => opened.push(Opened::Other),
            Token::RParen => closed = opened.pop().unwrap_or(Opened::Other),
            Token::RBrace => {
                if let Some(Opened::Join(brace)) = opened.pop() {
                    gone.extend(solid.iter().skip(brace).take(2).copied());
                    gone.insert(*at);
                }
            }
            // How a primary key is kept is said behind it as well as before it.
            found if is(found, "USING") && defines && behind_primary(nth, &word) => {
                gone.extend(solid.iter().skip(nth).take(2).copied());
            }
            found if is(found, "CLUSTERED") && (behind_key || just_closed == Opened::Key) => {
                gone.insert(*at);
            }
            // The attribute asks for the collation that all columns have.
            found if is(found, "BINARY") && (just_closed == Opened::Length || attribute(nth)) => {
                gone.insert(*at);
            }
            found if opened.last() == Some(&Opened::Cast) => {
                let behind_length = one.and_then(token) == Some(&Token::RParen);
                let words = if !behind_length && !word(one, "CHAR") {
                    0
                } else if is(found, "CHARACTER") && word(Some(nth + 1), "SET") {
                    2
                } else {
                    usize::from(is(found, "CHARSET"))
                };
                if words > 0 {
                    check_cast(token(nth + words))?;
                    gone.extend(solid.iter().skip(nth).take(words + 1).copied());
                }
            }
            _ => {}
        }
    }
    Ok(gone)
}

/// Whether USING and its word stand right behind PRIMARY KEY, or its name, and before the key's columns.
fn behind_primary(nth: usize, word: &impl Fn(Option<usize>, &str) -> bool) -> bool {
    let key = |back: usize| {
        word(nth.checked_sub(back), "KEY") && word(nth.checked_sub(back + 1), "PRIMARY")
    };
    let kind = ["BTREE", "HASH"].iter().any(|kind| word(Some(nth + 1), kind));
    kind && (key(1) || key(2))
}

/// Whether BINARY is an attribute of a type, by the tokens so many before it.
fn is_attribute<'a>(back: impl Fn(usize) -> Option<&'a Token>) -> bool {
    let word = |n: usize, wanted: &[&str]| {
        back(n).is_some_and(|token| wanted.iter().any(|wanted| is(token, wanted)))
    };
    let set = word(2, &["CHARSET"]) || (word(2, &["SET"]) && word(3, &["CHARACTER"]));
    if set && back(1) != Some(&Token::Eq) {
        return true;
    }
    // A type is behind a column's name; where a definition begins, such a word is a name itself.
    let named =
        matches!(back(2), Some(Token::Word(_))) && !word(2, &["ADD", "CHANGE", "COLUMN", "MODIFY"]);
    let begins = matches!(back(3), Some(Token::LParen | Token::Comma))
        || word(3, &["ADD", "MODIFY"])
        || (word(3, &["COLUMN"]) && !word(4, &["CHANGE"]));
    word(1, &["CHAR", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT"]) && named && begins
}

/// Refuses a character set that a CAST cannot give.
fn check_cast(charset: Option<&Token>) -> SqlResult<()> {
    let name = match charset {
        Some(Token::Word(word)) => &word.value,
        Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)) => text,
        // The parser will say what is missing.
        _ => return Ok(()),
    };
    match check_charset(name)? {
        None => Ok(()),
        Some(_) => Err(unsupported(format!("CAST … CHARACTER SET {name} (texts are utf8mb4)"))),
    }
}

fn is(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use crate::parser::parse;
    use crate::statement::Stmt;

    fn read(sql: &str) -> String {
        match parse(sql).unwrap() {
            Stmt::Query(query) => query.to_string(),
            Stmt::CreateTable(create) => create.to_string(),
            Stmt::Delete(delete, _) => delete.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn redundant_words_are_removed() {
        for (written, meant) in [
            (
                "CREATE TABLE t (a INT, PRIMARY KEY (a) CLUSTERED)",
                "CREATE TABLE t (a INT, PRIMARY KEY (a))",
            ),
            (
                "CREATE TABLE t (a INT PRIMARY KEY /*T![clustered_index] CLUSTERED */, b INT)",
                "CREATE TABLE t (a INT PRIMARY KEY, b INT)",
            ),
            (
                "SELECT CAST(a AS CHAR(10) CHARACTER SET utf8mb4), CONVERT(b, CHAR CHARSET utf8mb4)",
                "SELECT CAST(a AS CHAR(10)), CONVERT(b, CHAR)",
            ),
            (
                "CREATE TABLE t (a CHAR(36) BINARY NOT NULL, b VARCHAR(9) binary, c BINARY(16), `varchar` BINARY)",
                "CREATE TABLE t (a CHAR(36) NOT NULL, b VARCHAR(9), c BINARY(16), `varchar` BINARY)",
            ),
            (
                "CREATE TABLE t (a TEXT BINARY, b CHAR BINARY NULL, c LONGTEXT binary, d TEXT(9) BINARY, e ENUM('x') BINARY)",
                "CREATE TABLE t (a TEXT, b CHAR NULL, c LONGTEXT, d TEXT(9), e ENUM('x'))",
            ),
            (
                "CREATE TABLE t (a VARCHAR(9) CHARACTER SET utf8mb4 BINARY, text BINARY(3), b TEXT)",
                "CREATE TABLE t (a VARCHAR(9) CHARACTER SET utf8mb4, text BINARY(3), b TEXT)",
            ),
            (
                "SELECT * FROM {OJ a LEFT OUTER JOIN b ON a.x = (b.x)}, c",
                "SELECT * FROM a LEFT OUTER JOIN b ON a.x = (b.x), c",
            ),
            (
                "DELETE a.*, d.b.* FROM a JOIN d.b WHERE a.x = (SELECT MAX(c.x) FROM c)",
                "DELETE a, d.b FROM a JOIN d.b WHERE a.x = (SELECT MAX(c.x) FROM c)",
            ),
        ] {
            assert_eq!(read(written), read(meant), "{written}");
        }
    }

    #[test]
    fn names_and_other_braces_stay() {
        for kept in [
            "CREATE TABLE t (clustered INT, charset INT, PRIMARY KEY (clustered))",
            "CREATE TABLE t (a CHAR(3) CHARACTER SET utf8mb4)",
            "ALTER TABLE t ADD text BINARY(3), ADD COLUMN text BINARY(3), MODIFY text BINARY(3)",
            "ALTER TABLE t ADD a TEXT BINARY, ADD COLUMN b TEXT BINARY, MODIFY COLUMN c CHAR BINARY",
            "SELECT {d '2024-01-01'}, CAST(charset AS CHAR(3)) FROM t",
        ] {
            parse(kept).unwrap();
        }
        assert!(read("CREATE TABLE t (a CHAR(3) CHARACTER SET utf8mb4)").contains("CHARACTER SET"));
        assert_eq!(parse("SELECT CAST(a AS CHAR CHARACTER SET latin1)").unwrap_err().code, 1115);
        assert_eq!(parse("SELECT CAST(a AS CHAR CHARSET ascii)").unwrap_err().code, 1235);
        assert_eq!(parse("SELECT CAST(a AS CHAR CHARACTER SET)").unwrap_err().code, 1064);
        assert_eq!(parse("SELECT 1 FROM {OJ a LEFT JOIN b ON 1 = 1").unwrap_err().code, 1064);
    }
}
