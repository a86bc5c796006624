//! Transactions over regions: facts, versions, two-phase commit.
//!
//! Nothing here knows SQL, columns or the network.

pub mod api;
mod asked;
mod async_commit;
mod at_once;
mod bulk;
pub mod client;
pub mod collect;
mod coordinator;
pub mod decide;
mod described;
mod directory;
pub mod fact;
mod fetch;
mod held;
mod hold;
mod import;
mod in_flight;
pub mod latches;
pub mod layout;
mod lease;
mod liveness;
mod living;
mod locked;
pub mod locks;
pub mod machine;
pub mod machines;
pub mod mvcc;
mod price;
pub mod queues;
mod reach;
mod reads;
mod replica_reads;
pub mod replicas;
pub mod resolve;
mod retry;
pub mod routes;
mod sample;
pub mod service;
pub mod share;
pub mod snapshot;
pub mod store;
pub mod sweep;
pub mod transaction;
mod transport;

pub use client::{Directory, TxnClient};
pub use fact::{
    AsyncCommit, Fact, Facts, Floors, SnapshotItem, SplitChild, WriteKind, split_region,
};
pub use machine::RowMachine;
pub use machines::RowMachines;
pub use replicas::{Distance, ReadFrom, ReplicaReads};
pub use resolve::Resolution;
pub use service::TxnService;
pub use service::row_locks::WaitGraph;
pub use snapshot::{decode_chunk, encode_chunk};
pub use store::RowStore;
pub use sweep::Sweep;
pub use transaction::{Acquired, Savepoint, Scan, Snapshot, Transaction};
pub use transport::RowTransport;
