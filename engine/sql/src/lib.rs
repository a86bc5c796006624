//! MySQL statements: parsing, planning, catalog, rows, functions.
//!
//! It knows no sockets and no columnar replicas beyond the trait in [`analytic`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod analytic;
pub mod dialect;
pub mod error;
pub mod functions;
pub mod parser;
pub mod planner;
pub mod result;
pub mod temporal;
pub mod variables;
