//! Raft, transactions and placement over gRPC.
//!
//! Only this crate and `mpp` know protobuf. It decides nothing: it carries messages, bounds every
//! wait, and turns a broken connection into [`types::Error::Unavailable`].

pub mod channel;
pub mod client;
pub mod convert;
mod proto;
pub mod pulse;
pub mod server;
pub mod transport;

pub use channel::{AddressBook, Channels};
pub use client::RpcClient;
pub use pulse::Pulse;
pub use server::{Handlers, Port, listen, serve};
pub use transport::GrpcTransport;
