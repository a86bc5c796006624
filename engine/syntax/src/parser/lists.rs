//! Lists of tables in parentheses, as in `t1 LEFT JOIN (t2, t3) ON …`: sqlparser reads joins there,
//! and no commas.
//!
//! By tokens alone, before anything is parsed; whatever is no such list stays as it is.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// An open parenthesis, or the statement itself.
#[derive(Default)]
struct Level {
    /// Whether it holds tables, and no query.
    list: bool,
    /// Whether tables are named here, since the last FROM.
    from: bool,
    /// Where the parenthesis stands; the statement itself has none.
    opened: Option<usize>,
    commas: Vec<usize>,
}

/// What a token becomes.
enum Edit {
    /// `((`, `))`.
    Double,
    /// `) CROSS JOIN (`.
    Cross,
}

/// Writes such lists as joins. A comma binds less than JOIN does, so what stands between commas gets
/// parentheses of its own.
pub fn joined(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let edits = edits(&tokens);
    if edits.is_empty() {
        return tokens;
    }
    let mut edits = edits.into_iter().peekable();
    let mut out = Vec::with_capacity(tokens.len() + edits.len() * 3);
    for (at, TokenWithSpan { token, span }) in tokens.into_iter().enumerate() {
        let edit = edits.next_if(|(edited, _)| *edited == at);
        let become_ = match edit {
            None => vec![token],
            Some((_, Edit::Double)) => vec![token.clone(), token],
            Some((_, Edit::Cross)) => {
                let [cross, join] = ["CROSS", "JOIN"].map(Token::make_keyword);
                vec![Token::RParen, cross, join, Token::LParen]
            }
        };
        out.extend(become_.into_iter().map(|token| TokenWithSpan { token, span }));
    }
    out
}

/// Positions, ascending, and what becomes of the tokens there.
fn edits(tokens: &[TokenWithSpan]) -> Vec<(usize, Edit)> {
    let mut edits = Vec::new();
    let mut levels = vec![Level::default()];
    let mut before = None;
    let solid = tokens.iter().enumerate().filter(|(_, t)| !matches!(t.token, Token::Whitespace(_)));
    for (at, TokenWithSpan { token, .. }) in solid {
        let Some(level) = levels.last_mut() else { break };
        match token {
            Token::LParen => {
                let list = before.is_some_and(leads_to_tables)
                    || (level.list && before == Some(&Token::LParen))
                    || ((level.list || level.from) && before == Some(&Token::Comma));
                levels.push(Level { list, opened: Some(at), ..Level::default() });
            }
            Token::RParen if level.opened.is_some() => {
                if let Some(Level { opened: Some(open), commas, .. }) = levels.pop()
                    && !commas.is_empty()
                {
                    edits.push((open, Edit::Double));
                    edits.extend(commas.into_iter().map(|comma| (comma, Edit::Cross)));
                    edits.push((at, Edit::Double));
                }
            }
            Token::Comma if level.list => level.commas.push(at),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::FROM => level.from = true,
                // A query in the parentheses, or what follows the tables of the statement.
                Keyword::SELECT
                | Keyword::WITH
                | Keyword::VALUES
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::WINDOW
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::SET => {
                    (level.list, level.from) = (false, false);
                    level.commas.clear();
                }
                _ => {}
            },
            _ => {}
        }
        before = Some(token);
    }
    edits.sort_by_key(|(at, _)| *at);
    edits
}

/// Whether a parenthesis behind this word holds tables, or a query.
fn leads_to_tables(token: &Token) -> bool {
    let Token::Word(word) = token else { return false };
    let leads = matches!(word.keyword, Keyword::FROM | Keyword::JOIN | Keyword::STRAIGHT_JOIN);
    leads && word.quote_style.is_none()
}

#[cfg(test)]
mod tests {
    use crate::parser::parse_sql;

    #[test]
    fn commas_in_parentheses_are_joins_that_bind_less() {
        let read = |sql: &str| parse_sql(sql).map(|statement| statement.to_string());
        let cases = [
            ("SELECT * FROM (a, b)", "SELECT * FROM (a CROSS JOIN b)"),
            ("SELECT * FROM (a)", "SELECT * FROM a"),
            (
                "SELECT * FROM a LEFT JOIN (b, c JOIN d ON 1) ON (2, 3) = (x, y)",
                "SELECT * FROM a LEFT JOIN (b CROSS JOIN (c JOIN d ON 1)) ON (2, 3) = (x, y)",
            ),
            (
                "SELECT * FROM a, ((b, c), d) WHERE x IN (1, 2)",
                "SELECT * FROM a, (((b CROSS JOIN c)) CROSS JOIN d) WHERE x IN (1, 2)",
            ),
            (
                "SELECT f(1, 2) FROM ((SELECT 1, 2) AS a, b) LEFT JOIN c USING (x, y)",
                "SELECT f(1, 2) FROM ((SELECT 1, 2) AS a CROSS JOIN b) LEFT JOIN c USING(x, y)",
            ),
            (
                "SELECT * FROM (SELECT 1, 2 FROM a, (b, c)) AS d, e",
                "SELECT * FROM (SELECT 1, 2 FROM a, (b CROSS JOIN c)) AS d, e",
            ),
            (
                "SELECT (SELECT max(x) FROM (a, b)), 2 FROM (c) ORDER BY 1, (2)",
                "SELECT (SELECT max(x) FROM (a CROSS JOIN b)), 2 FROM c ORDER BY 1, (2)",
            ),
        ];
        for (sql, expected) in cases {
            assert_eq!(read(sql).as_deref(), Ok(expected), "{sql}");
        }
        for wrong in ["SELECT * FROM (a,)", "SELECT * FROM (a, b", "SELECT * FROM (, a)", "(a, b)"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
