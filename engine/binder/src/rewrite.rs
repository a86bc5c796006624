//! Expressions in their plain forms: of several ways to write a thing one is left, for the binder to read.
//!
//! Names only and forms only: what depends on types is the binder's business.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, MemberOf, ObjectNamePart, UnaryOperator, Value, ValueWithSpan,
    VisitorMut,
};
use sqlparser::tokenizer::Span;
use syntax::dialect::Mysql;
use syntax::introducer::introduced;
use syntax::names::TableName;
use syntax::tree::{call, null, plain, string, value};
use syntax::walk::walk_mut;
use values::error::{SqlError, SqlResult, illegal_double, unsupported, wrong_arguments};

use crate::forms::{BOTH, EITHER, not, number_of_hex, op};
use crate::{QueryContext, ResolvedTable, calls, tuples};

/// Tables that one SELECT joins at most.
pub const MOST_TABLES: usize = 61;
struct Rewriter<'a> {
    context: &'a QueryContext,
    resolved: &'a HashMap<TableName, ResolvedTable>,
}

/// Rewrites one expression, without queries in it, of a statement of these tables.
///
/// # Errors
///
/// MySQL's for forms that it does not have, or that are not supported.
pub fn rewrite_expr(
    mut expr: Expr,
    context: &QueryContext,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> SqlResult<Expr> {
    walk_mut(&mut expr, &mut Rewriter { context, resolved })?;
    Ok(expr)
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        // Before its literal is read as one without an introducer.
        if let Expr::Prefixed { prefix, value } = expr {
            match introduced(prefix, (**value).clone()) {
                Ok(text) => *expr = text,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        crate::json::mark_truths(expr);
        flow(calls::before(expr))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        flow(self.expr(expr))
    }
}

fn flow(result: SqlResult<()>) -> ControlFlow<SqlError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl Rewriter<'_> {
    fn expr(&mut self, expr: &mut Expr) -> SqlResult<()> {
        let taken = std::mem::replace(expr, null());
        *expr = self.rewritten(taken)?;
        Ok(())
    }

    /// Under NO_BACKSLASH_ESCAPES, LIKE has no escape character unless it names one.
    fn no_escape(&self) -> Option<ValueWithSpan> {
        let plain = Mysql::of(&self.context.sql_mode).plain_backslashes;
        let none = Value::SingleQuotedString(String::new());
        plain.then(|| ValueWithSpan { value: none, span: Span::empty() })
    }

    fn rewritten(&mut self, expr: Expr) -> SqlResult<Expr> {
        Ok(match expr {
            Expr::Identifier(ident) => {
                if ident.quote_style.is_none() && ident.value.starts_with('@') {
                    return Err(unsupported(format!("variable {} in this place", ident.value)));
                }
                Expr::Identifier(plain(ident.value.to_lowercase()))
            }
            Expr::CompoundIdentifier(names) => {
                let names = names.into_iter().map(|name| plain(name.value.to_lowercase()));
                Expr::CompoundIdentifier(names.collect())
            }
            Expr::Value(value) => literal(value)?,
            Expr::Nested(inner) => Expr::Nested(inner),
            Expr::Between { expr, negated, low, high } => between(*expr, negated, *low, *high),
            Expr::BinaryOp { left, op, right } => binary(*left, op, *right)?,
            Expr::UnaryOp { op, expr } => unary(op, *expr)?,
            Expr::Like { negated, expr, pattern, escape_char, .. } => {
                like(*expr, *pattern, escape_char.or_else(|| self.no_escape()), negated)?
            }
            Expr::RLike { negated, expr, pattern, .. } => {
                not_if(negated, call("mysql_regexp", vec![*expr, *pattern]))
            }
            Expr::InList { expr, list, negated } if matches!(*expr, Expr::Tuple(_)) => {
                let equal = |item| tuples::compared((*expr).clone(), &BinaryOperator::Eq, item);
                let equal = list.into_iter().map(equal).collect::<SqlResult<Vec<_>>>()?;
                let any = tuples::fold(equal, BinaryOperator::Or)?;
                not_if(negated, any)
            }
            Expr::Case { operand, conditions, else_result, case_token, end_token } => {
                let when = |when: CaseWhen| CaseWhen {
                    condition: match &operand {
                        Some(operand) => {
                            crate::json::case_equal((**operand).clone(), when.condition)
                        }
                        None => truth(when.condition),
                    },
                    result: when.result,
                };
                let conditions = conditions.into_iter().map(when).collect();
                Expr::Case { operand: None, conditions, else_result, case_token, end_token }
            }
            Expr::IsTrue(e) => Expr::IsTrue(Box::new(truth(*e))),
            Expr::IsNotTrue(e) => Expr::IsNotTrue(Box::new(truth(*e))),
            Expr::IsFalse(e) => Expr::IsFalse(Box::new(truth(*e))),
            Expr::IsNotFalse(e) => Expr::IsNotFalse(Box::new(truth(*e))),
            Expr::IsUnknown(e) => Expr::IsNull(e),
            Expr::IsNotUnknown(e) => Expr::IsNotNull(e),
            Expr::Collate { expr, collation } => {
                let name = collation.to_string().to_lowercase();
                if name.contains("_bin") || name == "binary" {
                    crate::caseless::as_bytes(*expr, self.resolved)
                } else {
                    return Err(unsupported(format!("COLLATE {name} (only utf8mb4_bin compares)")));
                }
            }
            // The bound of a frame.
            Expr::Interval(interval) if interval.leading_field.is_none() => {
                Expr::Interval(interval)
            }
            Expr::Interval(_) => return Err(unsupported("INTERVAL outside of date arithmetic")),
            Expr::MatchAgainst { .. } => return Err(unsupported("MATCH … AGAINST")),
            Expr::MemberOf(MemberOf { value, array }) => {
                call("mysql_json_member_of", vec![*value, *array])
            }
            other => calls::rewritten(other, self.context)?,
        })
    }
}

fn literal(literal: ValueWithSpan) -> SqlResult<Expr> {
    Ok(match literal.value {
        Value::Boolean(truth) => value(Value::Number(i32::from(truth).to_string(), false)),
        Value::Number(text, _) if text.contains(['e', 'E']) => {
            if text.parse().is_ok_and(f64::is_infinite) {
                return Err(illegal_double(text));
            }
            call("cast_double", vec![string(text)])
        }
        Value::Number(text, long) => {
            crate::literal::check_digits(&text)?;
            value(Value::Number(text, long))
        }
        Value::DoubleQuotedString(text) | Value::NationalStringLiteral(text) => string(text),
        Value::SingleQuotedByteStringLiteral(bits) => {
            let hex =
                values::bytes::bytes_of_bits(&bits)?.iter().map(|b| format!("{b:02X}")).collect();
            value(Value::HexStringLiteral(hex))
        }
        other => value(other),
    })
}

fn not_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

fn between(expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
    let (low_op, high_op, both) = if negated {
        (BinaryOperator::Lt, BinaryOperator::Gt, EITHER)
    } else {
        (BinaryOperator::GtEq, BinaryOperator::LtEq, BOTH)
    };
    let both = BinaryOperator::Custom(both.to_owned());
    Expr::Nested(Box::new(op(op(expr.clone(), low_op, low), both, op(expr, high_op, high))))
}

fn binary(left: Expr, operator: BinaryOperator, right: Expr) -> SqlResult<Expr> {
    let rows = matches!(left, Expr::Tuple(_)) || matches!(right, Expr::Tuple(_));
    if rows && tuples::compares(&operator) {
        return tuples::compared(left, &operator, right);
    }
    if matches!(operator, BinaryOperator::Arrow | BinaryOperator::LongArrow) {
        return crate::json::extracted(left, &operator, right);
    }
    let operator = match operator {
        BinaryOperator::StringConcat => BinaryOperator::Or,
        other => other,
    };
    Ok(Expr::BinaryOp { left: Box::new(left), op: operator, right: Box::new(right) })
}

fn unary(operator: UnaryOperator, expr: Expr) -> SqlResult<Expr> {
    Ok(match operator {
        operator if syntax::dialect::is_not(operator) => not(truth(expr)),
        UnaryOperator::Plus => expr,
        UnaryOperator::Minus => match number_of_hex(expr) {
            expr @ Expr::Value(ValueWithSpan { value: Value::Number(_, _), .. }) => {
                Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(expr) }
            }
            expr => call("mysql_neg", vec![expr]),
        },
        UnaryOperator::BitwiseNot => {
            call("mysql_bit_xor", vec![expr, value(Value::Number(u64::MAX.to_string(), false))])
        }
        other => return Err(unsupported(format!("operator {other}"))),
    })
}

fn like(
    expr: Expr,
    pattern: Expr,
    escape: Option<ValueWithSpan>,
    negated: bool,
) -> SqlResult<Expr> {
    let escape = match escape.map(|escape| escape.value) {
        // ESCAPE NULL is as if there were none.
        None | Some(Value::Null) => None,
        Some(Value::SingleQuotedString(text) | Value::DoubleQuotedString(text))
            if text.chars().count() < 2 =>
        {
            Some(text)
        }
        Some(Value::Number(digits, _)) if digits.len() == 1 => Some(digits),
        Some(_) => return Err(wrong_arguments("ESCAPE")),
    };
    Ok(match escape {
        Some(text) if text != "\\" => {
            not_if(negated, call("mysql_like", vec![expr, pattern, string(text)]))
        }
        _ => Expr::Like {
            negated,
            any: false,
            expr: Box::new(expr),
            pattern: Box::new(pattern),
            escape_char: None,
        },
    })
}

/// The expression as a truth value.
pub fn truth(expr: Expr) -> Expr {
    if is_truth(&expr) { expr } else { call("mysql_truth", vec![number_of_hex(expr)]) }
}

fn is_truth(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_truth(inner),
        Expr::BinaryOp { op, .. } => matches!(
            op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
                | BinaryOperator::Spaceship
                | BinaryOperator::And
                | BinaryOperator::Or
                | BinaryOperator::Xor
                | BinaryOperator::Custom(_)
        ),
        Expr::UnaryOp { op, .. } => syntax::dialect::is_not(*op),
        Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::Like { .. }
        | Expr::Exists { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. } => true,
        Expr::Function(function) => match &function.name.0[..] {
            [ObjectNamePart::Identifier(name)] => {
                matches!(name.value.as_str(), "mysql_truth" | "mysql_like" | "mysql_regexp")
            }
            _ => false,
        },
        _ => false,
    }
}
