//! Conditions that say a column equals an expression over its own table, hidden from the planner below.
//!
//! DataFusion takes `a = ABS(a)` for leave to write ABS(a) wherever `a` stands, in ABS(a) too, and then finds no order of
//! rows that it has itself made. Which rows a condition keeps must never change here.

use std::collections::HashSet;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, TableReference};
use datafusion::logical_expr::logical_plan::Filter;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::udf::call;

/// Makes such conditions calls, which nothing is read from.
#[derive(Debug)]
pub(crate) struct HiddenEqualities;

impl OptimizerRule for HiddenEqualities {
    fn name(&self) -> &str {
        "hidden_equalities"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
        if !split_conjunction(&filter.predicate).into_iter().any(equates) {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let parts =
            split_conjunction_owned(filter.predicate).into_iter().map(|part| {
                match equates(&part) {
                    true => call("mysql_truth", vec![part]),
                    false => Ok(part),
                }
            });
        let Some(predicate) = conjunction(parts.collect::<Result<Vec<_>>>()?) else {
            return Ok(Transformed::yes(filter.input.as_ref().clone()));
        };
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
    }
}

/// Whether a condition says that a column is an expression over the same table, which is no key of a join.
fn equates(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return false;
    };
    let (column, other) = match (&**left, &**right) {
        (Expr::Column(_), Expr::Column(_)) => return false,
        (Expr::Column(column), other) | (other, Expr::Column(column)) => (column, other),
        _ => return false,
    };
    let tables: HashSet<Option<&TableReference>> =
        other.column_refs().into_iter().map(|column| column.relation.as_ref()).collect();
    tables.len() == 1 && tables.contains(&column.relation.as_ref())
}
