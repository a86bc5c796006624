//! Text into statements: our own forms first, then sqlparser's.

use sqlparser::ast::Statement;
use sqlparser::parser::{Parser, ParserError};

use crate::dialect::Mysql;
use crate::error::{SqlResult, syntax};
use crate::result::SqlError;

/// Deepest nesting of a statement.
const DEPTH: usize = 64;

/// One statement as sqlparser reads it.
pub fn parse_sql(sql: &str) -> SqlResult<Statement> {
    let mut statements = Parser::new(&Mysql)
        .with_recursion_limit(DEPTH)
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| refused(&error))?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        (None, _) => Err(SqlError::new(1065, b"42000", "Query was empty")),
        _ => Err(syntax("only one statement is allowed here")),
    }
}

/// sqlparser's refusal as MySQL's error 1064, with the position that it names.
pub fn refused(error: &ParserError) -> SqlError {
    match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => {
            syntax(text.trim_start_matches("sql parser error: "))
        }
        ParserError::RecursionLimitExceeded => syntax("the statement is nested too deeply"),
    }
}
