//! Rows in comparisons: `(a, b) = (c, d)`, `(a, b) < (c, d)`.
//!
//! Each becomes comparisons of single values with MySQL's meaning of NULL: a row is compared column
//! by column, and the first that decides does.

use sqlparser::ast::{BinaryOperator, Expr};
use values::error::{SqlResult, syntax, wrong_width};

use crate::forms::{not, op};

/// Two rows compared by an operator that is not arithmetic.
pub fn compared(left: Expr, operator: &BinaryOperator, right: Expr) -> SqlResult<Expr> {
    let unwrap = |expr: Expr| match expr {
        Expr::Tuple(items) => Ok(items),
        _ => Err(wrong_width(2)),
    };
    let (left, right) = (unwrap(left)?, unwrap(right)?);
    if left.len() != right.len() {
        return Err(wrong_width(left.len()));
    }
    let pairs: Vec<(Expr, Expr)> = left.into_iter().zip(right).collect();
    match operator {
        BinaryOperator::NotEq => Ok(not(each(pairs, &BinaryOperator::Eq)?)),
        BinaryOperator::Lt | BinaryOperator::LtEq => ordered(pairs, BinaryOperator::Lt, operator),
        BinaryOperator::Gt | BinaryOperator::GtEq => ordered(pairs, BinaryOperator::Gt, operator),
        operator => each(pairs, operator),
    }
}

/// Whether an operator compares rows.
pub fn compares(operator: &BinaryOperator) -> bool {
    matches!(
        operator,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Spaceship
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
    )
}

/// `=` and `<=>`: all pairs.
fn each(pairs: Vec<(Expr, Expr)>, operator: &BinaryOperator) -> SqlResult<Expr> {
    let pairs = pairs.into_iter().map(|(left, right)| op(left, operator.clone(), right));
    fold(pairs.collect(), BinaryOperator::And)
}

/// `a < c OR (a = c AND (b < d …))`, with the operator itself at the last pair.
fn ordered(
    mut pairs: Vec<(Expr, Expr)>,
    strictly: BinaryOperator,
    operator: &BinaryOperator,
) -> SqlResult<Expr> {
    let (left, right) = pairs.pop().ok_or_else(|| syntax("an empty row"))?;
    let mut whole = op(left, operator.clone(), right);
    while let Some((left, right)) = pairs.pop() {
        let equal = op(left.clone(), BinaryOperator::Eq, right.clone());
        let rest = op(equal, BinaryOperator::And, whole);
        whole = op(op(left, strictly.clone(), right), BinaryOperator::Or, rest);
    }
    Ok(Expr::Nested(Box::new(whole)))
}

/// All of these, or any of these.
pub fn fold(exprs: Vec<Expr>, operator: BinaryOperator) -> SqlResult<Expr> {
    // In pairs, so that a long list does not become a deep tree.
    let mut exprs = exprs;
    while exprs.len() > 1 {
        let mut pairs = Vec::with_capacity(exprs.len().div_ceil(2));
        let mut rest = exprs.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => op(left, operator.clone(), right),
                None => left,
            });
        }
        exprs = pairs;
    }
    exprs.pop().map(|e| Expr::Nested(Box::new(e))).ok_or_else(|| syntax("an empty list"))
}
