//! What text a system variable may have, and in which form it is kept.
//!
//! It knows no session and no value that is set: the same text is accepted for everybody.

use crate::error::{
    SqlResult, no_charset, no_time_zone, wrong_variable_type, wrong_variable_value,
};
use crate::temporal::Zone;

use crate::variables::NOOP_FUNCTIONS;

/// What `tidb_replica_read` may be. TiDB's `closest-adaptive` goes by sizes of answers that nobody estimates here, and
/// `learner` by replicas of rows that nobody has.
const REPLICAS: [&str; 5] =
    ["leader", "follower", "leader-and-follower", "closest-replicas", "prefer-leader"];

/// Text that a variable may have, as it is kept.
///
/// # Errors
///
/// 1231 and the like for a text that it may not have.
pub fn checked(name: &str, default: &str, text: String) -> SqlResult<String> {
    let wrong = || wrong_variable_value(name, &text);
    let kept = match is_switch(name, default) {
        true => switch(&text).ok_or_else(wrong)?.to_owned(),
        false => text_of(name, &text)?,
    };
    // What these would switch is not built.
    let fixed = matches!(
        (name, kept.as_str()),
        ("sql_auto_is_null" | "session_track_gtids" | "session_track_transaction_info", "ON")
            | ("sql_quote_show_create", "OFF")
    );
    if fixed { Err(wrong()) } else { Ok(kept) }
}

/// Whether a variable is one of switches: clients read it as 0 or 1.
pub fn is_switch(name: &str, default: &str) -> bool {
    name != NOOP_FUNCTIONS && (default == "ON" || default == "OFF")
}

fn switch(text: &str) -> Option<&'static str> {
    match text.to_uppercase().as_str() {
        "1" | "ON" | "TRUE" => Some("ON"),
        "0" | "OFF" | "FALSE" => Some("OFF"),
        _ => None,
    }
}

/// The same of a variable that is no switch.
fn text_of(name: &str, text: &str) -> SqlResult<String> {
    let wrong = || wrong_variable_value(name, text);
    match name {
        "time_zone" => {
            Zone::parse(text).map_err(|_| no_time_zone(text))?;
        }
        "innodb_lock_wait_timeout" if !text.parse::<u32>().is_ok_and(|seconds| seconds >= 1) => {
            return Err(wrong());
        }
        // Empty is TiDB's word for its oldest default.
        "tidb_txn_mode"
            if !["pessimistic", "optimistic", ""].contains(&text.to_lowercase().as_str()) =>
        {
            return Err(wrong());
        }
        "transaction_isolation" | "tx_isolation"
            if !["REPEATABLE-READ", "READ-COMMITTED"].contains(&text.to_uppercase().as_str()) =>
        {
            return Err(wrong());
        }
        "isobar_fallback" if ["none", "rows"].contains(&text.to_lowercase().as_str()) => {
            return Ok(text.to_lowercase());
        }
        "tidb_read_staleness" => {
            let seconds = text.parse::<i32>().map_err(|_| wrong_variable_type(name))?;
            return if seconds > 0 { Err(wrong()) } else { Ok(seconds.to_string()) };
        }
        "tidb_replica_read" => {
            let text = text.to_lowercase();
            return if REPLICAS.contains(&text.as_str()) { Ok(text) } else { Err(wrong()) };
        }
        "tidb_low_resolution_tso_update_interval" => {
            let millis = text.parse::<u32>().map_err(|_| wrong_variable_type(name))?;
            let may = (10..=60_000).contains(&millis);
            return if may { Ok(millis.to_string()) } else { Err(wrong()) };
        }
        "tidb_tso_client_batch_max_wait_time" => {
            let millis = text.parse::<f64>().map_err(|_| wrong_variable_type(name))?;
            return if (0.0..=10.0).contains(&millis) {
                Ok(millis.to_string())
            } else {
                Err(wrong())
            };
        }
        "tidb_allow_fallback_to_tikv"
            if ["", "tiflash"].contains(&text.to_lowercase().as_str()) =>
        {
            return Ok(text.to_lowercase());
        }
        "isobar_fallback" | "tidb_allow_fallback_to_tikv" => return Err(wrong()),
        NOOP_FUNCTIONS => return noop_functions(text).map(Into::into).ok_or_else(wrong),
        "sql_mode" => return crate::sql_mode::checked(text),
        "sql_select_limit" | "max_execution_time" | "group_concat_max_len" | "max_error_count" => {
            return number(name, text);
        }
        name if name.starts_with("character_set_") => return charset(name, text),
        name if name.starts_with("collation_")
            && !["utf8", "binary"].iter().any(|ours| text.to_lowercase().starts_with(ours)) =>
        {
            return Err(wrong());
        }
        _ => {}
    }
    Ok(text.to_owned())
}

fn noop_functions(text: &str) -> Option<&'static str> {
    match text.to_uppercase().as_str() {
        "2" | "WARN" => Some("WARN"),
        _ => switch(text),
    }
}

/// A whole number; what is below the least of a variable, or beyond its most, becomes that, as in
/// MySQL.
fn number(name: &str, text: &str) -> SqlResult<String> {
    let least = if name == "group_concat_max_len" { 4 } else { 0 };
    let most = if name == "max_error_count" { 65_535 } else { u64::MAX };
    match (text.parse::<u64>(), text.parse::<i64>()) {
        (Ok(n), _) => Ok(n.clamp(least, most).to_string()),
        (Err(_), Ok(_)) => Ok(least.to_string()),
        _ => Err(wrong_variable_type(name)),
    }
}

/// Text is UTF-8 on every way: another character set would have to be converted.
fn charset(name: &str, text: &str) -> SqlResult<String> {
    const OTHERS: [&str; 38] = [
        "armscii8", "ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852",
        "cp866", "cp932", "dec8", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "geostd8",
        "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5",
        "latin7", "macce", "macroman", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16",
        "utf16le", "utf32",
    ];
    match text.to_lowercase().as_str() {
        // No conversion of results, which are UTF-8.
        "null" if name == "character_set_results" => Ok(text.to_owned()),
        // The three-byte form is a part of the four-byte one.
        "utf8" | "utf8mb3" | "utf8mb4" => Ok("utf8mb4".into()),
        "binary" => Ok("binary".into()),
        other if OTHERS.contains(&other) => Err(wrong_variable_value(name, text)),
        _ => Err(no_charset(text)),
    }
}
