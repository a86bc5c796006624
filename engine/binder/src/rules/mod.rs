//! The rules that give the plan of a bound query MySQL's meaning, in the order in which they run.
//!
//! Each says why there is one and which must have run before: what else makes a plan is lowering, which has no order. What rules
//! change is logged at level TRACE (`ISOBAR_LOG=binder=trace`). Page `docs/architecture/planner-rules.md` is made of these
//! lists.

mod lists;
mod parts;
mod plans;
mod run;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};
use values::error::SqlResult;

use crate::bound::OutputColumn;
use crate::operators::MysqlOperators;
use crate::quotients::Sums;
use crate::{PlannedSelect, ResolvedTables};

pub use lists::{all, distributed, stored};
pub(crate) use lists::{optimizer, physical};
pub(crate) use plans::plan;
pub(crate) use run::expression;

/// A rule, by what it is given.
struct Rule<F> {
    name: &'static str,
    why: &'static str,
    after: &'static [&'static str],
    apply: F,
}

/// What rules know of the query.
pub(crate) struct Planning<'a> {
    pub operators: &'a MysqlOperators,
    pub output: &'a [OutputColumn],
    pub resolved: &'a ResolvedTables,
}

/// What rules of nodes and expressions know while a plan is walked from its leaves.
pub(crate) struct Walk<'a> {
    pub operators: &'a MysqlOperators,
    pub sums: Sums,
}

/// A rule of the whole plan of a query and of what its columns are.
type QueryRule = Rule<fn(PlannedSelect, &Planning) -> SqlResult<PlannedSelect>>;
/// A rule of a whole plan.
type PlanRule = Rule<fn(LogicalPlan) -> Result<LogicalPlan>>;
/// A rule of a node, whose inputs' columns these are: another node in its place, or `None`.
type NodeRule = Rule<fn(&Walk, &LogicalPlan, &DFSchema) -> Result<Option<LogicalPlan>>>;
/// A rule of an expression over these columns, whose parts are done.
type ExpressionRule = Rule<fn(&Walk, Expr, &DFSchema) -> Result<Transformed<Expr>>>;

/// A rule beside DataFusion's.
enum Placed<R: 'static> {
    /// Around DataFusion's rules of these names.
    Around(&'static [&'static str], fn(R) -> R),
    /// Before DataFusion's rules of these names.
    Before(&'static [&'static str], fn() -> R),
    /// Behind all.
    Last(fn() -> R),
}

/// When a rule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Over the plan of a bound query.
    Query,
    /// Over each UNION, which has no expressions, within the first rule of [`Stage::Query`].
    Union,
    /// Over each expression, from its leaves up, within the first rule of [`Stage::Query`].
    Expression,
    /// Over each node, once its expressions are done.
    Node,
    /// Over the plan of what is written to a table.
    Stored,
    /// Over a plan that several nodes run.
    Distributed,
    /// Among DataFusion's rules of logical plans.
    Optimizer,
    /// Among DataFusion's rules of physical plans.
    Physical,
}

/// What is known of a rule.
#[derive(Clone, Debug)]
pub struct RuleInfo {
    /// When it runs.
    pub stage: Stage,
    /// What it is called.
    pub name: &'static str,
    /// Why there is one.
    pub why: &'static str,
    /// Rules that must have run before.
    pub after: &'static [&'static str],
    /// Rules of DataFusion's that it is put around, or before.
    pub theirs: &'static [&'static str],
}
