//! The MySQL server protocol, version 10, on `mysql_common`'s building blocks.
//!
//! From sockets to calls of a [`Session`] and back: packets, handshake, TLS, passwords, commands,
//! column definitions, rows. It knows no SQL beyond quotes, comments and semicolons, opens no
//! transaction and touches no storage. Whatever a client sends, the answer is a typed error, never
//! a panic; memory per connection is bounded by `max_allowed_packet` and one batch of rows.
//!
//! Not offered: compression, the RSA key exchange of
//! caching_sha2_password (use TLS), replication commands.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod answer;
pub mod backend;
mod binary;
mod cell;
mod column;
mod command;
mod connection;
mod connections;
mod cursor;
pub mod errors;
mod fuzz;
mod handshake;
mod infile;
mod options;
mod packet;
mod params;
pub mod password;
mod pattern;
mod prepared;
mod server;
mod statements;
mod text;
pub mod tls;

pub use backend::{Backend, ConnectionInfo, InfileReceiver, Prepared, Session, SessionStatus};
pub use connections::{ConnectionSummary, Connections, KillScope};
pub use fuzz::fuzz_packets;
pub use options::Options;
pub use password::{AuthPlugin, StoredPassword};
pub use server::{Server, server_version};
