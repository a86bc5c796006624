//! Character sets and collations that columns may name: UTF-8, compared by its bytes.
//!
//! Any other is refused, never taken for one of these.

use values::error::{
    SqlError, SqlResult, charset_not_stored, no_collation, stored_as_utf8mb4, unsupported,
};

/// Refuses a character set that is not UTF-8; what is to be said of one that is a part of it.
pub fn check_charset(name: &str) -> SqlResult<Option<SqlError>> {
    match name.to_lowercase().as_str() {
        "utf8mb4" => Ok(None),
        "utf8" | "utf8mb3" | "ascii" => Ok(Some(stored_as_utf8mb4(name))),
        "binary" => Err(unsupported("CHARACTER SET binary (use BINARY, VARBINARY or a BLOB)")),
        _ => Err(charset_not_stored(name)),
    }
}

/// Refuses a collation that does not compare bytes.
pub fn check_collation(name: &str) -> SqlResult<()> {
    match name.to_lowercase().as_str() {
        "utf8mb4_bin" | "utf8_bin" | "utf8mb3_bin" | "ascii_bin" => Ok(()),
        "binary" => Err(unsupported("COLLATE binary (use BINARY, VARBINARY or a BLOB)")),
        _ => Err(no_collation(name)),
    }
}
