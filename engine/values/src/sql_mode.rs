//! sql_mode: which modes there are, which are honoured, and which cannot be had.
//!
//! A mode that would change what a statement means is honoured or refused, never ignored. Strictness
//! cannot be switched off: a mode without it is accepted, and what MySQL would then cut to fit is an
//! error still.

use crate::error::{SqlError, SqlResult, wrong_variable_value};

/// sql_mode as it begins: the strictness of MySQL 8 is always on.
pub const DEFAULT: &str = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

/// Modes that can be set, in the order in which MySQL lists them.
const MODES: [&str; 14] = [
    "REAL_AS_FLOAT",
    "PIPES_AS_CONCAT",
    "ANSI_QUOTES",
    // A blank before the parenthesis of a call is always allowed.
    "IGNORE_SPACE",
    "ONLY_FULL_GROUP_BY",
    "NO_DIR_IN_CREATE",
    "ANSI",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_BACKSLASH_ESCAPES",
    "STRICT_TRANS_TABLES",
    "STRICT_ALL_TABLES",
    "NO_ZERO_IN_DATE",
    "NO_ZERO_DATE",
    "ERROR_FOR_DIVISION_BY_ZERO",
];

/// The rest of them, which stand last in MySQL's list.
const LAST: [&str; 2] = ["TRADITIONAL", "NO_ENGINE_SUBSTITUTION"];

/// What would make statements mean something that is not built.
const REFUSED: [&str; 5] = [
    "NO_UNSIGNED_SUBTRACTION",
    "ALLOW_INVALID_DATES",
    "HIGH_NOT_PRECEDENCE",
    "PAD_CHAR_TO_FULL_LENGTH",
    "TIME_TRUNCATE_FRACTIONAL",
];

/// What the modes that stand for several stand for.
fn members(mode: &str) -> &'static [&'static str] {
    match mode {
        "ANSI" => &[
            "REAL_AS_FLOAT",
            "PIPES_AS_CONCAT",
            "ANSI_QUOTES",
            "IGNORE_SPACE",
            "ONLY_FULL_GROUP_BY",
        ],
        "TRADITIONAL" => &[
            "STRICT_TRANS_TABLES",
            "STRICT_ALL_TABLES",
            "NO_ZERO_IN_DATE",
            "NO_ZERO_DATE",
            "ERROR_FOR_DIVISION_BY_ZERO",
            "NO_ENGINE_SUBSTITUTION",
        ],
        _ => &[],
    }
}

/// The value of sql_mode that a text stands for, as MySQL writes it.
///
/// # Errors
///
/// 1231 with the name of the first mode that there is not.
pub fn checked(text: &str) -> SqlResult<String> {
    let mut modes = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        // 0 is no mode at all; other sums of MySQL's bits are not read.
        if word == "0" && !text.contains(',') {
            return Ok(String::new());
        }
        let mode = word.to_uppercase();
        let mode = mode.as_str();
        if REFUSED.contains(&mode) {
            return Err(wrong(mode));
        }
        if !MODES.contains(&mode) && !LAST.contains(&mode) {
            return Err(wrong(word));
        }
        modes.push(mode.to_owned());
        modes.extend(members(mode).iter().map(|member| (*member).to_owned()));
    }
    let all = MODES.iter().chain(&LAST);
    let set: Vec<&str> = all.copied().filter(|mode| modes.iter().any(|a| a == mode)).collect();
    Ok(set.join(","))
}

fn wrong(value: &str) -> SqlError {
    wrong_variable_value("sql_mode", value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_listed_once_and_in_order() {
        assert_eq!(checked("").unwrap(), "");
        assert_eq!(checked("0").unwrap(), "");
        assert_eq!(
            checked("no_zero_date, strict_trans_tables,,NO_ZERO_DATE").unwrap(),
            "STRICT_TRANS_TABLES,NO_ZERO_DATE"
        );
        assert_eq!(
            checked("ansi").unwrap(),
            "REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,ANSI"
        );
        assert_eq!(checked(DEFAULT).unwrap(), DEFAULT);
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_name() {
        for mode in ["HIGH_NOT_PRECEDENCE", "ANSI,NO_UNSIGNED_SUBTRACTION", "ORACLE", "1", "x y"] {
            let error = checked(mode).unwrap_err();
            assert_eq!(error.code, 1231, "{mode}");
        }
        assert!(
            checked("high_not_precedence").unwrap_err().message.contains("HIGH_NOT_PRECEDENCE")
        );
    }
}
