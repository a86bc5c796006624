//! Single tokens that sqlparser should see otherwise than they were written, and words that MySQL keeps
//! for itself.
//!
//! By what stands before a token alone; no statement is parsed here.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::unexpected;
use crate::dialect::Mysql;
use crate::error::SqlResult;

/// What the last tokens were.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Other,
    /// `TRIM`.
    Trim,
    /// `TRIM(`.
    InTrim,
    /// `.`: any word is a name.
    Point,
    /// `SET`.
    Set,
    /// `SET(` and labels behind it.
    Labels,
}

/// Settles all tokens of a statement, under a session's sql_mode.
///
/// # Errors
///
/// 1064 for a reserved word in the place of a name.
pub fn settle(tokens: &mut [TokenWithSpan], dialect: &Mysql) -> SqlResult<()> {
    let mut before = Before::Other;
    for token in tokens.iter_mut().filter(|token| !matches!(token.token, Token::Whitespace(_))) {
        if reserved(&token.token) && !matches!(before, Before::InTrim | Before::Point) {
            return Err(unexpected(token, "a name that is no reserved word"));
        }
        if let Token::Word(word) = &mut token.token {
            // Whoever reads the statement again does not know of ANSI_QUOTES.
            if word.quote_style == Some('"') {
                word.quote_style = Some('`');
            } else if dialect.real_as_float && word.keyword == Keyword::REAL {
                token.token = Token::make_keyword("FLOAT");
            }
        }
        if before == Before::Labels
            && let Token::DoubleQuotedString(label) = &mut token.token
        {
            token.token = Token::SingleQuotedString(std::mem::take(label));
        }
        before = match (before, &token.token) {
            (Before::Trim, Token::LParen) => Before::InTrim,
            (Before::Set, Token::LParen) => Before::Labels,
            (Before::Labels, Token::SingleQuotedString(_) | Token::Comma) => Before::Labels,
            (_, Token::Period) => Before::Point,
            (_, token) if is(token, Keyword::TRIM) => Before::Trim,
            (_, token) if is(token, Keyword::SET) => Before::Set,
            _ => Before::Other,
        };
    }
    Ok(())
}

fn is(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.keyword == keyword)
}

/// Whether a token is a word that stands nowhere but in TRIM, unless it is quoted.
fn reserved(token: &Token) -> bool {
    [Keyword::BOTH, Keyword::LEADING, Keyword::TRAILING].iter().any(|word| is(token, *word))
}

#[cfg(test)]
mod tests {
    use crate::parser::parse;

    #[test]
    fn words_of_trim_name_nothing_else() {
        for right in [
            "SELECT TRIM(BOTH 'x' FROM 'xax'), TRIM( leading FROM ' a'), TRIM(TRAILING 'a' FROM b)",
            "SELECT t.both, `both` FROM t",
            "CREATE TABLE t (`leading` INT)",
        ] {
            parse(right).unwrap();
        }
        for wrong in [
            "SELECT both FROM t",
            "CREATE INDEX both ON big (v)",
            "CREATE TABLE t (trailing INT)",
            "SELECT 1 AS leading",
            "SELECT TRIM('x'), both FROM t",
        ] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error.code, 1064, "{wrong}: {error}");
        }
    }

    #[test]
    fn labels_stand_in_either_quotes() {
        let statement =
            parse("CREATE TABLE t (s SET(\"a\", 'b',\"c\"), e ENUM (\"x\",'y'))").unwrap();
        let text = format!("{statement:?}");
        for label in ["a", "b", "c", "x", "y"] {
            assert!(text.contains(&format!("\"{label}\"")), "{label}: {text}");
        }
    }
}
