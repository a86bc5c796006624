//! What a statement does not ask for is not computed, where computing it may fail: branches of IF, IFNULL and COALESCE that
//! are not taken, and conditions behind one that decides already. The two of a BETWEEN are computed together.
//!
//! DataFusion computes a function's arguments for all rows, and both sides of AND as often as not: `IF(a > b, a - b, 0)` and
//! `a > b AND a - b < 9` were error 1690 for rows that ask for no difference. No value and no key of a join or of a table
//! may change here.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::utils::{conjunction, disjunction, split_binary};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, Operator, binary_expr, lit};
use functions::control::common;
use functions::trees::Tree;

use crate::operators::MysqlOperators;
use crate::udf::call;

/// Functions that fail for numbers beyond their type.
const FAIL: [&str; 14] = [
    "mysql_add",
    "mysql_sub",
    "mysql_mul",
    "mysql_div",
    "mysql_quotient",
    "mysql_int_div",
    "mysql_mod",
    "mysql_neg",
    "mysql_abs",
    "mysql_round",
    "mysql_pow",
    "mysql_exp",
    "mysql_degrees",
    "mysql_cot",
];
/// Parts of an expression that is computed twice: as itself, and to ask whether another one is to be.
const MOST_TWICE: usize = 16;

impl MysqlOperators {
    /// IF, IFNULL or COALESCE of numbers as a CASE, if a branch may fail; `None` if none may.
    pub(crate) fn lazy(
        &self,
        function: &ScalarFunction,
        schema: &DFSchema,
    ) -> Result<Option<Expr>> {
        let (when_then, last) = match (function.name(), &function.args[..]) {
            ("mysql_if", [condition, then, last]) if may_fail(then)? || may_fail(last)? => {
                let condition = match condition.get_type(schema)? {
                    DataType::Boolean => condition.clone(),
                    _ => call("mysql_truth", vec![condition.clone()])?,
                };
                (vec![(condition, then)], last)
            }
            ("mysql_coalesce", [first @ .., last]) => {
                let later = first.iter().skip(1).chain([last]);
                let fails = later.map(may_fail).collect::<Result<Vec<_>>>()?.contains(&true);
                let twice =
                    first.iter().all(|arg| !arg.is_volatile() && parts_of(arg) <= MOST_TWICE);
                if first.is_empty() || !fails || !twice {
                    return Ok(None);
                }
                (first.iter().map(|arg| (arg.clone().is_not_null(), arg)).collect(), last)
            }
            _ => return Ok(None),
        };
        let types = when_then.iter().map(|(_, then)| *then).chain([last]);
        let types = types.map(|result| result.get_type(schema)).collect::<Result<Vec<_>>>()?;
        if !common(&types).is_numeric() {
            return Ok(None);
        }
        let when_then =
            when_then.into_iter().map(|(when, then)| (Box::new(when), Box::new(then.clone())));
        let case = Case::new(None, when_then.collect(), Some(Box::new(last.clone())));
        Ok(Some(self.case(&case, schema)?.unwrap_or(Expr::Case(case))))
    }
}

/// The right side of AND or OR, computed for such rows alone as its left side leaves open. Only where both are of one
/// table's columns: conditions on several are met in the order in which tables are joined.
pub(crate) fn behind(left: &Expr, operator: Operator, right: Expr) -> Result<Expr> {
    if !matches!(operator, Operator::And | Operator::Or) || !may_fail(&right)? {
        return Ok(right);
    }
    let Some(tables) = tables(&right)?.filter(|tables| tables.len() == 1) else { return Ok(right) };
    let (mut before, mut parts) = (Vec::new(), 0);
    for part in split_binary(left, operator) {
        if may_fail(part)? || self::tables(part)?.is_none_or(|of| of != tables) {
            continue;
        }
        parts += parts_of(part);
        if parts > MOST_TWICE {
            break;
        }
        before.push(part.clone());
    }
    let (open, decided) = match operator {
        Operator::And => (conjunction(before).map(Expr::is_not_false), 0i64),
        _ => (disjunction(before).map(Expr::is_not_true), 1),
    };
    let Some(open) = open else { return Ok(right) };
    only_where(open, right, Some(decided))
}

/// BETWEEN's two comparisons, or NOT BETWEEN's with OR, of which MySQL computes both, or none where the value that is
/// compared is NULL. As an AND they would be computed one after the other if one may fail, in an order that is the reader's.
pub(crate) fn together(low: Expr, operator: Operator, high: Expr) -> Result<Expr> {
    let fails = may_fail(&low)? || may_fail(&high)?;
    if !fails || is_more(&low)? || is_more(&high)? {
        return Ok(binary_expr(low, operator, high));
    }
    let value = match &low {
        Expr::BinaryExpr(compared) if parts_of(&compared.left) <= MOST_TWICE => {
            Some((*compared.left).clone())
        }
        _ => None,
    };
    let both = match operator {
        Operator::And => call("isobar_both", vec![low, high])?,
        // Beyond an end: not within both.
        _ => {
            let within = vec![Expr::Not(Box::new(low)), Expr::Not(Box::new(high))];
            Expr::Not(Box::new(call("isobar_both", within)?))
        }
    };
    match value {
        Some(value) => only_where(value.is_not_null(), both, None),
        None => Ok(both),
    }
}

/// A truth value, computed for such rows alone as are `open`; of others it is what is decided, or NULL.
fn only_where(open: Expr, truth: Expr, decided: Option<i64>) -> Result<Expr> {
    // Of truth values DataFusion would make AND and OR again.
    let number = Expr::Cast(Cast::new(Box::new(truth), DataType::Int64));
    let when_then = vec![(Box::new(open), Box::new(number))];
    let case = Case::new(None, when_then, decided.map(|decided| Box::new(lit(decided))));
    call("mysql_truth", vec![Expr::Case(case)])
}

/// The tables of an expression's columns, of which those that are computed are one; `None` if it is more than a function of
/// these.
fn tables(expr: &Expr) -> Result<Option<HashSet<TableReference>>> {
    let computed = || TableReference::bare("");
    let columns = expr.column_refs().into_iter();
    let tables = columns.map(|column| column.relation.clone().unwrap_or_else(computed));
    Ok(if is_more(expr)? { None } else { Some(tables.collect()) })
}

/// Whether an expression is more than a function of its row's columns.
fn is_more(expr: &Expr) -> Result<bool> {
    let more = expr.has(&|part| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::WindowFunction(_)
        ))
    })?;
    Ok(more || expr.is_volatile())
}

/// Whether an expression may be error 1690 for some row.
fn may_fail(expr: &Expr) -> Result<bool> {
    expr.has(&|part| {
        Ok(matches!(part, Expr::ScalarFunction(function)
            if FAIL.contains(&function.name()) && !part.column_refs().is_empty()))
    })
}

/// How many parts an expression has, counted no further than it matters.
fn parts_of(expr: &Expr) -> usize {
    let mut parts = 0;
    let counted = expr.visit_each(&mut |_| {
        parts += 1;
        Ok(if parts > MOST_TWICE { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    if counted.is_ok() { parts } else { MOST_TWICE + 1 }
}
