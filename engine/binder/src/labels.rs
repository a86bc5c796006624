//! ENUM and SET in queries: texts that are numbers wherever a number is expected.
//!
//! A plan has them as the texts that they show, so they compare with texts, group and join as such.
//! The type stays with a column as metadata of its field, and is lost where a function makes another
//! text of it. By it arguments of functions of numbers, what is compared with a number, and what is
//! sorted by become the number: the place in the list, or the bits.

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::{ScalarFunction, Sort};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit, when};
use functions::kinds::{is_binary, is_string};
use functions::labels::{AS_NUMBER, BITS, NUMBER, RANKED};
use functions::{arithmetic, math};
use types::ColumnType;
use types::columns::MYSQL_TYPE;
use values::error::{external, unsupported};

use crate::udf::call;

/// A field of a plan for a column of this type.
pub(crate) fn marked(field: Field, ty: ColumnType) -> Field {
    match ty.labels() {
        Some(_) => field.with_metadata([(MYSQL_TYPE.to_owned(), ty.to_string())].into()),
        None => field,
    }
}

/// The type that a field is marked with.
pub(crate) fn type_of_field(field: &Field) -> Option<ColumnType> {
    if *field.data_type() != DataType::Utf8 {
        return None;
    }
    ColumnType::labelled(field.metadata().get(MYSQL_TYPE)?)
}

/// The ENUM or SET that an expression is a column of.
fn type_of(expr: &Expr, schema: &DFSchema) -> Option<ColumnType> {
    match expr {
        Expr::Column(column) => {
            type_of_field(schema.qualified_field_from_column(column).ok()?.1.as_ref())
        }
        Expr::OuterReferenceColumn(field, _) => type_of_field(field),
        Expr::Alias(alias) => type_of(&alias.expr, schema),
        _ => None,
    }
}

/// The number that a value is; anything but ENUM and SET as it is.
fn numbered(expr: Expr, function: &str, schema: &DFSchema) -> Result<Expr> {
    match type_of(&expr, schema) {
        Some(ty) => call(function, vec![expr, lit(ty.to_string())]),
        None => Ok(expr),
    }
}

/// A literal number that an ENUM is compared with, as the label of that number: by it keys are
/// found. Of a number without a label, and of all else, the literal as it is.
pub(crate) fn label(literal: Expr, of: &Expr, schema: &DFSchema) -> Expr {
    let number = match &literal {
        Expr::Literal(ScalarValue::Int64(Some(n)), _) => u64::try_from(*n).ok(),
        Expr::Literal(ScalarValue::UInt64(Some(n)), _) => Some(*n),
        _ => None,
    };
    let Some(number) = number else { return literal };
    match type_of(of, schema) {
        // The empty text is the label of its place, and number 0 besides.
        Some(ColumnType::Enum(labels)) => match labels.label(number) {
            Some(label) if !label.is_empty() => lit(label),
            _ => literal,
        },
        _ => literal,
    }
}

/// Two operands: beside a number, ENUM and SET are numbers.
pub(crate) fn aligned(left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    let number = |expr: &Expr| Ok::<_, DataFusionError>(expr.get_type(schema)?.is_numeric());
    if number(&right)? {
        return Ok((numbered(left, NUMBER, schema)?, right));
    }
    if number(&left)? {
        return Ok((left, numbered(right, NUMBER, schema)?));
    }
    Ok((left, right))
}

/// Which arguments of a function are taken as numbers, and how.
pub(crate) enum NumericArgs {
    /// None.
    None,
    /// All, by this function.
    All(&'static str),
    /// Those at these places, as bits.
    At(&'static [usize]),
}

/// Those of a function of ours.
pub(crate) fn numeric_args(name: &str) -> NumericArgs {
    let bits = name.starts_with("mysql_bit_") || name.starts_with("mysql_shift_");
    match name {
        "mysql_bit_length" | "mysql_crc32" => NumericArgs::None,
        _ if bits => NumericArgs::All(BITS),
        AS_NUMBER | "cast_signed" | "cast_unsigned" | "cast_decimal" | "mysql_char"
        | "mysql_char_text" => NumericArgs::All(BITS),
        "mysql_truth" | "cast_double" | "sum_arg" => NumericArgs::All(NUMBER),
        "mysql_maketime"
        | "mysql_sec_to_time"
        | "mysql_period_add"
        | "mysql_period_diff"
        | "mysql_from_days"
        | "mysql_makedate"
        | "mysql_from_unixtime"
        | "mysql_inet_ntoa"
        | "mysql_space" => NumericArgs::All(BITS),
        "mysql_if" | "mysql_elt" | "mysql_make_set" | "mysql_export_set" => NumericArgs::At(&[0]),
        "mysql_left" | "mysql_right" | "mysql_repeat" | "mysql_lpad" | "mysql_rpad"
        | "mysql_week" | "mysql_yearweek" | "mysql_date_shift" => NumericArgs::At(&[1]),
        "mysql_substring" | "mysql_insert" | "mysql_conv" => NumericArgs::At(&[1, 2]),
        "mysql_substring_index" | "mysql_locate" => NumericArgs::At(&[2]),
        "mysql_format" => NumericArgs::At(&[0, 1]),
        _ if arithmetic::FUNCTIONS.iter().any(|function| function.name == name) => {
            NumericArgs::All(NUMBER)
        }
        _ if math::FUNCTIONS.iter().any(|function| function.name == name) => {
            NumericArgs::All(NUMBER)
        }
        _ => NumericArgs::None,
    }
}

/// A call with ENUM and SET as the numbers that it takes; whether there were any.
pub(crate) fn with_numeric_args(
    mut function: ScalarFunction,
    schema: &DFSchema,
) -> Result<(Expr, bool)> {
    if !function.args.iter().any(|arg| type_of(arg, schema).is_some()) {
        return Ok((Expr::ScalarFunction(function), false));
    }
    let mixed = has_number(&function.args, schema)?;
    let numeric = match (function.name(), &function.args[..]) {
        // It compares numbers and gives the text.
        ("mysql_nullif", [value, other]) if mixed && type_of(value, schema).is_some() => {
            let number = numbered(value.clone(), NUMBER, schema)?;
            let equal = number.eq(call("cast_double", vec![other.clone()])?);
            let null = Expr::Literal(ScalarValue::Utf8(None), None);
            return Ok((when(equal, null).otherwise(value.clone())?, true));
        }
        ("mysql_nullif" | "mysql_field", _) if mixed => NumericArgs::All(NUMBER),
        (name, _) => numeric_args(name),
    };
    let mut changed = false;
    for (at, arg) in function.args.iter_mut().enumerate() {
        let form = match &numeric {
            NumericArgs::All(form) => *form,
            NumericArgs::At(places) if places.contains(&at) => BITS,
            _ => continue,
        };
        if type_of(arg, schema).is_some() {
            *arg = numbered(std::mem::take(arg), form, schema)?;
            changed = true;
        }
    }
    Ok((Expr::ScalarFunction(function), changed))
}

fn has_number(args: &[Expr], schema: &DFSchema) -> Result<bool> {
    for arg in args {
        let ty = arg.get_type(schema)?;
        if !is_string(&ty) && !is_binary(&ty) && ty != DataType::Null {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Orders by ENUM and SET as orders by their numbers; whether there were any.
pub(crate) fn by_numbers(orders: &mut [Sort], schema: &DFSchema) -> Result<bool> {
    let mut found = false;
    for order in orders {
        if type_of(&order.expr, schema).is_some() {
            order.expr = numbered(std::mem::take(&mut order.expr), BITS, schema)?;
            found = true;
        }
    }
    Ok(found)
}

/// An aggregate or a function of a window, its orders by numbers; whether there were any.
pub(crate) fn ordered(mut expr: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    let changed = match &mut expr {
        Expr::AggregateFunction(call) if call.params.distinct => {
            let labelled =
                call.params.order_by.iter().any(|by| type_of(&by.expr, schema).is_some());
            if labelled {
                // What distinct values are sorted by must be the values, so these say their number.
                let [value] = &mut call.params.args[..] else { return Err(apart()) };
                for order in &mut call.params.order_by {
                    if order.expr != *value {
                        return Err(apart());
                    }
                    order.expr = numbered(order.expr.clone(), RANKED, schema)?;
                }
                *value = numbered(std::mem::take(value), RANKED, schema)?;
            }
            labelled
        }
        Expr::AggregateFunction(call) => by_numbers(&mut call.params.order_by, schema)?,
        Expr::WindowFunction(call) => by_numbers(&mut call.params.order_by, schema)?,
        _ => false,
    };
    Ok((expr, changed))
}

fn apart() -> DataFusionError {
    external(unsupported("DISTINCT values in the order of another ENUM or SET"))
}

/// A plan that sorts, by numbers where it sorts by ENUM or SET; `None` if it does not.
pub(crate) fn sorted(plan: &LogicalPlan, schema: &DFSchema) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Sort(sort) = plan else { return Ok(None) };
    let mut sort = sort.clone();
    Ok(by_numbers(&mut sort.expr, schema)?.then_some(LogicalPlan::Sort(sort)))
}
