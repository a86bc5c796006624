//! How a session's last query was answered: at which snapshot, by which engine and why, as SHOW STATUS
//! lists it (`Isobar_last_query_%`).
//!
//! It is about queries that have begun to answer; one that fails before leaves it as it was.

use std::sync::Arc;
use std::time::Duration;

use execution::router::Route;
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
    pub(super) wait: Duration,
    /// Address of the columnar node that coordinates.
    pub(super) coordinator: String,
}

/// Variables of SHOW STATUS; all are empty before the first query.
pub(in crate::session) fn shown(last: Option<&LastQuery>) -> [(&'static str, String); 5] {
    let (at, engine, tables, columns) = match last {
        None => (None, String::new(), Vec::new(), None),
        Some(LastQuery::ByKey { table, at }) => {
            let why = format!("{}.{}: access by key", table.database, table.name);
            (Some(*at), "rows".to_owned(), vec![why], None)
        }
        Some(LastQuery::Routed { route, at, columns }) => {
            let why = route.reasons.iter().map(|(table, why)| format!("{table}: {why}"));
            (Some(*at), route.engine.to_string(), why.collect(), columns.as_ref())
        }
    };
    // What is locked is read as it is when it is locked, at no timestamp that could be named.
    let at = at.filter(|at| *at != Timestamp::MAX);
    [
        (
            "Isobar_last_query_coordinator",
            columns.map(|by| by.coordinator.clone()).unwrap_or_default(),
        ),
        ("Isobar_last_query_engine", engine),
        ("Isobar_last_query_snapshot", at.map(|at| at.0.to_string()).unwrap_or_default()),
        ("Isobar_last_query_tables", tables.join("; ")),
        (
            "Isobar_last_query_wait_ms",
            columns.map(|by| by.wait.as_millis().to_string()).unwrap_or_default(),
        ),
    ]
}
