//! Many Raft groups in one store.
//!
//! It never reads a clock, never opens a socket and knows nothing of what is replicated.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod groups;
pub mod machine;
pub mod testing;
pub mod transport;

mod apply;
mod batch;
mod board;
mod compaction;
mod config;
mod confirm;
mod confirmations;
mod fence;
mod files;
mod handle;
mod held;
mod lifecycle;
mod log;
mod logging;
mod lost;
mod mail;
mod membership;
mod offline;
mod peer;
mod proposals;
mod provision;
mod reads;
mod reply;
mod snapshot;
mod storage;
mod store;
mod survivors;
mod synced;
mod together;
mod work;

pub use config::{Participation, StoreConfig, TICK};
pub use groups::{Groups, PeerStatus, Pending};
pub use handle::StoreHandle;
pub use log::{LogSizes, RaftLog};
pub use machine::{
    Command, Effect, INITIAL_POSITION, Machine, Machines, Position, Room, SnapshotChunks,
    SnapshotSource,
};
pub use offline::{Alone, Offline, Replica};
pub use snapshot::{SpoolWriter, Spooled};
pub use store::{Store, StoreDisk};
pub use survivors::{FAR, Outcome, decide};
pub use together::{is_together, together};
pub use transport::{Envelope, Session, SnapshotReport, SnapshotStream, Transport};
pub use work::{Inline, Job, Returned, Worker, Writing};
