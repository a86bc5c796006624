//! UPDATE and DELETE as MySQL writes them: modifiers, which sqlparser would read as names of tables,
//! and lists of tables.

use sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, OptimizerHint, OptimizerHintStyle, SqliteOnConflict,
    Statement, TableWithJoins, Update,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Whitespace};
use values::error::{SqlResult, syntax};

use super::{refused, take};
use crate::statement::Stmt;

/// UPDATE [LOW_PRIORITY] [IGNORE] tables SET …: the priority means nothing here, as under InnoDB.
pub(super) fn update(parser: &mut Parser) -> SqlResult<Stmt> {
    let first = parser.next_token();
    let hints = hints(parser);
    _ = take(parser, &["LOW_PRIORITY"]);
    let ignore = take(parser, &["IGNORE"]);
    let mut update = rest(parser).map_err(|error| refused(&error))?;
    update.update_token = first.into();
    update.optimizer_hints = hints;
    update.or = ignore.then_some(SqliteOnConflict::Ignore);
    Ok(Stmt::Update(Box::new(update)))
}

fn rest(parser: &mut Parser) -> Result<Update, ParserError> {
    let tables = parser.parse_comma_separated(Parser::parse_table_and_joins)?;
    parser.expect_keyword(Keyword::SET)?;
    let assignments = parser.parse_comma_separated(Parser::parse_assignment)?;
    let selection = match parser.parse_keyword(Keyword::WHERE) {
        true => Some(parser.parse_expr()?),
        false => None,
    };
    let order_by = match parser.parse_keywords(&[Keyword::ORDER, Keyword::BY]) {
        true => parser.parse_comma_separated(Parser::parse_order_by_expr)?,
        false => Vec::new(),
    };
    let limit = match parser.parse_keyword(Keyword::LIMIT) {
        true => Some(parser.parse_expr()?),
        false => None,
    };
    Ok(Update {
        update_token: sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        table: joined(tables)?,
        assignments,
        from: None,
        selection,
        returning: None,
        output: None,
        or: None,
        order_by,
        limit,
    })
}

/// A list of tables as one join.
fn joined(tables: Vec<TableWithJoins>) -> Result<TableWithJoins, ParserError> {
    let mut tables = tables.into_iter();
    let none = || ParserError::ParserError("UPDATE names no table".into());
    let mut all = tables.next().ok_or_else(none)?;
    for table in tables {
        all.joins.push(Join {
            relation: table.relation,
            global: false,
            join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
        });
        all.joins.extend(table.joins);
    }
    Ok(all)
}

/// The hint comments that come next, which sqlparser reads right behind the first word and no modifier.
fn hints(parser: &mut Parser) -> Vec<OptimizerHint> {
    let mut hints = Vec::new();
    while let Token::Whitespace(blank) = parser.peek_token_no_skip().token {
        if let Whitespace::MultiLineComment(comment) = &blank
            && let Some(text) = comment.strip_prefix('+')
        {
            let (prefix, style) = (String::new(), OptimizerHintStyle::MultiLine);
            hints.push(OptimizerHint { prefix, text: text.to_owned(), style });
        }
        _ = parser.next_token_no_skip();
    }
    hints
}

/// DELETE [LOW_PRIORITY] [QUICK] [IGNORE] …
pub(super) fn delete(parser: &mut Parser) -> SqlResult<Stmt> {
    let first = parser.next_token();
    let hints = hints(parser);
    for word in ["LOW_PRIORITY", "QUICK"] {
        _ = take(parser, &[word]);
    }
    let ignore = take(parser, &["IGNORE"]);
    match parser.parse_delete(first).map_err(|error| refused(&error))? {
        Statement::Delete(mut delete) => {
            delete.optimizer_hints = hints;
            Ok(Stmt::Delete(Box::new(delete), ignore))
        }
        _ => Err(syntax("no DELETE")),
    }
}
