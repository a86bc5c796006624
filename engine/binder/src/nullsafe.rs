//! Equality that knows NULL, between two tables, as equations that are never NULL.
//!
//! DataFusion marks a join as a whole as one of keys that are equal also where both are NULL: an
//! equation that its rules add to the keys later is then one of NULLs, too, and inner joins that they
//! put into another order lose the mark. So no join may have it.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, TableReference};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit, when};
use functions::trees::{PlanTree, Tree};

const NULL: DataType = DataType::Null;

/// A plan whose conditions compare columns of different tables by equations alone.
pub(crate) fn equations(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut in_node = |node: LogicalPlan| {
        if !matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
            return Ok(Transformed::no(node));
        }
        let schema = merge_schema(&node.inputs());
        node.map_each_expression(&mut |expr| expr.map_up(&mut |part| equation(part, &schema)))
    };
    Ok(plan.map_all_up(&mut in_node)?.data)
}

fn equation(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::IsNotDistinctFrom, right }) = &expr
    else {
        return Ok(Transformed::no(expr));
    };
    let (of_left, of_right) = (tables(left)?, tables(right)?);
    if of_left.is_empty() || of_right.is_empty() || !of_left.is_disjoint(&of_right) {
        return Ok(Transformed::no(expr));
    }
    if NULL == left.get_type(schema)? || NULL == right.get_type(schema)? {
        return Ok(Transformed::no(expr));
    }
    let equal = equal((left, schema), (right, schema))?.into_iter().map(|(l, r)| l.eq(r));
    Ok(equal.reduce(Expr::and).map_or(Transformed::no(expr), Transformed::yes))
}

/// What must be equal for two expressions to be equal or both NULL. Only what may be NULL is asked
/// whether it is: `FALSE` on both sides would be two columns of one name in DataFusion's join.
pub(crate) fn equal(
    (left, of_left): (&Expr, &DFSchema),
    (right, of_right): (&Expr, &DFSchema),
) -> Result<Vec<(Expr, Expr)>> {
    if !left.nullable(of_left)? || !right.nullable(of_right)? {
        return Ok(vec![(left.clone(), right.clone())]);
    }
    let is_null = (left.clone().is_null(), right.clone().is_null());
    Ok(vec![is_null, (value(left, of_left)?, value(right, of_right)?)])
}

/// An expression's value, and some value where it is NULL.
fn value(expr: &Expr, schema: &DFSchema) -> Result<Expr> {
    let some = match expr.get_type(schema)? {
        NULL => lit(false),
        ty => lit(ScalarValue::new_default(&ty)?),
    };
    when(expr.clone().is_null(), some).otherwise(expr.clone())
}

/// The tables whose columns an expression reads.
fn tables(expr: &Expr) -> Result<HashSet<Option<TableReference>>> {
    let mut found = HashSet::new();
    expr.visit_each(&mut |part| {
        if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part {
            found.insert(column.relation.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
