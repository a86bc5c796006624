//! MySQL statements: definitions of tables, catalog views, rows, sessions.
//!
//! It knows no sockets and no columnar replicas beyond the trait in [`execution::analytic`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod ddl;
pub mod engine;
pub mod info;
pub mod provider;
pub mod reader;
pub mod result;
pub mod router;
pub mod rows;
pub mod session;
pub mod storage;
pub mod variables;
