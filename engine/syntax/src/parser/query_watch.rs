//! QUERY WATCH ADD and REMOVE: TiDB's forms.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use types::resource_group::{DEFAULT_GROUP, Likeness};
use values::error::{SqlResult, syntax};

use super::resource_groups::{action, equals, group_name};
use super::{expect, number, take, text, unexpected};
use crate::digest::digest;
use crate::statement::{Stmt, WatchOrder};

/// QUERY WATCH ADD and REMOVE.
pub fn query_watch(parser: &mut Parser) -> SqlResult<Stmt> {
    if take(parser, &["QUERY", "WATCH", "REMOVE"]) {
        return number(parser).map(Stmt::QueryUnwatch);
    }
    expect(parser, &["QUERY", "WATCH", "ADD"])?;
    let (mut group, mut wanted, mut queries) = (None, None, None);
    while !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
        if take(parser, &["RESOURCE", "GROUP"]) {
            equals(parser);
            group = Some(group_name(parser)?);
        } else if take(parser, &["ACTION"]) {
            equals(parser);
            wanted = Some(action(parser)?);
        } else if take(parser, &["SQL", "TEXT"]) {
            queries = Some(by_text(parser)?);
        } else if take(parser, &["SQL", "DIGEST"]) {
            queries = Some((Likeness::Similar, text(parser)?.to_lowercase()));
        } else if take(parser, &["PLAN", "DIGEST"]) {
            queries = Some((Likeness::Plan, text(parser)?.to_lowercase()));
        } else {
            return Err(unexpected(&parser.peek_token(), "RESOURCE GROUP, ACTION, SQL or PLAN"));
        }
        _ = parser.consume_token(&Token::Comma);
    }
    let (by, text) = queries
        .ok_or_else(|| syntax("QUERY WATCH ADD needs SQL TEXT, SQL DIGEST or PLAN DIGEST"))?;
    let group = group.unwrap_or_else(|| DEFAULT_GROUP.to_owned());
    Ok(Stmt::QueryWatch(Box::new(WatchOrder { group, action: wanted, by, text })))
}

/// `{EXACT | SIMILAR | PLAN} TO '…'`: by the text itself, or by its digest.
fn by_text(parser: &mut Parser) -> SqlResult<(Likeness, String)> {
    for (word, by) in
        [("EXACT", Likeness::Exact), ("SIMILAR", Likeness::Similar), ("PLAN", Likeness::Plan)]
    {
        if take(parser, &[word, "TO"]) {
            let sql = text(parser)?;
            return Ok(match by {
                Likeness::Exact => (by, sql),
                _ => (by, digest(&sql)),
            });
        }
    }
    Err(unexpected(&parser.peek_token(), "EXACT TO, SIMILAR TO or PLAN TO"))
}

#[cfg(test)]
mod tests {
    use types::resource_group::Action;

    use super::*;
    use crate::parser::parse;

    fn order(sql: &str) -> WatchOrder {
        match parse(sql).unwrap() {
            Stmt::QueryWatch(order) => *order,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn watches_are_read_as_tidb_writes_them() {
        let exact = order(
            "QUERY WATCH ADD RESOURCE GROUP RG1 ACTION KILL SQL TEXT EXACT TO 'SELECT * FROM t'",
        );
        assert_eq!((exact.group.as_str(), exact.by), ("rg1", Likeness::Exact));
        assert_eq!((exact.action, exact.text.as_str()), (Some(Action::Kill), "SELECT * FROM t"));
        let similar = order("QUERY WATCH ADD SQL TEXT SIMILAR TO 'select * from T where a = 7'");
        assert_eq!((similar.group.as_str(), similar.action), ("default", None));
        assert_eq!(similar.text, digest("SELECT *  FROM t WHERE a = 'x'"));
        let given = order("QUERY WATCH ADD ACTION = SWITCH_GROUP(rg2) SQL DIGEST 'ABC'");
        assert_eq!((given.text.as_str(), given.by), ("abc", Likeness::Similar));
        assert_eq!(given.action, Some(Action::Switch("rg2".into())));
        assert!(matches!(parse("QUERY WATCH REMOVE 7").unwrap(), Stmt::QueryUnwatch(7)));
    }

    #[test]
    fn what_is_no_watch_is_refused() {
        for sql in [
            "QUERY WATCH ADD",
            "QUERY WATCH ADD RESOURCE GROUP rg1",
            "QUERY WATCH ADD SQL TEXT 'SELECT 1'",
            "QUERY WATCH ADD SQL TEXT LIKE TO 'SELECT 1'",
            "QUERY WATCH ADD ACTION = SLAP SQL DIGEST 'a'",
            "QUERY WATCH REMOVE 'a'",
            "QUERY WATCH",
        ] {
            assert_eq!(parse(sql).unwrap_err().code, 1064, "{sql}");
        }
    }
}
