//! A store's configuration. Counts of ticks, not times: the store reads no clock, and whoever drives it
//! lets [`TICK`] pass between them.

use std::time::Duration;

use types::region::PLACEMENT_REGION;
use types::{NodeId, RegionId};

use crate::transport::Session;

/// Time between ticks.
pub const TICK: Duration = Duration::from_millis(50);

/// In which of its groups a store takes part: it sends, counts time and takes messages for these only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Participation {
    /// In none: it is not known yet whether another process stands for the node.
    None,
    /// In placement's own, without which nobody could be registered.
    Placement,
    /// In all.
    #[default]
    All,
}

impl Participation {
    /// Whether a group is among them.
    pub(crate) fn includes(self, region: RegionId) -> bool {
        match self {
            Participation::None => false,
            Participation::Placement => region == PLACEMENT_REGION,
            Participation::All => true,
        }
    }
}

/// Settings of one node's store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// This node.
    pub node: NodeId,
    /// This process.
    pub session: Session,
    /// In which groups it takes part at first.
    pub participation: Participation,
    /// Spreads election timeouts; any number will do, a simulation passes its own.
    pub seed: u64,
    /// Ticks without a leader after which a voter campaigns, before the per-peer spread.
    pub election_ticks: usize,
    /// Ticks between heartbeats.
    pub heartbeat_ticks: usize,
    /// Ticks in which nothing happens after which a group sleeps.
    pub sleep_ticks: u64,
    /// Ticks after which an unanswered proposal's outcome is reported as unknown.
    pub proposal_ticks: u64,
    /// Ticks after which a read index fails.
    pub read_ticks: u64,
    /// Ticks between repetitions of an unconfirmed read index: Raft drops it without a leader.
    pub read_retry_ticks: u64,
    /// Ticks after which a membership change fails; what was changed by then stays.
    pub membership_ticks: u64,
    /// Ticks between rounds of log compaction.
    pub compact_ticks: u64,
    /// Entries kept below the applied one, so that a member that was away briefly needs no
    /// snapshot.
    pub keep_entries: u64,
    /// Entries that a leader keeps at most for a member that is behind.
    pub keep_entries_for_slow: u64,
    /// Entries applied but not durable at which the machine is asked to persist.
    pub persist_entries: u64,
    /// Snapshots sent at a time.
    pub max_snapshots: usize,
}

impl StoreConfig {
    /// The settings for a node at 20 ticks a second.
    pub fn new(node: NodeId) -> Self {
        StoreConfig {
            node,
            session: Session::default(),
            participation: Participation::All,
            seed: 0,
            election_ticks: 10,
            heartbeat_ticks: 2,
            sleep_ticks: 40,
            proposal_ticks: 200,
            read_ticks: 100,
            read_retry_ticks: 2,
            membership_ticks: 600,
            compact_ticks: 200,
            keep_entries: 4096,
            keep_entries_for_slow: 65_536,
            persist_entries: 4096,
            max_snapshots: 4,
        }
    }

    /// Election timeout of one peer, in ticks: distinct for neighbouring peer ids, so that the
    /// members of a group do not campaign together. Raft's own random spread is switched off, as
    /// it could not be replayed.
    pub(crate) fn election_timeout(&self, peer: u64) -> usize {
        self.election_ticks + (peer.wrapping_add(self.seed) % 7) as usize
    }
}
