//! What gives a query its meaning besides its text and its snapshot; of a bound query, what it was bound with.
//!
//! It travels from SQL nodes to columnar nodes, within tickets and as JSON, and foreign Flight clients write it
//! themselves: the order of its fields and their names are a format. It must not hold a session.

use serde::{Deserialize, Serialize};
use types::{NodeId, SchemaVersion, TableId};
use values::error::SqlResult;
use values::sql_mode;
use values::temporal::{DAY_US, Zone};

/// All that gives a query its meaning besides its text and its snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueryContext {
    /// Current database, or empty.
    pub database: String,
    /// Catalog version that the statement was planned with; 0 for none.
    pub catalog_version: u64,
    /// The stored tables that the statement was planned with: no other description of them, and no
    /// other table, may answer in their place (error 1412). None where nobody has planned it.
    pub tables: Vec<(TableId, SchemaVersion)>,
    /// Statement time, Unix microseconds; 0 in a request for the clock of the node that plans it.
    pub now_us: i64,
    /// Session time zone, as `+00:00` or a zone's name; empty in a request for UTC.
    pub time_zone: String,
    /// sql_mode; the server's where a request leaves it out.
    pub sql_mode: String,
    /// `user@host`.
    pub user: String,
    /// Connection number.
    pub connection_id: u64,
    /// Columnar nodes that did not answer the caller: others are taken where they hold the data.
    pub avoid: Vec<NodeId>,
}

impl Default for QueryContext {
    fn default() -> Self {
        QueryContext {
            database: String::new(),
            catalog_version: 0,
            tables: Vec::new(),
            now_us: 0,
            time_zone: String::new(),
            sql_mode: sql_mode::DEFAULT.to_owned(),
            user: String::new(),
            connection_id: 0,
            avoid: Vec::new(),
        }
    }
}

impl QueryContext {
    /// The day of the statement in its time zone, from 1970-01-01: that of a TIME among datetimes.
    ///
    /// # Errors
    ///
    /// If the zone is none that is known.
    pub fn today(&self) -> SqlResult<i64> {
        Ok(self.zone()?.to_local(self.now_us).div_euclid(DAY_US))
    }

    /// As a plan needs it: a request that names no time or zone means `now_us` and UTC.
    pub fn complete(&self, now_us: i64) -> QueryContext {
        let mut complete = self.clone();
        if complete.now_us == 0 {
            complete.now_us = now_us;
        }
        if complete.time_zone.is_empty() {
            complete.time_zone = "+00:00".to_owned();
        }
        complete
    }

    /// The session's time zone.
    ///
    /// # Errors
    ///
    /// If it is none that is known.
    pub fn zone(&self) -> SqlResult<Zone> {
        Ok(Zone::parse(&self.time_zone)?)
    }

    /// Whether columns that are neither grouped nor aggregated are refused.
    pub fn full_groups(&self) -> bool {
        self.sql_mode.to_uppercase().contains("ONLY_FULL_GROUP_BY")
    }

    /// Whether times may be compared with zero dates.
    pub fn zero_dates(&self) -> bool {
        !self.sql_mode.split(',').any(|mode| mode.eq_ignore_ascii_case("NO_ZERO_DATE"))
    }
}
