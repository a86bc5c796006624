//! What a Raft group replicates into: one log, any number of state machines.
//!
//! The row machine (`txn`), placement's machine and the columnar learner implement these traits.
//! A machine never decides anything, reads no clock and contacts nobody: the same entries give the
//! same state everywhere.

use serde::{Deserialize, Serialize};
use types::{Region, Result};

/// A place in a group's log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// Index of the entry; the first is above [`INITIAL_POSITION`].
    pub index: u64,
    /// Term of the entry.
    pub term: u64,
}

/// Where every group's log begins: a freshly created voter behaves as if it had restored a
/// snapshot of nothing at this position, so that late members are always given a snapshot.
pub const INITIAL_POSITION: Position = Position { index: 5, term: 5 };

/// What a committed entry says.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// A new leader's first entry.
    Empty,
    /// A proposal's bytes.
    Data(&'a [u8]),
    /// Membership changed; the descriptor from now on.
    Membership(&'a Region),
}

/// What applying an entry did, beyond the machine itself.
pub enum Effect {
    /// It was applied.
    Applied,
    /// It was decided under another term or epoch and changed nothing: its proposer must retry.
    Dropped,
    /// It was applied, and the region was split: the children, each with its machine, whose state
    /// is part of the same durable write as the parent's.
    Split(Vec<Box<dyn Machine>>),
}

/// The state machine of one region's peer.
pub trait Machine: Send {
    /// The region as of the applied position.
    fn region(&self) -> &Region;

    /// Last entry whose effects this machine holds, durable or not.
    fn applied(&self) -> Position;

    /// Applies the next entry. An error is a fault of this node (disk, corruption), never an
    /// answer: the store stops the peer and reports it.
    fn apply(&mut self, at: Position, command: Command<'_>) -> Result<Effect>;

    /// Ends a batch of `apply` calls: their effects become visible to readers together.
    fn finish_batch(&mut self) -> Result<()>;

    /// Index up to which effects survive a crash; the log may be cut there.
    fn durable_index(&self) -> u64;

    /// Makes everything applied durable. Called off the online path, before the log is cut; and
    /// right after creation, a split and a restore, before a group is created on the state.
    fn persist(&mut self) -> Result<()>;

    /// A stream of the state at [`Machine::applied`], for a member that has no log to follow. It
    /// stays consistent while the machine goes on.
    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>>;

    /// Replaces the state by a snapshot's. A crash within leaves a machine that says it holds
    /// nothing (`applied` of index 0) and is given the snapshot again.
    fn restore(
        &mut self,
        region: &Region,
        at: Position,
        chunks: &mut dyn SnapshotChunks,
    ) -> Result<()>;
}

/// A snapshot being sent: chunks of at most about 1 MiB.
pub trait SnapshotSource: Send {
    /// The next chunk, or none at the end.
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>>;
}

/// A snapshot being received: the same chunks, from a verified spool file.
pub trait SnapshotChunks {
    /// The next chunk, or none at the end.
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>>;
}

/// While it is held, machines apply without waiting for the disk, see [`Machines::room`].
pub type Room = Box<dyn Send>;

/// Makes and finds the machines of one node. Machines of different regions are made and removed at the same time, those of one
/// region never.
pub trait Machines: Send + Sync {
    /// For the store's thread, which must not wait for the disk: while what is returned is held, the machines' `apply` and
    /// `finish_batch` do not. None while they would: then entries are applied by a job.
    fn room(&self) -> Option<Room> {
        Some(Box::new(()))
    }

    /// Machines of every peer that this node holds, with what survived of their state: each that
    /// was persisted once and not destroyed, those that hold nothing included.
    fn recover(&self) -> Result<Vec<Box<dyn Machine>>>;

    /// A machine for a new peer: empty at [`INITIAL_POSITION`] for an initial voter, or holding
    /// nothing (`applied` of index 0) for a member that waits for a snapshot.
    fn create(&self, region: &Region, initial: bool) -> Result<Box<dyn Machine>>;

    /// Removes what is stored for a region whose peer left this node, or was never made; its machine was dropped before. A
    /// failure may leave a part, which another call removes; of what is not stored nothing is removed.
    fn destroy(&self, region: &Region) -> Result<()>;
}
