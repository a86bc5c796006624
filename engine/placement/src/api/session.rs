//! Starts of nodes, as they are registered.

use serde::{Deserialize, Serialize};

/// A session that placement has taken, and its last mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Which start of the node.
    pub boot: u64,
    /// Drawn for it.
    pub id: u64,
    /// Raised and synced every few seconds while it lasts.
    pub mark: u64,
}

/// One start of a node, with what its directories know of those before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Which start.
    pub boot: u64,
    /// Drawn for it.
    pub id: u64,
    /// The last one that its directories know to be registered.
    pub known: Known,
    /// Those begun since, of which placement may have taken one.
    pub attempts: Vec<u64>,
}

impl Session {
    /// What placement keeps of it.
    pub fn begun(&self) -> Known {
        Known { boot: self.boot, id: self.id, mark: 0 }
    }

    /// Whether its directories hold everything that `last` left there, as far as marks show.
    pub(crate) fn follows(&self, last: &Known) -> bool {
        let ended = self.known.id == last.id && self.known.mark >= last.mark;
        self.boot > last.boot && (ended || self.attempts.contains(&last.id))
    }
}
