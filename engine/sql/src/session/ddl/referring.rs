//! Foreign keys of tables: made with them, added to them, dropped; and what they forbid to be done to tables.
//!
//! A new key holds for every writer, of its table and of the one that it refers to, before the rows that are there are looked at;
//! where one of them breaks it, the key goes again. Until then nothing is done to rows because of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use placement::api::{Catalog, CatalogChange, Found, KeyChange};
use sqlparser::ast::{CreateIndex, ForeignKeyConstraint, Ident, ObjectName};
use syntax::parser;
use syntax::statement::{Alter, Stmt};
use tokio_util::sync::CancellationToken;
use types::{Error, ForeignKey, Table, TableId, key, row};
use values::error::{
    SqlError, SqlResult, cannot_drop, duplicate_foreign_key, interrupted, no_parent_table,
    table_referred_to, truncate_referred_to,
};

use crate::session::write::parents::Referring;
use crate::session::{ATTEMPTS, Session, done, impossible};
use definitions::{foreign_keys, qualified};
use execution::reply::Reply;
use storage::reader::Reader;

/// Whether an action is about foreign keys.
pub(super) fn is_foreign_key(action: &Alter) -> bool {
    matches!(action, Alter::AddForeignKey(_) | Alter::DropForeignKey(_))
}

impl Session {
    /// Whether foreign keys are enforced for this session.
    pub(in crate::session) fn checks_foreign_keys(&self) -> SqlResult<bool> {
        Ok(self.variables.get("foreign_key_checks")? != "OFF")
    }

    /// Makes a table, with foreign keys if it has some.
    pub(super) async fn make_referring(
        &self,
        table: Table,
        keys: Vec<ForeignKey>,
        first_number: u64,
    ) -> SqlResult<Table> {
        for _ in 0..ATTEMPTS {
            let catalog = self.engine.storage.catalog().await?;
            self.check_referring_to(&catalog, &table)?;
            let parents = self.parents_of(&catalog, &table, &keys)?;
            let change = match keys.is_empty() {
                true => CatalogChange::CreateTable(Box::new(table.clone())),
                false => CatalogChange::CreateReferring {
                    table: Box::new(table.clone()),
                    keys: keys.clone(),
                    parents: parents.clone(),
                },
            };
            match self.make_as(change, first_number).await {
                Ok(made) => {
                    self.publish_found(&parents).await?;
                    return made.ok_or_else(|| impossible("a table without a description"));
                }
                Err(Error::Exists { kind, name }) if kind == "foreign key" => {
                    return Err(duplicate_foreign_key(name));
                }
                Err(error) if self.is_stale(&error, &parents).await? => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(impossible("a table that was never made"))
    }

    /// Whether a change failed since somebody else has changed one of these tables.
    async fn is_stale(&self, error: &Error, found: &[Found]) -> SqlResult<bool> {
        if !matches!(error, Error::Invalid(_) | Error::NotFound { .. }) {
            return Ok(false);
        }
        self.engine.storage.timestamp().await?;
        let catalog = self.engine.storage.catalog().await?;
        let same =
            |(id, version): &Found| catalog.table(*id).is_some_and(|t| t.version == *version);
        Ok(!found.iter().all(same))
    }

    /// Makes the newest descriptions of tables known to their regions.
    async fn publish_found(&self, found: &[Found]) -> SqlResult<()> {
        self.engine.storage.timestamp().await?;
        let catalog = self.engine.storage.catalog().await?;
        for table in found.iter().filter_map(|(id, _)| catalog.table(*id)) {
            self.engine.storage.publish_schema(table).await?;
        }
        Ok(())
    }

    /// The tables that keys of a table refer to, itself apart, if they can be referred to so.
    fn parents_of(
        &self,
        catalog: &Catalog,
        child: &Table,
        keys: &[ForeignKey],
    ) -> SqlResult<Vec<Found>> {
        let mut parents = BTreeSet::new();
        for key in keys {
            if key.refers_to(child) {
                foreign_keys::check_parent(key, child, child)?;
                continue;
            }
            match catalog.table_named(&key.parent.0, &key.parent.1) {
                Some(parent) => {
                    foreign_keys::check_parent(key, child, parent)?;
                    parents.insert((parent.id, parent.version));
                }
                None if self.checks_foreign_keys()? => return Err(no_parent_table(&key.parent.1)),
                // It may come later.
                None => {}
            }
        }
        Ok(parents.into_iter().collect())
    }

    /// Checks a table that comes by the keys that have waited for it.
    fn check_referring_to(&self, catalog: &Catalog, table: &Table) -> SqlResult<()> {
        for (child, key) in catalog.foreign_keys.to(table) {
            if let Some(child) = catalog.table(child) {
                foreign_keys::check_parent(key, child, table)?;
            }
        }
        Ok(())
    }

    /// Checks a change of a table by its foreign keys and by those that refer to it.
    pub(super) async fn check_kept(&self, before: &Table, after: &Table) -> SqlResult<()> {
        let catalog = self.engine.storage.catalog().await?;
        let parent = |key: &ForeignKey| {
            let named = catalog.table_named(&key.parent.0, &key.parent.1);
            named.map(Arc::as_ref)
        };
        let own = catalog.foreign_keys.of(before.id);
        foreign_keys::check_child_change(own, (before, after), parent)?;
        for (child, key) in catalog.foreign_keys.to(before) {
            if let Some(child) = catalog.table(child) {
                foreign_keys::check_parent_change(key, child, (before, after))?;
            }
        }
        Ok(())
    }

    /// Actions of which those that drop a constraint by its name say so, if that is a foreign key.
    pub(super) async fn by_kind(
        &self,
        name: &ObjectName,
        mut actions: Vec<Alter>,
    ) -> SqlResult<Vec<Alter>> {
        let catalog = self.engine.storage.catalog().await?;
        if catalog.foreign_keys.is_empty() {
            return Ok(actions);
        }
        let table = self.current(name).await?;
        for action in &mut actions {
            if let Alter::DropCheck { name, constraint: true } = action {
                let mut keys = catalog.foreign_keys.of(table.id).iter();
                if keys.any(|key| key.name.eq_ignore_ascii_case(name)) {
                    *action = Alter::DropForeignKey(std::mem::take(name));
                }
            }
        }
        Ok(actions)
    }

    // ---- ALTER TABLE ------------------------------------------------------------------------

    /// An ALTER TABLE with foreign keys among its actions: those that go first, those that come last, each with an index if it has
    /// none.
    pub(super) async fn alter_keys(
        &mut self,
        name: &ObjectName,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        let table = self.at_rest(name, cancel).await?;
        let (keys, others): (Vec<Alter>, Vec<Alter>) =
            actions.iter().cloned().partition(is_foreign_key);
        let dropped: Vec<&str> = keys.iter().filter_map(dropped_name).collect();
        self.drop_keys(&table, &dropped).await?;
        let added: Vec<&ForeignKeyConstraint> = keys.iter().filter_map(added_key).collect();
        let mut reply = done();
        let mut name = name.clone();
        if !others.is_empty() {
            // What cannot be added is not to follow on what was done.
            if let Ok(after) = self.described_after(&table, &others) {
                self.described_keys(&after, &added).await?;
            }
            let altered = Stmt::AlterTable { table: name.clone(), actions: others };
            reply = self.define(altered, cancel).await?;
            name = self.name_of(table.id).await?;
        }
        if !added.is_empty() {
            self.add_keys(&name, &added, cancel).await?;
        }
        Ok(reply)
    }

    async fn name_of(&self, id: TableId) -> SqlResult<ObjectName> {
        let catalog = self.engine.storage.catalog().await?;
        let table = catalog.table(id).ok_or_else(|| impossible("a table that is gone"))?;
        let quoted = |name: &String| Ident::with_quote('`', name);
        Ok(ObjectName::from(vec![quoted(&table.database), quoted(&table.name)]))
    }

    async fn drop_keys(&self, table: &Table, names: &[&str]) -> SqlResult<()> {
        if names.is_empty() {
            return Ok(());
        }
        let catalog = self.engine.storage.catalog().await?;
        let known = catalog.foreign_keys.of(table.id);
        let mut keys = Vec::with_capacity(names.len());
        for name in names {
            let key = known.iter().find(|key| key.name.eq_ignore_ascii_case(name));
            keys.push(key.ok_or_else(|| cannot_drop(name))?.name.clone());
        }
        let change = KeyChange::Drop { child: table.id, keys };
        self.engine.storage.change(CatalogChange::ForeignKeys(change)).await?;
        self.engine.storage.timestamp().await?;
        Ok(())
    }

    /// New keys of a table, described and checked by the tables that they refer to, and these.
    async fn described_keys(
        &self,
        table: &Table,
        added: &[&ForeignKeyConstraint],
    ) -> SqlResult<(Vec<ForeignKey>, Vec<Found>)> {
        let catalog = self.engine.storage.catalog().await?;
        let mut known = catalog.foreign_keys.of(table.id).to_vec();
        let before = known.len();
        for constraint in added {
            known.push(foreign_keys::described(constraint, table, &known)?);
        }
        let keys = known.split_off(before);
        let parents = self.parents_of(&catalog, table, &keys)?;
        Ok((keys, parents))
    }

    async fn add_keys(
        &mut self,
        name: &ObjectName,
        added: &[&ForeignKeyConstraint],
        cancel: &CancellationToken,
    ) -> SqlResult<()> {
        let checks = self.checks_foreign_keys()?;
        for _ in 0..ATTEMPTS {
            let table = self.at_rest(name, cancel).await?;
            let (mut keys, parents) = self.described_keys(&table, added).await?;
            if let Some(at) = keys.iter().position(|key| !foreign_keys::is_indexed(key, &table)) {
                let Some(constraint) = added.get(at) else { break };
                let index = Stmt::CreateIndex(Box::new(index_for(name, constraint)?));
                self.define(index, cancel).await?;
                continue;
            }
            keys.iter_mut().for_each(|key| key.proven = !checks);
            let names: Vec<String> = keys.iter().map(|key| key.name.clone()).collect();
            let child = (table.id, table.version);
            let change = KeyChange::Add { child, keys, parents: parents.clone() };
            match self.engine.storage.change(CatalogChange::ForeignKeys(change)).await {
                Ok(_) => {}
                Err(Error::Exists { kind, name }) if kind == "foreign key" => {
                    return Err(duplicate_foreign_key(name));
                }
                Err(error) => {
                    let found: Vec<Found> = parents.into_iter().chain([child]).collect();
                    match self.is_stale(&error, &found).await? {
                        true => continue,
                        false => return Err(error.into()),
                    }
                }
            }
            // From here on, nobody who knows nothing of the keys can commit.
            let all: Vec<Found> = parents.into_iter().chain([child]).collect();
            self.publish_found(&all).await?;
            if !checks {
                return Ok(());
            }
            let proven = self.prove_keys(table.id, &names, cancel);
            let proven = self.showing_life(table.id, proven).await;
            let change = match &proven {
                Ok(()) => KeyChange::Prove { child: table.id, keys: names },
                Err(_) => KeyChange::Drop { child: table.id, keys: names },
            };
            self.engine.storage.change(CatalogChange::ForeignKeys(change)).await?;
            self.engine.storage.timestamp().await?;
            return proven;
        }
        Err(impossible("a foreign key that was never added"))
    }

    /// Whether the rows that are there keep keys that writers know of by now.
    async fn prove_keys(
        &self,
        child: TableId,
        names: &[String],
        cancel: &CancellationToken,
    ) -> SqlResult<()> {
        let catalog = self.engine.storage.catalog().await?;
        let table = catalog.tables.iter().find(|table| table.id == child).cloned();
        let table = table.ok_or_else(|| impossible("a table that is gone"))?;
        let keys = catalog.foreign_keys.of(child).iter().filter(|key| names.contains(&key.name));
        let keys: Vec<Referring> =
            keys.map(|key| Referring::new(key, &table, &catalog)).collect::<SqlResult<_>>()?;
        let look = async {
            self.settle(&table).await?;
            for key in &keys {
                if let Some(parent) = key.parent() {
                    self.settle(parent).await?;
                }
            }
            let now = Reader::Snapshot(self.engine.storage.present().await?);
            let (start, end) = (key::records_start(child), key::records_end(child));
            let mut scan = now.scan(start, end, false, None).await;
            while let Some(page) = scan.next_page().await? {
                let rows = page.iter().map(|(_, stored)| row::decode(&table, stored));
                let rows = rows.collect::<types::Result<Vec<_>>>()?;
                for key in &keys {
                    key.hold(&now, &rows).await?;
                }
            }
            Ok::<(), SqlError>(())
        };
        cancel.run_until_cancelled(look).await.ok_or_else(interrupted)?
    }

    // ---- DROP, TRUNCATE ---------------------------------------------------------------------

    /// Drops tables; those that others of them refer to go last.
    pub(super) async fn drop_all(&self, mut tables: Vec<Arc<Table>>) -> SqlResult<()> {
        let storage = &self.engine.storage;
        let catalog = storage.catalog().await?;
        let checks = self.checks_foreign_keys()?;
        let ids: BTreeSet<TableId> = tables.iter().map(|table| table.id).collect();
        for table in tables.iter().filter(|_| checks) {
            self.check_unreferred(&catalog, table, &ids)?;
        }
        while !tables.is_empty() {
            let left: BTreeSet<TableId> = tables.iter().map(|table| table.id).collect();
            let referred_to = |table: &Arc<Table>| {
                let mut keys = catalog.foreign_keys.to(table);
                keys.any(|(child, _)| child != table.id && left.contains(&child))
            };
            // Where all that is left refers to each other, any may be the first.
            let at = tables.iter().position(|table| !referred_to(table)).unwrap_or(0);
            let table = tables.remove(at);
            let referred = catalog.foreign_keys.to(&table).any(|(child, _)| child != table.id);
            let change = match referred {
                true => CatalogChange::ForeignKeys(KeyChange::DropTable(table.id)),
                false => CatalogChange::DropTable(table.id),
            };
            storage.change(change).await?;
        }
        Ok(())
    }

    /// Error 3730 where a table that is not to go refers to one that is.
    pub(super) fn check_unreferred(
        &self,
        catalog: &Catalog,
        table: &Table,
        going: &BTreeSet<TableId>,
    ) -> SqlResult<()> {
        let mut keys = catalog.foreign_keys.to(table);
        match keys.find(|(child, _)| !going.contains(child)) {
            None => Ok(()),
            Some((child, key)) => {
                let child = catalog.table(child).map(|child| child.name.as_str());
                Err(table_referred_to(&table.name, &key.name, child.unwrap_or_default()))
            }
        }
    }

    /// Error 1701 where another table refers to one that is to be emptied.
    pub(super) async fn check_truncate(&self, table: &Table) -> SqlResult<()> {
        if !self.checks_foreign_keys()? {
            return Ok(());
        }
        let catalog = self.engine.storage.catalog().await?;
        let mut keys = catalog.foreign_keys.to(table).filter(|(child, _)| *child != table.id);
        match keys.next() {
            None => Ok(()),
            Some((child, key)) => {
                let child = catalog.table(child).map(qualified).unwrap_or_default();
                Err(truncate_referred_to(child, &key.name))
            }
        }
    }
}

fn dropped_name(action: &Alter) -> Option<&str> {
    match action {
        Alter::DropForeignKey(name) => Some(name),
        _ => None,
    }
}

fn added_key(action: &Alter) -> Option<&ForeignKeyConstraint> {
    match action {
        Alter::AddForeignKey(key) => Some(key),
        _ => None,
    }
}

/// CREATE INDEX of the columns of a new foreign key.
fn index_for(table: &ObjectName, constraint: &ForeignKeyConstraint) -> SqlResult<CreateIndex> {
    let quoted = |name: &str| Ident::with_quote('`', name).to_string();
    let columns: Vec<String> = constraint.columns.iter().map(|c| quoted(&c.value)).collect();
    let name = foreign_keys::index_name(constraint).map(|name| quoted(&name)).unwrap_or_default();
    let text = format!("ALTER TABLE {table} ADD INDEX {name} ({})", columns.join(", "));
    match parser::parse(&text)? {
        Stmt::CreateIndex(index) => Ok(*index),
        _ => Err(impossible("an index that is none")),
    }
}
