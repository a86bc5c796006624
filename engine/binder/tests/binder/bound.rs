//! What statements are bound to, as scripts: `bind "SELECT …"`, `change "UPDATE …"`, `insert "INSERT …"`, and what was bound below.
//! `UPDATE_GOLDENFILES=1` writes the results anew.

use std::error::Error;
use std::path::PathBuf;

use binder::{
    BoundChange, BoundInsert, BoundQuery, QueryContext, RowsOf, Set, TableResolver, Targets, bind,
    query_of,
};
use goldenscript::{Command, Context, Runner};
use sqlparser::ast::{Statement, TableObject};
use syntax::names::table_name;
use syntax::parser::parse_sql;
use types::{Column, Value};

use crate::tables::Tables;

pub(crate) fn context() -> QueryContext {
    QueryContext {
        database: "d".into(),
        now_us: 1_700_000_000_123_456,
        time_zone: "+00:00".into(),
        sql_mode: "ONLY_FULL_GROUP_BY".into(),
        user: "root@localhost".into(),
        connection_id: 9,
        ..QueryContext::default()
    }
}

struct Binder;

impl Runner for Binder {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let text = args.next_pos().ok_or("a query is missing")?.to_owned();
        args.reject_next()?;
        match command.name.as_str() {
            "bind" => query(&text),
            "change" => change(&text),
            "insert" => insert(&text),
            other => Err(format!("no command '{other}'").into()),
        }
    }
}

fn query(text: &str) -> Result<String, Box<dyn Error>> {
    let context = context();
    // Nothing here waits for anything.
    let query = query_of(text)?;
    let bind = bind(&query, &context, &Tables);
    let (bound, resolved) = futures::executor::block_on(bind)?;
    let sent = postcard::to_allocvec(&bound)?;
    assert_eq!(postcard::from_bytes::<BoundQuery>(&sent)?, bound, "{text}: sent and read");
    let again = futures::executor::block_on(binder::resolve(&bound, &Tables))?;
    assert!(again.keys().all(|table| resolved.contains_key(table)), "{text}: tables");
    Ok(bound.to_string())
}

pub(crate) fn change(text: &str) -> Result<String, Box<dyn Error>> {
    let (rows, targets, set);
    let statement = parse_sql(text)?;
    // Nobody is asked what a column's default is.
    let default = |_: &Column| Ok(Value::Null);
    match &statement {
        Statement::Update(update) => {
            (rows, set) = (RowsOf::of_update(update), &update.assignments[..]);
            targets = Targets::Set(Set { assignments: set, default: &default });
        }
        Statement::Delete(delete) if delete.tables.is_empty() => {
            (rows, targets, set) = (RowsOf::of_delete(delete), Targets::Stored, &[][..]);
        }
        Statement::Delete(delete) => {
            let named = Targets::Named(&delete.tables);
            (rows, targets, set) = (RowsOf::of_delete(delete), named, &[][..]);
        }
        other => return Err(format!("'{other}' changes no rows").into()),
    }
    let context = context();
    let names = rows.tables(set, &context.database)?;
    let resolved = futures::executor::block_on(binder::resolve_tables(names, &Tables))?;
    let bound = binder::bind_change(&rows, targets, &context, &resolved)?;
    let sent = postcard::to_allocvec(&bound)?;
    assert_eq!(postcard::from_bytes::<BoundChange>(&sent)?, bound, "{text}: sent and read");
    Ok(bound.to_string())
}

pub(crate) fn insert(text: &str) -> Result<String, Box<dyn Error>> {
    let statement = parse_sql(text)?;
    let Statement::Insert(insert) = &statement else {
        return Err(format!("'{statement}' inserts no rows").into());
    };
    let context = context();
    let TableObject::TableName(name) = &insert.table else { return Err("no table".into()) };
    let name = table_name(name, &context.database)?;
    let names = binder::tables_of_insert(insert, &context.database)?;
    let resolved = futures::executor::block_on(binder::resolve_tables(names, &Tables))?;
    let into = futures::executor::block_on(Tables.resolve(&name.database, &name.table))?;
    let table = into.table.ok_or("no description")?;
    let bound = binder::bind_insert(insert, (&name, &table), &context, &resolved)?;
    let sent = postcard::to_allocvec(&bound)?;
    assert_eq!(postcard::from_bytes::<BoundInsert>(&sent)?, bound, "{text}: sent and read");
    Ok(bound.to_string())
}

#[test]
fn queries_are_bound_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/bound");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut scripts: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 12, "scripts are missing");
    for script in scripts {
        println!("{}", script.display());
        goldenscript::run(&mut Binder, &script).unwrap();
    }
}
