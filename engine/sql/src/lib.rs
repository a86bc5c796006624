//! MySQL statements: parsing, planning, catalog, rows, functions.
//!
//! It knows no sockets and no columnar replicas beyond the trait in [`analytic`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod analytic;
pub mod binary_literals;
pub mod bound;
pub mod canonical;
mod charsets;
pub mod constant;
pub mod ddl;
mod decimal;
pub mod delimited;
pub mod dialect;
pub mod engine;
pub mod functions;
pub mod hints;
pub mod info;
pub mod introducer;
pub mod names;
pub mod panics;
pub mod parser;
pub mod planner;
pub mod privileges;
pub mod provider;
pub mod query_threads;
pub mod reader;
pub mod result;
pub mod router;
pub mod rows;
pub mod session;
pub mod statement;
pub mod storage;
pub mod table_options;
mod tree;
pub mod variables;
mod walk;
