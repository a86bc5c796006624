//! What clauses of a write say. It looks at trees alone.

use sqlparser::ast::Update;

/// UPDATE IGNORE.
pub(super) fn ignores(update: &Update) -> bool {
    update.or == Some(sqlparser::ast::SqliteOnConflict::Ignore)
}
