//! GRANT and REVOKE of MySQL's static privileges, and of those on resource groups. Others, privileges of columns and routines, and
//! roles are refused by name.

use sqlparser::ast::{Ident, ObjectName};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use types::Privileges;
use values::error::{SqlResult, unsupported, wrong_grant, wrong_usage};

use super::admin::parse_user;
use super::{expect, name, peek_word, take, unexpected};
use crate::statement::{Grant, GrantLevel, Stmt};

/// GRANT …, REVOKE ….
pub fn grant(parser: &mut Parser) -> SqlResult<Stmt> {
    let give = take(parser, &["GRANT"]);
    if !give {
        expect(parser, &["REVOKE"])?;
    }
    let verb = if give { "GRANT" } else { "REVOKE" };
    let if_exists = !give && take(parser, &["IF", "EXISTS"]);
    let list = list(parser, verb)?;
    let (mut privileges, mut grant_level) = (Privileges::NONE, None);
    if take(parser, &["ON"]) {
        if let Some(other) = list.iter().find(|name| *name == "PROXY") {
            return Err(unsupported(format!("{verb} {other}")));
        }
        let level = level(parser, verb)?;
        privileges = named(&list, &level, verb)?;
        grant_level = Some(level);
    } else {
        let all = list.first().is_some_and(|name| name == "ALL" || name == "ALL PRIVILEGES");
        let option = list.get(1).is_some_and(|name| name == "GRANT OPTION");
        if give || !all || !option || list.len() > 2 {
            return Err(unsupported(format!("{verb} of roles")));
        }
    }
    expect(parser, &[if give { "TO" } else { "FROM" }])?;
    let mut users = vec![parse_user(parser)?];
    while parser.consume_token(&Token::Comma) {
        users.push(parse_user(parser)?);
    }
    if give && take(parser, &["WITH", "GRANT", "OPTION"]) {
        privileges = privileges.and(Privileges::GRANT_OPTION);
    }
    let ignore_unknown = !give && take(parser, &["IGNORE", "UNKNOWN", "USER"]);
    if let Some(word @ ("IDENTIFIED" | "REQUIRE" | "WITH" | "AS")) = peek_word(parser, 0).as_deref()
    {
        return Err(unsupported(format!("{verb} … {word}")));
    }
    let level = grant_level;
    Ok(Stmt::Grant(Box::new(Grant { give, privileges, level, users, if_exists, ignore_unknown })))
}

/// Names of privileges, or of roles, in upper case.
fn list(parser: &mut Parser, verb: &str) -> SqlResult<Vec<String>> {
    let mut list = Vec::new();
    loop {
        let mut words = Vec::new();
        while let Some(word) = peek_word(parser, 0) {
            if ["ON", "TO", "FROM"].contains(&word.as_str()) {
                break;
            }
            parser.next_token();
            words.push(word);
        }
        match parser.peek_token().token {
            Token::LParen if !words.is_empty() => {
                return Err(unsupported(format!("{verb} {} of columns", words.join(" "))));
            }
            Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) | Token::Word(_)
                if words.is_empty() && peek_word(parser, 0).is_none() =>
            {
                return Err(unsupported(format!("{verb} of roles")));
            }
            _ if words.is_empty() => {
                return Err(unexpected(&parser.peek_token(), "a privilege"));
            }
            _ => list.push(words.join(" ")),
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(list);
        }
    }
}

/// `*.*`, `*`, `d.*`, `d.t` or `t`.
fn level(parser: &mut Parser, verb: &str) -> SqlResult<GrantLevel> {
    let qualified = parser.peek_nth_token(1).token == Token::Period;
    match peek_word(parser, 0).as_deref() {
        Some(kind @ ("FUNCTION" | "PROCEDURE" | "LIBRARY")) if !qualified => {
            return Err(unsupported(format!("{verb} … ON {kind}")));
        }
        Some("TABLE") if !qualified => _ = parser.next_token(),
        _ => {}
    }
    if parser.consume_token(&Token::Mul) {
        if !parser.consume_token(&Token::Period) {
            return Ok(GrantLevel::Current);
        }
        return match parser.consume_token(&Token::Mul) {
            true => Ok(GrantLevel::Everything),
            false => Err(unexpected(&parser.peek_token(), "*")),
        };
    }
    let first = name(parser)?;
    if !parser.consume_token(&Token::Period) {
        return Ok(GrantLevel::Table(ObjectName::from(vec![Ident::new(first)])));
    }
    if parser.consume_token(&Token::Mul) {
        return Ok(GrantLevel::Database(first));
    }
    let path = vec![Ident::new(first), Ident::new(name(parser)?)];
    Ok(GrantLevel::Table(ObjectName::from(path)))
}

/// The privileges of a list, as far as there are such on a level.
fn named(list: &[String], level: &GrantLevel, verb: &str) -> SqlResult<Privileges> {
    let all = match level {
        GrantLevel::Everything => Privileges::ALL,
        GrantLevel::Current | GrantLevel::Database(_) => Privileges::ON_DATABASES,
        GrantLevel::Table(_) => Privileges::ON_TABLES,
    };
    let mut privileges = Privileges::NONE;
    for name in list {
        let one = match name.as_str() {
            "USAGE" => Privileges::NONE,
            "ALL" | "ALL PRIVILEGES" => all,
            name => {
                Privileges::named(name).ok_or_else(|| unsupported(format!("{verb} of {name}")))?
            }
        };
        privileges = privileges.and(one);
    }
    let dynamic = match level {
        GrantLevel::Everything => Privileges::DYNAMIC,
        _ => Privileges::NONE,
    };
    if all.and(dynamic).and(Privileges::GRANT_OPTION).contains(privileges) {
        return Ok(privileges);
    }
    Err(match level {
        GrantLevel::Table(_) => wrong_grant(),
        _ => wrong_usage("DB GRANT", "GLOBAL PRIVILEGES"),
    })
}
