//! information_schema: what the cluster says of itself, as tables made when asked for.
//!
//! A listing is small and in memory; nothing here reads rows of stored tables.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::collections::BTreeMap;
use std::sync::Arc;

use access::Rights;
use arrow::record_batch::RecordBatch;
use binder::planning_schema;
use definitions::has_numbers;
use env::Clock;
use execution::host::Host;
use execution::reply::{Reply, WarningCount};
use placement::api::Catalog;
use storage::Storage;
use types::columns::ColumnsBuilder;
use types::{Column, ColumnType, Error, IntWidth, Table, TableId, Value};
use values::column::ResultColumn;
use values::error::{SqlResult, no_table};

mod absent;
mod cluster;
mod constraints;
mod privileges;
mod resource_groups;
mod schema;
mod sizes;

pub use cluster::LONGEST_INFO;
pub use privileges::grants_of;
pub use schema::{character_sets, collations, column_key, default_text, engines, extra, keys};
pub use sizes::Sizes;

/// Databases that hold no stored tables.
pub const VIRTUAL: &[&str] = &["information_schema", "performance_schema", "mysql", "sys"];

/// Whether a database's tables are made when asked for.
pub fn is_virtual(database: &str) -> bool {
    VIRTUAL.iter().any(|name| name.eq_ignore_ascii_case(database))
}

/// Names and kinds of what such a database shows, as they are shown.
pub fn shown_in(database: &str) -> Vec<(String, &'static str)> {
    match database.to_lowercase().as_str() {
        "information_schema" => {
            names().iter().map(|name| (name.to_uppercase(), "SYSTEM VIEW")).collect()
        }
        "mysql" => {
            ["tidb_runaway_queries", "user"].map(|name| (name.to_owned(), "BASE TABLE")).into()
        }
        _ => Vec::new(),
    }
}

/// Tables of information_schema.
pub fn names() -> Vec<&'static str> {
    let mut names = schema::NAMES.to_vec();
    names.extend(absent::names());
    names.extend(privileges::NAMES);
    names.extend(resource_groups::NAMES);
    names.extend([
        "columnar_replica",
        "tiflash_replica",
        "snapshot_leases",
        "garbage_collection",
        "cluster_info",
        "cluster_config",
        "regions",
        "processlist",
    ]);
    names
}

/// Rows with the columns they have.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows.
    pub rows: Vec<Vec<Value>>,
}

/// A text column of a listing.
pub fn text(name: &str) -> Column {
    column(name, ColumnType::Varchar(512))
}

/// A number column of a listing.
pub fn number(name: &str) -> Column {
    column(name, ColumnType::Int { width: IntWidth::Big, unsigned: false })
}

fn column(name: &str, ty: ColumnType) -> Column {
    Column {
        id: 0,
        name: name.into(),
        ty,
        nullable: true,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    }
}

/// A text.
pub fn string(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

/// A number.
pub fn int(n: impl TryInto<i64>) -> Value {
    n.try_into().map_or(Value::Null, Value::Int)
}

/// `YES` or `NO`.
pub fn yes(truth: bool) -> Value {
    string(if truth { "YES" } else { "NO" })
}

impl Listing {
    /// A listing of columns, texts unless their name is marked by `#`.
    pub fn of(columns: &[&str]) -> Listing {
        let columns = columns.iter().map(|name| match name.strip_prefix('#') {
            Some(name) => number(name),
            None => text(name),
        });
        Listing { columns: columns.collect(), rows: Vec::new() }
    }

    /// The table that it is the rows of. Names of information_schema are shown in upper case.
    pub fn table(&self, database: &str, name: &str) -> Table {
        let is_schema = database.eq_ignore_ascii_case("information_schema");
        Table {
            id: 0,
            version: 1,
            database: database.to_owned(),
            name: if is_schema { name.to_uppercase() } else { name.to_owned() },
            columns: self.columns.clone(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
            columnar_replicas: 0,
            comment: String::new(),
            dropped: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// The rows as one batch, under the names that plans know columns by.
    pub fn batch(&self) -> SqlResult<RecordBatch> {
        let table = self.table("", "");
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let mut builder = ColumnsBuilder::new(&table, &all)?;
        for row in &self.rows {
            builder.push(row)?;
        }
        let arrays = builder.finish()?.columns().to_vec();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        RecordBatch::try_new_with_options(planning_schema(&table), arrays, &options)
            .map_err(Into::into)
    }

    /// The rows as an answer.
    pub fn reply(self) -> SqlResult<Reply> {
        let batch = self.batch()?;
        let columns = self
            .columns
            .iter()
            .map(|column| ResultColumn::expression(&column.name, Some(column.ty), column.nullable))
            .collect();
        Ok(Reply::Rows {
            columns,
            batches: Box::pin(futures::stream::iter([Ok(batch)])),
            warnings: WarningCount::default(),
        })
    }
}

/// Where listings come from.
pub struct Source<'a> {
    /// The store.
    pub storage: &'a dyn Storage,
    /// The time of day.
    pub clock: &'a dyn Clock,
    /// The server around the sessions; nothing runs without.
    pub host: Option<&'a dyn Host>,
    /// Names, those that the user may see.
    pub catalog: &'a Arc<Catalog>,
    /// What the user may do.
    pub rights: &'a Rights,
}

impl Source<'_> {
    /// The next AUTO_INCREMENT number of each of some tables that has one.
    pub async fn next_numbers(
        &self,
        tables: impl IntoIterator<Item = &Table>,
    ) -> SqlResult<BTreeMap<TableId, u64>> {
        let wanted = tables.into_iter().filter(|table| has_numbers(table)).map(|table| table.id);
        let wanted: Vec<TableId> = wanted.collect();
        let mut numbers = BTreeMap::new();
        for table in wanted {
            match self.storage.next_auto_increment(table).await {
                Ok(number) => _ = numbers.insert(table, number),
                // It was dropped meanwhile, or has given its very last number.
                Err(Error::NotFound { .. } | Error::Invalid(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(numbers)
    }

    /// How large tables are, as placement knows it.
    pub async fn sizes(&self) -> SqlResult<Sizes> {
        Ok(Sizes::of(&self.storage.status().await?.routes))
    }

    /// The listing that a virtual table is; error 1146 if there is none.
    pub async fn listing(&self, database: &str, table: &str) -> SqlResult<Listing> {
        let missing = || no_table(database, table);
        if !database.eq_ignore_ascii_case("information_schema") {
            return match (database, table) {
                ("mysql", "user") => Ok(self.users()),
                ("mysql", "tidb_runaway_queries") => self.runaway_queries().await,
                _ => Err(missing()),
            };
        }
        match table {
            "columnar_replica" | "tiflash_replica" => self.columnar_replica().await,
            "snapshot_leases" => self.snapshot_leases().await,
            "garbage_collection" => self.garbage_collection().await,
            "cluster_info" => self.cluster_info().await,
            "cluster_config" => self.cluster_config().await,
            "regions" => self.regions().await,
            "processlist" => Ok(self.processlist(LONGEST_INFO)),
            "resource_group_usage" => self.resource_group_usage().await,
            "runaway_watches" => self.runaway_watches().await,
            "tables" => {
                let numbers =
                    self.next_numbers(self.catalog.tables.iter().map(Arc::as_ref)).await?;
                Ok(self.tables(&numbers, &self.sizes().await?))
            }
            _ => self.described(table).ok_or_else(missing),
        }
    }
}
