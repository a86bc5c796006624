//! What a definition or a CAST says of a DECIMAL: its digits.
//!
//! Never takes digits away in silence: what MySQL refuses is refused with its numbers.

use sqlparser::ast::ExactNumberInfo;
use types::wide::{DECIMAL_MAX_SCALE, WIDE_MAX_PRECISION};
use values::error::{SqlError, SqlResult};

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
