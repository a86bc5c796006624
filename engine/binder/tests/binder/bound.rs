//! What queries are bound to, as scripts: `bind "SELECT …"`, and the bound query below.
//! `UPDATE_GOLDENFILES=1` writes the results anew.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use binder::{
    BoundQuery, QueryContext, ResolvedTable, TableResolver, bind, planning_schema, query_of,
};
use datafusion::datasource::MemTable;
use goldenscript::{Command, Context, Runner};
use types::labels::Labels;
use types::{Column, ColumnType, IntWidth, Table};
use values::error::{SqlResult, no_table};

/// The columns of the one table, `d.t`.
fn columns() -> Vec<(&'static str, ColumnType)> {
    let int = |width, unsigned| ColumnType::Int { width, unsigned };
    vec![
        ("id", int(IntWidth::Int, false)),
        ("n", int(IntWidth::Big, true)),
        ("price", ColumnType::Decimal { precision: 10, scale: 2 }),
        ("x", ColumnType::Double),
        ("name", ColumnType::Varchar(20)),
        ("day", ColumnType::Date),
        ("at", ColumnType::DateTime(3)),
        ("born", ColumnType::Year),
        ("size", ColumnType::Enum(Labels::parse("'s','m','l'").unwrap())),
        ("_row", int(IntWidth::Big, false)),
    ]
}

fn table() -> Table {
    let column = |(id, (name, ty)): (u32, (&str, ColumnType))| Column {
        id,
        name: name.into(),
        ty,
        nullable: name != "id",
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: name.starts_with('_'),
        comment: String::new(),
    };
    Table {
        id: 7,
        version: 1,
        database: "d".into(),
        name: "t".into(),
        columns: (1..).zip(columns()).map(column).collect(),
        primary_key: vec![1],
        indexes: vec![],
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

struct One;

#[async_trait]
impl TableResolver for One {
    async fn resolve(&self, database: &str, name: &str) -> SqlResult<ResolvedTable> {
        if (database, name) != ("d", "t") {
            return Err(no_table(database, name));
        }
        let table = table();
        let provider = MemTable::try_new(planning_schema(&table), vec![vec![]])?;
        Ok(ResolvedTable { provider: Arc::new(provider), table: Some(Arc::new(table)) })
    }
}

struct Binder;

impl Runner for Binder {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        if command.name != "bind" {
            return Err(format!("no command '{}'", command.name).into());
        }
        let mut args = command.consume_args();
        let text = args.next_pos().ok_or("a query is missing")?.to_owned();
        args.reject_next()?;
        let context = QueryContext {
            database: "d".into(),
            now_us: 1_700_000_000_123_456,
            time_zone: "+00:00".into(),
            sql_mode: "ONLY_FULL_GROUP_BY".into(),
            user: "root@localhost".into(),
            connection_id: 9,
            ..QueryContext::default()
        };
        // Nothing here waits for anything.
        let query = query_of(&text)?;
        let bind = bind(&query, &context, &One);
        let (bound, resolved) = futures::executor::block_on(bind)?;
        let sent = postcard::to_allocvec(&bound)?;
        assert_eq!(postcard::from_bytes::<BoundQuery>(&sent)?, bound, "{text}: sent and read");
        let again = futures::executor::block_on(binder::resolve(&bound, &One))?;
        assert!(again.keys().all(|table| resolved.contains_key(table)), "{text}: tables");
        Ok(bound.to_string())
    }
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
