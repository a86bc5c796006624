//! System variables.

/// What clients are told; they choose syntax by it.
pub const VERSION: &str = "8.0.11-Isobar-0.1.0";
