//! ANALYZE, CHECK and OPTIMIZE TABLE, LOCK TABLES, ALTER DATABASE: what there is to do for them, and what
//! there is not.
//!
//! CHECK TABLE reads one snapshot and holds one page of it at a time; nothing here changes a table.

use std::collections::BTreeMap;

use sqlparser::ast::ObjectName;
use syntax::statement::Task;
use types::{Error, Index, Table, key, row};
use values::error::{
    NO_DATABASE, NO_TABLE, NOT_OF_KIND, SqlResult, inconsistent, no_database, no_database_selected,
    no_table, unsupported,
};
use values::variables::NOOP_FUNCTIONS;

use crate::session::query::tables::{readable, stored};
use crate::session::{Session, done};
use execution::reply::{Done, Reply};
use information_schema::{Listing, is_virtual, shown_in, string};
use storage::rows::record_key;
use storage::{Pair, Snapshot};

/// Errors that say that there is no such table: reported in a row of the answer.
const NOT_THERE: [u16; 3] = [NO_DATABASE, NO_TABLE, NOT_OF_KIND];

/// Rows of an answer about one table: what kind of message, and its text.
type Said = Vec<(&'static str, String)>;

impl Session {
    /// ANALYZE, CHECK and OPTIMIZE TABLE, and ADMIN CHECK TABLE.
    pub(in crate::session) async fn maintain(
        &mut self,
        task: Task,
        names: &[ObjectName],
    ) -> SqlResult<Reply> {
        self.commit().await?;
        let op = match task {
            Task::Analyze => "analyze",
            Task::Check | Task::AdminCheck => "check",
            Task::Optimize => "optimize",
        };
        let mut listing = Listing::of(&["Table", "Op", "Msg_type", "Msg_text"]);
        for name in names {
            let (database, table) = definitions::spelled(name, self.variables.database())?;
            let shown = |(name, _): &(String, _)| name.eq_ignore_ascii_case(&table);
            let made = is_virtual(&database) && shown_in(&database).iter().any(shown);
            let said = match self.maintained(task, &database, &table).await {
                Err(_) if made && task != Task::AdminCheck => {
                    let text = format!("The storage engine for the table doesn't support {op}");
                    vec![("note", text)]
                }
                Err(error) if task != Task::AdminCheck && NOT_THERE.contains(&error.code) => {
                    vec![("Error", error.message), ("status", "Operation failed".into())]
                }
                said => said?,
            };
            let row = |(kind, text): (&str, String)| {
                vec![string(format!("{database}.{table}")), string(op), string(kind), string(text)]
            };
            listing.rows.extend(said.into_iter().map(row));
        }
        if task == Task::AdminCheck { Ok(done()) } else { listing.reply() }
    }

    async fn maintained(&self, task: Task, database: &str, table: &str) -> SqlResult<Said> {
        let now = self.engine.storage.present().await?;
        let catalog = self.engine.storage.catalog().await?;
        let note = match task {
            Task::Analyze => "No statistics are kept: plans are made without them",
            Task::Optimize => "Old versions of rows go by themselves: there is nothing to optimize",
            Task::Check | Task::AdminCheck => {
                let table = readable(&catalog, database, table, now.ts())?;
                return match fault(&table, &*now).await? {
                    None => Ok(vec![("status", "OK".into())]),
                    Some(fault) if task == Task::Check => {
                        Ok(vec![("error", fault), ("error", "Corrupt".into())])
                    }
                    Some(fault) => Err(inconsistent(&table.database, &table.name, fault)),
                };
            }
        };
        stored(&catalog, database, table)?;
        Ok(vec![("note", note.into()), ("status", "OK".into())])
    }

    /// LOCK TABLES, which locks nothing: refused unless the session has asked to be spared that.
    pub(in crate::session) async fn lock_tables(
        &mut self,
        names: &[ObjectName],
    ) -> SqlResult<Reply> {
        let accepted = self.variables.get(NOOP_FUNCTIONS)?;
        if accepted == "OFF" {
            return Err(unsupported(format!(
                "LOCK TABLES (no table is locked as a whole: SET {NOOP_FUNCTIONS} = 'ON' to have \
                 it accepted without a lock, or dump with --skip-add-locks)"
            )));
        }
        self.commit().await?;
        let catalog = self.engine.storage.catalog().await?;
        for name in names {
            let (database, table) = definitions::spelled(name, self.variables.database())?;
            if catalog.table_named(&database, &table).is_none()
                && catalog.view_named(&database, &table).is_none()
            {
                return Err(no_table(&database, &table));
            }
        }
        if accepted == "WARN" {
            self.diagnostics.warn(unsupported("LOCK TABLES (nothing is locked)"));
        }
        Ok(done())
    }

    /// ALTER DATABASE to what every database is.
    pub(in crate::session) async fn alter_database(
        &self,
        name: Option<String>,
    ) -> SqlResult<Reply> {
        let name = name.unwrap_or_else(|| self.variables.database().to_owned());
        if name.is_empty() {
            return Err(no_database_selected());
        }
        match self.engine.storage.catalog().await?.database_named(&name) {
            Some(_) => Ok(Reply::Done(Done { affected_rows: 1, ..Done::default() })),
            None => Err(no_database(&name)),
        }
    }
}

/// What is wrong with a table first; nothing if every row has its entries and every entry its row.
async fn fault(table: &Table, now: &dyn Snapshot) -> SqlResult<Option<String>> {
    let indexes: Vec<&Index> =
        table.indexes.iter().filter(|index| index.is_whole_at(now.ts())).collect();
    let mut rows = 0;
    let mut scan = now.scan(key::records_start(table.id), key::records_end(table.id), false, None);
    while let Some(page) = scan.next_page().await? {
        rows += page.len();
        if let Some(fault) = fault_of(&page, table, &indexes, now).await? {
            return Ok(Some(fault));
        }
    }
    // An index has one entry for each row, and those of all rows are there: more belong to none.
    for index in indexes {
        let (start, end) =
            (key::index_start(table.id, index.id), key::index_end(table.id, index.id));
        let mut scan = now.scan(start, end, false, None);
        let mut entries = 0;
        while let Some(page) = scan.next_page().await? {
            entries += page.len();
        }
        if entries != rows {
            let name = &index.name;
            return Ok(Some(format!(
                "Index '{name}' contains {entries} entries, should be {rows}"
            )));
        }
    }
    Ok(None)
}

/// What is wrong first with some rows or with their entries.
async fn fault_of(
    rows: &[Pair],
    table: &Table,
    indexes: &[&Index],
    now: &dyn Snapshot,
) -> SqlResult<Option<String>> {
    let mut entries: BTreeMap<Vec<u8>, (Vec<u8>, &str)> = BTreeMap::new();
    for (record, stored) in rows {
        let values = match row::decode(table, stored) {
            Ok(values) => values,
            Err(Error::Corrupt(text)) => return Ok(Some(format!("A row cannot be read: {text}"))),
            Err(error) => return Err(error.into()),
        };
        if record_key(table, &values) != *record {
            return Ok(Some("A row has another primary key than the one it is found by".into()));
        }
        for index in indexes {
            let (entry, tail) = key::index_entry(table, index, &values)?;
            entries.insert(entry, (tail, index.name.as_str()));
        }
    }
    if entries.is_empty() {
        return Ok(None);
    }
    let found = now.get(entries.keys().cloned().collect()).await?;
    let found: BTreeMap<Vec<u8>, Vec<u8>> = found.into_iter().collect();
    let wrong = entries.iter().find(|(entry, (tail, _))| found.get(*entry) != Some(tail));
    Ok(wrong.map(|(_, (_, index))| format!("Index '{index}' lacks the entry of a row")))
}
