//! The one binary's library: wiring of nodes, the MySQL wire, the command line.

pub mod wire;
