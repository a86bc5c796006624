//! DataFusion's rule for aggregates of distinct values, where it does not change what a sum is.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// A rule of the optimizer, shared.
pub(crate) type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// DataFusion's rule that groups by a distinct argument first, and sums sums: where a sum of sums has another type than
/// the sums, which has more digits, the plan would be of another type, and is refused.
#[derive(Debug)]
pub(crate) struct SameSums(pub(crate) Rule);

impl OptimizerRule for SameSums {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Aggregate(aggregate) = &plan {
            let schema = aggregate.input.schema();
            for expr in &aggregate.aggr_expr {
                if gains_digits(expr, schema)? {
                    return Ok(Transformed::no(plan));
                }
            }
        }
        self.0.rewrite(plan, config)
    }
}

/// Whether an aggregate is a sum whose type has room for more digits: a sum of such sums has another type.
fn gains_digits(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let Expr::AggregateFunction(call) = expr else { return Ok(false) };
    Ok(call.func.name() == "sum"
        && match expr.get_type(schema)? {
            DataType::Decimal128(digits, _) => digits < DECIMAL128_MAX_PRECISION,
            DataType::Decimal256(digits, _) => digits < DECIMAL256_MAX_PRECISION,
            _ => false,
        })
}
