//! The binder: a syntax tree and the catalog's tables into a bound query, and a bound query into a plan.
//!
//! A bound query works on columns and types, never on names and text. It knows no session, clock or storage. So far
//! it takes queries without ROLLUP, LATERAL and rows beside subqueries; the rest of the planner takes the others from their
//! syntax trees.

mod arguments;
mod call_types;
mod display;
mod from;
mod groups;
mod literal;
mod lower;
mod query;
mod scalars;
mod scope;
mod set_operations;
mod subqueries;
mod tree;
mod walk;
mod windows;

pub use lower::lower;
pub use query::bind;
pub use tree::{BoundQuery, OutputColumn};
