//! MySQL statements: parsing, planning, catalog, rows, functions.
//!
//! It knows no sockets and no columnar replicas beyond the trait in [`analytic`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod analytic;
pub mod anybyte;
pub mod bound;
pub mod calendar;
pub mod coerce;
pub mod constant;
pub mod ddl;
pub mod delimited;
pub mod dialect;
pub mod engine;
pub mod error;
pub mod functions;
pub mod info;
pub mod json;
pub mod lane;
pub mod panics;
pub mod parser;
pub mod planner;
pub mod privileges;
pub mod provider;
pub mod reader;
pub mod result;
pub mod router;
pub mod rows;
pub mod session;
pub mod sql_mode;
pub mod statement;
pub mod storage;
pub mod temporal;
pub mod variables;
mod walk;
