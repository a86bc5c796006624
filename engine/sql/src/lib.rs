//! MySQL statements: sessions, and what each statement does.
//!
//! It knows no sockets and no columnar replicas beyond the trait in [`execution::analytic`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod engine;
pub mod session;
pub mod variables;
