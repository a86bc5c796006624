//! How a session's last query was answered: at which snapshot, by which engine and why, as SHOW STATUS
//! lists it (`Isobar_last_query_%`, in `admin::status`).
//!
//! It is about queries that have begun to answer; one that fails before leaves it as it was.

use std::sync::Arc;
use std::time::Duration;

use execution::router::Route;
use syntax::hints::Engine;
use types::{Table, Timestamp};

/// How a query was answered.
pub(in crate::session) enum LastQuery {
    /// By rows of a table, looked up by their keys without a plan.
    ByKey {
        /// The table.
        table: Arc<Table>,
        /// When it was read.
        at: Timestamp,
    },
    /// As the router decided.
    Routed {
        /// What it decided, and why.
        route: Route,
        /// When it was read.
        at: Timestamp,
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

impl LastQuery {
    /// Which engine answered.
    pub(in crate::session) fn engine(&self) -> String {
        match self {
            LastQuery::ByKey { .. } => Engine::Rows.to_string(),
            LastQuery::Routed { route, .. } => route.engine.to_string(),
        }
    }

    /// Each table, and why that engine read it.
    pub(in crate::session) fn tables(&self) -> String {
        match self {
            LastQuery::ByKey { table, .. } => {
                format!("{}.{}: access by key", table.database, table.name)
            }
            LastQuery::Routed { route, .. } => {
                let why = route.reasons.iter().map(|(table, why)| format!("{table}: {why}"));
                why.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// When it was read. What is locked is read as it is when it is locked, at no timestamp that could be named.
    pub(in crate::session) fn snapshot(&self) -> Option<Timestamp> {
        let (LastQuery::ByKey { at, .. } | LastQuery::Routed { at, .. }) = self;
        Some(*at).filter(|at| *at != Timestamp::MAX)
    }

    /// What columns said, if they answered.
    pub(in crate::session) fn columns(&self) -> Option<&ByColumns> {
        match self {
            LastQuery::ByKey { .. } => None,
            LastQuery::Routed { columns, .. } => columns.as_ref(),
        }
    }
}
