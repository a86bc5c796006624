//! ANALYZE, CHECK and OPTIMIZE TABLE, ADMIN CHECK TABLE, LOCK TABLES: lists of tables, and words that
//! make no difference here.

use sqlparser::ast::ObjectName;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use values::error::{SqlResult, unsupported};

use super::{expect, name, object, peek_word, take, unexpected};
use crate::statement::{Stmt, Task};

/// Options of CHECK TABLE: it is always done in full.
const DEPTHS: [&[&str]; 6] =
    [&["FOR", "UPGRADE"], &["QUICK"], &["FAST"], &["MEDIUM"], &["EXTENDED"], &["CHANGED"]];

/// ANALYZE, CHECK or OPTIMIZE TABLE.
pub(super) fn maintain(parser: &mut Parser) -> SqlResult<Stmt> {
    let verb = parser.next_token().token.to_string().to_uppercase();
    let task = match verb.as_str() {
        "ANALYZE" => Task::Analyze,
        "OPTIMIZE" => Task::Optimize,
        _ => Task::Check,
    };
    if task != Task::Check {
        _ = take(parser, &["NO_WRITE_TO_BINLOG"]) || take(parser, &["LOCAL"]);
    }
    let tables = tables(parser)?;
    if task == Task::Check {
        while DEPTHS.into_iter().any(|words| take(parser, words)) {}
    }
    match peek_word(parser, 0) {
        Some(word) => Err(unsupported(format!("{verb} TABLE … {word}"))),
        None => Ok(Stmt::Maintain { task, tables }),
    }
}

/// ADMIN CHECK TABLE.
pub(super) fn admin_check(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["ADMIN", "CHECK"])?;
    if let Some(word) = peek_word(parser, 0).filter(|word| word != "TABLE") {
        return Err(unsupported(format!("ADMIN CHECK {word}")));
    }
    Ok(Stmt::Maintain { task: Task::AdminCheck, tables: tables(parser)? })
}

fn tables(parser: &mut Parser) -> SqlResult<Vec<ObjectName>> {
    if !take(parser, &["TABLE"]) {
        expect(parser, &["TABLES"])?;
    }
    let mut tables = vec![object(parser)?];
    while parser.consume_token(&Token::Comma) {
        tables.push(object(parser)?);
    }
    Ok(tables)
}

/// LOCK TABLES t [[AS] a] READ [LOCAL] | [LOW_PRIORITY] WRITE, …
pub(super) fn lock_tables(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["LOCK"])?;
    if !take(parser, &["TABLES"]) {
        expect(parser, &["TABLE"])?;
    }
    let mut tables = Vec::new();
    loop {
        tables.push(object(parser)?);
        let word = peek_word(parser, 0).unwrap_or_default();
        if take(parser, &["AS"]) || !["READ", "LOW_PRIORITY", "WRITE"].contains(&word.as_str()) {
            name(parser)?;
        }
        if take(parser, &["READ"]) {
            _ = take(parser, &["LOCAL"]);
        } else {
            _ = take(parser, &["LOW_PRIORITY"]);
            if !take(parser, &["WRITE"]) {
                return Err(unexpected(&parser.peek_token(), "READ or WRITE"));
            }
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(Stmt::LockTables(tables));
        }
    }
}
