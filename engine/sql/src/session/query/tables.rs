//! Tables by name for the planner: stored ones over the statement's reader, virtual ones made of
//! what the cluster says of itself.

use std::sync::Arc;

use access::Rights;
use async_trait::async_trait;
use binder::{ResolvedTable, TableResolver, caseless};
use datafusion::datasource::MemTable;
use placement::api::Catalog;
use types::{Table, Timestamp};
use values::error::{SqlResult, no_database, no_table, not_of_kind, younger_table};

use crate::engine::Engine;
use storage::provider::RowTable;
use storage::reader::Reader;

/// Tables as a statement sees them.
pub(in crate::session) struct Tables {
    /// Shared parts.
    pub engine: Engine,
    /// Names.
    pub catalog: Arc<Catalog>,
    /// Rows.
    pub reader: Reader,
    /// What the session's user may see of virtual tables.
    pub rights: Arc<Rights>,
}

/// A stored table of a catalog; error 1146 or 1049 if there is none.
pub(in crate::session) fn stored(
    catalog: &Catalog,
    database: &str,
    table: &str,
) -> SqlResult<Arc<Table>> {
    match catalog.table_named(database, table) {
        Some(table) => Ok(Arc::clone(table)),
        None if catalog.database_named(database).is_none() => Err(no_database(database)),
        None if catalog.view_named(database, table).is_some() => {
            Err(not_of_kind(database, table, "BASE TABLE"))
        }
        None => Err(no_table(database, table)),
    }
}

/// As [`stored`], for writing; refused while an import fills the table.
pub(in crate::session) fn writable(
    catalog: &Catalog,
    database: &str,
    table: &str,
) -> SqlResult<Arc<Table>> {
    let table = stored(catalog, database, table)?;
    catalog.check_not_importing(table.id)?;
    Ok(table)
}

/// As [`writable`], for reading at `ts`; error 1412 if the table is younger.
pub(in crate::session) fn readable(
    catalog: &Catalog,
    database: &str,
    table: &str,
    ts: Timestamp,
) -> SqlResult<Arc<Table>> {
    let table = writable(catalog, database, table)?;
    match catalog.existed_at(table.id, ts) {
        true => Ok(table),
        false => Err(younger_table(&table.database, &table.name)),
    }
}

#[async_trait]
impl TableResolver for Tables {
    async fn resolve(&self, database: &str, table: &str) -> SqlResult<ResolvedTable> {
        if information_schema::is_virtual(database) {
            let catalog = &self.rights.visible(&self.catalog);
            let source = self.engine.source(catalog, &self.rights);
            let listing = source.listing(database, table).await?;
            let mut batch = listing.batch()?;
            // Names of users, in mysql.user, compare as bytes.
            if database.eq_ignore_ascii_case("information_schema") {
                let marked = caseless(&batch.schema());
                batch = batch.with_schema(marked)?;
            }
            let provider = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
            let table = Arc::new(listing.table(database, table));
            return Ok(ResolvedTable { provider: Arc::new(provider), table: Some(table) });
        }
        let table = readable(&self.catalog, database, table, self.reader.ts())?;
        let provider = Arc::new(RowTable::new(table.clone(), self.reader.clone()));
        Ok(ResolvedTable { provider, table: Some(table) })
    }
}
