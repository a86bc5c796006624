//! Many Raft groups in one store.
//!
//! It never reads a clock, never opens a socket and knows nothing of what is replicated.

pub mod groups;
pub mod machine;
pub mod transport;

pub use groups::{Groups, PeerStatus, Pending};
pub use machine::{
    Command, Effect, INITIAL_POSITION, Machine, Machines, Position, SnapshotChunks, SnapshotSource,
};
pub use transport::{Envelope, Transport};
