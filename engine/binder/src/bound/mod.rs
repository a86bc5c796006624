//! The binder: a syntax tree and the catalog's tables into a bound query, and a bound query into a plan.
//!
//! A bound query works on columns and types, never on names and text. It knows no session, clock or storage.

mod arguments;
mod call_types;
mod changes;
mod dependencies;
mod display;
mod expression;
mod from;
mod groups;
mod insertion;
mod join_conditions;
mod lateral;
mod literal;
mod lower;
mod lower_groups;
mod query;
mod ranges;
mod recursion;
mod restrictions;
mod row_query;
mod scalars;
mod scope;
mod select_list;
mod set_operations;
mod subqueries;
mod tree;
mod walk;
mod windows;

pub use changes::{
    Assigned, BoundChange, NewValue, RowsOf, Set, Target, Targets, bind_change, written_value,
};
pub use expression::{expression, of_row};
pub use insertion::{
    BoundInsert, GivenRows, GivenValue, NewValueOfMet, OnDuplicate, bind_insert, given_column,
    shown_columns, tables_of_insert,
};
pub use lower::lower;
pub use query::bind;
pub use row_query::{Answer, RowQuery, Total, in_order};
pub use scalars::plain_literal;
pub use tree::{BoundQuery, ColumnId, Node, OutputColumn, Scalar};
