//! Groups and aggregates of a bound query as a plan.
//!
//! What is grouped and sorted by here gets names that no other column has; it binds nothing.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::expr::{AggregateFunction, GroupingSet};
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use values::error::{SqlResult, unknown};

use super::groups;
use super::lower::{Lowering, Taken};
use super::tree::{AggregateCall, ColumnId, Scalar};
use crate::caseless;

impl Lowering<'_> {
    pub(super) fn group(
        &mut self,
        input: LogicalPlan,
        keys: &[(ColumnId, Scalar)],
        aggregates: &[(ColumnId, AggregateCall)],
        rollup: bool,
    ) -> SqlResult<LogicalPlan> {
        let (input, by) = self.keys(input, keys, rollup)?;
        let schema = input.schema().clone();
        let mut computed = Vec::with_capacity(aggregates.len());
        let (mut names, mut asked) = (HashSet::new(), Vec::new());
        for (id, call) in aggregates {
            let aggregate = match call.function.as_str() {
                groups::GROUPING => grouping(call, keys, &by)?,
                _ => self.aggregate(*id, call, &schema, &mut asked)?,
            };
            // Two over queries within expressions may be called the same.
            let name = aggregate.schema_name().to_string();
            let free = !self.taken.contains(&Taken::Column(name.clone())) && names.insert(name);
            computed.push(if free { aggregate } else { aggregate.alias(format!("#{}", id.0)) });
        }
        let by = if rollup { vec![Expr::GroupingSet(GroupingSet::Rollup(by))] } else { by };
        let input = with(input, asked)?;
        let aggregate = Aggregate::try_new(Arc::new(input), by, computed)?;
        let plan = LogicalPlan::Aggregate(caseless::with_extremes(aggregate)?);
        self.place(keys.iter().map(|(id, _)| *id), &plan);
        // Behind the keys of totals stands which of them a row has.
        let behind = plan.schema().fields().len() - aggregates.len();
        let columns = plan.schema().iter().skip(behind).zip(aggregates);
        let columns = columns.map(|((qualifier, field), (id, _))| {
            (*id, (Column::from((qualifier, field)), Arc::clone(field)))
        });
        self.columns.extend(columns);
        Ok(plan)
    }

    /// What is grouped by. Levels of totals that are no columns become such before, so that they stay what GROUPING asks
    /// for; and a literal has a name that no other has.
    fn keys(
        &self,
        input: LogicalPlan,
        keys: &[(ColumnId, Scalar)],
        rollup: bool,
    ) -> SqlResult<(LogicalPlan, Vec<Expr>)> {
        let schema = input.schema().clone();
        let (mut by, mut levels) = (Vec::with_capacity(keys.len()), Vec::new());
        for (id, key) in keys {
            let expr = self.scalar(key, &schema)?;
            let name = format!("#{}", id.0);
            by.push(match &expr {
                Expr::Column(_) => expr,
                _ if rollup => {
                    levels.push(expr.alias(&name));
                    Expr::Column(Column::new_unqualified(name))
                }
                Expr::Literal(..) => expr.alias(name),
                _ => expr,
            });
        }
        Ok((with(input, levels)?, by))
    }

    /// A call, and the queries that it sorts by, which become columns before: a sort of an aggregate has names of its
    /// keys, and a query's changes once it has its value.
    fn aggregate(
        &self,
        id: ColumnId,
        call: &AggregateCall,
        schema: &DFSchema,
        asked: &mut Vec<Expr>,
    ) -> SqlResult<Expr> {
        let AggregateCall { function: name, args, distinct, order } = call;
        let function = groups::aggregate(name)
            .ok_or_else(|| unknown(format!("aggregate {name} is not registered")))?;
        let args = args.iter().map(|arg| self.scalar(arg, schema)).collect::<SqlResult<_>>()?;
        let mut sorts = self.ordered(order, schema)?;
        for (sort, (by, _)) in sorts.iter_mut().zip(order) {
            if by.has_query() {
                let name = format!("#{}.{}", id.0, asked.len());
                let column = Expr::Column(Column::new_unqualified(&name));
                asked.push(std::mem::replace(&mut sort.expr, column).alias(name));
            }
        }
        let call = AggregateFunction::new_udf(function, args, *distinct, None, sorts, None);
        Ok(Expr::AggregateFunction(call))
    }
}

/// A plan with more columns behind its own.
fn with(plan: LogicalPlan, columns: Vec<Expr>) -> SqlResult<LogicalPlan> {
    if columns.is_empty() {
        return Ok(plan);
    }
    let own = plan.schema().columns().into_iter().map(Expr::Column);
    let shown = own.chain(columns).collect::<Vec<_>>();
    Ok(LogicalPlanBuilder::from(plan).project(shown)?.build()?)
}

/// GROUPING of keys, by what they are in the plan.
fn grouping(call: &AggregateCall, keys: &[(ColumnId, Scalar)], by: &[Expr]) -> SqlResult<Expr> {
    let missing = || unknown("GROUPING of what is no key");
    let key = |arg: &Scalar| {
        let at = keys.iter().rposition(|(_, key)| key == arg).ok_or_else(missing)?;
        by.get(at).cloned().ok_or_else(missing)
    };
    let args = call.args.iter().map(key).collect::<SqlResult<_>>()?;
    let function = groups::aggregate(groups::GROUPING).ok_or_else(missing)?;
    let call = AggregateFunction::new_udf(function, args, false, None, Vec::new(), None);
    Ok(Expr::AggregateFunction(call))
}
