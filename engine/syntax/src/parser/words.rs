//! Single tokens that sqlparser should see otherwise than they were written, and words that MySQL keeps
//! for itself.
//!
//! By what stands before a token alone; no statement is parsed here.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use values::error::SqlResult;

use super::unexpected;
use crate::dialect::Mysql;

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

/// Words that begin the definition of a key.
const KEYS: [Keyword; 5] =
    [Keyword::KEY, Keyword::INDEX, Keyword::UNIQUE, Keyword::PRIMARY, Keyword::CONSTRAINT];

/// VISIBLE and INVISIBLE behind a key become `USING …`, an option of keys that sqlparser hands on. Behind a column they
/// stay what they are.
pub fn visibility(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let named = |token: &Token| {
        let word =
            |word: &str| ["VISIBLE", "INVISIBLE"].iter().any(|w| w.eq_ignore_ascii_case(word));
        matches!(token, Token::Word(w) if w.quote_style.is_none() && word(&w.value))
    };
    if !defines_keys(&tokens) || !tokens.iter().any(|token| named(&token.token)) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len() + 1);
    let (mut behind_key, mut in_query) = (false, false);
    let mut definition = Definition::first(&tokens);
    for token in tokens {
        // Of the query that fills a table, they are names.
        in_query |= is(&token.token, Keyword::SELECT);
        definition.read(&token.token);
        if behind_key && definition.of_key && named(&token.token) {
            out.push(TokenWithSpan { token: Token::make_keyword("USING"), span: token.span });
        }
        behind_key = match &token.token {
            Token::Whitespace(_) => behind_key,
            _ if in_query => false,
            // A key's columns, or another option of it.
            Token::RParen | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => true,
            token => is(token, Keyword::BTREE) || is(token, Keyword::HASH),
        };
        out.push(token);
    }
    out
}

/// The definition that is being read of those that a statement lists.
struct Definition {
    of_key: bool,
    /// The next token is its first.
    begins: bool,
    depth: usize,
    /// The depth of the list's commas.
    list: usize,
}

impl Definition {
    fn first(tokens: &[TokenWithSpan]) -> Definition {
        let mut solid = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
        let create = solid.next().is_some_and(|token| is(&token.token, Keyword::CREATE));
        let table = solid.next().is_some_and(|token| is(&token.token, Keyword::TABLE));
        let list = usize::from(create && table);
        Definition { of_key: create && !table, begins: false, depth: 0, list }
    }

    fn read(&mut self, token: &Token) {
        if matches!(token, Token::Whitespace(_)) {
            return;
        }
        let begins = std::mem::take(&mut self.begins);
        match token {
            Token::LParen => {
                self.depth += 1;
                // ADD (…) is a list as in CREATE TABLE.
                if begins {
                    self.list = self.depth;
                }
                self.begins = self.depth == self.list;
            }
            Token::RParen => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.list = 0;
                }
            }
            Token::Comma => self.begins = self.depth == self.list,
            token if self.depth == 0 && is(token, Keyword::ADD) => self.begins = true,
            token if begins => self.of_key = KEYS.iter().any(|word| is(token, *word)),
            _ => {}
        }
    }
}

/// Whether a statement is of those that define keys.
fn defines_keys(tokens: &[TokenWithSpan]) -> bool {
    let mut solid = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut next = |wanted: &[Keyword]| {
        solid.next().is_some_and(|token| wanted.iter().any(|keyword| is(&token.token, *keyword)))
    };
    next(&[Keyword::CREATE, Keyword::ALTER])
        && next(&[Keyword::TABLE, Keyword::INDEX, Keyword::UNIQUE])
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
    fn keys_may_be_invisible_and_names_may_be_these_words() {
        for right in [
            "CREATE TABLE t (a INT, visible INT, KEY k (a) INVISIBLE, KEY invisible (visible) VISIBLE)",
            "CREATE TABLE t (a INT, KEY k (a) USING BTREE COMMENT 'x' /*!80000 INVISIBLE */)",
            "CREATE TABLE t (a VARCHAR(9), KEY k (a(3), b) INVISIBLE, b INT, UNIQUE (b) COMMENT 'x' INVISIBLE)",
            "CREATE UNIQUE INDEX k ON t (a(3) DESC) invisible",
            "CREATE INDEX k ON t (a, b) INVISIBLE",
            "CREATE TABLE t (a VARCHAR(9), UNIQUE k (a, b) INVISIBLE, c VARCHAR(9))",
            // Refused by whoever knows columns.
            "CREATE TABLE t (a VARCHAR(9) INVISIBLE, b INT AS (1) INVISIBLE, KEY k (b) INVISIBLE)",
            "ALTER TABLE t ADD KEY k (a(3), b DESC) USING BTREE INVISIBLE",
            "ALTER TABLE t ALTER INDEX k INVISIBLE, ALTER INDEX visible VISIBLE",
            "CREATE VIEW v AS SELECT (a) visible, 'b' invisible FROM t",
        ] {
            parse(right).unwrap_or_else(|error| panic!("{right}: {error}"));
        }
        for wrong in ["CREATE TABLE t (a INT, KEY k INVISIBLE (a))", "ALTER TABLE t ALTER INDEX k"]
        {
            assert_eq!(parse(wrong).unwrap_err().code, 1064, "{wrong}");
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
