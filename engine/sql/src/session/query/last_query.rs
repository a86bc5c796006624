//! How a session's last query was answered: at which snapshot, by which engine and why, as SHOW STATUS
//! lists it (`Isobar_last_query_%`, in `admin::status`).
//!
//! It is about queries that have begun to answer; one that fails before leaves it as it was.

use std::sync::Arc;
use std::time::Duration;

use execution::router::Route;
use storage::ReplicaReads;
use syntax::hints::Engine;
use types::{Table, Timestamp};

use crate::session::Session;

/// How a query was answered.
pub(in crate::session) struct LastQuery {
    by: AnsweredBy,
    /// When it was read.
    at: Timestamp,
    /// When the statement began, in Unix milliseconds.
    began_ms: u64,
    /// Which replicas of rows answered, if others than leaders were to.
    replicas: Option<Arc<ReplicaReads>>,
}

/// What answered a query.
pub(in crate::session) enum AnsweredBy {
    /// Rows of a table, looked up by their keys without a plan.
    Key(Arc<Table>),
    /// What the router decided.
    Route {
        /// What it decided, and why.
        route: Route,
        /// What columns said, if they answered.
        columns: Option<ByColumns>,
    },
}

/// What is known of an answer of columns.
pub(in crate::session) struct ByColumns {
    /// How long the first rows were waited for.
    pub(in crate::session) wait: Duration,
    /// Address of the columnar node that coordinates.
    pub(in crate::session) coordinator: String,
}

impl Session {
    /// Takes note of how a query has begun to be answered, and when it reads.
    pub(in crate::session) fn note_query(&mut self, by: AnsweredBy, at: Timestamp) {
        let began_ms = u64::try_from(self.now_us / 1_000).unwrap_or(0);
        let replicas = self.replica_reads.take();
        self.diagnostics.set_last_query(LastQuery { by, at, began_ms, replicas });
    }
}

impl LastQuery {
    /// Which engine answered.
    pub(in crate::session) fn engine(&self) -> String {
        match &self.by {
            AnsweredBy::Key(_) => Engine::Rows.to_string(),
            AnsweredBy::Route { route, .. } => route.engine.to_string(),
        }
    }

    /// Each table, and why that engine read it.
    pub(in crate::session) fn tables(&self) -> String {
        match &self.by {
            AnsweredBy::Key(table) => {
                format!("{}.{}: access by key", table.database, table.name)
            }
            AnsweredBy::Route { route, .. } => {
                let why = route.reasons.iter().map(|(table, why)| format!("{table}: {why}"));
                why.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// When it was read. What is locked is read as it is when it is locked, at no timestamp that could be named.
    pub(in crate::session) fn snapshot(&self) -> Option<Timestamp> {
        Some(self.at).filter(|at| *at != Timestamp::MAX)
    }

    /// By how many milliseconds that lies before the beginning of the statement.
    pub(in crate::session) fn staleness_ms(&self) -> Option<u64> {
        self.snapshot().map(|at| self.began_ms.saturating_sub(at.physical_ms()))
    }

    /// How many requests leaders answered, and how many other replicas; none where nothing but leaders was to be asked.
    pub(in crate::session) fn replicas(&self) -> Option<(u64, u64)> {
        let replicas = self.replicas.as_ref().filter(|_| self.columns().is_none())?;
        Some((replicas.leaders(), replicas.followers()))
    }

    /// How often a replica asked its leader how far to read.
    pub(in crate::session) fn read_indexes(&self) -> u64 {
        self.replicas.as_ref().map_or(0, |replicas| replicas.read_indexes())
    }

    /// What columns said, if they answered.
    pub(in crate::session) fn columns(&self) -> Option<&ByColumns> {
        match &self.by {
            AnsweredBy::Key(_) => None,
            AnsweredBy::Route { columns, .. } => columns.as_ref(),
        }
    }
}
