//! Advisory locks as they are asked for and held.

use serde::{Deserialize, Serialize};
use types::NodeId;

/// A session's hold on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which session: a number that no other one ever has.
    pub owner: u64,
    /// Which call of the session asked for it; later calls have greater numbers.
    pub call: u64,
    /// SQL node of the session.
    pub node: NodeId,
    /// Number of its connection there.
    pub connection: u64,
}

/// A name that is free again, unless its owner has taken it by a later call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    /// Name.
    pub name: String,
    /// Session.
    pub owner: u64,
    /// The last call of the session that is meant.
    pub call: u64,
}

/// What sessions ask of placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockRequest {
    /// Takes a name. A wait that lasts is repeated by who waits.
    Take {
        /// Name.
        name: String,
        /// Who asks.
        by: Hold,
        /// Milliseconds to wait at most.
        wait_ms: u64,
    },
    /// Frees names that calls up to one have taken, and ends their waits.
    Release {
        /// Names.
        names: Vec<String>,
        /// Session.
        owner: u64,
        /// The last call that is meant.
        call: u64,
    },
    /// The session is alive, and holds these names and no other ones that its ended calls took.
    Keep {
        /// Session.
        owner: u64,
        /// Names.
        held: Vec<String>,
        /// The last call that has ended.
        ended: u64,
    },
    /// Who holds a name.
    Look {
        /// Name.
        name: String,
    },
}

/// What placement answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockAnswer {
    /// The name is the session's.
    Taken,
    /// It is not, so far.
    Busy,
    /// It is not, and waiting for it would close a circle of sessions.
    Deadlock,
    /// It is held.
    Held(Hold),
    /// Nobody holds it.
    Free,
    /// Names that the session has lost.
    Lost(Vec<String>),
}
