//! MySQL's typing of operators: which function computes one, and at which type two values are
//! compared. Replaces DataFusion's coercion where the two disagree.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{InList, InSubquery, Like, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlanBuilder, Operator, binary_expr, lit,
};
use functions::kinds::{
    DATETIME, apart, comparable, digits_of, is_binary, is_json, is_string, is_temporal, is_time,
};
use functions::trees::Tree;
use sqlparser::ast::BinaryOperator;
use values::error::{external, unsupported};
use values::temporal::Zone;

use crate::literal;
use crate::operators::MysqlOperators;
use crate::quotients;
use crate::udf::call;

/// What the column of a subquery is called while types are compared; no client's column is.
const FOUND: &str = "__found";

/// The function that computes an operator of two numbers; `None` of any other.
pub(crate) fn arithmetic(operator: &BinaryOperator) -> Option<&'static str> {
    Some(match operator {
        BinaryOperator::Plus => "mysql_add",
        BinaryOperator::Minus => "mysql_sub",
        BinaryOperator::Multiply => "mysql_mul",
        BinaryOperator::Divide => "mysql_div",
        BinaryOperator::Modulo => "mysql_mod",
        BinaryOperator::MyIntegerDivide => "mysql_int_div",
        BinaryOperator::BitwiseAnd => "mysql_bit_and",
        BinaryOperator::BitwiseOr => "mysql_bit_or",
        BinaryOperator::BitwiseXor => "mysql_bit_xor",
        BinaryOperator::PGBitwiseShiftLeft => "mysql_shift_left",
        BinaryOperator::PGBitwiseShiftRight => "mysql_shift_right",
        _ => return None,
    })
}

impl MysqlOperators {
    /// A comparison, at the type at which MySQL compares the two.
    pub fn compare(
        &self,
        operator: Operator,
        (mut left, mut right): (Expr, Expr),
        schema: &DFSchema,
    ) -> Result<Expr> {
        let is_equality =
            matches!(operator, Operator::Eq | Operator::NotEq | Operator::IsNotDistinctFrom);
        if is_equality {
            right = crate::labels::label(right, &left, schema);
            left = crate::labels::label(left, &right, schema);
        }
        let (left, right) = self.align(left, right, schema)?;
        Ok(binary_expr(left, operator, right))
    }

    /// Two operands at the type at which MySQL compares them.
    pub fn align(&self, left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
        let (left, right) = (self.with_cases(left, schema)?, self.with_cases(right, schema)?);
        let (lt, rt) = (left.get_type(schema)?, right.get_type(schema)?);
        if is_json(&lt) || is_json(&rt) {
            return crate::json::keys((left, &lt), (right, &rt));
        }
        let left = number_of_truth(left, schema)?;
        let right = number_of_truth(right, schema)?;
        let (left, right) = crate::labels::aligned(left, right, schema)?;
        let (left, right) = crate::caseless::aligned(left, right, schema)?;
        let (lt, rt) = (left.get_type(schema)?, right.get_type(schema)?);
        if lt == rt || lt == DataType::Null || rt == DataType::Null {
            return Ok((left, right));
        }
        if let Some(text) = literal::text(&right)
            && let Some(right) = literal::typed(text, &lt, self).map_err(external)?
        {
            return match apart(&lt, &right.get_type(schema)?) {
                true => align_wide(left, right, schema),
                false => self.align_days(left, right, schema),
            };
        }
        if let Some(text) = literal::text(&left)
            && let Some(left) = literal::typed(text, &rt, self).map_err(external)?
        {
            return match apart(&left.get_type(schema)?, &rt) {
                true => align_wide(left, right, schema),
                false => self.align_days(left, right, schema),
            };
        }
        if is_binary(&lt) || is_binary(&rt) {
            return self.align_bytes(left, right, (&lt, &rt), schema);
        }
        if is_time(&lt) || is_time(&rt) {
            return align_times(left, right, &lt, &rt);
        }
        if is_temporal(&lt)
            && is_column(&left)
            && let Some(right) = literal::datetime_of_number(&right, &lt, self)
        {
            return self.align_days(left, right, schema);
        }
        if is_temporal(&rt)
            && is_column(&right)
            && let Some(left) = literal::datetime_of_number(&left, &rt, self)
        {
            return self.align_days(left, right, schema);
        }
        if is_temporal(&lt) || is_temporal(&rt) {
            if lt.is_numeric() || rt.is_numeric() {
                let number = |e| call("cast_double", vec![e]);
                return Ok((number(self.local(left, &lt)?)?, number(self.local(right, &rt)?)?));
            }
            return Ok((self.as_datetime(left, &lt)?, self.as_datetime(right, &rt)?));
        }
        let double = |ty: &DataType| matches!(ty, DataType::Float64 | DataType::Float32);
        if is_string(&lt) != is_string(&rt) || double(&lt) != double(&rt) {
            let number = |e: Expr, ty: &DataType| match ty {
                DataType::Float64 => Ok(e),
                _ => call("cast_double", vec![e]),
            };
            return Ok((number(left, &lt)?, number(right, &rt)?));
        }
        if apart(&lt, &rt) {
            return align_wide(left, right, schema);
        }
        Ok((left, right))
    }

    /// Bytes beside text compare as bytes, beside numbers as numbers.
    fn align_bytes(
        &self,
        left: Expr,
        right: Expr,
        (lt, rt): (&DataType, &DataType),
        schema: &DFSchema,
    ) -> Result<(Expr, Expr)> {
        let number = |ty: &DataType| ty.is_numeric();
        if number(lt) || number(rt) {
            let (left, right) = (literal::number(left), literal::number(right));
            if is_binary(&left.get_type(schema)?) || is_binary(&right.get_type(schema)?) {
                return Ok((call("cast_double", vec![left])?, call("cast_double", vec![right])?));
            }
            return self.align(left, right, schema);
        }
        if is_temporal(lt) || is_temporal(rt) {
            return Ok((self.as_datetime(left, lt)?, self.as_datetime(right, rt)?));
        }
        let bytes = |e: Expr, ty: &DataType| match ty {
            DataType::Binary => Ok(e),
            _ => call("cast_binary", vec![e]),
        };
        Ok((bytes(left, lt)?, bytes(right, rt)?))
    }

    /// A DATE against a DATETIME is compared as a DATETIME.
    fn align_days(&self, left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
        let (lt, rt) = (left.get_type(schema)?, right.get_type(schema)?);
        if is_temporal(&lt) && is_temporal(&rt) && lt != rt {
            return Ok((self.as_datetime(left, &lt)?, self.as_datetime(right, &rt)?));
        }
        Ok((left, right))
    }

    /// A DATE, a TIMESTAMP, a TIME of the present day or a text as a DATETIME in the session's time zone.
    pub(crate) fn as_datetime(&self, expr: Expr, ty: &DataType) -> Result<Expr> {
        if *ty == DATETIME {
            return Ok(expr);
        }
        match ty {
            DataType::Timestamp(_, Some(_)) => self.local(expr, ty),
            DataType::Date32 => Ok(Expr::Cast(Cast::new(Box::new(expr), DATETIME))),
            ty if is_time(ty) => call("isobar_on_day", vec![expr, lit(self.today)]),
            _ => call("cast_datetime", vec![expr, lit(6i64)]),
        }
    }

    /// A TIMESTAMP as wall time; anything else as it is.
    pub(crate) fn local(&self, expr: Expr, ty: &DataType) -> Result<Expr> {
        match ty {
            DataType::Timestamp(_, Some(_)) => {
                call("ts_local", vec![expr, lit(self.zone_name.clone())])
            }
            _ => Ok(expr),
        }
    }

    /// LIKE of texts, or of bytes; a TIMESTAMP is the text of its time in the session's zone.
    pub(crate) fn like(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let Expr::Like(like) = expr else { return Ok(Transformed::no(expr)) };
        let of_bytes = like_of_bytes(&like, schema)?;
        let local = |operand: Box<Expr>| {
            let ty = operand.get_type(schema)?;
            self.local(*operand, &ty)
        };
        let Like { negated, expr, pattern, escape_char, case_insensitive } = like;
        let (value, pattern) = (local(expr)?, local(pattern)?);
        if of_bytes {
            let escape = escape_char.unwrap_or('\\').to_string();
            let found = call("mysql_like", vec![value, pattern, lit(escape)])?;
            let found = if negated { Expr::Not(Box::new(found)) } else { found };
            return Ok(Transformed::yes(found));
        }
        let (value, pattern) = (Box::new(text(value, schema)?), Box::new(text(pattern, schema)?));
        let like = Like { negated, expr: value, pattern, escape_char, case_insensitive };
        Ok(Transformed::yes(Expr::Like(like)))
    }

    /// A function with the times of its TIMESTAMPs in the session's zone.
    pub(crate) fn with_local_times(
        &self,
        expr: Expr,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        let function = match expr {
            Expr::ScalarFunction(function)
                if self.zone != Zone::UTC && function.name() != "ts_local" =>
            {
                function
            }
            expr => return Ok(Transformed::no(expr)),
        };
        let mut changed = false;
        let args = function.args.into_iter().map(|arg| {
            let ty = arg.get_type(schema)?;
            changed |= matches!(ty, DataType::Timestamp(_, Some(_)));
            self.local(arg, &ty)
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        let call = Expr::ScalarFunction(ScalarFunction::new_udf(function.func, args));
        Ok(Transformed::new_transformed(call, changed))
    }

    /// Items of a list at the type of what is looked up in it; those by themselves with which that fails, and choices.
    pub(crate) fn list(&self, list: InList, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let InList { expr, list, negated } = list;
        let ty = expr.get_type(schema)?;
        let (mut items, mut equal) = (Vec::with_capacity(list.len()), Vec::new());
        for item in list {
            let item = crate::labels::label(item, &expr, schema);
            let (left, right) = self.align((*expr).clone(), item, schema)?;
            if (left == *expr || ty == DataType::Null) && !chooses(&right)? {
                items.push(right);
                continue;
            }
            let (left, right) = (Box::new(left), Box::new(right));
            let one = Expr::BinaryExpr(BinaryExpr::new(left, Operator::Eq, right));
            equal.push(quotients::kept(one, schema)?.0);
        }
        if equal.is_empty() {
            return Ok(Transformed::yes(Expr::InList(InList { expr, list: items, negated })));
        }
        if !items.is_empty() {
            let list = Expr::InList(InList { expr, list: items, negated: false });
            equal.insert(0, quotients::kept(list, schema)?.0);
        }
        let any = equal.into_iter().reduce(|a, b| a.or(b)).unwrap_or_else(|| lit(false));
        Ok(Transformed::yes(if negated { Expr::Not(Box::new(any)) } else { any }))
    }
}

impl MysqlOperators {
    /// IN (SELECT …) with both sides at the type at which they are compared.
    pub(crate) fn member(
        &self,
        predicate: InSubquery,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        // One of several columns is refused later.
        if predicate.subquery.subquery.schema().fields().len() != 1 {
            return Ok(Transformed::no(Expr::InSubquery(predicate)));
        }
        let InSubquery { expr, subquery, negated } = predicate;
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let column = Expr::Column(Column::from((qualifier, field)));
        let found = Expr::Column(Column::new_unqualified(FOUND));
        let named = Field::clone(field).with_name(FOUND);
        let mut both = schema.clone();
        both.merge(&DFSchema::from_unqualified_fields(vec![named].into(), HashMap::new())?);
        let (left, right) = self.align((*expr).clone(), found.clone(), &both)?;
        let changed = left != *expr || right != found;
        let subquery = match right == found {
            true => subquery,
            false => {
                let right = right.map_up(&mut |part| {
                    Ok(match part == found {
                        true => Transformed::yes(column.clone()),
                        false => Transformed::no(part),
                    })
                })?;
                let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
                let plan = plan.project([right.data])?.build()?;
                subquery.with_plan(Arc::new(plan))
            }
        };
        let predicate = InSubquery { expr: Box::new(left), subquery, negated };
        let predicate = Expr::InSubquery(predicate);
        Ok(if changed { Transformed::yes(predicate) } else { Transformed::no(predicate) })
    }
}

/// Exact numbers that have no type of 38 digits in common. A literal takes the other's type where it is
/// a number of it, so that keys are found by it; else both take one that has room for either.
fn align_wide(left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    let (lt, rt) = (left.get_type(schema)?, right.get_type(schema)?);
    if let Some(right) = literal::exact(&right, &lt) {
        return Ok((left, right));
    }
    if let Some(left) = literal::exact(&left, &rt) {
        return Ok((left, right));
    }
    let Some((precision, scale)) = digits_of(&comparable(&lt, &rt)) else {
        return Ok((left, right));
    };
    let (precision, scale) = (lit(i64::from(precision)), lit(i64::from(scale)));
    let wide = |expr| call("cast_decimal", vec![expr, precision.clone(), scale.clone()]);
    Ok((wide(left)?, wide(right)?))
}

/// TIME beside text compares as TIME, beside numbers as the number HHMMSS.
fn align_times(left: Expr, right: Expr, lt: &DataType, rt: &DataType) -> Result<(Expr, Expr)> {
    // MySQL would put the present day before the TIME, and nothing here knows the present.
    if is_temporal(lt) || is_temporal(rt) {
        return Err(external(unsupported("a TIME in the place of a DATETIME")));
    }
    let name = if lt.is_numeric() || rt.is_numeric() { "cast_double" } else { "cast_time" };
    let as_one = |expr: Expr, ty: &DataType| match (name, is_time(ty)) {
        ("cast_time", true) => Ok(expr),
        ("cast_time", false) => call(name, vec![expr, lit(6i64)]),
        _ => call(name, vec![expr]),
    };
    Ok((as_one(left, lt)?, as_one(right, rt)?))
}

/// Whether an expression is a column, of this query or of one around it.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_column(&alias.expr),
        expr => matches!(expr, Expr::Column(_) | Expr::OuterReferenceColumn(..)),
    }
}

/// Whether an expression chooses between others. DataFusion takes such an item of a list for a constant if its first result
/// is one: it asks what the list is over no rows, where no condition of a CASE is false.
fn chooses(item: &Expr) -> Result<bool> {
    item.has(&|part| Ok(matches!(part, Expr::Case(_))))
}

/// A value as a truth value.
pub(crate) fn truth(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr.get_type(schema)? {
        DataType::Boolean => Ok(expr),
        _ => call("mysql_truth", vec![expr]),
    }
}

/// A truth value among other values is 0 or 1.
fn number_of_truth(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Some(truth) = crate::json::marked_truth(&expr) {
        return Ok(lit(i64::from(truth)));
    }
    match expr.get_type(schema)? {
        DataType::Boolean => Ok(Expr::Cast(Cast::new(Box::new(expr), DataType::Int64))),
        _ => Ok(expr),
    }
}

fn like_of_bytes(like: &Like, schema: &DFSchema) -> Result<bool> {
    Ok(is_binary(&like.expr.get_type(schema)?) || is_binary(&like.pattern.get_type(schema)?))
}

fn text(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr.get_type(schema)? {
        DataType::Utf8 | DataType::Null => Ok(expr),
        _ => call("cast_char", vec![expr]),
    }
}
