//! `AS OF TIMESTAMP expression`, TiDB's words for reads of the past: behind a table and its alias, and behind READ ONLY.
//!
//! Behind a table it is brought before the alias, as `TIMESTAMP AS OF expression`, where sqlparser reads it. Where the
//! expression ends, sqlparser says, too. Nothing is evaluated here.

use sqlparser::ast::Expr;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use values::error::{SqlResult, unsupported};

use super::{parser_of, peek_word, refused, take, unexpected};
use crate::dialect::Mysql;

/// The clause.
const WORDS: [&str; 3] = ["AS", "OF", "TIMESTAMP"];
/// What a statement with such a table begins with.
const READS: [&str; 9] =
    ["SELECT", "WITH", "TABLE", "VALUES", "EXPLAIN", "DESCRIBE", "DESC", "SET", "DO"];
/// Words that stand before a table; what stands behind any other is the table's alias.
const BEFORE_TABLE: [&str; 3] = ["FROM", "JOIN", "STRAIGHT_JOIN"];

/// The tokens with the clause of each table before its alias.
///
/// # Errors
///
/// 1235 in a statement that does more than read, 1064 without an expression.
pub(super) fn before_alias(
    mut tokens: Vec<TokenWithSpan>,
    dialect: &Mysql,
) -> SqlResult<Vec<TokenWithSpan>> {
    // Most statements have no such word.
    if !tokens.iter().any(|token| is(&token.token, "TIMESTAMP")) {
        return Ok(tokens);
    }
    let mut from = 0;
    while let Some(clause) = next_clause(&tokens, from) {
        let first = tokens.iter().find(|token| is_solid(token)).map(|token| &token.token);
        let reads =
            |token: &Token| *token == Token::LParen || READS.iter().any(|word| is(token, word));
        if !first.is_some_and(reads) {
            return Err(unsupported("AS OF TIMESTAMP but in a SELECT"));
        }
        let behind = tokens.split_off(clause.end);
        let mut parser = parser_of(behind.clone(), dialect);
        parser.parse_expr().map_err(|error| refused(&error))?;
        let (expression, rest) = behind.split_at(parser.index().min(behind.len()));
        let alias = tokens.split_off(clause.alias);
        let alias = alias.get(..clause.start - clause.alias).unwrap_or_default().to_vec();
        let span =
            expression.first().map_or(sqlparser::tokenizer::Span::empty(), |token| token.span);
        let word = |word: &str| TokenWithSpan { token: Token::make_keyword(word), span };
        let space = || TokenWithSpan { token: space(), span };
        for keyword in ["TIMESTAMP", "AS", "OF"] {
            tokens.extend([space(), word(keyword), space()]);
        }
        tokens.extend(expression.iter().cloned());
        if clause.is_implicit {
            tokens.extend([space(), word("AS"), space()]);
        }
        tokens.extend([space()]);
        tokens.extend(alias);
        from = tokens.len();
        tokens.push(space());
        tokens.extend(rest.iter().cloned());
    }
    Ok(tokens)
}

fn space() -> Token {
    Token::Whitespace(sqlparser::tokenizer::Whitespace::Space)
}

/// A clause behind a table, by positions of tokens.
struct Clause {
    /// Of the table's alias, with AS if that is there; `start` without one.
    alias: usize,
    /// Whether the alias has no AS.
    is_implicit: bool,
    /// Of the clause's AS.
    start: usize,
    /// Behind its TIMESTAMP.
    end: usize,
}

fn next_clause(tokens: &[TokenWithSpan], from: usize) -> Option<Clause> {
    let solid: Vec<usize> = (0..tokens.len()).filter(|at| is_solid(&tokens[*at])).collect();
    let token = |nth: usize| solid.get(nth).map(|at| &tokens[*at].token);
    let word = |nth: usize, wanted: &str| token(nth).is_some_and(|token| is(token, wanted));
    let begins = |nth: usize| {
        let behind_read_only = nth >= 2 && word(nth - 1, "ONLY") && word(nth - 2, "READ");
        WORDS.iter().enumerate().all(|(at, wanted)| word(nth + at, wanted)) && !behind_read_only
    };
    let nth = (0..solid.len()).find(|nth| solid[*nth] >= from && begins(*nth))?;
    let (start, end) = (solid[nth], solid.get(nth + 2)? + 1);
    let before = |back: usize| nth.checked_sub(back);
    let is_name = |nth: usize| {
        matches!(
            token(nth),
            Some(Token::Word(_) | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_))
        )
    };
    let explicit = before(2).filter(|as_| word(*as_, "AS") && is_name(nth - 1));
    let implicit = before(2).filter(|table| {
        let of_table = match token(*table) {
            Some(Token::Word(_)) => !BEFORE_TABLE.iter().any(|keyword| word(*table, keyword)),
            Some(Token::RParen) => true,
            _ => false,
        };
        of_table && is_name(nth - 1)
    });
    Some(match (explicit, implicit) {
        (Some(as_), _) => Clause { alias: solid[as_], is_implicit: false, start, end },
        (None, Some(_)) => Clause { alias: solid[nth - 1], is_implicit: true, start, end },
        (None, None) => Clause { alias: start, is_implicit: false, start, end },
    })
}

/// `AS OF TIMESTAMP expression` behind READ ONLY, if it comes next.
///
/// # Errors
///
/// 1064 behind anything else.
pub(super) fn of_transaction(
    parser: &mut Parser,
    read_only: Option<bool>,
) -> SqlResult<Option<Box<Expr>>> {
    if peek_word(parser, 0).is_none_or(|word| word != "AS") {
        return Ok(None);
    }
    if read_only != Some(true) || !take(parser, &WORDS) {
        return Err(unexpected(&parser.peek_token(), "READ ONLY AS OF TIMESTAMP"));
    }
    parser.parse_expr().map(|expr| Some(Box::new(expr))).map_err(|error| refused(&error))
}

fn is_solid(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

fn is(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use crate::parser::parse;

    fn read(sql: &str) -> String {
        format!("{:?}", parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}")))
    }

    #[test]
    fn the_time_of_a_table_stands_behind_its_alias() {
        for (written, meant) in [
            (
                "SELECT * FROM t AS OF TIMESTAMP NOW() - INTERVAL 5 SECOND WHERE a = 1",
                "SELECT * FROM t TIMESTAMP AS OF NOW() - INTERVAL 5 SECOND WHERE a = 1",
            ),
            (
                "SELECT * FROM d.t x AS OF TIMESTAMP '2024-01-01', u AS y AS OF TIMESTAMP (SELECT 1) JOIN v AS OF TIMESTAMP @a ON 1",
                "SELECT * FROM d.t TIMESTAMP AS OF '2024-01-01' AS x, u TIMESTAMP AS OF (SELECT 1) AS y JOIN v TIMESTAMP AS OF @a ON 1",
            ),
            (
                "(SELECT a FROM `from` x AS OF TIMESTAMP ?) UNION SELECT b FROM (SELECT * FROM t AS OF TIMESTAMP ? USE INDEX (i)) d",
                "(SELECT a FROM `from` TIMESTAMP AS OF ? AS x) UNION SELECT b FROM (SELECT * FROM t TIMESTAMP AS OF ? USE INDEX (i)) d",
            ),
        ] {
            // An alias is the same with and without AS but for whether it was written.
            let plain = |sql: &str| read(sql).replace("explicit: true", "explicit: false");
            let spans = |text: String| {
                let mut out = String::new();
                let mut rest = text.as_str();
                while let Some(at) = rest.find("Span(") {
                    out.push_str(&rest[..at]);
                    rest = &rest[at + rest[at..].find("))").unwrap() + 2..];
                }
                out + rest
            };
            assert_eq!(spans(plain(written)), spans(plain(meant)), "{written}");
        }
    }

    #[test]
    fn transactions_have_a_time_behind_read_only() {
        for right in [
            "START TRANSACTION READ ONLY AS OF TIMESTAMP '2024-01-01 00:00:00'",
            "SET TRANSACTION READ ONLY AS OF TIMESTAMP NOW(3) - INTERVAL 1 SECOND",
        ] {
            assert!(read(right).contains("as_of: Some"), "{right}");
        }
    }

    #[test]
    fn what_has_no_time_is_refused() {
        for (wrong, code) in [
            ("SELECT * FROM t AS OF TIMESTAMP", 1064),
            ("SELECT * FROM (SELECT 1) d AS OF TIMESTAMP NOW()", 1064),
            ("START TRANSACTION AS OF TIMESTAMP NOW()", 1235),
            ("START TRANSACTION READ WRITE AS OF TIMESTAMP NOW()", 1235),
            ("SET SESSION TRANSACTION READ ONLY AS OF TIMESTAMP NOW()", 1235),
            ("DELETE FROM t AS OF TIMESTAMP NOW()", 1235),
            ("UPDATE t AS OF TIMESTAMP NOW() SET a = 1", 1235),
            ("INSERT INTO t SELECT * FROM t AS OF TIMESTAMP NOW()", 1235),
            ("CREATE VIEW v AS SELECT * FROM t AS OF TIMESTAMP NOW()", 1235),
        ] {
            assert_eq!(parse(wrong).unwrap_err().code, code, "{wrong}");
        }
    }
}
