//! From the engine's and the planner's errors to MySQL's numbers and states.
//!
//! It never puts row values into a message, except the one MySQL promises: the key of a duplicate.

use datafusion::common::{DataFusionError, SchemaError};
use types::Error;

use crate::result::SqlError;

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

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<SqlError>() {
                Ok(error) => *error,
                Err(inner) => match inner.downcast::<Error>() {
                    Ok(error) => (*error).into(),
                    Err(inner) => unknown(inner.to_string()),
                },
            },
            DataFusionError::ArrowError(inner, _) => match *inner {
                arrow::error::ArrowError::ExternalError(inner) => {
                    match inner.downcast::<SqlError>() {
                        Ok(error) => *error,
                        Err(inner) => unknown(inner.to_string()),
                    }
                }
                other => unknown(other.to_string()),
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                (*inner).into()
            }
            // Several faults: the first is the one that MySQL would name.
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => first.into(),
                None => unknown("planning failed"),
            },
            DataFusionError::Shared(inner) => shared(&inner),
            DataFusionError::SchemaError(inner, _) => schema_error(&inner),
            DataFusionError::NotImplemented(text) if text.contains("undecorrelated Subquery") => {
                unsupported("a LATERAL table of this form (it is joined by what its WHERE equates)")
            }
            DataFusionError::NotImplemented(text) => unsupported(first_line(&text)),
            DataFusionError::Plan(text) => plan_error(&text),
            DataFusionError::ResourcesExhausted(text) => {
                SqlError::new(8175, b"HY000", format!("Out of memory quota: {}", first_line(&text)))
            }
            other => {
                let text = first_line(&other.strip_backtrace());
                numbered(&text).unwrap_or_else(|| unknown(text))
            }
        }
    }
}

/// Error 1242.
pub fn too_many_rows() -> SqlError {
    SqlError::new(1242, b"21000", "Subquery returns more than 1 row")
}

/// MySQL's number for what DataFusion says in words only.
fn numbered(text: &str) -> Option<SqlError> {
    let between = |before: &str, after: &str| {
        let rest = text.split_once(before)?.1;
        Some(rest.split_once(after).map_or(rest, |(word, _)| word).to_owned())
    };
    let error = |code, state, text: &str| Some(SqlError::new(code, state, text));
    if text.contains("The subquery should only return one column")
        || text.contains("names given as column alias")
    {
        return error(1241, b"21000", "Operand should contain 1 column(s)");
    }
    if text.contains("Scalar subquery returned more than one row") {
        return error(1242, b"21000", "Subquery returns more than 1 row");
    }
    if text.contains("queries have different number of columns") {
        let text = "The used SELECT statements have a different number of columns";
        return error(1222, b"21000", text);
    }
    if text.contains("Aggregate functions are not allowed in the WHERE clause")
        || text.contains("Aggregate function calls cannot be nested")
    {
        return error(1111, b"HY000", "Invalid use of group function");
    }
    if text.contains("NTILE requires a positive integer") {
        return error(1210, b"HY000", "Incorrect arguments to ntile");
    }
    if text.contains("LIMIT must be >= 0") || text.contains("OFFSET must be >=0") {
        return Some(syntax(text));
    }
    if text.contains("ORDER BY expressions must appear in argument list") {
        let what = "GROUP_CONCAT(DISTINCT … ORDER BY …) in the order of something else";
        return Some(unsupported(what));
    }
    if text.contains("must appear in select list")
        && let Some(name) = between("ORDER BY expressions ", " must appear in select list")
    {
        let text = format!(
            "Expression of ORDER BY clause is not in SELECT list, references column '{name}' which \
             is not in SELECT list; this is incompatible with DISTINCT"
        );
        return Some(SqlError::new(3065, b"HY000", text));
    }
    if let Some(position) = between("Order by column out of bounds, specified: ", ",") {
        return Some(no_column(&position, "order clause"));
    }
    if let Some(position) = between("Cannot find column with position ", " ") {
        return Some(no_column(&position, "group statement"));
    }
    if let Some(name) = between("The window ", " is not defined") {
        return Some(SqlError::new(
            3579,
            b"HY000",
            format!("Window name '{name}' is not defined."),
        ));
    }
    let name = between("Incorrect parameter count in the call to function '", "'")?;
    let name = name.strip_prefix("mysql_").unwrap_or(&name);
    // MySQL's grammar has these with their arguments.
    if matches!(name, "left" | "right") {
        return Some(syntax(format!("{name} takes two arguments")));
    }
    let text = format!("Incorrect parameter count in the call to native function '{name}'");
    error(1582, b"42000", &text)
}

/// An error of which another node has sent the words alone; `None` if they tell no number.
pub fn of_words(text: &str) -> Option<SqlError> {
    let spelled = || {
        let (code, rest) = text.split_once("ERROR ")?.1.split_once(" (")?;
        let (state, message) = rest.split_once("): ")?;
        let state: &[u8; 5] = state.as_bytes().try_into().ok()?;
        Some(SqlError::new(code.parse().ok()?, state, message))
    };
    spelled().or_else(|| numbered(text))
}

/// An error that several consumers of one input received.
fn shared(error: &DataFusionError) -> SqlError {
    match error.find_root() {
        DataFusionError::External(inner) => {
            if let Some(error) = inner.downcast_ref::<SqlError>() {
                return error.clone();
            }
            if let Some(error) = inner.downcast_ref::<Error>() {
                return error.clone().into();
            }
            unknown(inner.to_string())
        }
        other => {
            let text = first_line(&other.strip_backtrace());
            numbered(&text).unwrap_or_else(|| unknown(text))
        }
    }
}

fn schema_error(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, .. } => {
            let name = match &field.relation {
                Some(relation) => format!("{}.{}", relation.table(), field.name),
                None => field.name.clone(),
            };
            no_column(&name, "field list")
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            1052,
            b"23000",
            format!("Column '{}' in field list is ambiguous", field.name),
        ),
        SchemaError::DuplicateUnqualifiedField { name }
        | SchemaError::DuplicateQualifiedField { name, .. } => {
            SqlError::new(1060, b"42S21", format!("Duplicate column name '{name}'"))
        }
    }
}

fn plan_error(text: &str) -> SqlError {
    let text = first_line(text);
    if let Some(error) = numbered(&text) {
        return error;
    }
    if text.contains("must be in GROUP BY") || text.contains("must appear in the GROUP BY") {
        return SqlError::new(1055, b"42000", format!("Not in GROUP BY: {text}"));
    }
    unknown(text)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// An error on its way through DataFusion.
pub fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
