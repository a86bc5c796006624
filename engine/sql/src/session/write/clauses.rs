//! What clauses of a write say. It looks at trees alone.

use sqlparser::ast::{AssignmentTarget, Update};
use syntax::names;
use values::error::{SqlResult, unsupported};

/// The column that an assignment names.
pub(in crate::session) fn assigned(target: &AssignmentTarget) -> SqlResult<String> {
    match target {
        AssignmentTarget::ColumnName(name) => Ok(names::parts(name).pop().unwrap_or_default()),
        AssignmentTarget::Tuple(_) => Err(unsupported("assignment of several columns at once")),
    }
}

/// UPDATE IGNORE.
pub(super) fn ignores(update: &Update) -> bool {
    update.or == Some(sqlparser::ast::SqliteOnConflict::Ignore)
}
