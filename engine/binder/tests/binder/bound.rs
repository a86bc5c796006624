//! What queries are bound to, as scripts: `bind "SELECT …"`, and the bound query below.
//! `UPDATE_GOLDENFILES=1` writes the results anew.

use std::error::Error;
use std::path::PathBuf;

use binder::{BoundQuery, QueryContext, bind, query_of};
use goldenscript::{Command, Context, Runner};

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
        if command.name != "bind" {
            return Err(format!("no command '{}'", command.name).into());
        }
        let mut args = command.consume_args();
        let text = args.next_pos().ok_or("a query is missing")?.to_owned();
        args.reject_next()?;
        let context = context();
        // Nothing here waits for anything.
        let query = query_of(&text)?;
        let bind = bind(&query, &context, &Tables);
        let (bound, resolved) = futures::executor::block_on(bind)?;
        let sent = postcard::to_allocvec(&bound)?;
        assert_eq!(postcard::from_bytes::<BoundQuery>(&sent)?, bound, "{text}: sent and read");
        let again = futures::executor::block_on(binder::resolve(&bound, &Tables))?;
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
