//! Changes of columns, new indexes and new foreign keys that were left half done, because their session's node has
//! died: ended without a statement that would have to wait for them.
//!
//! Until then, writers have to fit what the change was about, keep the index that nobody will
//! read, and the key of which nobody knows whether all rows keep it. Any number of nodes may look for them. What shows signs of life is never ended here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use env::Instant;
use placement::api::{Catalog, CatalogChange, KeyChange};
use tokio::time::sleep;
use types::{Index, IndexId, IndexState, LeaseId, Table, TableId};
use values::error::SqlResult;

use super::publish::{GIVEN_UP, Half, is_as};
use crate::engine::Engine;
use crate::session::{Session, SessionInfo};

/// How often is looked.
const LOOK: Duration = Duration::from_secs(15);

/// Looks for such changes.
pub struct AbandonedChanges {
    session: Session,
    found: HashMap<TableId, Half>,
    building: HashMap<TableId, Unfinished<Vec<(IndexId, IndexState)>>>,
    proving: HashMap<TableId, Unfinished<Vec<String>>>,
}

/// What a table has that is not complete, as it has been for some time.
struct Unfinished<T> {
    what: T,
    since: Instant,
    /// The newest sign of life of who is at the table's rows.
    sign: Option<LeaseId>,
}

impl<T: PartialEq> Unfinished<T> {
    /// Whether it has been so for too long without a sign of life.
    async fn is_given_up(&mut self, table: TableId, session: &Session) -> SqlResult<bool> {
        let now = session.engine.clock.now();
        if now.since(self.since) < GIVEN_UP {
            return Ok(false);
        }
        let sign = session.sign_of_life(table).await?;
        if sign != self.sign {
            (self.sign, self.since) = (sign, now);
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes note of what is there now: what was so before has been so for longer.
    fn note(all: &mut HashMap<TableId, Self>, there: Vec<(TableId, T)>, now: Instant) {
        all.retain(|id, was| there.iter().any(|(known, what)| known == id && *what == was.what));
        for (id, what) in there {
            all.entry(id).or_insert(Unfinished { what, since: now, sign: None });
        }
    }
}

impl AbandonedChanges {
    /// Over the tables of an engine.
    pub fn new(engine: Engine) -> Self {
        let (user, host) = (String::new(), String::new());
        let info = SessionInfo { id: 0, user, host, found_rows: false };
        let session = Session::new(engine, info);
        let (found, building, proving) = (HashMap::new(), HashMap::new(), HashMap::new());
        AbandonedChanges { session, found, building, proving }
    }

    /// Looks again and again, until it is dropped.
    pub async fn run(mut self) {
        loop {
            sleep(LOOK).await;
            if let Err(error) = self.look().await {
                tracing::warn!(error = error.message, "no changes could be looked for");
            }
        }
    }

    /// Looks once, and ends what has been as it is for too long.
    ///
    /// # Errors
    ///
    /// What the store says; the next look may find more.
    pub async fn look(&mut self) -> SqlResult<()> {
        let AbandonedChanges { session, found, building, proving } = self;
        session.engine.storage.timestamp().await?;
        let catalog = session.engine.storage.catalog().await?;
        found.retain(|id, half| catalog.table(*id).is_some_and(|table| is_as(table, &half.table)));
        let now = session.engine.clock.now();
        for table in catalog.tables.iter().map(Arc::as_ref).filter(|table| table.is_changing()) {
            let half = found.entry(table.id).or_insert_with(|| Half::found(table.clone(), now));
            session.end_if_given_up(half).await?;
        }
        // Indexes of a change of columns end with it.
        let tables = catalog.tables.iter().map(Arc::as_ref).filter(|table| !table.is_changing());
        let there = tables.map(|table| (table.id, incomplete(table)));
        let there = there.filter(|(_, indexes)| !indexes.is_empty()).collect();
        Unfinished::note(building, there, now);
        for (id, was) in building.iter_mut() {
            if let Some(table) = catalog.table(*id)
                && was.is_given_up(*id, session).await?
            {
                session.drop_indexes(table, &was.what).await?;
            }
        }
        let there = catalog.tables.iter().map(|table| (table.id, unproven(&catalog, table.id)));
        let there = there.filter(|(_, keys)| !keys.is_empty()).collect();
        Unfinished::note(proving, there, now);
        for (id, was) in proving.iter_mut() {
            if was.is_given_up(*id, session).await? {
                session.drop_unproven(*id, &was.what).await?;
            }
        }
        Ok(())
    }
}

impl Session {
    /// Takes indexes back that nobody is making any more.
    async fn drop_indexes(
        &self,
        table: &Table,
        indexes: &[(IndexId, IndexState)],
    ) -> SqlResult<()> {
        tracing::warn!(
            table = format!("{}.{}", table.database, table.name),
            "a CREATE INDEX was left half done: its index is taken back"
        );
        let given_up = |id: IndexId| indexes.iter().any(|(known, _)| *known == id);
        let stays = |index: &Index| index.is_public() || !given_up(index.id);
        self.alter(table.clone(), |table| table.indexes.retain(stays)).await?;
        Ok(())
    }

    /// Takes foreign keys back that nobody is proving any more.
    async fn drop_unproven(&self, child: TableId, keys: &[String]) -> SqlResult<()> {
        tracing::warn!(
            keys = keys.join(", "),
            "an ADD FOREIGN KEY was left half done: the key is taken back"
        );
        let change = KeyChange::Drop { child, keys: keys.to_vec() };
        self.engine.storage.change(CatalogChange::ForeignKeys(change)).await?;
        Ok(())
    }
}

/// The foreign keys of a table that are not known to be kept by all rows.
fn unproven(catalog: &Catalog, table: TableId) -> Vec<String> {
    let keys = catalog.foreign_keys.of(table).iter().filter(|key| !key.proven);
    keys.map(|key| key.name.clone()).collect()
}

/// The indexes of a table that are not complete.
fn incomplete(table: &Table) -> Vec<(IndexId, IndexState)> {
    let indexes = table.indexes.iter().filter(|index| !index.is_public());
    indexes.map(|index| (index.id, index.state)).collect()
}
