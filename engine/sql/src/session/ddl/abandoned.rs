//! Changes of columns and new indexes that were left half done, because their session's node has
//! died: ended without a statement that would have to wait for them.
//!
//! Until then, writers have to fit what the change was about, and keep the index that nobody will
//! read. Any number of nodes may look for them. What shows signs of life is never ended here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use env::Instant;
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
    building: HashMap<TableId, Building>,
}

/// Indexes of a table that are not complete, as they have been for some time.
struct Building {
    indexes: Vec<(IndexId, IndexState)>,
    since: Instant,
    /// The newest sign of life of who is at the table's rows.
    sign: Option<LeaseId>,
}

impl AbandonedChanges {
    /// Over the tables of an engine.
    pub fn new(engine: Engine) -> Self {
        let (user, host) = (String::new(), String::new());
        let info = SessionInfo { id: 0, user, host, found_rows: false };
        let (found, building) = (HashMap::new(), HashMap::new());
        AbandonedChanges { session: Session::new(engine, info), found, building }
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
        let AbandonedChanges { session, found, building } = self;
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
        let now_building: HashMap<TableId, (&Table, Vec<_>)> = tables
            .map(|table| (table.id, (table, incomplete(table))))
            .filter(|(_, (_, indexes))| !indexes.is_empty())
            .collect();
        building.retain(|id, was| {
            now_building.get(id).is_some_and(|(_, indexes)| *indexes == was.indexes)
        });
        for (id, (table, indexes)) in now_building {
            let was = Building { indexes, since: now, sign: None };
            session.drop_if_given_up(table, building.entry(id).or_insert(was)).await?;
        }
        Ok(())
    }
}

impl Session {
    /// Takes indexes back that have been as they are for too long without a sign of life.
    async fn drop_if_given_up(&self, table: &Table, building: &mut Building) -> SqlResult<()> {
        let now = self.engine.clock.now();
        if now.since(building.since) < GIVEN_UP {
            return Ok(());
        }
        let sign = self.sign_of_life(table.id).await?;
        if sign != building.sign {
            (building.sign, building.since) = (sign, now);
            return Ok(());
        }
        tracing::warn!(
            table = format!("{}.{}", table.database, table.name),
            "a CREATE INDEX was left half done: its index is taken back"
        );
        let given_up = |id: IndexId| building.indexes.iter().any(|(known, _)| *known == id);
        let stays = |index: &Index| index.is_public() || !given_up(index.id);
        self.alter(table.clone(), |table| table.indexes.retain(stays)).await?;
        Ok(())
    }
}

/// The indexes of a table that are not complete.
fn incomplete(table: &Table) -> Vec<(IndexId, IndexState)> {
    let indexes = table.indexes.iter().filter(|index| !index.is_public());
    indexes.map(|index| (index.id, index.state)).collect()
}
