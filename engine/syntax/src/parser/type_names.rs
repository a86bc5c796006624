//! Types of columns by names that sqlparser does not know: those of the national character set, of other databases, and a
//! TEXT that says how long it is. In definitions of tables they become the type that MySQL makes of them.
//!
//! Only what stands behind a column's name is a type: columns and keys may be called like one.

use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// Names of one word or several, longer ones first, and what they stand for.
const NAMES: &[(&[&str], &[&str])] = &[
    (&["NATIONAL", "CHARACTER", "VARYING"], &["VARCHAR"]),
    (&["NATIONAL", "CHAR", "VARYING"], &["VARCHAR"]),
    (&["NATIONAL", "VARCHARACTER"], &["VARCHAR"]),
    (&["NATIONAL", "VARCHAR"], &["VARCHAR"]),
    (&["NATIONAL", "CHARACTER"], &["CHAR"]),
    (&["NATIONAL", "CHAR"], &["CHAR"]),
    (&["NCHAR", "VARYING"], &["VARCHAR"]),
    (&["NCHAR", "VARCHAR"], &["VARCHAR"]),
    (&["NCHAR"], &["CHAR"]),
    (&["VARCHARACTER"], &["VARCHAR"]),
    (&["LONG", "CHARACTER", "VARYING"], &["MEDIUMTEXT"]),
    (&["LONG", "CHAR", "VARYING"], &["MEDIUMTEXT"]),
    (&["LONG", "VARCHARACTER"], &["MEDIUMTEXT"]),
    (&["LONG", "VARCHAR"], &["MEDIUMTEXT"]),
    (&["LONG", "VARBINARY"], &["MEDIUMBLOB"]),
    (&["LONG"], &["MEDIUMTEXT"]),
    (&["INT1"], &["TINYINT"]),
    (&["INT3"], &["MEDIUMINT"]),
    (&["MIDDLEINT"], &["MEDIUMINT"]),
    (&["FLOAT4"], &["FLOAT"]),
    (&["FIXED"], &["DECIMAL"]),
    (&["SERIAL"], &["BIGINT", "UNSIGNED", "NOT", "NULL", "AUTO_INCREMENT", "UNIQUE"]),
];

/// Words behind which a word is a name or says something else, though they are words themselves.
const BEFORE_OTHERS: [&str; 17] = [
    "ADD",
    "AFTER",
    "ALTER",
    "AS",
    "BY",
    "CHANGE",
    "COLUMN",
    "COLUMN_FORMAT",
    "CONSTRAINT",
    "DROP",
    "EXISTS",
    "INDEX",
    "KEY",
    "MODIFY",
    "ROW_FORMAT",
    "TABLE",
    "TO",
];

/// The tokens with types by names that sqlparser knows.
pub(super) fn settle(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut words = tokens.iter().filter_map(|token| word(&token.token)).map(str::to_uppercase);
    let first = words.next();
    let defines = first.is_some_and(|first| ["CREATE", "ALTER"].contains(&first.as_str()));
    if !defines || !words.any(|word| begins_one(&word)) {
        return tokens;
    }
    let solid: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let token = |nth: usize| solid.get(nth).map(|at| &tokens[*at].token);
    // A query that fills a table has names of its own.
    let is_query = |nth: &usize| {
        token(*nth).and_then(word).is_some_and(|word| word.eq_ignore_ascii_case("SELECT"))
    };
    let end = (0..solid.len()).find(is_query).unwrap_or(solid.len());
    let mut settled = Vec::with_capacity(tokens.len());
    let (mut taken, mut nth) = (0, 1);
    while nth < end {
        let Some((length, becomes)) =
            token(nth - 1).filter(|t| is_name(t)).and_then(|_| named(nth, token))
        else {
            nth += 1;
            continue;
        };
        let (Some(first), Some(last)) = (solid.get(nth), solid.get(nth + length - 1)) else {
            break;
        };
        settled.extend_from_slice(&tokens[taken..*first]);
        let span = tokens[*first].span;
        settled.extend(
            becomes.iter().map(|name| TokenWithSpan { token: Token::make_keyword(name), span }),
        );
        taken = last + 1;
        nth += length;
    }
    settled.extend_from_slice(&tokens[taken..]);
    settled
}

/// A word that is not quoted.
fn word(token: &Token) -> Option<&str> {
    match token {
        Token::Word(Word { value, quote_style: None, .. }) => Some(value),
        _ => None,
    }
}

fn begins_one(word: &str) -> bool {
    word == "TEXT" || NAMES.iter().any(|(name, _)| name.first() == Some(&word))
}

/// Whether a token may be a column's name.
fn is_name(token: &Token) -> bool {
    match (token, word(token)) {
        (_, Some(word)) => !BEFORE_OTHERS.contains(&word.to_uppercase().as_str()),
        (Token::Word(_), None) => true,
        _ => false,
    }
}

/// How many tokens a type's name has, and what it becomes.
fn named<'a>(
    nth: usize,
    token: impl Fn(usize) -> Option<&'a Token>,
) -> Option<(usize, &'static [&'static str])> {
    let is = |at: usize, wanted: &str| {
        token(at).and_then(word).is_some_and(|word| word.eq_ignore_ascii_case(wanted))
    };
    if is(nth, "TEXT")
        && token(nth + 1) == Some(&Token::LParen)
        && token(nth + 3) == Some(&Token::RParen)
    {
        let Some(Token::Number(digits, _)) = token(nth + 2) else { return None };
        return Some((4, text_of(digits)));
    }
    let (name, becomes) =
        NAMES.iter().find(|(name, _)| name.iter().zip(nth..).all(|(wanted, at)| is(at, wanted)))?;
    Some((name.len(), becomes))
}

/// The smallest TEXT that holds so many characters, of four bytes each.
fn text_of(digits: &str) -> &'static [&'static str] {
    match digits.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(4) {
        0..=255 => &["TINYTEXT"],
        256..=65_535 => &["TEXT"],
        65_536..=16_777_215 => &["MEDIUMTEXT"],
        _ => &["LONGTEXT"],
    }
}

#[cfg(test)]
mod tests {
    use crate::parser::parse_sql;

    #[test]
    fn types_by_other_names_are_those_that_mysql_makes_of_them() {
        for (written, read) in [
            (
                "CREATE TABLE t (a NATIONAL VARCHAR(3), b nchar(2) NULL)",
                "CREATE TABLE t (a VARCHAR(3), b CHAR(2) NULL)",
            ),
            ("CREATE TABLE t (a NATIONAL CHARACTER VARYING (3))", "CREATE TABLE t (a VARCHAR(3))"),
            (
                "CREATE TABLE t (a LONG, b LONG VARBINARY, c LONG VARCHAR)",
                "CREATE TABLE t (a MEDIUMTEXT, b MEDIUMBLOB, c MEDIUMTEXT)",
            ),
            (
                "CREATE TABLE t (a INT1 UNSIGNED, b INT3(5), c MIDDLEINT)",
                "CREATE TABLE t (a TINYINT UNSIGNED, b MEDIUMINT(5), c MEDIUMINT)",
            ),
            ("CREATE TABLE t (a FIXED(5,2), b FLOAT4)", "CREATE TABLE t (a DECIMAL(5,2), b FLOAT)"),
            (
                "CREATE TABLE t (a TEXT(63), b text (64), c TEXT(16384), `d` TEXT(4194304))",
                "CREATE TABLE t (a TINYTEXT, b TEXT, c MEDIUMTEXT, `d` LONGTEXT)",
            ),
            (
                "CREATE TABLE t (id SERIAL PRIMARY KEY)",
                "CREATE TABLE t (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE PRIMARY KEY)",
            ),
            ("ALTER TABLE t ADD COLUMN a NCHAR(3)", "ALTER TABLE t ADD COLUMN a CHAR(3)"),
        ] {
            assert_eq!(parse_sql(written).unwrap(), parse_sql(read).unwrap(), "{written}");
        }
    }

    #[test]
    fn names_and_other_words_stay() {
        for same in [
            "CREATE TABLE t (text VARCHAR(10), serial INT, fixed INT, KEY (text(10)), KEY k (a, text(3)))",
            "CREATE TABLE text (a INT)",
            "CREATE TABLE serial AS SELECT a serial, b fixed FROM t nchar",
        ] {
            let read = parse_sql(same).unwrap().to_string();
            for other in ["MEDIUM", "DECIMAL", "BIGINT"] {
                assert!(!read.contains(other), "{same}: {read}");
            }
        }
    }
}
