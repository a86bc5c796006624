//! Queries that count as runaways from their begin on, and runaways that were met.
//!
//! Descriptions alone, in TiDB's terms. Times are Unix milliseconds.

use serde::{Deserialize, Serialize};

use crate::NodeId;
use crate::resource_group::{Action, Likeness};

/// A watch: queries of a group that are like one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryWatch {
    /// Number; 0 before it was given one.
    pub id: u64,
    /// The group, in lower case.
    pub group: String,
    /// By what they are alike.
    pub by: Likeness,
    /// The text itself for [`Likeness::Exact`], else its digest.
    pub text: String,
    /// What happens to them.
    pub action: Action,
    /// Since when.
    pub since_ms: u64,
    /// Until when; for ever without.
    pub until_ms: Option<u64>,
    /// Who asked for it: `manual`, or the SQL node that met a runaway.
    pub source: String,
}

impl QueryWatch {
    /// Longest text, in bytes.
    pub const LONGEST: usize = 16 << 10;

    /// Whether it counts no more.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until| until <= now_ms)
    }

    /// Whether both are watches of the same queries.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.group, self.by, &self.text) == (&other.group, other.by, &other.text)
    }
}

/// A query that ran away, or was watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runaway {
    /// When.
    pub at_ms: u64,
    /// Its group.
    pub group: String,
    /// Whether it was watched; else it was beyond its group's limit.
    pub watched: bool,
    /// What happened to it.
    pub action: Action,
    /// The begin of its text.
    pub text: String,
    /// Its digest.
    pub digest: String,
    /// The SQL node that ran it.
    pub node: NodeId,
}

impl Runaway {
    /// Most bytes of its text.
    pub const LONGEST: usize = 1 << 10;
}
