//! What a definition or a CAST says of a DECIMAL, and which tables can have one on columns.
//!
//! Never takes digits away in silence: what MySQL refuses is refused with its numbers.

use sqlparser::ast::ExactNumberInfo;
use types::Table;
use types::wide::{DECIMAL_MAX_SCALE, WIDE_MAX_PRECISION};

use crate::error::SqlResult;
use crate::result::SqlError;

const TOO_BIG_SCALE: u8 = DECIMAL_MAX_SCALE + 1;

/// Digits of a DECIMAL, in all and behind the point, as a definition or a CAST of `name` says.
pub fn digits(info: ExactNumberInfo, name: &str) -> SqlResult<(u8, u8)> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => (10, 0),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
    };
    // MySQL's DECIMAL(0) is DECIMAL(10).
    let precision = if (precision, scale) == (0, 0) { 10 } else { precision };
    match (u8::try_from(precision), u8::try_from(scale)) {
        (_, Ok(TOO_BIG_SCALE..) | Err(_)) => {
            let text = format!(
                "Too big scale {scale} specified for column '{name}'. Maximum is {DECIMAL_MAX_SCALE}."
            );
            Err(SqlError::new(1425, b"42000", text))
        }
        (Ok(precision @ ..=WIDE_MAX_PRECISION), Ok(scale)) if scale <= precision => {
            Ok((precision, scale))
        }
        (Ok(..=WIDE_MAX_PRECISION), Ok(_)) => {
            let text = format!(
                "For float(M,D), double(M,D) or decimal(M,D), M must be >= D (column '{name}')."
            );
            Err(SqlError::new(1427, b"42000", text))
        }
        _ => {
            let text = format!(
                "Too-big precision {precision} specified for '{name}'. Maximum is {WIDE_MAX_PRECISION}."
            );
            Err(SqlError::new(1426, b"42000", text))
        }
    }
}

/// Refuses a columnar replica of a table with a DECIMAL that columns do not hold.
pub fn check_replica(table: &Table) -> SqlResult<()> {
    let wide = table.columns.iter().find(|column| column.ty.is_wide());
    let Some(column) = wide.filter(|_| table.columnar_replicas > 0) else { return Ok(()) };
    let text = format!(
        "Column '{}' of table '{}' is {}: columnar replicas hold DECIMALs of up to 38 digits, so the table can have \
         none (SET COLUMNAR REPLICA 0, or a narrower column)",
        column.name, table.name, column.ty
    );
    Err(SqlError::new(1235, b"42000", text))
}
