//! Tables by name for the planner: stored ones over the statement's reader, virtual ones made of
//! what the cluster says of itself.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::datasource::MemTable;
use placement::api::Catalog;
use types::Table;

use crate::engine::Engine;
use crate::error::{SqlResult, no_database, no_table};
use crate::info;
use crate::planner::{ResolvedTable, TableResolver};
use crate::provider::RowTable;
use crate::reader::Reader;

/// Tables as a statement sees them.
pub struct Tables {
    /// Shared parts.
    pub engine: Engine,
    /// Names.
    pub catalog: Arc<Catalog>,
    /// Rows.
    pub reader: Reader,
}

impl Tables {
    /// A stored table; error 1146 or 1049 if there is none.
    pub fn stored(&self, database: &str, table: &str) -> SqlResult<Arc<Table>> {
        stored(&self.catalog, database, table)
    }
}

/// A stored table of a catalog; error 1146 or 1049 if there is none.
pub fn stored(catalog: &Catalog, database: &str, table: &str) -> SqlResult<Arc<Table>> {
    match catalog.table_named(database, table) {
        Some(table) => Ok(Arc::new(table.clone())),
        None if catalog.database_named(database).is_none() => Err(no_database(database)),
        None => Err(no_table(database, table)),
    }
}

#[async_trait]
impl TableResolver for Tables {
    async fn resolve(&self, database: &str, table: &str) -> SqlResult<ResolvedTable> {
        if info::is_virtual(database) {
            let source = info::Source { engine: &self.engine, catalog: &self.catalog };
            let listing = source.listing(database, table).await?;
            let batch = listing.batch()?;
            let provider = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
            return Ok(ResolvedTable { provider: Arc::new(provider), table: None });
        }
        let table = self.stored(database, table)?;
        let provider = Arc::new(RowTable::new(table.clone(), self.reader.clone()));
        Ok(ResolvedTable { provider, table: Some(table) })
    }
}
