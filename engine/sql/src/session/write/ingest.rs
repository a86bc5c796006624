//! Rows of a bulk import: the same checks and conversions as LOAD DATA, out of a store's sight.
//!
//! It reads the catalog and writes nothing; what becomes of the keys and rows is the caller's
//! business.

use std::sync::Arc;

use types::{Table, Value, key, row};
use values::error::{SqlResult, no_number_given, table_changed, unsupported};

use super::fitting::Fitting;
use super::insert::Typed;
use crate::session::Session;
use crate::session::query::tables::stored;
use storage::Pair;
use storage::rows::record_key;

/// What is done with each row.
#[derive(Clone, Debug)]
pub struct ImportTarget {
    /// The table as it was when the import began.
    pub table: Arc<Table>,
    /// Table positions of the given columns.
    pub positions: Vec<usize>,
}

/// Rows as they are stored.
pub struct ImportedRows {
    /// For each row, its record and its index entries.
    pub rows: Vec<Vec<Pair>>,
    /// Highest AUTO_INCREMENT number.
    pub highest: u64,
}

impl Session {
    /// The table of an import and the positions of its columns: those named, or all.
    ///
    /// # Errors
    ///
    /// An unknown table or column, and tables whose rows have no key of their own.
    pub async fn import_target(
        &mut self,
        database: &str,
        table: &str,
        columns: Option<&[String]>,
    ) -> SqlResult<ImportTarget> {
        self.engine.storage.timestamp().await?;
        let catalog = self.engine.storage.catalog().await?;
        let table = stored(&catalog, database, table)?;
        if table.is_changing() {
            let why = "has columns that an ALTER TABLE adds or drops: import when it has ended \
                       (what one left half done, the next one ends)";
            return Err(table_changed(&table.database, &table.name, why));
        }
        if table.columns.iter().any(|column| column.hidden) {
            return Err(unsupported("import into a table without a primary key"));
        }
        if table.indexes.iter().any(|index| !index.is_public()) {
            return Err(unsupported("import while an index of the table is being made"));
        }
        let positions = match columns {
            None => binder::shown_columns(&table),
            Some(columns) => {
                let mut positions = Vec::with_capacity(columns.len());
                for column in columns {
                    positions.push(binder::given_column(&table, column, &positions)?);
                }
                positions
            }
        };
        self.take_time();
        Ok(ImportTarget { table, positions })
    }

    /// Values of some rows into what is stored. An error's text ends in `at row N`, from 1, where
    /// it is one row's.
    ///
    /// # Errors
    ///
    /// A value that its column does not take, in MySQL's words.
    pub fn import_rows(
        &self,
        target: &ImportTarget,
        given: Vec<Vec<Option<Value>>>,
    ) -> SqlResult<ImportedRows> {
        let ImportTarget { table, positions } = target;
        let Typed { rows, missing, highest, .. } =
            self.typed_rows(table, positions, given, 1, &mut Fitting::Strict)?;
        if let Some(at) = missing.first() {
            return Err(no_number_given(at + 1));
        }
        let rows = rows.iter().map(|values| stored_row(table, values));
        Ok(ImportedRows { rows: rows.collect::<SqlResult<_>>()?, highest })
    }
}

fn stored_row(table: &Table, values: &[Value]) -> SqlResult<Vec<Pair>> {
    let mut pairs = Vec::with_capacity(1 + table.indexes.len());
    pairs.push((record_key(table, values), row::encode(table, values)));
    for index in &table.indexes {
        pairs.push(key::index_entry(table, index, values)?);
    }
    Ok(pairs)
}
