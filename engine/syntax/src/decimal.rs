//! What a definition or a CAST says of a DECIMAL: its digits.
//!
//! Never takes digits away in silence: what MySQL refuses is refused with its numbers.

use sqlparser::ast::ExactNumberInfo;
use types::wide::{DECIMAL_MAX_SCALE, WIDE_MAX_PRECISION};
use values::error::{SqlResult, precision_too_big, scale_above_precision, scale_too_big};

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
        (_, Ok(TOO_BIG_SCALE..) | Err(_)) => Err(scale_too_big(scale, name, DECIMAL_MAX_SCALE)),
        (Ok(precision @ ..=WIDE_MAX_PRECISION), Ok(scale)) if scale <= precision => {
            Ok((precision, scale))
        }
        (Ok(..=WIDE_MAX_PRECISION), Ok(_)) => Err(scale_above_precision(name)),
        _ => Err(precision_too_big(precision, name, WIDE_MAX_PRECISION)),
    }
}
