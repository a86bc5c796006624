//! CREATE, ALTER and DROP RESOURCE GROUP, SET RESOURCE GROUP: TiDB's forms. MySQL's own resource groups, of processors and
//! threads, are refused by the words that they have.

use std::time::Duration;

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use types::resource_group::{Action, Likeness, QueryLimit, Watch, duration_of, task_named};
use types::{GroupOptions, Priority};
use values::error::{SqlResult, syntax, unknown_background_task, unsupported};

use super::{expect, name, number, peek_word, take, text, unexpected};
use crate::statement::Stmt;

/// CREATE, ALTER and DROP RESOURCE GROUP.
pub fn resource_group(parser: &mut Parser) -> SqlResult<Stmt> {
    if take(parser, &["DROP", "RESOURCE", "GROUP"]) {
        let if_exists = take(parser, &["IF", "EXISTS"]);
        return Ok(Stmt::DropResourceGroup { name: group_name(parser)?, if_exists });
    }
    let create = take(parser, &["CREATE", "RESOURCE", "GROUP"]);
    let lenient = match create {
        true => take(parser, &["IF", "NOT", "EXISTS"]),
        false => {
            expect(parser, &["ALTER", "RESOURCE", "GROUP"])?;
            take(parser, &["IF", "EXISTS"])
        }
    };
    let name = group_name(parser)?;
    let options = Box::new(options(parser)?);
    Ok(Stmt::PutResourceGroup { name, options, lenient, create })
}

/// The name of a group, in lower case.
pub fn group_name(parser: &mut Parser) -> SqlResult<String> {
    Ok(name(parser)?.to_lowercase())
}

fn options(parser: &mut Parser) -> SqlResult<GroupOptions> {
    let mut options = GroupOptions::default();
    while !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
        option(parser, &mut options)?;
        _ = parser.consume_token(&Token::Comma);
    }
    if options == GroupOptions::default() {
        return Err(unexpected(
            &parser.peek_token(),
            "RU_PER_SEC, PRIORITY, BURSTABLE or QUERY_LIMIT",
        ));
    }
    Ok(options)
}

fn option(parser: &mut Parser, options: &mut GroupOptions) -> SqlResult<()> {
    if take(parser, &["RU_PER_SEC"]) {
        equals(parser);
        let unlimited = take(parser, &["UNLIMITED"]);
        let rate = if unlimited { None } else { Some(number(parser)?) };
        options.ru_per_sec = Some(rate);
    } else if take(parser, &["PRIORITY"]) {
        equals(parser);
        let named = peek_word(parser, 0).and_then(|word| Priority::named(&word));
        let priority =
            named.ok_or_else(|| unexpected(&parser.peek_token(), "LOW, MEDIUM or HIGH"))?;
        parser.next_token();
        options.priority = Some(priority);
    } else if take(parser, &["BURSTABLE"]) {
        let said = parser.consume_token(&Token::Eq);
        let (on, off) = (["TRUE", "MODERATED", "UNLIMITED"], ["FALSE", "OFF"]);
        let burstable = match peek_word(parser, 0) {
            Some(word) if on.contains(&word.as_str()) => true,
            Some(word) if off.contains(&word.as_str()) => false,
            _ if said => return Err(unexpected(&parser.peek_token(), "TRUE or FALSE")),
            _ => {
                options.burstable = Some(true);
                return Ok(());
            }
        };
        parser.next_token();
        options.burstable = Some(burstable);
    } else if take(parser, &["QUERY_LIMIT"]) {
        equals(parser);
        let none = take(parser, &["NULL"]);
        options.query_limit = Some(if none { None } else { Some(query_limit(parser)?) });
    } else if take(parser, &["BACKGROUND"]) {
        equals(parser);
        let none = take(parser, &["NULL"]);
        options.background = Some(if none { Vec::new() } else { background(parser)? });
    } else if let Some(word @ ("TYPE" | "VCPU" | "THREAD_PRIORITY" | "ENABLE" | "DISABLE")) =
        peek_word(parser, 0).as_deref()
    {
        return Err(unsupported(format!(
            "{word} of a resource group (RU_PER_SEC says what it may use)"
        )));
    } else {
        return Err(unexpected(&parser.peek_token(), "an option of a resource group"));
    }
    Ok(())
}

/// An equals sign, where one may stand.
pub(super) fn equals(parser: &mut Parser) {
    _ = parser.consume_token(&Token::Eq);
}

fn parenthesis(parser: &mut Parser, token: &Token) -> SqlResult<()> {
    match parser.consume_token(token) {
        true => Ok(()),
        false => Err(unexpected(&parser.peek_token(), &token.to_string())),
    }
}

/// `(EXEC_ELAPSED = '60s', RU = n, ACTION = …, WATCH = … DURATION = …)`
fn query_limit(parser: &mut Parser) -> SqlResult<QueryLimit> {
    parenthesis(parser, &Token::LParen)?;
    let (mut exec_elapsed, mut ru, mut action, mut watch) = (None, None, None, None);
    while !parser.consume_token(&Token::RParen) {
        if take(parser, &["EXEC_ELAPSED"]) {
            equals(parser);
            exec_elapsed = Some(duration(parser)?);
        } else if take(parser, &["RU"]) {
            equals(parser);
            ru = Some(number(parser)?);
        } else if take(parser, &["PROCESSED_KEYS"]) {
            return Err(unsupported(
                "QUERY_LIMIT by PROCESSED_KEYS (EXEC_ELAPSED and RU are there)",
            ));
        } else if take(parser, &["ACTION"]) {
            equals(parser);
            action = Some(self::action(parser)?);
        } else if take(parser, &["WATCH"]) {
            equals(parser);
            watch = Some(self::watch(parser)?);
        } else {
            return Err(unexpected(&parser.peek_token(), "EXEC_ELAPSED, RU, ACTION or WATCH"));
        }
        _ = parser.consume_token(&Token::Comma);
    }
    if exec_elapsed.is_none() && ru.is_none() {
        return Err(syntax("QUERY_LIMIT needs EXEC_ELAPSED or RU"));
    }
    let action = action.ok_or_else(|| syntax("QUERY_LIMIT needs an ACTION"))?;
    Ok(QueryLimit { exec_elapsed, ru, action, watch })
}

/// DRYRUN, COOLDOWN, KILL or SWITCH_GROUP(g).
pub(super) fn action(parser: &mut Parser) -> SqlResult<Action> {
    for (word, action) in
        [("DRYRUN", Action::DryRun), ("COOLDOWN", Action::Cooldown), ("KILL", Action::Kill)]
    {
        if take(parser, &[word]) {
            return Ok(action);
        }
    }
    if !take(parser, &["SWITCH_GROUP"]) {
        return Err(unexpected(&parser.peek_token(), "DRYRUN, COOLDOWN, KILL or SWITCH_GROUP(g)"));
    }
    parenthesis(parser, &Token::LParen)?;
    let group = group_name(parser)?;
    parenthesis(parser, &Token::RParen)?;
    Ok(Action::Switch(group))
}

fn watch(parser: &mut Parser) -> SqlResult<Watch> {
    let likenesses =
        [("EXACT", Likeness::Exact), ("SIMILAR", Likeness::Similar), ("PLAN", Likeness::Plan)];
    let Some((_, by)) = likenesses.into_iter().find(|(word, _)| take(parser, &[word])) else {
        return Err(unexpected(&parser.peek_token(), "EXACT, SIMILAR or PLAN"));
    };
    if !take(parser, &["DURATION"]) {
        return Ok(Watch { by, lasts: None });
    }
    equals(parser);
    let lasts = if take(parser, &["UNLIMITED"]) { None } else { Some(duration(parser)?) };
    Ok(Watch { by, lasts })
}

/// A duration in quotes, longer than none.
fn duration(parser: &mut Parser) -> SqlResult<Duration> {
    let at = parser.peek_token();
    let found = duration_of(&text(parser)?).filter(|found| !found.is_zero());
    found.ok_or_else(|| unexpected(&at, "a duration such as '60s'"))
}

/// `(TASK_TYPES = 'import,ddl')`
fn background(parser: &mut Parser) -> SqlResult<Vec<String>> {
    parenthesis(parser, &Token::LParen)?;
    expect(parser, &["TASK_TYPES"])?;
    equals(parser);
    let names = text(parser)?;
    _ = parser.consume_token(&Token::Comma);
    if take(parser, &["UTILIZATION_LIMIT"]) {
        return Err(unsupported("UTILIZATION_LIMIT of background work"));
    }
    parenthesis(parser, &Token::RParen)?;
    let mut tasks: Vec<String> = Vec::new();
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let task = task_named(name).ok_or_else(|| unknown_background_task(name))?;
        if !tasks.iter().any(|known| known == task) {
            tasks.push(task.to_owned());
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    fn group_of(sql: &str) -> String {
        let statement = parse(sql).unwrap();
        let Stmt::PutResourceGroup { name, options, .. } = statement else { panic!("{sql}") };
        options.of(&types::ResourceGroup::new(&name).unwrap()).to_string()
    }

    #[test]
    fn groups_are_described_as_tidb_does() {
        for (sql, group) in [
            ("CREATE RESOURCE GROUP rg1 RU_PER_SEC = 500", "`rg1` RU_PER_SEC=500 PRIORITY=MEDIUM"),
            (
                "CREATE RESOURCE GROUP IF NOT EXISTS RG1 RU_PER_SEC=500 PRIORITY HIGH BURSTABLE",
                "`rg1` RU_PER_SEC=500 PRIORITY=HIGH BURSTABLE",
            ),
            (
                "CREATE RESOURCE GROUP `a b` BURSTABLE = FALSE, PRIORITY = low, RU_PER_SEC UNLIMITED;",
                "`a b` RU_PER_SEC=UNLIMITED PRIORITY=LOW",
            ),
            (
                "ALTER RESOURCE GROUP rg1 QUERY_LIMIT = (EXEC_ELAPSED = '60s', ACTION = KILL, \
                 WATCH = SIMILAR DURATION = '10m')",
                "`rg1` RU_PER_SEC=UNLIMITED PRIORITY=MEDIUM QUERY_LIMIT=(EXEC_ELAPSED='1m', ACTION=KILL, \
                 WATCH=SIMILAR DURATION='10m')",
            ),
            (
                "ALTER RESOURCE GROUP rg1 QUERY_LIMIT=(RU=7 ACTION=SWITCH_GROUP(RG2) WATCH PLAN)",
                "`rg1` RU_PER_SEC=UNLIMITED PRIORITY=MEDIUM QUERY_LIMIT=(RU=7, ACTION=SWITCH_GROUP(rg2), \
                 WATCH=PLAN DURATION=UNLIMITED)",
            ),
            (
                "ALTER RESOURCE GROUP default BACKGROUND = (TASK_TYPES = 'br, DDL')",
                "`default` RU_PER_SEC=UNLIMITED PRIORITY=MEDIUM BACKGROUND=(TASK_TYPES='backup,ddl')",
            ),
            (
                "ALTER RESOURCE GROUP rg1 QUERY_LIMIT=NULL BACKGROUND=NULL",
                "`rg1` RU_PER_SEC=UNLIMITED PRIORITY=MEDIUM",
            ),
        ] {
            assert_eq!(group_of(sql), format!("CREATE RESOURCE GROUP {group}"), "{sql}");
        }
    }

    #[test]
    fn what_is_no_group_is_refused_with_a_number() {
        for (sql, code) in [
            ("CREATE RESOURCE GROUP rg1", 1064),
            ("CREATE RESOURCE GROUP rg1 RU_PER_SEC = -1", 1064),
            ("CREATE RESOURCE GROUP rg1 RU_PER_SEC = 18446744073709551616", 1064),
            ("CREATE RESOURCE GROUP rg1 RU_PER_SEC = many", 1064),
            ("CREATE RESOURCE GROUP rg1 PRIORITY = HIGHEST", 1064),
            ("CREATE RESOURCE GROUP rg1 QUERY_LIMIT = (ACTION = KILL)", 1064),
            ("CREATE RESOURCE GROUP rg1 QUERY_LIMIT = (EXEC_ELAPSED = '60s')", 1064),
            ("CREATE RESOURCE GROUP rg1 QUERY_LIMIT = (EXEC_ELAPSED = '60', ACTION = KILL)", 1064),
            ("CREATE RESOURCE GROUP rg1 QUERY_LIMIT = (EXEC_ELAPSED = '0s', ACTION = KILL)", 1064),
            ("CREATE RESOURCE GROUP rg1 QUERY_LIMIT = (EXEC_ELAPSED = '1s', ACTION = KILL", 1064),
            ("CREATE RESOURCE GROUP rg1 BACKGROUND = (TASK_TYPES = 'br,coffee')", 8255),
            ("CREATE RESOURCE GROUP rg1 TYPE = USER VCPU = 0-1", 1235),
            ("DROP RESOURCE GROUP", 1064),
        ] {
            assert_eq!(parse(sql).unwrap_err().code, code, "{sql}");
        }
    }
}
