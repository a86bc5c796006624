//! TRUNCATE TABLE, RENAME TABLE and CREATE TABLE … LIKE: tables by another number or another name.

use std::sync::Arc;

use placement::api::{CatalogChange, Renamed};
use sqlparser::ast::{CreateTableLikeKind, ObjectName};
use types::{Error, Table};
use values::error::{SqlResult, no_database, no_table, table_exists};

use crate::session::{ATTEMPTS, Session, done, impossible};
use execution::reply::Reply;

impl Session {
    /// TRUNCATE TABLE: a new, empty table in the old one's place.
    pub(in crate::session) async fn truncate(&mut self, name: &ObjectName) -> SqlResult<Reply> {
        let table = self.current(name).await?;
        self.check_truncate(&table).await?;
        let storage = &self.engine.storage;
        match storage.change(CatalogChange::TruncateTable(table.id)).await? {
            Some(table) => storage.publish_schema(&table).await?,
            None => return Err(impossible("a table without a description")),
        }
        Ok(done())
    }

    /// RENAME TABLE: one name after the other, as MySQL does, but all at once.
    pub(super) async fn rename_tables(
        &mut self,
        names: &[(ObjectName, ObjectName)],
    ) -> SqlResult<Reply> {
        let storage = self.engine.storage.clone();
        for attempt in 1.. {
            let catalog = storage.catalog().await?;
            let mut tables = catalog.tables.clone();
            let at = |tables: &[Arc<Table>], database: &str, name: &str| {
                tables.iter().position(|table| {
                    table.database.eq_ignore_ascii_case(database)
                        && table.name.eq_ignore_ascii_case(name)
                })
            };
            for (from, to) in names {
                let (database, name) = definitions::spelled(from, self.variables.database())?;
                let found = at(&tables, &database, &name);
                let found = found.ok_or_else(|| no_table(&database, &name))?;
                let (database, name) = definitions::spelled(to, self.variables.database())?;
                if catalog.database_named(&database).is_none() {
                    return Err(no_database(&database));
                }
                if at(&tables, &database, &name).is_some_and(|other| other != found) {
                    return Err(table_exists(name));
                }
                let table = Arc::make_mut(&mut tables[found]);
                (table.database, table.name) = (database, name);
            }
            let changed = |(table, before): (&Arc<Table>, &Arc<Table>)| {
                let same = table.database == before.database && table.name == before.name;
                (!same).then(|| Renamed {
                    table: table.id,
                    version: table.version + 1,
                    database: table.database.clone(),
                    name: table.name.clone(),
                })
            };
            let renamed: Vec<_> = tables.iter().zip(&catalog.tables).filter_map(changed).collect();
            let ids: Vec<_> = renamed.iter().map(|renamed| renamed.table).collect();
            match storage.change(CatalogChange::RenameTables(renamed)).await {
                Ok(_) => {
                    storage.timestamp().await?;
                    let catalog = storage.catalog().await?;
                    for table in ids.into_iter().filter_map(|id| catalog.table(id)) {
                        storage.publish_schema(table).await?;
                    }
                    return Ok(done());
                }
                // Somebody else changed one of them meanwhile.
                Err(Error::Invalid(_)) if attempt < ATTEMPTS => _ = storage.timestamp().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(impossible("a change that never ended"))
    }

    /// What CREATE TABLE … LIKE describes: all of the other table but its rows and replicas.
    pub(in crate::session) async fn like(
        &self,
        name: &ObjectName,
        like: &CreateTableLikeKind,
    ) -> SqlResult<Table> {
        let (CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like)) = like;
        let other = self.current(&like.name).await?;
        let (database, name) = definitions::spelled(name, self.variables.database())?;
        let mut table =
            Table { id: 0, version: 1, database, columnar_replicas: 0, ..other.without_rows() };
        table.rename(name);
        Ok(table)
    }
}
