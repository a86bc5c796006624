//! MySQL's values: coercions, times, JSON, sql_mode, and errors with their numbers and states.
//!
//! It knows no syntax tree, plan or session, and reads no clock. Of the libraries that run queries it knows their errors
//! alone, which become MySQL's here.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod accepted;
pub mod bytes;
pub mod calendar;
pub mod coerce;
pub mod column;
pub mod date_format;
pub mod duration;
pub mod error;
pub mod json;
pub mod mysql_type;
pub mod numbers;
pub mod sql_mode;
pub mod temporal;
pub mod variables;
