//! A whole cluster in one process: row nodes, placement, transactions, learners and tablets on simulated time, network,
//! disks and randomness. One seed is one history.
//!
//! What runs is production code up to the traits that carry messages, hold files and read the clock. A model of versions is
//! the oracle for rows, and rows for columns. It is empty without the feature `clock`, which makes time stand still.
#![cfg(feature = "clock")]

mod clock;
mod columns;
mod faults;
mod history;
mod ledger;
mod model;
mod network;
mod nodes;
mod process;
mod readers;
mod run;
mod settle;
mod store;
mod table;
mod workload;
mod world;

pub use faults::FAULTS;
pub use run::{Options, Report, note_panics, run};
pub use settle::Totals;
