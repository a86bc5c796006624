//! PREPARE, EXECUTE, DEALLOCATE, and the variables of SELECT … INTO.

use sqlparser::ast::Expr;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use values::error::SqlResult;

use super::{expect, name, refused, take, unexpected};
use crate::statement::Stmt;

/// PREPARE name FROM text.
pub(super) fn prepare(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["PREPARE"])?;
    let name = name(parser)?;
    expect(parser, &["FROM"])?;
    let at = parser.peek_token();
    let source = parser.parse_expr().map_err(|error| refused(&error))?;
    let variable = matches!(&source, Expr::Identifier(ident) if ident.value.starts_with('@'));
    if !variable && crate::constant::literal(&source).is_none() {
        return Err(unexpected(&at, "a text or a variable"));
    }
    Ok(Stmt::Prepare { name, source: Box::new(source) })
}

/// EXECUTE name [USING @a, @b].
pub(super) fn execute(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["EXECUTE"])?;
    let name = name(parser)?;
    let mut using = Vec::new();
    if take(parser, &["USING"]) {
        loop {
            let token = parser.next_token();
            match variable(&token.token) {
                Some(variable) => using.push(variable),
                None => return Err(unexpected(&token, "a variable")),
            }
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
    }
    Ok(Stmt::Execute { name, using })
}

/// DEALLOCATE PREPARE name, DROP PREPARE name.
pub(super) fn deallocate(parser: &mut Parser) -> SqlResult<Stmt> {
    parser.next_token();
    expect(parser, &["PREPARE"])?;
    Ok(Stmt::Deallocate(name(parser)?))
}

/// The name of `@name`.
fn variable(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() && !word.value.starts_with("@@") => {
            word.value.strip_prefix('@').map(str::to_lowercase)
        }
        _ => None,
    }
}

/// Takes `INTO @a, @b` out of a SELECT: sqlparser reads the name of one table there.
pub(super) fn take_into(tokens: &mut Vec<TokenWithSpan>) -> Vec<String> {
    let solid: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let is = |at: usize, expected: &str| {
        matches!(
            &tokens[at].token,
            Token::Word(word) if word.quote_style.is_none()
                && word.value.eq_ignore_ascii_case(expected)
        )
    };
    let first = solid.first().copied();
    if !first.is_some_and(|at| is(at, "SELECT") || is(at, "WITH") || is(at, "VALUES")) {
        return Vec::new();
    }
    let mut depth = 0usize;
    let found = solid.windows(2).position(|pair| {
        match tokens[pair[0]].token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && is(pair[0], "INTO") && variable(&tokens[pair[1]].token).is_some()
    });
    let Some(found) = found else { return Vec::new() };
    let mut names = Vec::new();
    let mut last = solid[found];
    let mut rest = solid[found + 1..].iter().copied();
    while let Some(at) = rest.next() {
        let Some(name) = variable(&tokens[at].token) else { break };
        names.push(name);
        last = at;
        match rest.next() {
            Some(comma) if tokens[comma].token == Token::Comma => {}
            _ => break,
        }
    }
    tokens.drain(solid[found]..=last);
    names
}
