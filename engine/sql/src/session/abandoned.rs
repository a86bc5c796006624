//! Changes of columns that were left half done, because their session's node has died: ended without
//! an ALTER TABLE that would have to wait for them.
//!
//! Until then, writers have to fit what the change was about. Any number of nodes may look for them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::sleep;
use types::TableId;

use super::publish::{Half, is_as};
use super::{Session, SessionInfo};
use crate::engine::Engine;
use crate::error::SqlResult;

/// How often is looked.
const LOOK: Duration = Duration::from_secs(15);

/// Looks for such changes.
pub struct Watch {
    session: Session,
    found: HashMap<TableId, Half>,
}

impl Watch {
    /// Over the tables of an engine.
    pub fn new(engine: Engine) -> Self {
        let (user, host) = (String::new(), String::new());
        let info = SessionInfo { id: 0, user, host, found_rows: false };
        Watch { session: Session::new(engine, info), found: HashMap::new() }
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
        let Watch { session, found } = self;
        session.engine.storage.timestamp().await?;
        let catalog = session.engine.storage.catalog().await?;
        found.retain(|id, half| catalog.table(*id).is_some_and(|table| is_as(table, &half.table)));
        let now = session.engine.clock.now();
        for table in catalog.tables.iter().filter(|table| table.is_changing()) {
            let half = found.entry(table.id).or_insert_with(|| Half::found(table.clone(), now));
            session.end_if_given_up(half).await?;
        }
        Ok(())
    }
}
