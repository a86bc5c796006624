//! Expressions that sqlparser does not read as MySQL does: intervals of several parts and
//! INTERVAL(…), TRIM(LEADING FROM …), CHAR(… USING …), ROW(…), `@v := …`.
//!
//! What is not one of these is left to sqlparser, with no token taken.

use sqlparser::ast::{BinaryOperator, DateTimeField, Expr, Ident, Interval, TrimWhereField};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use values::calendar::Compound;

use crate::tree::call;

/// One of these forms, if it comes next.
pub fn form(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let keyword = match &parser.peek_token_ref().token {
        Token::Word(word) => word.keyword,
        _ => return None,
    };
    match keyword {
        Keyword::INTERVAL => Some(interval(parser)),
        Keyword::TRIM => trim(parser),
        Keyword::CHAR if parser.peek_nth_token(1).token == Token::LParen => Some(char(parser)),
        Keyword::ROW if parser.peek_nth_token(1).token == Token::LParen => Some(row(parser)),
        _ => None,
    }
}

/// `@v := expr`, if it comes next: an operand that reaches as far as it can.
pub fn assignment(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let name = match &parser.peek_token_ref().token {
        Token::Word(word) if word.quote_style.is_none() && word.value.starts_with('@') => {
            word.value.clone()
        }
        _ => return None,
    };
    if name.starts_with("@@") || parser.peek_nth_token(1).token != Token::Assignment {
        return None;
    }
    parser.next_token();
    parser.next_token();
    Some(parser.parse_expr().map(|value| Expr::BinaryOp {
        left: Box::new(Expr::Identifier(Ident::new(name))),
        op: BinaryOperator::Assignment,
        right: Box::new(value),
    }))
}

/// `INTERVAL value UNIT`, or the function INTERVAL(n, a, …): two expressions in parentheses are the function's, whatever
/// stands behind them, and one is the beginning of a value.
fn interval(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.next_token();
    let value = match parser.peek_token_ref().token {
        Token::LParen => match parser.parse_prefix()? {
            Expr::Tuple(numbers) => return Ok(call("interval", numbers)),
            first => rest_of(first, parser)?,
        },
        _ => parser.parse_expr()?,
    };
    let compound = match &parser.peek_token_ref().token {
        Token::Word(word) if Compound::parse(&word.value).is_some() => Some(word.value.clone()),
        _ => None,
    };
    let unit = match compound {
        Some(name) => {
            parser.next_token();
            DateTimeField::Custom(Ident::new(name))
        }
        None if parser.next_token_is_temporal_unit() => parser.parse_date_time_field()?,
        None => {
            let text = format!("a unit is due behind INTERVAL, not '{}'", parser.peek_token());
            return Err(ParserError::ParserError(text));
        }
    };
    Ok(Expr::Interval(Interval {
        value: Box::new(value),
        leading_field: Some(unit),
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    }))
}

/// An expression whose first operand is read already.
fn rest_of(first: Expr, parser: &mut Parser) -> Result<Expr, ParserError> {
    let mut expr = first;
    loop {
        match parser.get_next_precedence()? {
            0 => return Ok(expr),
            precedence => expr = parser.parse_infix(expr, precedence)?,
        }
    }
}

/// `TRIM(LEADING FROM text)`, without what is to be trimmed off.
fn trim(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let keyword = |parser: &Parser, ahead| match parser.peek_nth_token(ahead).token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let side = match keyword(parser, 2) {
        Keyword::LEADING => TrimWhereField::Leading,
        Keyword::TRAILING => TrimWhereField::Trailing,
        Keyword::BOTH => TrimWhereField::Both,
        _ => return None,
    };
    if parser.peek_nth_token(1).token != Token::LParen || keyword(parser, 3) != Keyword::FROM {
        return None;
    }
    for _ in 0..4 {
        parser.next_token();
    }
    let text = parser.parse_expr().and_then(|text| {
        parser.expect_token(&Token::RParen)?;
        Ok(text)
    });
    Some(text.map(|text| Expr::Trim {
        expr: Box::new(text),
        trim_where: Some(side),
        trim_what: None,
        trim_characters: None,
    }))
}

/// `ROW(a, b)`, which is `(a, b)`.
fn row(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.next_token();
    match parser.parse_prefix()? {
        row @ Expr::Tuple(_) => Ok(row),
        _ => Err(ParserError::ParserError("ROW has two values at least".into())),
    }
}

fn char(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.next_token();
    parser.next_token();
    let numbers = parser.parse_comma_separated(Parser::parse_expr)?;
    let charset = match parser.parse_keyword(Keyword::USING) {
        true => Some(parser.parse_object_name(false)?),
        false => None,
    };
    parser.expect_token(&Token::RParen)?;
    let bytes = call("char", numbers);
    Ok(match charset {
        None => bytes,
        charset => Expr::Convert {
            is_try: false,
            expr: Box::new(bytes),
            data_type: None,
            charset,
            target_before_value: false,
            styles: Vec::new(),
        },
    })
}
