//! What MySQL says of the values of an expression, whoever computes them.
//!
//! It knows neither Arrow nor a plan: those who compute map it to their types.

use serde::{Deserialize, Serialize};
use types::ColumnType;

/// Digits behind the point of a DOUBLE that is shown with as many as it has; MySQL's number for it.
pub const NOT_FIXED: u8 = 31;

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MysqlType {
    /// That of a column with such values; `None` of a bare NULL.
    pub column: Option<ColumnType>,
    /// Digits behind the point, where a number has fixed ones: 0 of a whole number, [`NOT_FIXED`] of a DOUBLE of
    /// which all are shown, and of what is no number.
    pub digits: u8,
    /// Whether it is a truth value: a BIGINT that is 0, 1 or NULL.
    pub truth: bool,
}

impl MysqlType {
    /// The type of a bare NULL.
    pub const NULL: MysqlType = MysqlType { column: None, digits: NOT_FIXED, truth: false };

    /// The type of a column's values.
    pub fn of_column(column: ColumnType) -> MysqlType {
        let digits = match column {
            ColumnType::Int { .. } | ColumnType::Year | ColumnType::Bit(_) => 0,
            ColumnType::Decimal { scale, .. } => scale,
            _ => NOT_FIXED,
        };
        MysqlType { column: Some(column), digits, truth: false }
    }

    /// The type of a truth value.
    pub fn of_truth() -> MysqlType {
        let bigint = ColumnType::Int { width: types::IntWidth::Big, unsigned: false };
        MysqlType { truth: true, ..MysqlType::of_column(bigint) }
    }

    /// Digits of a second's fraction; 0 of what is no time.
    pub fn fraction(&self) -> u8 {
        match self.column {
            Some(
                ColumnType::DateTime(digits)
                | ColumnType::Timestamp(digits)
                | ColumnType::Time(digits),
            ) => digits,
            _ => 0,
        }
    }
}
