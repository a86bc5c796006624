//! SET, transactions, users, databases, and the cutting of tables.

use sqlparser::ast::{ObjectName, ObjectNamePart};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use values::error::{SqlResult, unsupported};

use super::resource_groups::group_name;
use super::{as_of, expect, name, number, object, peek_word, refused, take, text, unexpected};
use crate::statement::{Assignment, Mode, Scope, Step, Stmt, Target, UserName};

/// SET …
pub fn set(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["SET"])?;
    if let Some(charset) = names(parser)? {
        if !parser.consume_token(&Token::Comma) {
            return Ok(Stmt::SetNames(charset));
        }
        let mut assignments = of_names(&charset);
        more_assignments(parser, &mut assignments)?;
        return Ok(Stmt::Set(assignments));
    }
    if take(parser, &["PASSWORD"]) {
        let user = if take(parser, &["FOR"]) { Some(user_name(parser)?) } else { None };
        if !parser.consume_token(&Token::Eq) {
            return Err(unexpected(&parser.peek_token(), "="));
        }
        return Ok(Stmt::SetPassword { user, password: text(parser)? });
    }
    for (spelled, scope) in [
        (&["TRANSACTION"][..], Scope::Next),
        (&["SESSION", "TRANSACTION"], Scope::Session),
        (&["GLOBAL", "TRANSACTION"], Scope::Global),
        (&["LOCAL", "TRANSACTION"], Scope::Session),
    ] {
        if take(parser, spelled) {
            return characteristics(parser, scope);
        }
    }
    if take(parser, &["CONFIG"]) {
        return super::config::set_config(parser);
    }
    if take(parser, &["RESOURCE", "GROUP"]) {
        return group_name(parser).map(Stmt::SetResourceGroup);
    }
    if peek_word(parser, 0).is_some_and(|w| w == "ROLE" || w == "DEFAULT" || w == "RESOURCE") {
        let word = peek_word(parser, 0).unwrap_or_default();
        return Err(unsupported(format!("SET {word}")));
    }
    let mut assignments = Vec::new();
    more_assignments(parser, &mut assignments)?;
    Ok(Stmt::Set(assignments))
}

/// Reads a list of assignments, NAMES among them: MariaDB's Java driver sends `SET autocommit=1, …, NAMES utf8mb4`.
fn more_assignments(parser: &mut Parser, assignments: &mut Vec<Assignment>) -> SqlResult<()> {
    loop {
        match names(parser)? {
            Some(charset) => assignments.extend(of_names(&charset)),
            None => assignments.push(assignment(parser)?),
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(());
        }
    }
}

/// `NAMES x [COLLATE y]`, `CHARACTER SET x`: the character set.
fn names(parser: &mut Parser) -> SqlResult<Option<String>> {
    if take(parser, &["NAMES"]) {
        let charset = word_or_text(parser)?;
        if take(parser, &["COLLATE"]) {
            word_or_text(parser)?;
        }
        return Ok(Some(charset));
    }
    if take(parser, &["CHARACTER", "SET"]) || take(parser, &["CHARSET"]) {
        return word_or_text(parser).map(Some);
    }
    Ok(None)
}

/// What NAMES sets, one by one.
fn of_names(charset: &str) -> Vec<Assignment> {
    let default = charset.eq_ignore_ascii_case("default");
    ["character_set_client", "character_set_connection", "character_set_results"]
        .into_iter()
        .map(|name| Assignment {
            target: Target::Session(name.into()),
            value: (!default).then(|| {
                sqlparser::ast::Expr::value(sqlparser::ast::Value::SingleQuotedString(
                    charset.into(),
                ))
            }),
        })
        .collect()
}

/// What follows SET TRANSACTION.
fn characteristics(parser: &mut Parser, scope: Scope) -> SqlResult<Stmt> {
    let (mut level, mut read_only) = (None, None);
    loop {
        if level.is_none() && take(parser, &["ISOLATION", "LEVEL"]) {
            let levels: [&[&str]; 4] = [
                &["READ", "UNCOMMITTED"],
                &["READ", "COMMITTED"],
                &["REPEATABLE", "READ"],
                &["SERIALIZABLE"],
            ];
            let Some(words) = levels.into_iter().find(|words| take(parser, words)) else {
                return Err(unexpected(&parser.peek_token(), "an isolation level"));
            };
            level = Some(words.join(" "));
        } else if read_only.is_none() && take(parser, &["READ", "ONLY"]) {
            read_only = Some(true);
        } else if read_only.is_none() && take(parser, &["READ", "WRITE"]) {
            read_only = Some(false);
        } else {
            return Err(unexpected(
                &parser.peek_token(),
                "ISOLATION LEVEL, READ ONLY or READ WRITE",
            ));
        }
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    let as_of = as_of::of_transaction(parser, read_only)?;
    if as_of.is_some() && scope != Scope::Next {
        return Err(unsupported("AS OF TIMESTAMP for more transactions than the next"));
    }
    Ok(Stmt::SetTransaction { scope, level, read_only, as_of })
}

/// FLUSH: what there is to flush here is always on disk or nowhere. A lock is no such thing.
pub fn flush(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["FLUSH"])?;
    _ = take(parser, &["NO_WRITE_TO_BINLOG"]) || take(parser, &["LOCAL"]);
    loop {
        if take(parser, &["TABLES"]) || take(parser, &["TABLE"]) {
            return flush_tables(parser);
        }
        let kinds: [&[&str]; 11] = [
            &["PRIVILEGES"],
            &["HOSTS"],
            &["OPTIMIZER_COSTS"],
            &["USER_RESOURCES"],
            &["LOGS"],
            &["BINARY", "LOGS"],
            &["ENGINE", "LOGS"],
            &["ERROR", "LOGS"],
            &["GENERAL", "LOGS"],
            &["SLOW", "LOGS"],
            &["RELAY", "LOGS"],
        ];
        if !kinds.into_iter().any(|words| take(parser, words)) {
            return Err(match peek_word(parser, 0) {
                Some(word) => unsupported(format!("FLUSH {word}")),
                None => unexpected(&parser.peek_token(), "what to flush"),
            });
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(Stmt::Flush);
        }
    }
}

fn flush_tables(parser: &mut Parser) -> SqlResult<Stmt> {
    if !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon)
        && !["WITH", "FOR"].contains(&peek_word(parser, 0).unwrap_or_default().as_str())
    {
        object(parser)?;
        while parser.consume_token(&Token::Comma) {
            object(parser)?;
        }
    }
    if take(parser, &["WITH", "READ", "LOCK"]) {
        return Err(unsupported("FLUSH TABLES WITH READ LOCK (dump with --single-transaction)"));
    }
    if take(parser, &["FOR", "EXPORT"]) {
        return Err(unsupported("FLUSH TABLES … FOR EXPORT"));
    }
    Ok(Stmt::Flush)
}

fn word_or_text(parser: &mut Parser) -> SqlResult<String> {
    match parser.peek_token().token {
        Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => text(parser),
        _ => name(parser),
    }
}

fn assignment(parser: &mut Parser) -> SqlResult<Assignment> {
    let scope = if take(parser, &["GLOBAL"]) || take(parser, &["PERSIST"]) {
        "global"
    } else {
        _ = take(parser, &["SESSION"]) || take(parser, &["LOCAL"]);
        ""
    };
    let target = object(parser)?;
    let target = target_of(&target, scope);
    if !parser.consume_token(&Token::Eq) && !parser.consume_token(&Token::Assignment) {
        return Err(unexpected(&parser.peek_token(), "="));
    }
    if take(parser, &["DEFAULT"]) {
        return Ok(Assignment { target, value: None });
    }
    // ON is a keyword of expressions, and a value here.
    if take(parser, &["ON"]) {
        let on =
            sqlparser::ast::Expr::value(sqlparser::ast::Value::SingleQuotedString("ON".into()));
        return Ok(Assignment { target, value: Some(on) });
    }
    if take(parser, &["BINARY"]) {
        let binary = sqlparser::ast::Value::SingleQuotedString("binary".into());
        return Ok(Assignment { target, value: Some(sqlparser::ast::Expr::value(binary)) });
    }
    let value = parser.parse_expr().map_err(|error| refused(&error))?;
    Ok(Assignment { target, value: Some(value) })
}

/// The variable that `@x`, `@@x`, `@@session.x`, `@@global.x` or `x` means.
pub fn target_of(written: &ObjectName, scope: &str) -> Target {
    let mut parts: Vec<String> = written
        .0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => ident.value.to_lowercase(),
            ObjectNamePart::Function(function) => function.name.value.to_lowercase(),
        })
        .collect();
    let last = parts.pop().unwrap_or_default();
    let prefix = parts.pop().unwrap_or_default();
    match (prefix.as_str(), last.strip_prefix("@@"), last.strip_prefix('@')) {
        ("@@global" | "@@persist" | "global", _, _) => Target::Global(last),
        ("@@session" | "@@local" | "session", _, _) => Target::Session(last),
        (_, Some(system), _) if scope == "global" => Target::Global(system.to_owned()),
        (_, Some(system), _) => Target::Session(system.to_owned()),
        (_, None, Some(user)) => Target::User(user.to_owned()),
        _ if scope == "global" => Target::Global(last),
        _ => Target::Session(last),
    }
}

/// BEGIN, START TRANSACTION, COMMIT, ROLLBACK.
pub fn transaction(parser: &mut Parser) -> SqlResult<Stmt> {
    if take(parser, &["BEGIN"]) {
        let mode = if take(parser, &["OPTIMISTIC"]) {
            Some(Mode::Optimistic)
        } else if take(parser, &["PESSIMISTIC"]) {
            Some(Mode::Pessimistic)
        } else {
            _ = take(parser, &["WORK"]);
            None
        };
        return Ok(Stmt::Begin { mode, read_only: None, as_of: None });
    }
    if take(parser, &["START", "TRANSACTION"]) {
        let mut read_only = None;
        let mut more = false;
        loop {
            if take(parser, &["READ", "ONLY"]) && read_only.is_none() {
                read_only = Some(true);
            } else if take(parser, &["READ", "WRITE"]) && read_only.is_none() {
                read_only = Some(false);
            } else if !take(parser, &["WITH", "CONSISTENT", "SNAPSHOT"]) && more {
                return Err(unexpected(&parser.peek_token(), "READ ONLY or READ WRITE"));
            }
            let as_of = as_of::of_transaction(parser, read_only)?;
            more = parser.consume_token(&Token::Comma);
            if !more {
                return Ok(Stmt::Begin { mode: None, read_only, as_of });
            }
            if as_of.is_some() {
                return Err(unexpected(&parser.peek_token(), "the end of the statement"));
            }
        }
    }
    if take(parser, &["COMMIT"]) {
        _ = take(parser, &["WORK"]);
        chain(parser)?;
        return Ok(Stmt::Commit);
    }
    if take(parser, &["ROLLBACK"]) {
        _ = take(parser, &["WORK"]);
        if take(parser, &["TO"]) {
            _ = take(parser, &["SAVEPOINT"]);
            return Ok(Stmt::Savepoint(Step::RollBack, name(parser)?));
        }
        chain(parser)?;
        return Ok(Stmt::Rollback);
    }
    if take(parser, &["SAVEPOINT"]) {
        return Ok(Stmt::Savepoint(Step::Set, name(parser)?));
    }
    if take(parser, &["RELEASE", "SAVEPOINT"]) {
        return Ok(Stmt::Savepoint(Step::Release, name(parser)?));
    }
    Err(unsupported(peek_word(parser, 0).unwrap_or_default()))
}

fn chain(parser: &mut Parser) -> SqlResult<()> {
    if take(parser, &["AND", "CHAIN"]) {
        return Err(unsupported("AND CHAIN"));
    }
    _ = take(parser, &["AND", "NO", "CHAIN"]) || take(parser, &["NO", "RELEASE"]);
    if take(parser, &["RELEASE"]) {
        return Err(unsupported("RELEASE"));
    }
    Ok(())
}

/// `'u'@'h'`, `u@h`, `u`, CURRENT_USER().
fn user_name(parser: &mut Parser) -> SqlResult<UserName> {
    let mut user = word_or_text(parser)?;
    let mut host = "%".to_owned();
    match parser.peek_token().token {
        Token::AtSign => {
            parser.next_token();
            host = word_or_text(parser)?;
        }
        // The dialect reads `@'h'` and `@h` as words that begin with `@`.
        Token::Word(word) if word.value == "@" => {
            parser.next_token();
            host = word_or_text(parser)?;
        }
        Token::Word(word) if word.value.starts_with('@') => {
            parser.next_token();
            host = word.value.trim_start_matches('@').to_owned();
        }
        _ => {
            if let Some((name, at)) = user.clone().split_once('@') {
                user = name.to_owned();
                host = if at.is_empty() { word_or_text(parser)? } else { at.to_owned() };
            }
        }
    }
    Ok(UserName { name: user, host: host.to_lowercase() })
}

/// A user that a statement is about; `None` is CURRENT_USER.
pub fn parse_user(parser: &mut Parser) -> SqlResult<Option<UserName>> {
    if take(parser, &["CURRENT_USER"]) {
        if parser.consume_token(&Token::LParen) && !parser.consume_token(&Token::RParen) {
            return Err(unexpected(&parser.peek_token(), ")"));
        }
        return Ok(None);
    }
    user_name(parser).map(Some)
}

/// CREATE, ALTER and DROP USER.
pub fn user(parser: &mut Parser) -> SqlResult<Stmt> {
    if take(parser, &["DROP", "USER"]) {
        let if_exists = take(parser, &["IF", "EXISTS"]);
        let mut users = vec![user_name(parser)?];
        while parser.consume_token(&Token::Comma) {
            users.push(user_name(parser)?);
        }
        return Ok(Stmt::DropUser { users, if_exists });
    }
    let create = take(parser, &["CREATE", "USER"]);
    if !create {
        expect(parser, &["ALTER", "USER"])?;
    }
    let lenient = take(parser, &["IF", "NOT", "EXISTS"]) || take(parser, &["IF", "EXISTS"]);
    let mut users = Vec::new();
    loop {
        let user = user_name(parser)?;
        let mut password = None;
        if take(parser, &["IDENTIFIED"]) {
            if take(parser, &["WITH"]) {
                word_or_text(parser)?;
            }
            if take(parser, &["BY"]) {
                password = Some(text(parser)?);
            } else if take(parser, &["AS"]) {
                return Err(unsupported("IDENTIFIED … AS 'hash'"));
            }
        }
        users.push((user, password));
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    let group = match take(parser, &["RESOURCE", "GROUP"]) {
        true => Some(group_name(parser)?),
        false => None,
    };
    if !create && group.is_none() && users.iter().any(|(_, password)| password.is_none()) {
        return Err(unsupported("ALTER USER without IDENTIFIED BY or RESOURCE GROUP"));
    }
    if parser.peek_token().token != Token::EOF && parser.peek_token().token != Token::SemiColon {
        return Err(unsupported(format!("CREATE USER … {}", parser.peek_token().token)));
    }
    Ok(Stmt::PutUser { users, group, lenient, create })
}

/// CREATE, DROP and ALTER DATABASE.
pub fn database(parser: &mut Parser) -> SqlResult<Stmt> {
    let verb = peek_word(parser, 0).unwrap_or_default();
    parser.next_token();
    parser.next_token();
    match verb.as_str() {
        "CREATE" => {
            let if_not_exists = take(parser, &["IF", "NOT", "EXISTS"]);
            let name = name(parser)?;
            database_options(parser)?;
            Ok(Stmt::CreateDatabase { name, if_not_exists })
        }
        "DROP" => {
            let if_exists = take(parser, &["IF", "EXISTS"]);
            Ok(Stmt::DropDatabase { name: name(parser)?, if_exists })
        }
        _ => {
            let options = ["CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "READ"];
            let named = !peek_word(parser, 0).is_some_and(|word| options.contains(&word.as_str()));
            let name = if named { Some(name(parser)?) } else { None };
            if matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
                return Err(unexpected(&parser.peek_token(), "an option of a database"));
            }
            database_options(parser)?;
            match peek_word(parser, 0) {
                Some(word) => Err(unsupported(format!("ALTER DATABASE … {word}"))),
                None => Ok(Stmt::AlterDatabase(name)),
            }
        }
    }
}

fn database_options(parser: &mut Parser) -> SqlResult<()> {
    loop {
        _ = take(parser, &["DEFAULT"]);
        if take(parser, &["CHARACTER", "SET"]) || take(parser, &["CHARSET"]) {
            _ = parser.consume_token(&Token::Eq);
            crate::charsets::check_charset(&word_or_text(parser)?)?;
        } else if take(parser, &["COLLATE"]) {
            _ = parser.consume_token(&Token::Eq);
            crate::charsets::check_collation(&word_or_text(parser)?)?;
        } else if take(parser, &["ENCRYPTION"]) {
            _ = parser.consume_token(&Token::Eq);
            if !word_or_text(parser)?.eq_ignore_ascii_case("N") {
                return Err(unsupported("ENCRYPTION of a database"));
            }
        } else {
            return Ok(());
        }
    }
}

/// SPLIT TABLE t [BETWEEN … AND …] REGIONS n: cut into about n regions of equal size.
pub fn split_table(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["SPLIT", "TABLE"])?;
    let table = object(parser)?;
    if take(parser, &["REGIONS"]) {
        return Ok(Stmt::SplitTable { table, regions: number(parser)? });
    }
    Err(unsupported(format!("SPLIT TABLE … {}", parser.peek_token().token)))
}

/// KILL.
pub fn kill(parser: &mut Parser) -> SqlResult<Stmt> {
    expect(parser, &["KILL"])?;
    _ = take(parser, &["TIDB"]);
    let query = take(parser, &["QUERY"]);
    if !query {
        _ = take(parser, &["CONNECTION"]);
    }
    Ok(Stmt::Kill { id: number(parser)?, query })
}
