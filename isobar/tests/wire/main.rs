//! The MySQL wire against real clients and hostile ones, over a canned engine.

mod backend;
mod command_line;
mod decoding;
mod hostile;
mod python_clients;
mod raw;
mod rust_client;
