//! The MySQL wire against real clients and hostile ones, over a canned engine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod backend;
mod changes;
mod command_line;
mod cursors;
mod decoding;
mod hostile;
mod python_clients;
mod raw;
mod rust_client;
