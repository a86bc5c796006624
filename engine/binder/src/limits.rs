//! LIMIT and OFFSET that DataFusion cannot count to: its plans travel with limits of 32 bits, and a limit is added to
//! its offset first. MySQL's own way to say "all rows from the tenth on" is `LIMIT 18446744073709551615 OFFSET 9`.
//! Smaller ones are left as they are.

use sqlparser::ast::{Expr, LimitClause, Query, Value as SqlValue};
use types::Value;

/// What a LIMIT or an OFFSET may be at most: their sum has 32 bits.
const FARTHEST: i64 = i32::MAX as i64;

/// Takes such a LIMIT away, which no query reaches, and makes such an OFFSET the farthest that there is.
pub fn within_reach(query: &mut Query) {
    let farthest = || Expr::value(SqlValue::Number(FARTHEST.to_string(), false));
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            if limit.as_ref().is_some_and(beyond) {
                *limit = None;
            }
            if let Some(offset) = offset
                && beyond(&offset.value)
            {
                offset.value = farthest();
            }
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            if beyond(offset) {
                *offset = farthest();
            }
            if beyond(limit) {
                *limit = farthest();
            }
        }
        None => {}
    }
}

fn beyond(expr: &Expr) -> bool {
    match syntax::constant::literal(expr) {
        Some(Value::UInt(n)) => i64::try_from(n).ok().is_none_or(|n| n > FARTHEST),
        Some(Value::Int(n)) => n > FARTHEST,
        _ => false,
    }
}
