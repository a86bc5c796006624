//! Ordered key-value storage under the row machine.
//!
//! It knows bytes and keyspaces only: no versions, no regions, no Raft.

pub mod engine;

pub use engine::{Change, Keyspace, KvEngine, KvRead, Pair, PairIter, WriteBatch};
