//! Raft, transactions and placement between nodes: as frames, and over gRPC what is rare or large.
//!
//! Only this crate and `mpp` know protobuf. It decides nothing: it carries messages, bounds every
//! wait, and turns a broken connection into [`types::Error::Unavailable`].

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod answering;
mod builds;
mod calls;
pub mod channel;
pub mod client;
pub mod convert;
mod frames;
mod line;
mod link;
mod pipe;
mod proto;
pub mod pulse;
pub mod server;
#[cfg(test)]
mod testing;
pub mod transport;

pub use builds::Builds;
pub use channel::{AddressBook, Channels};
pub use client::RpcClient;
pub use pulse::Pulse;
pub use server::{Handlers, Port, listen, serve};
pub use transport::NodeTransport;
