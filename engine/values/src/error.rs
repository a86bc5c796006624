//! Errors with MySQL's numbers and states, each once, as functions of what it names; and what the engine's and the
//! planner's errors become.
//!
//! It never puts row values into a message, except the one MySQL promises: the key of a duplicate. No other crate makes
//! an error of a number and a text: it asks for one of these, so that `docs/reference/errors.md` lists all there are.

use datafusion_common::DataFusionError;
use types::Error;

/// Defines errors: each has a sentence about when it is raised, a name with named arguments, a number, a SQLSTATE, and
/// a message in which the arguments stand in braces.
///
/// ```text
/// /// A column that no table of the scope has.
/// no_column(column, place) = NO_COLUMN: 1054 "42S22" "Unknown column '{column}' in '{place}'";
/// ```
///
/// is a function `no_column` of two things that can be shown, and a line of the page that lists all errors. The name
/// before the number, a constant of it, is for numbers that somebody asks for and can be left out. Several messages of
/// one number are several functions.
macro_rules! errors {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident($($argument:ident),*) = $($constant:ident:)? $number:literal $state:literal $message:literal;
    )+) => {
        $(
            $(#[doc = $doc])+
            #[doc = concat!("\n\nError ", $number, " (", $state, ").")]
            pub fn $name($($argument: impl std::fmt::Display),*) -> $crate::error::SqlError {
                const STATE: [u8; 5] = $crate::error::state($state);
                $crate::error::SqlError::new($number, STATE, format_args!($message).to_string())
            }
            $(
                #[doc = concat!("The number of [`", stringify!($name), "`].")]
                pub const $constant: u16 = $number;
            )?
        )+

        /// What stands above, for the page that lists it.
        #[cfg(test)]
        pub(super) const TABLE: &[$crate::error::page::Known] = &[$(
            $crate::error::page::Known {
                number: $number,
                state: $state,
                message: $message,
                when: concat!($($doc),+),
            },
        )+];
    };
}
use errors;

mod accounts;
mod cluster;
mod connections;
mod data;
mod definitions;
mod foreign_keys;
mod json;
mod library;
mod names;
#[cfg(test)]
mod page;
mod queries;
mod sessions;

pub use accounts::*;
pub use cluster::*;
pub use connections::*;
pub use data::*;
pub use definitions::*;
pub use foreign_keys::*;
pub use json::*;
pub use library::of_words;
pub use names::*;
pub use queries::*;
pub use sessions::*;

/// An error in MySQL's shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERROR {code} ({}): {message}", String::from_utf8_lossy(.sqlstate))]
#[non_exhaustive]
pub struct SqlError {
    /// MySQL's number.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: [u8; 5],
    /// What failed, why, and what to do.
    pub message: String,
}

impl SqlError {
    fn new(code: u16, sqlstate: [u8; 5], message: String) -> Self {
        SqlError { code, sqlstate, message }
    }

    /// An error of another process, whose number, state and message came over a connection.
    pub fn received(code: u16, sqlstate: [u8; 5], message: impl Into<String>) -> Self {
        SqlError { code, sqlstate, message: message.into() }
    }

    /// The same error in other words.
    #[must_use]
    pub fn reworded(self, words: impl FnOnce(String) -> String) -> Self {
        SqlError { message: words(self.message), ..self }
    }
}

/// The five characters of a SQLSTATE in the table, where one of another length does not compile.
const fn state(text: &str) -> [u8; 5] {
    match text.as_bytes() {
        [a, b, c, d, e] => [*a, *b, *c, *d, *e],
        _ => panic!("a SQLSTATE has five characters"),
    }
}

/// The result of a statement.
pub type SqlResult<T> = Result<T, SqlError>;

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match &error {
            // Conflicts, and a schema that changed meanwhile: the transaction may be run again.
            other if other.is_conflict() => deadlock(text),
            Error::LockBusy(_) => lock_not_at_once(),
            Error::Locked(_) | Error::LockWait { .. } => lock_wait_timeout(text),
            Error::Duplicate { index, .. } => duplicate_key(index),
            Error::Timeout { .. } => server_timeout(text),
            Error::OutcomeUnknown { .. } => outcome_unknown(text),
            Error::NotLeader { .. }
            | Error::StaleEpoch { .. }
            | Error::RegionNotFound(_)
            | Error::Unavailable(_)
            | Error::Dropped(_) => region_unavailable(text),
            Error::SnapshotTooOld { .. } => snapshot_too_old(text),
            Error::LeaseLost(_) => lease_lost(text),
            Error::Throttled(_) => resource_group_throttled(),
            Error::NotFound { kind, name } => {
                named(kind, name, false).unwrap_or_else(|| unknown(text))
            }
            Error::Exists { kind, name } => {
                named(kind, name, true).unwrap_or_else(|| unknown(text))
            }
            Error::Corrupt(_) => corrupted(text),
            Error::Io(_) => storage_failed(text),
            Error::Cancelled(_) => interrupted(),
            _ => unknown(text),
        }
    }
}

fn named(kind: &str, name: &str, exists: bool) -> Option<SqlError> {
    Some(match (kind, exists) {
        ("database", true) => database_exists(name),
        ("database", false) => no_database(name),
        ("table", true) => table_exists(name),
        ("table", false) => no_table_named(name),
        ("index", true) => duplicate_index_name(name),
        ("resource group", true) => resource_group_exists(name),
        ("resource group", false) => no_resource_group(name),
        _ => return None,
    })
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> Self {
        external(error)
    }
}

/// An error on its way through DataFusion.
pub fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// What a client is given instead of what the panic says.
const FAULT: &str = "Internal fault: the statement was given up. The log of the node that ran it \
                    says where; please report that";

/// Error 1105 in the place of a panic.
pub fn fault() -> SqlError {
    unknown(FAULT)
}

/// Whether an error stands for a panic.
pub fn is_fault(error: &SqlError) -> bool {
    error.code == fault().code && error.message == FAULT
}
