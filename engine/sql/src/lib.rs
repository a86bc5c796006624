//! MySQL statements: parsing, planning, catalog, rows, functions.
//!
//! It knows no sockets and no columnar replicas beyond the trait in [`analytic`].

pub mod analytic;
pub mod result;
