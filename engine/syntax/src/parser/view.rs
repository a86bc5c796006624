//! CREATE VIEW, ALTER VIEW and DROP VIEW.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use values::error::{SqlResult, check_option};

use super::{admin, expect, name, object, refused, take, unexpected};
use crate::names::parts;
use crate::statement::{DefineView, Stmt};

/// CREATE [OR REPLACE] … VIEW, ALTER … VIEW.
pub fn put_view(parser: &mut Parser) -> SqlResult<Stmt> {
    let alter = take(parser, &["ALTER"]);
    if !alter {
        expect(parser, &["CREATE"])?;
    }
    let replace = take(parser, &["OR", "REPLACE"]);
    let (mut definer, mut invoker) = (None, false);
    loop {
        if take(parser, &["ALGORITHM"]) {
            _ = parser.consume_token(&Token::Eq);
            let known = ["UNDEFINED", "MERGE", "TEMPTABLE"];
            // How a view is read is the planner's choice.
            if !known.iter().any(|word| take(parser, &[word])) {
                return Err(unexpected(&parser.peek_token(), "UNDEFINED, MERGE or TEMPTABLE"));
            }
        } else if take(parser, &["DEFINER"]) {
            _ = parser.consume_token(&Token::Eq);
            definer = admin::parse_user(parser)?;
        } else if take(parser, &["SQL", "SECURITY"]) {
            invoker = take(parser, &["INVOKER"]);
            if !invoker {
                expect(parser, &["DEFINER"])?;
            }
        } else {
            break;
        }
    }
    expect(parser, &["VIEW"])?;
    let view = object(parser)?;
    let mut columns = Vec::new();
    if parser.consume_token(&Token::LParen) {
        loop {
            columns.push(name(parser)?);
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        if !parser.consume_token(&Token::RParen) {
            return Err(unexpected(&parser.peek_token(), ")"));
        }
    }
    expect(parser, &["AS"])?;
    let query = parser.parse_query().map_err(|error| refused(&error))?;
    if take(parser, &["WITH"]) {
        _ = take(parser, &["CASCADED"]) || take(parser, &["LOCAL"]);
        expect(parser, &["CHECK", "OPTION"])?;
        // No view takes writes, so there are none to check.
        let name = parts(&view).join(".");
        return Err(check_option(name));
    }
    let name = view;
    Ok(Stmt::PutView(Box::new(DefineView {
        alter,
        replace,
        name,
        columns,
        query,
        definer,
        invoker,
    })))
}

/// DROP VIEW.
pub fn drop_views(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["DROP", "VIEW"])?;
    let if_exists = take(parser, &["IF", "EXISTS"]);
    let mut names = vec![object(parser)?];
    while parser.consume_token(&Token::Comma) {
        names.push(object(parser)?);
    }
    _ = take(parser, &["RESTRICT"]) || take(parser, &["CASCADE"]);
    Ok(Stmt::DropViews { names, if_exists })
}
