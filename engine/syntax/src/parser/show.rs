//! SHOW.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use values::error::{SqlResult, unsupported};

use super::{expect, name, object, peek_word, refused, take, text, unexpected};
use crate::statement::{Filter, Show, ShowKind, Stmt};

/// SHOW …
pub fn show(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["SHOW"])?;
    let full = take(parser, &["FULL"]) || take(parser, &["EXTENDED", "FULL"]);
    let global = take(parser, &["GLOBAL"]);
    _ = take(parser, &["SESSION"]) || take(parser, &["LOCAL"]);
    let Some(word) = peek_word(parser, 0) else {
        return Err(unexpected(&parser.peek_token(), "what to show"));
    };
    let second = peek_word(parser, 1).unwrap_or_default();
    parser.next_token();
    let kind = match (word.as_str(), second.as_str()) {
        ("DATABASES" | "SCHEMAS", _) => ShowKind::Databases,
        ("TABLES", _) => ShowKind::Tables { database: of_database(parser)?, full },
        ("TABLE", "STATUS") => {
            parser.next_token();
            ShowKind::TableStatus { database: of_database(parser)? }
        }
        ("COLUMNS" | "FIELDS", _) => ShowKind::Columns { table: of_table(parser)?, full },
        ("INDEX" | "INDEXES" | "KEYS", _) => ShowKind::Index { table: of_table(parser)? },
        ("CREATE", "TABLE") => {
            parser.next_token();
            ShowKind::CreateTable(object(parser)?)
        }
        ("CREATE", "VIEW") => {
            parser.next_token();
            ShowKind::CreateView(object(parser)?)
        }
        ("CREATE", "DATABASE" | "SCHEMA") => {
            parser.next_token();
            _ = take(parser, &["IF", "NOT", "EXISTS"]);
            ShowKind::CreateDatabase(name(parser)?)
        }
        ("CREATE", "RESOURCE") => {
            expect(parser, &["RESOURCE", "GROUP"])?;
            ShowKind::CreateResourceGroup(super::resource_groups::group_name(parser)?)
        }
        ("VARIABLES", _) => ShowKind::Variables { global },
        ("STATUS", _) => ShowKind::Status,
        ("CONFIG", _) => ShowKind::Config,
        ("WARNINGS", _) => ShowKind::Warnings { errors: false, window: limit(parser)? },
        ("ERRORS", _) => ShowKind::Warnings { errors: true, window: limit(parser)? },
        ("COUNT", _) => counted(parser)?,
        ("ENGINES", _) => ShowKind::Engines,
        ("STORAGE", "ENGINES") => {
            parser.next_token();
            ShowKind::Engines
        }
        ("COLLATION", _) => ShowKind::Collation,
        ("CHARSET", _) => ShowKind::CharacterSet,
        ("CHARACTER", "SET") => {
            parser.next_token();
            ShowKind::CharacterSet
        }
        ("PROCESSLIST", _) => ShowKind::Processlist { full },
        ("GRANTS", _) => {
            let user = take(parser, &["FOR"]).then(|| super::admin::parse_user(parser));
            if take(parser, &["USING"]) {
                return Err(unsupported("SHOW GRANTS … USING roles"));
            }
            ShowKind::Grants(user.transpose()?.flatten())
        }
        ("PLUGINS" | "EVENTS" | "TRIGGERS" | "PRIVILEGES" | "PROFILES", _) => {
            of_database(parser)?;
            ShowKind::Empty(word)
        }
        ("OPEN", "TABLES") => {
            parser.next_token();
            of_database(parser)?;
            ShowKind::Empty("OPEN TABLES".into())
        }
        ("PROCEDURE" | "FUNCTION", "STATUS") => {
            parser.next_token();
            ShowKind::Empty(format!("{word} STATUS"))
        }
        _ => return Err(unsupported(format!("SHOW {word} {second}").trim())),
    };
    Ok(Stmt::Show(Show { kind, filter: filter(parser)? }))
}

/// `(*) WARNINGS` or `(*) ERRORS`.
fn counted(parser: &mut Parser) -> SqlResult<ShowKind> {
    for token in [Token::LParen, Token::Mul, Token::RParen] {
        if !parser.consume_token(&token) {
            return Err(unexpected(&parser.peek_token(), &token.to_string()));
        }
    }
    let errors = take(parser, &["ERRORS"]);
    if !errors {
        expect(parser, &["WARNINGS"])?;
    }
    Ok(ShowKind::WarningCount { errors })
}

/// `LIMIT [skip,] most`, if it comes next.
fn limit(parser: &mut Parser) -> SqlResult<(u64, u64)> {
    if !take(parser, &["LIMIT"]) {
        return Ok((0, u64::MAX));
    }
    let first = super::number(parser)?;
    match parser.consume_token(&Token::Comma) {
        true => Ok((first, super::number(parser)?)),
        false => Ok((0, first)),
    }
}

fn of_database(parser: &mut Parser) -> SqlResult<Option<String>> {
    if take(parser, &["FROM"]) || take(parser, &["IN"]) {
        Ok(Some(name(parser)?))
    } else {
        Ok(None)
    }
}

/// `FROM t [FROM d]`.
fn of_table(parser: &mut Parser) -> SqlResult<sqlparser::ast::ObjectName> {
    if !take(parser, &["FROM"]) {
        expect(parser, &["IN"])?;
    }
    let table = object(parser)?;
    match of_database(parser)? {
        Some(database) => {
            let mut parts =
                vec![sqlparser::ast::ObjectNamePart::Identifier(database.as_str().into())];
            parts.extend(table.0.into_iter().next_back());
            Ok(sqlparser::ast::ObjectName(parts))
        }
        None => Ok(table),
    }
}

fn filter(parser: &mut Parser) -> SqlResult<Filter> {
    if take(parser, &["LIKE"]) {
        return Ok(Filter::Like(text(parser)?));
    }
    if take(parser, &["WHERE"]) {
        let expr = parser.parse_expr().map_err(|error| refused(&error))?;
        return Ok(Filter::Where(Box::new(expr)));
    }
    Ok(Filter::All)
}
