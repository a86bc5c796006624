//! Ordered key-value storage under the row machine.
//!
//! It knows bytes and keyspaces only: no versions, no regions, no Raft.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod damage;
pub mod engine;
pub mod fjall;
mod journal;
pub mod memory;
mod sealing;
mod versions;

pub use engine::{Change, Keyspace, KvEngine, KvRead, Pair, PairIter, Room, WriteBatch};
pub use fjall::FjallKv;
pub use memory::MemoryKv;
