//! EXISTS and IN (SELECT …) of a plan as scalar subqueries.
//!
//! For those that DataFusion has no join for. NULLs have the meaning that they have in MySQL.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, lit, not, when};
use functions::trees::Tree;

/// The subquery of an expression that is one.
pub(crate) fn subquery(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(query)
        | Expr::Exists(Exists { subquery: query, .. })
        | Expr::InSubquery(InSubquery { subquery: query, .. }) => Some(query),
        _ => None,
    }
}

/// The query whose only value an expression has, over the columns of a schema; `None` if it has none.
pub(crate) fn value(expr: &Expr, outside: &DFSchema) -> Result<Option<Subquery>> {
    match expr {
        Expr::ScalarSubquery(query) => Ok(Some(query.clone())),
        Expr::Exists(Exists { subquery, negated }) => exists(subquery, *negated).map(Some),
        Expr::InSubquery(predicate) => member(predicate, outside),
        _ => Ok(None),
    }
}

fn exists(query: &Subquery, negated: bool) -> Result<Subquery> {
    let rows = count(lit(1i64));
    let found = Expr::Column(Column::new_unqualified(rows.schema_name().to_string()));
    let answer = if negated { found.eq(lit(0i64)) } else { found.gt(lit(0i64)) };
    answered(query, vec![rows], answer)
}

/// True if a row is equal, else NULL if a comparison with one is NULL.
fn member(predicate: &InSubquery, outside: &DFSchema) -> Result<Option<Subquery>> {
    let InSubquery { expr, subquery: query, negated } = predicate;
    if expr.has(&|part| Ok(subquery(part).is_some()))? {
        return Ok(None);
    }
    let mut outer = |part: Expr| {
        Ok(match part {
            Expr::Column(column) => {
                let field = Arc::clone(outside.field_from_column(&column)?);
                Transformed::yes(Expr::OuterReferenceColumn(field, column))
            }
            other => Transformed::no(other),
        })
    };
    let operand = expr.as_ref().clone().map_up(&mut outer)?.data;
    let found = Expr::Column(Column::from(query.subquery.schema().qualified_field(0)));
    let same = operand.eq(found);
    let counts = [count(when(same.clone(), lit(1i64)).end()?), count(same), count(lit(1i64))];
    let [equal, known, all] = counts
        .each_ref()
        .map(|n| Expr::Column(Column::new_unqualified(n.schema_name().to_string())));
    let answer = when(equal.gt(lit(0i64)), lit(true))
        .when(known.lt(all), lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))?;
    let answer = if *negated { not(answer) } else { answer };
    answered(query, counts.to_vec(), answer).map(Some)
}

fn answered(query: &Subquery, counts: Vec<Expr>, answer: Expr) -> Result<Subquery> {
    let plan = LogicalPlanBuilder::from(query.subquery.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), counts)?
        .project([answer])?
        .build()?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: query.spans.clone() })
}
