//! MySQL's syntax: texts into statements, statements into texts, and what a tree alone says.
//!
//! It knows no catalog, plan or session: what a name or a function means is decided by those who read the tree.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod binary_literals;
pub mod bound;
pub mod canonical;
pub mod charsets;
pub mod constant;
pub mod decimal;
pub mod delimited;
pub mod dialect;
pub mod digest;
pub mod forms;
pub mod from;
pub mod hints;
pub mod introducer;
pub mod names;
pub mod parser;
pub mod scalar_query;
pub mod statement;
pub mod table_options;
pub mod tree;
pub mod walk;
