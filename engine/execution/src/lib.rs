//! How queries are routed, kept as they were bound, and run, by rows and by columns alike: the threads for them, what
//! becomes of their panics, what is answered, and the interfaces between sessions, the columnar tier and the server
//! around them.
//!
//! It knows no session, no store and no socket.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod analytic;
pub mod bound_queries;
pub mod host;
pub mod interrupts;
pub mod panics;
pub mod reply;
pub mod router;
pub mod threads;

use std::pin::Pin;

use arrow::record_batch::RecordBatch;
use futures::Stream;
use values::error::SqlError;

/// Batches of a result, pulled by its reader: dropping it stops the work behind it.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, SqlError>> + Send>>;
