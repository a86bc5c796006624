//! Character sets and collations that columns may name: UTF-8, compared by its bytes.
//!
//! Any other is refused, never taken for one of these.

use values::error::{SqlError, SqlResult, unsupported};

/// Refuses a character set that is not UTF-8; what is to be said of one that is a part of it.
pub fn check_charset(name: &str) -> SqlResult<Option<(u16, String)>> {
    match name.to_lowercase().as_str() {
        "utf8mb4" => Ok(None),
        "utf8" | "utf8mb3" | "ascii" => Ok(Some((3719, format!("'{name}' is stored as utf8mb4")))),
        "binary" => Err(unsupported("CHARACTER SET binary (use BINARY, VARBINARY or a BLOB)")),
        _ => Err(SqlError::new(
            1115,
            b"42000",
            format!("Unknown character set: '{name}' (only utf8mb4 is stored)"),
        )),
    }
}

/// Refuses a collation that does not compare bytes.
pub fn check_collation(name: &str) -> SqlResult<()> {
    match name.to_lowercase().as_str() {
        "utf8mb4_bin" | "utf8_bin" | "utf8mb3_bin" | "ascii_bin" => Ok(()),
        "binary" => Err(unsupported("COLLATE binary (use BINARY, VARBINARY or a BLOB)")),
        _ => Err(SqlError::new(
            1273,
            b"HY000",
            format!(
                "Unknown collation: '{name}' (columns compare by utf8mb4_bin; leave COLLATE out or name that)"
            ),
        )),
    }
}
