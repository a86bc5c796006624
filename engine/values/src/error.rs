//! From the engine's and the planner's errors to MySQL's numbers and states.
//!
//! It never puts row values into a message, except the one MySQL promises: the key of a duplicate.

mod library;

use datafusion_common::DataFusionError;
use types::Error;

pub use library::of_words;

/// An error in MySQL's shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERROR {code} ({}): {message}", String::from_utf8_lossy(.sqlstate))]
pub struct SqlError {
    /// MySQL's number.
    pub code: u16,
    /// SQLSTATE.
    pub sqlstate: [u8; 5],
    /// What failed, why, and what to do.
    pub message: String,
}

impl SqlError {
    /// An error of a number and its state.
    pub fn new(code: u16, sqlstate: &[u8; 5], message: impl Into<String>) -> Self {
        SqlError { code, sqlstate: *sqlstate, message: message.into() }
    }
}

/// The result of a statement.
pub type SqlResult<T> = Result<T, SqlError>;

/// Error of a statement that met another table, or description, than it began with.
pub const TABLE_CHANGED: u16 = 1412;

/// Error of a commit, or a change of the catalog, that may have taken effect or not. A number that
/// no client library and no framework knows as one after which to try again, and a state outside of
/// the classes that they retry or reconnect by: 40 (rolled back, also 40003) and 08 (connection).
pub const OUTCOME_UNKNOWN: u16 = 8501;

/// Error 1064: the text is not a statement.
pub fn syntax(detail: impl std::fmt::Display) -> SqlError {
    SqlError::new(1064, b"42000", format!("You have an error in your SQL syntax: {detail}"))
}

/// Error 1235: a known statement or clause that is not there yet.
pub fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(1235, b"42000", format!("This version of Isobar doesn't yet support '{what}'"))
}

/// Error 1105: a fault of ours, or one without a number.
pub fn unknown(message: impl Into<String>) -> SqlError {
    SqlError::new(1105, b"HY000", message)
}

/// Error 1146.
pub fn no_table(database: &str, table: &str) -> SqlError {
    SqlError::new(1146, b"42S02", format!("Table '{database}.{table}' doesn't exist"))
}

/// Error 1412: a table is not what the statement takes it for, as a sentence about it says.
pub fn table_changed(database: &str, table: &str, why: &str) -> SqlError {
    let text = "Table definition has changed, please retry transaction";
    SqlError::new(TABLE_CHANGED, b"HY000", format!("{text}: table '{database}.{table}' {why}"))
}

/// Error 1412: read at a snapshot from before the table, its name, or the type of a column.
pub fn younger_table(database: &str, table: &str) -> SqlError {
    let why =
        "was created or renamed after the snapshot that is read, or a column's type was changed";
    table_changed(database, table, why)
}

/// Error 1049.
pub fn no_database(database: &str) -> SqlError {
    SqlError::new(1049, b"42000", format!("Unknown database '{database}'"))
}

/// Error 1046.
pub fn no_database_selected() -> SqlError {
    SqlError::new(1046, b"3D000", "No database selected")
}

/// Error 1356.
pub fn invalid_view(database: &str, name: &str) -> SqlError {
    let text = format!(
        "View '{database}.{name}' references invalid table(s) or column(s) or function(s) or \
         definer/invoker of view lack rights to use them"
    );
    SqlError::new(1356, b"HY000", text)
}

/// Error 1054.
pub fn no_column(column: &str, place: &str) -> SqlError {
    SqlError::new(1054, b"42S22", format!("Unknown column '{column}' in '{place}'"))
}

/// Error 1305.
pub fn no_function(name: &str) -> SqlError {
    SqlError::new(1305, b"42000", format!("FUNCTION {name} does not exist"))
}

/// Error 1690: a number left its type.
pub fn out_of_range(kind: &str, expression: &str) -> SqlError {
    SqlError::new(1690, b"22003", format!("{kind} value is out of range in '{expression}'"))
}

/// Error 1317.
pub fn interrupted() -> SqlError {
    SqlError::new(1317, b"70100", "Query execution was interrupted")
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match &error {
            // Conflicts, and a schema that changed meanwhile: the transaction may be run again.
            other if other.is_conflict() => SqlError::new(
                1213,
                b"40001",
                format!(
                    "Deadlock found when trying to get lock; try restarting transaction: {text}"
                ),
            ),
            Error::LockBusy(_) => SqlError::new(
                3572,
                b"HY000",
                "Statement aborted because lock(s) could not be acquired immediately and NOWAIT \
                 is set.",
            ),
            Error::Locked(_) | Error::LockWait { .. } => SqlError::new(
                1205,
                b"HY000",
                format!("Lock wait timeout exceeded; try restarting transaction: {text}"),
            ),
            Error::Duplicate { index, .. } => {
                SqlError::new(1062, b"23000", format!("Duplicate entry for key '{index}'"))
            }
            Error::Timeout { .. } => {
                SqlError::new(9002, b"HY000", format!("Server timeout: {text}"))
            }
            Error::OutcomeUnknown { .. } => {
                SqlError::new(OUTCOME_UNKNOWN, b"HY000", format!("Outcome unknown: {text}"))
            }
            Error::NotLeader { .. }
            | Error::StaleEpoch { .. }
            | Error::RegionNotFound(_)
            | Error::Unavailable(_)
            | Error::Dropped(_) => {
                SqlError::new(9005, b"HY000", format!("Region is unavailable: {text}"))
            }
            Error::SnapshotTooOld { .. } => {
                SqlError::new(9006, b"HY000", format!("Snapshot is too old: {text}"))
            }
            Error::LeaseLost(_) => SqlError::new(9006, b"HY000", text),
            Error::NotFound { kind, name } => {
                named(kind, name, false).unwrap_or_else(|| unknown(text))
            }
            Error::Exists { kind, name } => {
                named(kind, name, true).unwrap_or_else(|| unknown(text))
            }
            Error::Corrupt(_) => {
                SqlError::new(1712, b"HY000", format!("Data is corrupted: {text}"))
            }
            Error::Io(_) => {
                SqlError::new(1030, b"HY000", format!("Got error from storage: {text}"))
            }
            Error::Cancelled(_) => interrupted(),
            _ => unknown(text),
        }
    }
}

fn named(kind: &str, name: &str, exists: bool) -> Option<SqlError> {
    Some(match (kind, exists) {
        ("database", true) => SqlError::new(
            1007,
            b"HY000",
            format!("Can't create database '{name}'; database exists"),
        ),
        ("database", false) => no_database(name),
        ("table", true) => SqlError::new(1050, b"42S01", format!("Table '{name}' already exists")),
        ("table", false) => SqlError::new(1146, b"42S02", format!("Table '{name}' doesn't exist")),
        ("index", true) => SqlError::new(1061, b"42000", format!("Duplicate key name '{name}'")),
        _ => return None,
    })
}

/// Error 1242.
pub fn too_many_rows() -> SqlError {
    SqlError::new(1242, b"21000", "Subquery returns more than 1 row")
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
