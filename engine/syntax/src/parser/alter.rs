//! ALTER TABLE as a list of actions, TRUNCATE and RENAME.
//!
//! Definitions of columns are sqlparser's; which actions there are, and in what order their words
//! stand, is said here. Nothing is looked up: what an action means for a table is the session's.

use sqlparser::ast::{
    ColumnDef, CreateIndex, Expr, IndexColumn, ObjectName, OrderByExpr, OrderByOptions,
    TableConstraint,
};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use values::error::{SqlResult, unsupported};

use super::{expect, name, number, object, peek_word, refused, take, unexpected};
use crate::names::parts;
use crate::statement::{Alter, Position, Stmt};
use crate::table_options;

/// ALTER TABLE.
pub fn alter_table(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["ALTER", "TABLE"])?;
    let table = object(parser)?;
    if take(parser, &["SET", "COLUMNAR", "REPLICA"]) || take(parser, &["SET", "TIFLASH", "REPLICA"])
    {
        return Ok(Stmt::SetReplica { table, count: number(parser)? });
    }
    let mut actions = Vec::new();
    loop {
        let is_option = match new_index(parser, &table)? {
            Some(index) => {
                actions.push(Alter::AddIndex(index));
                false
            }
            None => action(parser, &called(&table), &mut actions)?,
        };
        match parser.peek_token().token {
            Token::Comma => _ = parser.next_token(),
            Token::EOF | Token::SemiColon => break,
            // Options of the table need no comma between them.
            _ if is_option => {}
            _ => break,
        }
    }
    match <[Alter; 1]>::try_from(actions) {
        Ok([Alter::AddIndex(index)]) => Ok(Stmt::CreateIndex(index)),
        Ok([other]) => Ok(Stmt::AlterTable { table, actions: vec![other] }),
        Err(actions) => Ok(Stmt::AlterTable { table, actions }),
    }
}

/// TRUNCATE TABLE.
pub fn truncate(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["TRUNCATE"])?;
    _ = take(parser, &["TABLE"]);
    Ok(Stmt::Truncate(object(parser)?))
}

/// RENAME TABLE.
pub fn rename_tables(parser: &mut Parser) -> SqlResult<Stmt> {
    _ = take(parser, &["RENAME", "TABLE"]) || take(parser, &["RENAME", "TABLES"]);
    let mut names = Vec::new();
    loop {
        let from = object(parser)?;
        expect(parser, &["TO"])?;
        names.push((from, object(parser)?));
        if !parser.consume_token(&Token::Comma) {
            return Ok(Stmt::RenameTables(names));
        }
    }
}

/// Whether ADD [CONSTRAINT [name]] [UNIQUE] {INDEX | KEY} or ADD … UNIQUE comes next.
fn starts_index(parser: &Parser) -> bool {
    let word = |at| peek_word(parser, at).unwrap_or_default();
    word(0) == "ADD" && ["UNIQUE", "INDEX", "KEY"].contains(&word(1).as_str())
}

/// ADD [CONSTRAINT [name]] UNIQUE …, ADD {INDEX | KEY} …
fn new_index(parser: &mut Parser, table: &ObjectName) -> SqlResult<Option<Box<CreateIndex>>> {
    let word = |parser: &Parser, at| peek_word(parser, at).unwrap_or_default();
    let mut named = None;
    if word(parser, 0) == "ADD" && word(parser, 1) == "CONSTRAINT" {
        let unnamed = word(parser, 2) == "UNIQUE";
        if !unnamed && word(parser, 3) != "UNIQUE" {
            return Ok(None);
        }
        parser.next_token();
        parser.next_token();
        if !unnamed {
            named = Some(object(parser)?);
        }
    } else if starts_index(parser) {
        parser.next_token();
    } else {
        return Ok(None);
    }
    let unique = take(parser, &["UNIQUE"]);
    _ = take(parser, &["INDEX"]) || take(parser, &["KEY"]);
    add_index(parser, table.clone(), unique, named).map(Some)
}

fn add_index(
    parser: &mut Parser,
    table: ObjectName,
    unique: bool,
    named: Option<ObjectName>,
) -> SqlResult<Box<CreateIndex>> {
    let unnamed = parser.peek_token().token == Token::LParen
        || peek_word(parser, 0).as_deref() == Some("USING");
    let index = if unnamed { named } else { Some(object(parser)?) };
    let using = parser.parse_optional_using_then_index_type().map_err(|error| refused(&error))?;
    if !parser.consume_token(&Token::LParen) {
        return Err(unexpected(&parser.peek_token(), "("));
    }
    let mut columns = Vec::new();
    loop {
        columns.push(key_part(parser)?);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    if !parser.consume_token(&Token::RParen) {
        return Err(unexpected(&parser.peek_token(), ")"));
    }
    let index_options = parser.parse_index_options().map_err(|error| refused(&error))?;
    Ok(Box::new(CreateIndex {
        name: index,
        table_name: table,
        using,
        columns,
        unique,
        concurrently: false,
        if_not_exists: false,
        include: Vec::new(),
        nulls_distinct: None,
        with: Vec::new(),
        predicate: None,
        index_options,
        alter_options: Vec::new(),
    }))
}

/// column[(length)] [ASC | DESC]
fn key_part(parser: &mut Parser) -> SqlResult<IndexColumn> {
    let parenthesis = |ahead| parser.peek_nth_token(ahead).token == Token::LParen;
    if parenthesis(0) || parenthesis(1) {
        return parser.parse_create_index_expr().map_err(|error| refused(&error));
    }
    // Words that begin an expression are names of columns, too.
    let ident = parser.parse_identifier().map_err(|error| refused(&error))?;
    let asc = match take(parser, &["DESC"]) {
        true => Some(false),
        false => take(parser, &["ASC"]).then_some(true),
    };
    let options = OrderByOptions { asc, nulls_first: None };
    let column = OrderByExpr { expr: Expr::Identifier(ident), options, with_fill: None };
    Ok(IndexColumn { column, operator_class: None })
}

/// One action; whether it is an option of the table.
fn action(parser: &mut Parser, table: &str, actions: &mut Vec<Alter>) -> SqlResult<bool> {
    let word = peek_word(parser, 0).unwrap_or_default();
    match word.as_str() {
        "ADD" => {
            parser.next_token();
            match (added_key(parser)?, added_check(parser)?) {
                (Some(added), _) | (None, Some(added)) => actions.push(added),
                (None, None) => add(parser, actions)?,
            }
        }
        "DROP" => {
            parser.next_token();
            actions.push(drop(parser)?);
        }
        "CHANGE" | "MODIFY" => {
            parser.next_token();
            _ = take(parser, &["COLUMN"]);
            let old = if word == "CHANGE" { Some(name(parser)?) } else { None };
            let column = column(parser)?;
            let old = old.unwrap_or_else(|| column.name.value.clone());
            let at = position(parser)?;
            actions.push(Alter::Change { old, column: Box::new(column), at });
        }
        "ALTER" => {
            parser.next_token();
            actions.push(alter_column(parser)?);
        }
        "RENAME" => {
            parser.next_token();
            actions.push(rename(parser)?);
        }
        _ => return option(parser, table, actions).map(|()| true),
    }
    Ok(false)
}

/// [CONSTRAINT [name]] FOREIGN KEY [index] (column, …) REFERENCES …
fn added_key(parser: &mut Parser) -> SqlResult<Option<Alter>> {
    let word = |at| peek_word(parser, at).unwrap_or_default();
    match (word(0).as_str(), word(1).as_str(), word(2).as_str()) {
        ("FOREIGN", "KEY", _) | ("CONSTRAINT", _, "FOREIGN") => {}
        ("CONSTRAINT", "FOREIGN", "KEY") => _ = parser.next_token(),
        _ => return Ok(None),
    }
    match parser.parse_optional_table_constraint().map_err(|error| refused(&error))? {
        Some(TableConstraint::ForeignKey(key)) => Ok(Some(Alter::AddForeignKey(Box::new(key)))),
        _ => Err(unexpected(&parser.peek_token(), "a foreign key")),
    }
}

/// [CONSTRAINT [name]] CHECK (condition) [[NOT] ENFORCED]
fn added_check(parser: &mut Parser) -> SqlResult<Option<Alter>> {
    let word = |parser: &Parser, at| peek_word(parser, at).unwrap_or_default();
    let mut called = None;
    match (word(parser, 0).as_str(), word(parser, 1).as_str(), word(parser, 2).as_str()) {
        ("CHECK", ..) => {}
        ("CONSTRAINT", "CHECK", _) => _ = parser.next_token(),
        ("CONSTRAINT", _, "CHECK") => {
            parser.next_token();
            called = Some(name(parser)?);
        }
        _ => return Ok(None),
    }
    parser.next_token();
    if !parser.consume_token(&Token::LParen) {
        return Err(unexpected(&parser.peek_token(), "("));
    }
    let condition = Box::new(parser.parse_expr().map_err(|error| refused(&error))?);
    if !parser.consume_token(&Token::RParen) {
        return Err(unexpected(&parser.peek_token(), ")"));
    }
    let enforced = !take(parser, &["NOT", "ENFORCED"]);
    if enforced {
        _ = take(parser, &["ENFORCED"]);
    }
    Ok(Some(Alter::AddCheck { name: called, condition, enforced }))
}

fn add(parser: &mut Parser, actions: &mut Vec<Alter>) -> SqlResult<()> {
    let word = peek_word(parser, 0).unwrap_or_default();
    let others = ["PRIMARY", "FULLTEXT", "SPATIAL", "PARTITION", "CONSTRAINT"];
    if others.contains(&word.as_str()) {
        // What kind of constraint it is, stands behind its name, if it has one.
        let mut behind = (0..3).filter_map(|at| peek_word(parser, at));
        let kind = if behind.any(|word| word == "PRIMARY") { "PRIMARY KEY".into() } else { word };
        return Err(unsupported(format!("ALTER TABLE … ADD {kind}")));
    }
    _ = take(parser, &["COLUMN"]);
    let lenient = take(parser, &["IF", "NOT", "EXISTS"]);
    if !parser.consume_token(&Token::LParen) {
        let column = Box::new(column(parser)?);
        let at = position(parser)?;
        actions.push(Alter::Add { column, at, lenient });
        return Ok(());
    }
    loop {
        let column = Box::new(column(parser)?);
        actions.push(Alter::Add { column, at: Position::Last, lenient });
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    if !parser.consume_token(&Token::RParen) {
        return Err(unexpected(&parser.peek_token(), ")"));
    }
    Ok(())
}

fn drop(parser: &mut Parser) -> SqlResult<Alter> {
    if take(parser, &["INDEX"]) || take(parser, &["KEY"]) {
        return Ok(Alter::DropIndex(name(parser)?));
    }
    let word = peek_word(parser, 0).unwrap_or_default();
    let constraint = word == "CONSTRAINT";
    if constraint || word == "CHECK" {
        parser.next_token();
        return Ok(Alter::DropCheck { name: name(parser)?, constraint });
    }
    if take(parser, &["FOREIGN", "KEY"]) {
        return Ok(Alter::DropForeignKey(name(parser)?));
    }
    if word == "PRIMARY" {
        return Err(unsupported("ALTER TABLE … DROP PRIMARY KEY"));
    }
    if word == "PARTITION" {
        return Err(unsupported(format!("ALTER TABLE … DROP {word}")));
    }
    _ = take(parser, &["COLUMN"]);
    let lenient = take(parser, &["IF", "EXISTS"]);
    let name = name(parser)?;
    _ = take(parser, &["RESTRICT"]) || take(parser, &["CASCADE"]);
    Ok(Alter::Drop { name, lenient })
}

fn alter_column(parser: &mut Parser) -> SqlResult<Alter> {
    if take(parser, &["CHECK"]) || take(parser, &["CONSTRAINT"]) {
        let name = name(parser)?;
        let enforced = !take(parser, &["NOT"]);
        expect(parser, &["ENFORCED"])?;
        return Ok(Alter::Enforce { name, enforced });
    }
    if take(parser, &["INDEX"]) {
        let name = name(parser)?;
        let visible = take(parser, &["VISIBLE"]);
        if !visible {
            expect(parser, &["INVISIBLE"])?;
        }
        return Ok(Alter::ShowIndex { name, visible });
    }
    _ = take(parser, &["COLUMN"]);
    let column = name(parser)?;
    if take(parser, &["DROP", "DEFAULT"]) {
        return Ok(Alter::SetDefault { column, value: None });
    }
    if !take(parser, &["SET", "DEFAULT"]) {
        return Err(unsupported(format!(
            "ALTER TABLE … ALTER {column} {}",
            parser.peek_token().token
        )));
    }
    let value = parser.parse_expr().map_err(|error| refused(&error))?;
    Ok(Alter::SetDefault { column, value: Some(Box::new(value)) })
}

fn rename(parser: &mut Parser) -> SqlResult<Alter> {
    let to = |parser: &mut Parser| {
        let old = name(parser)?;
        expect(parser, &["TO"])?;
        Ok((old, name(parser)?))
    };
    if take(parser, &["COLUMN"]) {
        return to(parser).map(|(old, new)| Alter::Rename { old, new });
    }
    if take(parser, &["INDEX"]) || take(parser, &["KEY"]) {
        return to(parser).map(|(old, new)| Alter::RenameIndex { old, new });
    }
    if !take(parser, &["TO"]) {
        _ = take(parser, &["AS"]);
    }
    Ok(Alter::RenameTable(object(parser)?))
}

/// A table's name without its database.
fn called(table: &ObjectName) -> String {
    parts(table).pop().unwrap_or_default()
}

/// A definition of a column, up to its place.
fn column(parser: &mut Parser) -> SqlResult<ColumnDef> {
    parser.parse_column_def().map_err(|error| refused(&error))
}

fn position(parser: &mut Parser) -> SqlResult<Position> {
    if take(parser, &["FIRST"]) {
        return Ok(Position::First);
    }
    if take(parser, &["AFTER"]) {
        return Ok(Position::After(name(parser)?));
    }
    Ok(Position::Last)
}

/// An option of the table that may be given anew.
fn option(parser: &mut Parser, table: &str, actions: &mut Vec<Alter>) -> SqlResult<()> {
    if take(parser, &["CONVERT", "TO"]) {
        return charset(parser, table, actions);
    }
    _ = take(parser, &["DEFAULT"]);
    let word = peek_word(parser, 0).unwrap_or_default();
    let both = format!("{word} {}", peek_word(parser, 1).unwrap_or_default());
    match (word.as_str(), both.as_str()) {
        ("CHARSET", _) | (_, "CHARACTER SET") => charset(parser, table, actions),
        // How the change is carried out is ours, and it never keeps writers out.
        ("LOCK" | "ALGORITHM", _) => {
            parser.next_token();
            value(parser).map(|_| ())
        }
        // InnoDB does nothing for these either; dumps of MariaDB have them.
        (_, "DISABLE KEYS" | "ENABLE KEYS") => {
            parser.next_token();
            parser.next_token();
            Ok(())
        }
        (_, both) if table_options::is_option(both) => {
            parser.next_token();
            parser.next_token();
            let value = value(parser)?;
            treat((both, &value), table, actions)
        }
        (one, _) if table_options::is_option(one) => {
            parser.next_token();
            let value = value(parser)?;
            treat((one, &value), table, actions)
        }
        ("", _) => Err(unexpected(&parser.peek_token(), "an action")),
        (_, both) => Err(unsupported(format!("ALTER TABLE … {}", both.trim_end()))),
    }
}

/// {CHARSET | CHARACTER SET} [=] name [COLLATE [=] name]
fn charset(parser: &mut Parser, table: &str, actions: &mut Vec<Alter>) -> SqlResult<()> {
    if !take(parser, &["CHARSET"]) {
        expect(parser, &["CHARACTER", "SET"])?;
    }
    let named = value(parser)?;
    treat(("CHARSET", &named), table, actions)?;
    if take(parser, &["COLLATE"]) {
        let named = value(parser)?;
        treat(("COLLATE", &named), table, actions)?;
    }
    Ok(())
}

/// [=] and a word, a text or a number.
fn value(parser: &mut Parser) -> SqlResult<String> {
    _ = parser.consume_token(&Token::Eq);
    let token = parser.next_token();
    match token.token {
        Token::Word(word) => Ok(word.value),
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => Ok(text),
        Token::Number(digits, _) => Ok(digits),
        _ => Err(unexpected(&token, "a value")),
    }
}

fn treat((name, value): (&str, &str), table: &str, actions: &mut Vec<Alter>) -> SqlResult<()> {
    match table_options::treated(name, value, table)? {
        table_options::Treated::Comment(text) => actions.push(Alter::Comment(text)),
        table_options::Treated::Number(number) => actions.push(Alter::Number(number)),
        table_options::Treated::Warning(warning) => actions.push(Alter::Warning(warning)),
        table_options::Treated::Nothing => {}
    }
    Ok(())
}
