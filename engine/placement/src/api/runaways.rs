//! What is kept of watched queries and of runaways.
//!
//! It stands behind the rest of placement's state, for programs that knew of none.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use types::query_watch::{QueryWatch, Runaway};

/// What is kept of runaways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runaways {
    /// Counts changes of `watches`.
    pub version: u64,
    /// The last number given to a watch.
    pub last_id: u64,
    /// Those that may still count, by their numbers.
    pub watches: Vec<QueryWatch>,
    /// The last ones that were met, oldest first.
    pub met: VecDeque<Runaway>,
}
