//! LOAD DATA LOCAL INFILE.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use values::error::{SqlResult, syntax, unsupported};

use super::{expect, name, number, object, peek_word, refused, take, text, unexpected};
use crate::statement::{LoadData, LoadTarget, Stmt};

/// LOAD DATA …
pub fn load_data(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["LOAD", "DATA"])?;
    _ = take(parser, &["LOW_PRIORITY"]) || take(parser, &["CONCURRENT"]);
    if !take(parser, &["LOCAL"]) {
        return Err(unsupported("LOAD DATA INFILE without LOCAL"));
    }
    expect(parser, &["INFILE"])?;
    let file = text(parser)?;
    let replace = take(parser, &["REPLACE"]);
    if !replace {
        _ = take(parser, &["IGNORE"]);
    }
    expect(parser, &["INTO", "TABLE"])?;
    let table = object(parser)?;
    if peek_word(parser, 0).as_deref() == Some("PARTITION") {
        return Err(unsupported("PARTITION"));
    }
    if take(parser, &["CHARACTER", "SET"]) || take(parser, &["CHARSET"]) {
        let charset = name(parser)?;
        if !["utf8", "utf8mb4", "utf8mb3", "ascii"].contains(&charset.to_lowercase().as_str()) {
            return Err(unsupported(format!("LOAD DATA … CHARACTER SET {charset}")));
        }
    }
    let mut load = LoadData {
        file,
        table,
        replace,
        separator: "\t".into(),
        quote: None,
        escape: Some(b'\\'),
        line_end: "\n".into(),
        skip: 0,
        columns: Vec::new(),
        assignments: Vec::new(),
    };
    fields(parser, &mut load)?;
    lines(parser, &mut load)?;
    if take(parser, &["IGNORE"]) {
        load.skip = number(parser)?;
        if !take(parser, &["LINES"]) {
            expect(parser, &["ROWS"])?;
        }
    }
    columns(parser, &mut load)?;
    assignments(parser, &mut load)?;
    Ok(Stmt::LoadData(Box::new(load)))
}

/// `(column, @variable, …)`
fn columns(parser: &mut Parser, load: &mut LoadData) -> SqlResult<()> {
    if parser.consume_token(&Token::LParen) {
        loop {
            let column = name(parser)?;
            load.columns.push(match column.strip_prefix('@') {
                Some(variable) => LoadTarget::Variable(variable.to_lowercase()),
                None => LoadTarget::Column(column),
            });
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        if !parser.consume_token(&Token::RParen) {
            return Err(unexpected(&parser.peek_token(), ")"));
        }
    }
    Ok(())
}

/// `SET column = value, …`
fn assignments(parser: &mut Parser, load: &mut LoadData) -> SqlResult<()> {
    if take(parser, &["SET"]) {
        loop {
            let column = name(parser)?;
            if !parser.consume_token(&Token::Eq) {
                return Err(unexpected(&parser.peek_token(), "="));
            }
            let value = parser.parse_expr().map_err(|error| refused(&error))?;
            load.assignments.push((column, value));
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
    }
    Ok(())
}

fn fields(parser: &mut Parser, load: &mut LoadData) -> SqlResult<()> {
    if !take(parser, &["FIELDS"]) && !take(parser, &["COLUMNS"]) {
        return Ok(());
    }
    loop {
        if take(parser, &["TERMINATED", "BY"]) {
            load.separator = text(parser)?;
            if load.separator.is_empty() {
                return Err(unsupported("LOAD DATA with fields of fixed width"));
            }
        } else if take(parser, &["OPTIONALLY", "ENCLOSED", "BY"])
            || take(parser, &["ENCLOSED", "BY"])
        {
            load.quote = one_byte(&text(parser)?, "ENCLOSED BY")?;
        } else if take(parser, &["ESCAPED", "BY"]) {
            load.escape = one_byte(&text(parser)?, "ESCAPED BY")?;
        } else {
            return Ok(());
        }
    }
}

fn one_byte(text: &str, clause: &str) -> SqlResult<Option<u8>> {
    match text.as_bytes() {
        [] => Ok(None),
        [byte] => Ok(Some(*byte)),
        _ => Err(syntax(format!("{clause} takes one character, not '{text}'"))),
    }
}

fn lines(parser: &mut Parser, load: &mut LoadData) -> SqlResult<()> {
    if !take(parser, &["LINES"]) {
        return Ok(());
    }
    loop {
        if take(parser, &["TERMINATED", "BY"]) {
            load.line_end = text(parser)?;
            if load.line_end.is_empty() {
                return Err(unsupported("LINES TERMINATED BY ''"));
            }
        } else if take(parser, &["STARTING", "BY"]) {
            if !text(parser)?.is_empty() {
                return Err(unsupported("LINES STARTING BY"));
            }
        } else {
            return Ok(());
        }
    }
}
