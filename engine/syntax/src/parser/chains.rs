//! How deep a statement's tree would become, found out before there is one.
//!
//! `1 + 1 + …` makes a tree as deep as it is long, and trees are dropped and copied by functions that
//! call themselves: a chain without a bound would end the process by its stack. So it has a bound,
//! which is counted over tokens. Nothing is parsed here, and the count is never too low.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use values::error::{SqlResult, too_many_operators};

use crate::dialect::Mysql;

/// Operators one after the other, those of nested expressions included. Threads that hold statements
/// have the stack for it: see [`STACK`].
pub const MOST: usize = 2_000;

/// Operators in a row that compute: what an expression's type is, is asked anew on every step, so the
/// time to plan a chain grows with the cube of its length. AND and OR begin another chain.
pub const MOST_COMPUTED: usize = 256;

/// The stack that a thread needs which parses, plans or runs statements.
pub const STACK: usize = 64 << 20;

/// What stands between an opening and its end.
#[derive(Default)]
struct Level {
    /// Operators of the expression that is being read, and the depth of what it holds.
    deep: usize,
    /// The deepest expression before it.
    deepest: usize,
    /// Operators since the last AND or OR, and the depth of what they hold.
    computed: usize,
    /// The most of these before.
    most_computed: usize,
    /// UNION and its kin.
    sets: usize,
    /// Opened by CASE and not by a parenthesis.
    case: bool,
}

impl Level {
    fn depth(&self) -> usize {
        self.deepest.max(self.deep) + self.sets
    }

    /// AND, OR or another expression comes.
    fn connect(&mut self) {
        self.most_computed = self.most_computed.max(self.computed);
        self.computed = 0;
    }

    /// Another expression begins.
    fn next(&mut self) {
        self.connect();
        self.deepest = self.deepest.max(self.deep);
        self.deep = 0;
    }
}

/// Whether a token stands between two truth values.
fn connects(token: &Token, dialect: &Mysql) -> bool {
    match token {
        Token::Word(word) if word.quote_style.is_none() => {
            matches!(word.keyword, Keyword::AND | Keyword::OR | Keyword::XOR)
        }
        Token::StringConcat => !dialect.pipes_as_concat,
        Token::Overlap => true,
        _ => false,
    }
}

/// Whether a word makes an expression one deeper.
fn is_operator(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::AND
            | Keyword::OR
            | Keyword::XOR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::IN
            | Keyword::LIKE
            | Keyword::RLIKE
            | Keyword::REGEXP
            | Keyword::BETWEEN
            | Keyword::DIV
            | Keyword::MEMBER
            | Keyword::COLLATE
            | Keyword::AT
            | Keyword::BINARY
    )
}

/// Refuses a statement whose tree would be too deep.
///
/// # Errors
///
/// 1436, as MySQL has when a statement does not fit its stack.
pub fn check(tokens: &[TokenWithSpan], dialect: &Mysql) -> SqlResult<()> {
    let mut levels = vec![Level::default()];
    // Whether an operand is due: then a word is a name, whatever it is elsewhere.
    let mut due = true;
    for token in tokens {
        if matches!(token.token, Token::Whitespace(_)) {
            continue;
        }
        let Some(level) = levels.last_mut() else { break };
        let mut operator = false;
        let connects = connects(&token.token, dialect);
        // A word that stands for an operand connects nothing.
        if connects && !due {
            level.connect();
        }
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => levels.push(Level::default()),
            Token::RParen | Token::RBracket | Token::RBrace => {
                // A CASE without END is no longer open.
                while levels.last().is_some_and(|level| level.case) && levels.len() > 1 {
                    close(&mut levels);
                }
                close(&mut levels);
            }
            Token::Comma | Token::SemiColon => level.next(),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE => levels.push(Level { case: true, ..Level::default() }),
                Keyword::END if level.case => close(&mut levels),
                Keyword::WHEN | Keyword::THEN | Keyword::ELSE if level.case && !due => {
                    level.next();
                }
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => {
                    level.next();
                    level.sets += 1;
                }
                keyword => {
                    operator = is_operator(keyword) || word.value.eq_ignore_ascii_case("MOD")
                }
            },
            Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::DoubleQuotedByteStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::Placeholder(_)
            | Token::Period
            | Token::EOF => {}
            // Every other sign is an operator, or no SQL at all.
            _ => operator = true,
        }
        due = operator;
        if let Some(level) = levels.last_mut() {
            level.deep += usize::from(operator);
            level.computed += usize::from(operator && !connects);
            if level.depth() > MOST || level.computed > MOST_COMPUTED {
                return Err(too_many_operators(
                    MOST,
                    MOST_COMPUTED,
                    token.span.start.line,
                    token.span.start.column,
                ));
            }
        }
    }
    Ok(())
}

/// Ends the innermost level: it is an operand of the one around it.
fn close(levels: &mut Vec<Level>) {
    if levels.len() < 2 {
        return;
    }
    let Some(inner) = levels.pop() else { return };
    if let Some(outer) = levels.last_mut() {
        outer.deep = outer.deep.max(inner.depth() + 1);
        let computed = inner.most_computed.max(inner.computed) + 1;
        outer.computed = outer.computed.max(computed);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, MOST_COMPUTED};
    use crate::parser::parse;

    /// Runs on a thread with the stack that the server's have.
    fn with_stack(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(super::STACK).spawn(test).unwrap();
        thread.join().unwrap();
    }

    fn code(sql: &str) -> u16 {
        match parse(sql) {
            Ok(statement) => {
                drop(statement.clone());
                0
            }
            Err(error) => error.code,
        }
    }

    #[test]
    fn chains_have_a_bound() {
        with_stack(|| {
            for operator in [
                "+",
                "-",
                "*",
                "/",
                "%",
                "^",
                "|",
                "&",
                "<<",
                "=",
                "<=>",
                "||",
                "&&",
                " AND ",
                " OR ",
                " XOR ",
                " DIV ",
                " MOD ",
                " LIKE ",
                " IS NULL = ",
                " IN (1) + ",
                "->",
            ] {
                let long = format!("SELECT 1{}", format!("{operator}1").repeat(100_000));
                assert_eq!(code(&long), 1436, "{operator}");
                assert_eq!(code(&format!("{long}{operator}")), 1436, "{operator}");
                let few = format!("{operator}1").repeat(MOST_COMPUTED / 3);
                assert!([0, 1064].contains(&code(&format!("SELECT 1{few}"))), "{operator}");
                assert_eq!(code(&format!("SELECT 1{few}+")), 1064, "{operator}");
            }
            let unions = " UNION ALL SELECT 1".repeat(100_000);
            assert_eq!(code(&format!("SELECT 1{unions}")), 1436);
        });
    }

    #[test]
    fn what_looks_like_the_end_of_a_chain_is_none() {
        with_stack(|| {
            for link in ["when+1+", "then+", "`,`+", "select+", "end+", "(1)+", "f(1,1)+", "', '+"]
            {
                let chain = format!("SELECT {}1", link.repeat(50_000));
                assert!([1436, 1064].contains(&code(&chain)), "{link}");
                let within = format!("SELECT CASE WHEN {}1 THEN 1 END", link.repeat(50_000));
                assert!([1436, 1064].contains(&code(&within)), "{link} within CASE");
            }
            let mut nested = "1".to_owned();
            for _ in 0..50 {
                nested = format!("({nested}){}", "+1".repeat(MOST / 20));
            }
            assert_eq!(code(&format!("SELECT {nested}")), 1436);
            assert_eq!(code(&format!("SELECT {}1", "- ".repeat(100_000))), 1436);
            assert_eq!(code(&format!("SELECT {}1", "NOT ".repeat(100_000))), 1436);
            assert_eq!(code(&format!("SELECT {}1", "(".repeat(100_000))), 1064);
        });
    }

    #[test]
    fn long_lists_and_nesting_as_clients_write_them_are_no_chains() {
        with_stack(|| {
            let list = vec!["1+1"; 100_000].join(",");
            assert_eq!(code(&format!("SELECT 1 IN ({list})")), 0);
            assert_eq!(code(&format!("SELECT {list}")), 0);
            let rows = vec!["(1, -1)"; 50_000].join(",");
            assert_eq!(code(&format!("INSERT INTO t VALUES {rows}")), 0);
            let branches = " WHEN a = 1 THEN 1 + 1".repeat(10_000);
            assert_eq!(code(&format!("SELECT CASE{branches} ELSE 0 END")), 0);
            let either = " OR a = 2".repeat(MOST / 3);
            assert_eq!(code(&format!("SELECT 1 WHERE a = 1{either}")), 0);
            let deep = format!("SELECT {}a{}", "(".repeat(200), " AND b)".repeat(200));
            assert_eq!(code(&deep), 0);
            let subqueries = format!("SELECT {}1{}", "(SELECT ".repeat(60), ")".repeat(60));
            assert_eq!(code(&subqueries), 0);
        });
    }
}
