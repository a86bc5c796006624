//! Requests as clients write them: JSON in a Flight descriptor or action.
//!
//! Everything here comes from outside: unknown fields are refused, nothing is guessed.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use binder::QueryContext;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, Operator, binary_expr, col, lit};
use serde::{Deserialize, Serialize};
use types::{ColumnType, Decimal, Table};

use crate::error::{MppCode, MppError, MppResult};

/// How deep a filter may nest.
const FILTER_DEPTH: usize = 64;

/// What a descriptor asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// A table, or part of it.
    Scan(ScanCommand),
    /// A query.
    Sql(SqlCommand),
}

/// A table, or part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanCommand {
    /// Database.
    pub database: String,
    /// Table.
    pub table: String,
    /// Columns in the order of the answer; none for row counts only.
    pub columns: Vec<String>,
    /// Rows to return; all if absent.
    #[serde(default)]
    pub filter: Option<Filter>,
    /// Token of the snapshot to read; a new one if absent.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// Most rows to return from each endpoint.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Resource group that pays; the caller's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlCommand {
    /// Text.
    pub query: String,
    /// Current database.
    #[serde(default)]
    pub database: String,
    /// Token of the snapshot to read; a new one if absent.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// Session settings; defaults if absent.
    #[serde(default)]
    pub context: Option<QueryContext>,
    /// Resource group that pays; the caller's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
}

/// A predicate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Operator.
    pub op: String,
    /// Operands of `and`, `or`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Filter>,
    /// Operand of `not`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg: Option<Box<Filter>>,
    /// Column of every other operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Right side of comparisons and of `starts_with`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Literal>,
    /// List of `in`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Literal>,
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Literal {
    /// Any integer, as text.
    Int(String),
    /// Exact number, as text.
    Decimal(String),
    /// Double.
    Double(f64),
    /// Text.
    String(String),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 00:00 without zone, as text.
    Datetime(String),
    /// Microseconds since 1970-01-01 00:00 UTC, as text.
    Timestamp(String),
    /// Truth value.
    Bool(bool),
    /// Bytes, as base64.
    Bytes(String),
    /// Span in microseconds, as text.
    Time(String),
}

fn invalid(text: impl Into<String>) -> MppError {
    MppError::new(MppCode::Invalid, text)
}

impl Command {
    /// Reads a descriptor's command.
    pub fn parse(bytes: &[u8]) -> MppResult<Self> {
        serde_json::from_slice(bytes).map_err(|error| {
            invalid(format!("the command is not {{\"scan\": …}} or {{\"sql\": …}}: {error}"))
        })
    }
}

/// The LIKE pattern of the texts that begin with one.
fn pattern_of_prefix(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for letter in prefix.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + "%"
}

impl Filter {
    /// The predicate as an expression over the table's columns.
    pub fn to_expr(&self, table: &Table) -> MppResult<Expr> {
        self.expr(table, 0)
    }

    fn expr(&self, table: &Table, depth: usize) -> MppResult<Expr> {
        if depth > FILTER_DEPTH {
            return Err(invalid(format!("the filter nests deeper than {FILTER_DEPTH} levels")));
        }
        let sides =
            |all: Vec<Expr>, op| all.into_iter().reduce(|left, right| binary_expr(left, op, right));
        let args = || -> MppResult<Vec<Expr>> {
            self.args.iter().map(|arg| arg.expr(table, depth + 1)).collect()
        };
        let compare = |op: Operator| -> MppResult<Expr> {
            let (column, ty) = self.column(table)?;
            Ok(binary_expr(column, op, lit(self.value()?.to_scalar(ty)?)))
        };
        match self.op.as_str() {
            "and" => Ok(sides(args()?, Operator::And).unwrap_or_else(|| lit(true))),
            "or" => Ok(sides(args()?, Operator::Or).unwrap_or_else(|| lit(false))),
            "not" => {
                let arg = self.arg.as_ref().ok_or_else(|| invalid("'not' lacks its 'arg'"))?;
                Ok(Expr::Not(Box::new(arg.expr(table, depth + 1)?)))
            }
            "=" => compare(Operator::Eq),
            "<=>" => compare(Operator::IsNotDistinctFrom),
            "<>" => compare(Operator::NotEq),
            "<" => compare(Operator::Lt),
            "<=" => compare(Operator::LtEq),
            ">" => compare(Operator::Gt),
            ">=" => compare(Operator::GtEq),
            "in" => {
                let (column, ty) = self.column(table)?;
                let list: Vec<Expr> = self
                    .values
                    .iter()
                    .map(|value| Ok(lit(value.to_scalar(ty)?)))
                    .collect::<MppResult<_>>()?;
                Ok(column.in_list(list, false))
            }
            "is_null" => Ok(self.column(table)?.0.is_null()),
            "is_not_null" => Ok(self.column(table)?.0.is_not_null()),
            "starts_with" => {
                let (column, _) = self.column(table)?;
                let Literal::String(prefix) = self.value()? else {
                    return Err(invalid("'starts_with' takes a string"));
                };
                Ok(column.like(lit(pattern_of_prefix(prefix))))
            }
            other => Err(invalid(format!("'{other}' is no filter operator"))),
        }
    }

    /// Whether a column is named anywhere in it.
    pub fn names(&self, column: &str) -> bool {
        self.column.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(column))
            || self.args.iter().chain(self.arg.as_deref()).any(|arg| arg.names(column))
    }

    fn column(&self, table: &Table) -> MppResult<(Expr, ColumnType)> {
        let name = self
            .column
            .as_ref()
            .ok_or_else(|| invalid(format!("'{}' lacks its 'column'", self.op)))?;
        let (_, column) = table.column_named(name).ok_or_else(|| {
            MppError::new(
                MppCode::NotFound,
                format!("table {}.{} has no column '{name}'", table.database, table.name),
            )
        })?;
        let reference = datafusion::common::Column::new_unqualified(column.name.to_lowercase());
        Ok((col(reference), column.ty))
    }

    fn value(&self) -> MppResult<&Literal> {
        self.value.as_ref().ok_or_else(|| invalid(format!("'{}' lacks its 'value'", self.op)))
    }
}

impl Literal {
    /// The constant in the type that comparisons with the column use.
    fn to_scalar(&self, ty: ColumnType) -> MppResult<ScalarValue> {
        let misfit = || invalid(format!("a filter's literal does not fit a column of type {ty}"));
        let number = |text: &str| text.parse::<i64>().map_err(|_| misfit());
        Ok(match (self, ty) {
            (
                Literal::Int(text),
                ColumnType::Int { .. } | ColumnType::Year | ColumnType::Bit(_),
            ) => {
                let n: i128 = text.parse().map_err(|_| misfit())?;
                match (i64::try_from(n), u64::try_from(n)) {
                    (Ok(n), _) => ScalarValue::Int64(Some(n)),
                    (_, Ok(n)) => ScalarValue::UInt64(Some(n)),
                    _ => return Err(misfit()),
                }
            }
            (Literal::Int(text) | Literal::Decimal(text), ColumnType::Decimal { .. }) => {
                let value = Decimal::parse(text).map_err(|_| misfit())?;
                let precision = value.precision().max(value.scale);
                ScalarValue::Decimal128(Some(value.unscaled), precision, value.scale as i8)
            }
            (Literal::Double(n), ColumnType::Double) => ScalarValue::Float64(Some(*n)),
            // Not rounded: of a double between two floats the answer would be another one's.
            (Literal::Double(n), ColumnType::Float) if f64::from(*n as f32) == *n => {
                ScalarValue::Float32(Some(*n as f32))
            }
            (
                Literal::Bytes(text),
                ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_),
            ) => ScalarValue::Binary(Some(BASE64_STANDARD.decode(text).map_err(|_| misfit())?)),
            (Literal::Time(text), ColumnType::Time(_)) => {
                ScalarValue::DurationMicrosecond(Some(number(text)?))
            }
            (Literal::String(text), ty) if ty.is_text() => ScalarValue::Utf8(Some(text.clone())),
            (Literal::Date(days), ColumnType::Date) => ScalarValue::Date32(Some(*days)),
            (Literal::Datetime(text), ColumnType::DateTime(_)) => {
                ScalarValue::TimestampMicrosecond(Some(number(text)?), None)
            }
            (Literal::Timestamp(text), ColumnType::Timestamp(_)) => {
                ScalarValue::TimestampMicrosecond(Some(number(text)?), Some("UTC".into()))
            }
            _ => return Err(misfit()),
        })
    }
}
