//! Variables of SHOW STATUS: each with what it says, and how that is found out.
//!
//! The page `docs/reference/status.md` is made of the same table. It counts nothing itself.

use execution::bound_queries::BoundQueries;
use execution::host::Host;

use crate::session::query::last_query::LastQuery;

/// What a variable is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The session's last query.
    LastQuery,
    /// The SQL node, since it started.
    Node,
}

/// A variable of SHOW STATUS.
pub struct StatusVariable {
    /// What it is called.
    pub name: &'static str,
    /// What it is about.
    pub about: About,
    /// What it says, for the page of status variables.
    pub meaning: &'static str,
    value: fn(&Sources<'_>) -> String,
}

impl StatusVariable {
    /// What it is now.
    pub(super) fn value(&self, sources: &Sources<'_>) -> String {
        (self.value)(sources)
    }
}

/// Who knows what the variables say.
pub(super) struct Sources<'a> {
    /// How the session's last query was answered, if there was one.
    pub(super) last_query: Option<&'a LastQuery>,
    /// What queries are bound to.
    pub(super) bound_queries: &'a BoundQueries,
    /// The server around the session, if there is one.
    pub(super) host: Option<&'a dyn Host>,
}

const fn last_query(
    name: &'static str,
    meaning: &'static str,
    value: fn(&Sources<'_>) -> String,
) -> StatusVariable {
    StatusVariable { name, about: About::LastQuery, meaning, value }
}

const fn node(
    name: &'static str,
    meaning: &'static str,
    value: fn(&Sources<'_>) -> String,
) -> StatusVariable {
    StatusVariable { name, about: About::Node, meaning, value }
}

/// All of them, in order.
pub const STATUS: &[StatusVariable] = &[
    node("Isobar_bound_queries_hits", "Queries for which a kept one was used.", |sources| {
        sources.bound_queries.hits().to_string()
    }),
    node("Isobar_bound_queries_kept", "How many are kept, 1,000 at most.", |sources| {
        sources.bound_queries.count().to_string()
    }),
    node(
        "Isobar_bound_queries_misses",
        "Queries that were bound to be kept. One of the clock or the user is bound each time and not counted again.",
        |sources| sources.bound_queries.misses().to_string(),
    ),
    last_query(
        "Isobar_last_query_coordinator",
        "Address of the columnar node that ran the query; empty if rows answered.",
        |sources| {
            let columns = sources.last_query.and_then(LastQuery::columns);
            columns.map(|by| by.coordinator.clone()).unwrap_or_default()
        },
    ),
    last_query("Isobar_last_query_engine", "`rows` or `columns`.", |sources| {
        sources.last_query.map(LastQuery::engine).unwrap_or_default()
    }),
    last_query(
        "Isobar_last_query_read_indexes",
        "How often a replica that does not lead asked its leader how far it has to have applied the log; 0 where leaders answered. One that has read at that time, or a later one, need not ask again.",
        |sources| {
            let read_indexes = sources.last_query.map(LastQuery::read_indexes);
            read_indexes.map(|count| count.to_string()).unwrap_or_default()
        },
    ),
    last_query(
        "Isobar_last_query_replicas",
        "Which replicas of rows answered: `leader`, or how many requests leaders and followers answered, as `leader: 1, follower: 2`; empty if columns did.",
        |sources| match sources.last_query {
            Some(last) if last.columns().is_none() => match last.replicas() {
                Some((leaders, followers)) => format!("leader: {leaders}, follower: {followers}"),
                None => "leader".to_owned(),
            },
            _ => String::new(),
        },
    ),
    last_query(
        "Isobar_last_query_snapshot",
        "The timestamp that was read; empty for a locking read, which finds rows as they are when it locks them.",
        |sources| {
            let at = sources.last_query.and_then(LastQuery::snapshot);
            at.map(|at| at.0.to_string()).unwrap_or_default()
        },
    ),
    last_query(
        "Isobar_last_query_staleness_ms",
        "Milliseconds by which the snapshot lay before the statement: 0, or nearly, but for reads of the past and within transactions.",
        |sources| {
            let staleness = sources.last_query.and_then(LastQuery::staleness_ms);
            staleness.map(|ms| ms.to_string()).unwrap_or_default()
        },
    ),
    last_query(
        "Isobar_last_query_tables",
        "Each table, and why: the words of `EXPLAIN`, or `columns failed, answered from rows` with the error.",
        |sources| sources.last_query.map(LastQuery::tables).unwrap_or_default(),
    ),
    last_query(
        "Isobar_last_query_wait_ms",
        "Milliseconds until columns gave the first rows; empty if rows answered.",
        |sources| {
            let columns = sources.last_query.and_then(LastQuery::columns);
            columns.map(|by| by.wait.as_millis().to_string()).unwrap_or_default()
        },
    ),
    node(
        "Isobar_repeated_queries",
        "Prepared queries that were answered so as an earlier run of them had shown, without a look at their text.",
        |sources| sources.bound_queries.repeated().to_string(),
    ),
    node(
        "Isobar_unplanned_queries",
        "Queries that were answered from rows without a plan, besides those by a whole key.",
        |sources| sources.bound_queries.unplanned().to_string(),
    ),
    node("Questions", "Statements that clients have sent.", |sources| {
        sources.host.map_or(0, |host| host.uptime_and_statements().1).to_string()
    }),
    node("Ssl_cipher", "Shown to clients that ask; always empty, with TLS, too.", |_| {
        String::new()
    }),
    node("Threads_connected", "Open connections.", |sources| {
        sources.host.map_or(0, |host| host.processes().len()).to_string()
    }),
    node("Uptime", "Seconds since the SQL node started.", |sources| {
        sources.host.map_or(0, |host| host.uptime_and_statements().0).to_string()
    }),
];
