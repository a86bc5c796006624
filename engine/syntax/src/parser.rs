//! Text into statements: our own forms first, then sqlparser's.
//!
//! Parsing never looks at the catalog, and no text makes it panic.

mod admin;
mod alter;
mod as_of;
mod calibrate;
pub mod chains;
mod comments;
mod config;
mod foreign;
mod grants;
mod labels;
mod lists;
mod load;
mod maintenance;
mod prepared;
mod query_watch;
mod redundant;
mod resource_groups;
mod show;
mod type_names;
mod unsupported_syntax;
mod view;
mod words;
mod write;

pub use admin::target_of;
use labels::Labels;
use sqlparser::ast::{ObjectType, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace};
use values::error::{
    SYNTAX, SqlError, SqlResult, empty_query, statement_too_long, syntax, unsupported,
};

use crate::dialect::Mysql;
use crate::statement::Stmt;

/// Deepest nesting of a statement, as sqlparser counts it: a parenthesis is one or two.
const DEPTH: usize = 600;
/// Longest statement.
const LONGEST: usize = 64 << 20;

/// One statement as sqlparser reads it, under the default sql_mode.
pub fn parse_sql(sql: &str) -> SqlResult<Statement> {
    let dialect = Mysql::default();
    let mut parser = parser(sql, &dialect)?;
    let statement = parser.parse_statement().map_err(|error| refused(&error))?;
    end(&mut parser)?;
    Ok(statement)
}

/// One expression under the default sql_mode.
pub fn parse_expression(sql: &str) -> SqlResult<sqlparser::ast::Expr> {
    let dialect = Mysql::default();
    let mut parser = parser(sql, &dialect)?;
    let expr = parser.parse_expr().map_err(|error| refused(&error))?;
    end(&mut parser)?;
    Ok(expr)
}

/// One statement under the default sql_mode, as its tree is.
pub fn parse(sql: &str) -> SqlResult<Stmt> {
    let dialect = Mysql::default();
    read(sql, &dialect)
        .map(|(statement, _)| statement)
        .map_err(|error| explained(error, sql, &dialect))
}

/// One statement under a session's sql_mode; its columns are called as they were written.
pub fn parse_in(sql: &str, dialect: &Mysql) -> SqlResult<Stmt> {
    let (mut statement, labels) =
        read(sql, dialect).map_err(|error| explained(error, sql, dialect))?;
    labels.write(&mut statement);
    Ok(statement)
}

/// An error that names unsupported syntax, where that is the reason.
fn explained(error: SqlError, sql: &str, dialect: &Mysql) -> SqlError {
    if error.code != SYNTAX {
        return error;
    }
    match tokens(sql, dialect) {
        Ok(tokens) => unsupported_syntax::explain(error, &tokens),
        Err(_) => error,
    }
}

fn read(sql: &str, dialect: &Mysql) -> SqlResult<(Stmt, Labels)> {
    check_length(sql)?;
    let text = comments::opened(sql, dialect);
    let tokens = as_written(&text, dialect)?;
    let labels = Labels::of(&text, &tokens);
    if says_nothing(&tokens) && (text != sql || tokens.iter().any(|token| is_comment(&token.token)))
    {
        return Ok((Stmt::Nothing, labels));
    }
    let mut tokens = settled(tokens, dialect)?;
    let into = prepared::take_into(&mut tokens);
    let mut parser = parser_of(tokens, dialect);
    let statement = statement(&mut parser)?;
    end(&mut parser)?;
    match statement {
        statement if into.is_empty() => Ok((statement, labels)),
        Stmt::Query(query) => Ok((Stmt::SelectInto(query, into), labels)),
        _ => Err(unsupported("INTO variables in a statement of this form")),
    }
}

/// Whether there is nothing but blanks, comments and ends of statements.
fn says_nothing(tokens: &[TokenWithSpan]) -> bool {
    tokens
        .iter()
        .all(|token| matches!(token.token, Token::Whitespace(_) | Token::SemiColon | Token::EOF))
}

/// A statement of comments alone is none, but no error either.
fn is_comment(token: &Token) -> bool {
    matches!(
        token,
        Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_))
    )
}

fn parser<'a>(sql: &str, dialect: &'a Mysql) -> SqlResult<Parser<'a>> {
    check_length(sql)?;
    Ok(parser_of(tokens(sql, dialect)?, dialect))
}

fn parser_of(tokens: Vec<TokenWithSpan>, dialect: &Mysql) -> Parser<'_> {
    Parser::new(dialect).with_recursion_limit(DEPTH).with_tokens_with_locations(tokens)
}

fn check_length(sql: &str) -> SqlResult<()> {
    if sql.len() > LONGEST {
        return Err(statement_too_long());
    }
    Ok(())
}

/// A statement's tokens, with its parameters numbered and nothing left of sql_mode's doing.
fn tokens(sql: &str, dialect: &Mysql) -> SqlResult<Vec<TokenWithSpan>> {
    settled(as_written(&comments::opened(sql, dialect), dialect)?, dialect)
}

fn as_written(text: &str, dialect: &Mysql) -> SqlResult<Vec<TokenWithSpan>> {
    let tokens = Tokenizer::new(dialect, text).tokenize_with_location();
    tokens.map_err(|error| syntax(error.to_string()))
}

fn settled(tokens: Vec<TokenWithSpan>, dialect: &Mysql) -> SqlResult<Vec<TokenWithSpan>> {
    let tokens = type_names::settle(redundant::remove(lock_in_share_mode(tokens))?);
    let tokens = as_before_query(tokens);
    let mut tokens = lists::joined(table_as_select(tokens));
    tokens = as_of::before_alias(tokens, dialect)?;
    words::settle(&mut tokens, dialect)?;
    chains::check(&tokens, dialect)?;
    number_placeholders(&mut tokens);
    Ok(words::visibility(tokens))
}

/// `LOCK IN SHARE MODE` is `FOR SHARE`, which sqlparser knows.
fn lock_in_share_mode(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words = ["LOCK", "IN", "SHARE", "MODE"];
    let word = |token: &Token| match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    };
    let solid: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let Some(found) = solid.windows(4).find(|window| {
        window
            .iter()
            .zip(words)
            .all(|(at, expected)| word(&tokens[*at].token).is_some_and(|word| word == expected))
    }) else {
        return tokens;
    };
    let (first, second, last) = (found[0], found[1], found[3]);
    tokens[first].token = Token::make_keyword("FOR");
    tokens[second].token = Token::make_keyword("SHARE");
    tokens.drain(second + 1..=last);
    tokens
}

/// `CREATE TABLE t (SELECT …)` is `CREATE TABLE t AS (SELECT …)`: behind that `(`, sqlparser reads columns.
fn as_before_query(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // A word in quotes is no keyword.
    let is = |token: &Token, wanted: Keyword| matches!(token, Token::Word(word) if word.keyword == wanted);
    let solid = |(_, token): &(usize, &TokenWithSpan)| !matches!(token.token, Token::Whitespace(_));
    let mut solid = tokens.iter().enumerate().filter(solid);
    let creates = solid.next().is_some_and(|(_, first)| is(&first.token, Keyword::CREATE))
        && solid.next().is_some_and(|(_, second)| is(&second.token, Keyword::TABLE));
    if !creates {
        return tokens;
    }
    let opening = solid.find(|(_, token)| {
        token.token == Token::LParen
            || is(&token.token, Keyword::SELECT)
            || is(&token.token, Keyword::AS)
    });
    let select = solid.next().is_some_and(|(_, behind)| is(&behind.token, Keyword::SELECT));
    if let (Some((at, TokenWithSpan { token: Token::LParen, span })), true) = (opening, select) {
        let added = TokenWithSpan { token: Token::make_keyword("AS"), span: *span };
        tokens.insert(at, added);
    }
    tokens
}

/// `TABLE t` where a query is due is `SELECT * FROM t`.
fn table_as_select(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &TokenWithSpan, wanted: &[Keyword]| {
        matches!(&token.token, Token::Word(word)
            if word.quote_style.is_none() && wanted.contains(&word.keyword))
    };
    let first = tokens.iter().find(|token| !matches!(token.token, Token::Whitespace(_)));
    // In these statements TABLE is nothing else.
    let queries = [
        Keyword::SELECT,
        Keyword::TABLE,
        Keyword::WITH,
        Keyword::VALUES,
        Keyword::INSERT,
        Keyword::REPLACE,
    ];
    let query = first.is_some_and(|first| is(first, &queries) || first.token == Token::LParen);
    if !query || !tokens.iter().any(|token| is(token, &[Keyword::TABLE])) {
        return tokens;
    }
    let written = |token: TokenWithSpan| {
        let words = if is(&token, &[Keyword::TABLE]) {
            let from = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            from.to_vec()
        } else {
            vec![token.token]
        };
        let span = token.span;
        words.into_iter().map(move |token| TokenWithSpan { token, span })
    };
    tokens.into_iter().flat_map(written).collect()
}

/// Parameters are numbered in the order of the text, whatever order the tree is visited in.
fn number_placeholders(tokens: &mut [TokenWithSpan]) {
    let mut count = 0;
    for token in tokens {
        if let Token::Placeholder(mark) = &mut token.token {
            count += 1;
            *mark = format!("?{count}");
        }
    }
}

/// How many parameters a statement takes.
pub fn placeholders(sql: &str, dialect: &Mysql) -> SqlResult<usize> {
    let tokens = tokens(sql, dialect)?;
    Ok(tokens.iter().filter(|token| matches!(token.token, Token::Placeholder(_))).count())
}

fn end(parser: &mut Parser) -> SqlResult<()> {
    while parser.consume_token(&Token::SemiColon) {}
    match parser.peek_token() {
        token if token.token == Token::EOF => Ok(()),
        token => Err(unexpected(&token, "the end of the statement")),
    }
}

/// Error 1064 at a token.
pub(crate) fn unexpected(token: &TokenWithSpan, expected: &str) -> SqlError {
    let at = token.span.start;
    syntax(format!(
        "expected {expected} near '{}' at line {}, column {}",
        token.token, at.line, at.column
    ))
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

/// The next word in upper case, if it is one and not quoted.
pub(crate) fn peek_word(parser: &Parser, ahead: usize) -> Option<String> {
    match parser.peek_nth_token(ahead).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Takes these words if all of them come next.
pub(crate) fn take(parser: &mut Parser, words: &[&str]) -> bool {
    let all = words
        .iter()
        .enumerate()
        .all(|(at, word)| peek_word(parser, at).is_some_and(|next| next == *word));
    if all {
        words.iter().for_each(|_| _ = parser.next_token());
    }
    all
}

/// Takes these words or fails.
pub(crate) fn expect(parser: &mut Parser, words: &[&str]) -> SqlResult<()> {
    if take(parser, words) {
        return Ok(());
    }
    Err(unexpected(&parser.peek_token(), &words.join(" ")))
}

/// A text literal.
pub(crate) fn text(parser: &mut Parser) -> SqlResult<String> {
    let token = parser.next_token();
    match token.token {
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => Ok(text),
        _ => Err(unexpected(&token, "a text in quotes")),
    }
}

/// A whole number.
pub(crate) fn number(parser: &mut Parser) -> SqlResult<u64> {
    let token = parser.next_token();
    match &token.token {
        Token::Number(digits, _) => {
            digits.parse().map_err(|_| unexpected(&token, "a whole number"))
        }
        _ => Err(unexpected(&token, "a whole number")),
    }
}

/// A name.
pub(crate) fn name(parser: &mut Parser) -> SqlResult<String> {
    parser.parse_identifier().map(|ident| ident.value).map_err(|error| refused(&error))
}

/// A name of up to three parts.
pub(crate) fn object(parser: &mut Parser) -> SqlResult<sqlparser::ast::ObjectName> {
    parser.parse_object_name(false).map_err(|error| refused(&error))
}

fn statement(parser: &mut Parser) -> SqlResult<Stmt> {
    let Some(first) = peek_word(parser, 0) else {
        if parser.peek_token().token == Token::EOF || parser.peek_token().token == Token::SemiColon
        {
            return Err(empty_query());
        }
        return standard(parser);
    };
    let second = peek_word(parser, 1).unwrap_or_default();
    match (first.as_str(), second.as_str()) {
        ("SHOW", _) => show::show(parser),
        ("EXPLAIN" | "DESCRIBE" | "DESC", _) => explain(parser),
        ("SET", _) => admin::set(parser),
        ("BEGIN" | "START" | "COMMIT" | "ROLLBACK" | "SAVEPOINT" | "RELEASE", _) => {
            admin::transaction(parser)
        }
        ("CREATE" | "ALTER" | "DROP", "USER") => admin::user(parser),
        ("CREATE" | "ALTER" | "DROP", "RESOURCE") => resource_groups::resource_group(parser),
        ("CREATE" | "DROP" | "ALTER", "DATABASE" | "SCHEMA") => admin::database(parser),
        ("ALTER", "TABLE") => alter::alter_table(parser),
        ("TRUNCATE", _) => alter::truncate(parser),
        ("RENAME", "TABLE" | "TABLES") => alter::rename_tables(parser),
        ("SPLIT", "TABLE") => admin::split_table(parser),
        ("LOAD", "DATA") => load::load_data(parser),
        ("PREPARE", _) => prepared::prepare(parser),
        ("EXECUTE", _) => prepared::execute(parser),
        ("DEALLOCATE" | "DROP", "PREPARE") => prepared::deallocate(parser),
        ("UPDATE", _) => write::update(parser),
        ("DELETE", _) => write::delete(parser),
        ("KILL", _) => admin::kill(parser),
        ("QUERY", "WATCH") => query_watch::query_watch(parser),
        ("CALIBRATE", "RESOURCE") => calibrate::calibrate(parser),
        ("USE", _) => {
            parser.next_token();
            Ok(Stmt::Use(name(parser)?))
        }
        ("DO", _) => compute(parser),
        ("FLUSH", _) => admin::flush(parser),
        ("GRANT" | "REVOKE", _) => grants::grant(parser),
        // No table is ever locked as a whole.
        ("UNLOCK", "TABLES" | "TABLE") => {
            parser.next_token();
            parser.next_token();
            Ok(Stmt::Nothing)
        }
        ("LOCK", "TABLES" | "TABLE") => maintenance::lock_tables(parser),
        ("ANALYZE", "TABLE" | "TABLES" | "LOCAL" | "NO_WRITE_TO_BINLOG")
        | ("CHECK" | "OPTIMIZE", _) => maintenance::maintain(parser),
        ("ADMIN", "CHECK") => maintenance::admin_check(parser),
        ("CREATE" | "ALTER" | "DROP", _) => match foreign_object(parser) {
            _ if foreign::named(&first, &second).is_some() => {
                Err(unsupported(format!("{first} {second}")))
            }
            _ if peek_word(parser, 2).is_some_and(|third| third == "BINDING")
                && matches!(second.as_str(), "GLOBAL" | "SESSION") =>
            {
                Err(unsupported(format!("{first} {second} BINDING")))
            }
            Some(object) if object == "VIEW" => match first.as_str() {
                "DROP" => view::drop_views(parser),
                _ => view::put_view(parser),
            },
            Some(object) if first == "DROP" && ABSENT.contains(&object.as_str()) => {
                drop_absent(parser, object)
            }
            Some(object) => Err(unsupported(format!("{first} {object}"))),
            None => standard(parser),
        },
        _ => match foreign::named(&first, &second) {
            Some(named) => Err(unsupported(named)),
            None => standard(parser),
        },
    }
}

/// Kinds of objects of which there are none, and which scripts drop before they make them.
const ABSENT: [&str; 4] = ["TRIGGER", "PROCEDURE", "FUNCTION", "EVENT"];

/// DROP TRIGGER [IF EXISTS] name, and its kin.
fn drop_absent(parser: &mut Parser, kind: String) -> SqlResult<Stmt> {
    expect(parser, &["DROP", &kind])?;
    let if_exists = take(parser, &["IF", "EXISTS"]);
    Ok(Stmt::DropAbsent { kind, name: object(parser)?, if_exists })
}

/// DO expression, …
fn compute(parser: &mut Parser) -> SqlResult<Stmt> {
    parser.next_token();
    let exprs = parser.parse_comma_separated(Parser::parse_expr);
    Ok(Stmt::Do(exprs.map_err(|error| refused(&error))?))
}

/// What a CREATE, ALTER or DROP is about, if it is a kind of object that we do not have. It is found
/// before the statement is parsed: MySQL's bodies of procedures are beyond the parser, and the
/// object's kind says more than the place where it gave up.
fn foreign_object(parser: &Parser) -> Option<String> {
    const OURS: [&str; 4] = ["TABLE", "INDEX", "DATABASE", "SCHEMA"];
    const FOREIGN: [&str; 11] = [
        "VIEW",
        "TRIGGER",
        "PROCEDURE",
        "FUNCTION",
        "EVENT",
        "SEQUENCE",
        "ROLE",
        "TABLESPACE",
        "SERVER",
        "LOGFILE",
        "INSTANCE",
    ];
    // Before the kind come no more tokens than in `OR REPLACE ALGORITHM = MERGE DEFINER = a@b SQL
    // SECURITY INVOKER`.
    (1..16)
        .map_while(|ahead| match parser.peek_nth_token(ahead).token {
            Token::EOF | Token::SemiColon | Token::LParen => None,
            _ => Some(peek_word(parser, ahead).unwrap_or_default()),
        })
        .find(|word| OURS.contains(&word.as_str()) || FOREIGN.contains(&word.as_str()))
        .filter(|word| FOREIGN.contains(&word.as_str()))
}

fn explain(parser: &mut Parser) -> SqlResult<Stmt> {
    let word = parser.next_token();
    if take(parser, &["FOR", "CONNECTION"]) {
        return Err(unsupported("EXPLAIN FOR CONNECTION"));
    }
    let starts = [
        "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "TABLE", "VALUES", "ANALYZE",
        "FORMAT", "(",
    ];
    let statement_follows = peek_word(parser, 0).is_some_and(|w| starts.contains(&w.as_str()))
        || parser.peek_token().token == Token::LParen;
    if !statement_follows {
        let table = object(parser)?;
        let column = match parser.peek_token().token {
            Token::EOF | Token::SemiColon => None,
            Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => Some(text(parser)?),
            _ => Some(name(parser)?),
        };
        return Ok(Stmt::Describe { table, column });
    }
    let _ = word;
    let analyze = take(parser, &["ANALYZE"]);
    if take(parser, &["FORMAT"]) {
        _ = parser.consume_token(&Token::Eq);
        let format = match parser.next_token().token {
            Token::Word(word) => word.value,
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text,
            other => other.to_string(),
        };
        if !["traditional", "row", "brief", "tree"].contains(&format.to_lowercase().as_str()) {
            return Err(unsupported(format!("EXPLAIN FORMAT={format}")));
        }
    }
    let statement = Box::new(statement(parser)?);
    Ok(Stmt::Explain { analyze, statement })
}

fn standard(parser: &mut Parser) -> SqlResult<Stmt> {
    let first = parser.peek_token();
    let statement = parser.parse_statement().map_err(|error| refused(&error))?;
    Ok(match statement {
        Statement::Query(query) => Stmt::Query(query),
        Statement::Insert(insert) => Stmt::Insert(Box::new(insert)),
        Statement::Update(update) => Stmt::Update(Box::new(update)),
        Statement::Delete(delete) => Stmt::Delete(Box::new(delete), false),
        Statement::CreateTable(create) => match peek_word(parser, 0) {
            // PARTITION BY, and options that are not MySQL's.
            Some(word) => return Err(unsupported(format!("CREATE TABLE … {word}"))),
            None => Stmt::CreateTable(Box::new(create)),
        },
        Statement::CreateIndex(create) => Stmt::CreateIndex(Box::new(create)),
        Statement::Drop {
            object_type: ObjectType::Table,
            if_exists,
            names,
            temporary: false,
            ..
        } => Stmt::DropTable { names, if_exists },
        Statement::Drop { object_type: ObjectType::Index, names, table: Some(table), .. } => {
            match (names.first().map(crate::names::parts), names.len()) {
                (Some(parts), 1) => {
                    Stmt::DropIndex { name: parts.last().cloned().unwrap_or_default(), table }
                }
                _ => return Err(unsupported("DROP INDEX of several indexes")),
            }
        }
        _ => {
            let word = match first.token {
                Token::Word(word) if word.keyword != Keyword::NoKeyword => {
                    word.value.to_uppercase()
                }
                other => other.to_string(),
            };
            return Err(unsupported(format!("{word} statement of this form")));
        }
    })
}
