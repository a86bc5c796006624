//! What a session may not write: READ ONLY transactions (1792), and sql_safe_updates (1175).

use std::sync::Arc;

use placement::api::Catalog;
use sqlparser::ast::{BinaryOperator, Expr, FromTable, TableFactor, TableWithJoins};
use syntax::names::{parts, table_name};
use syntax::statement::Stmt;
use types::Table;
use values::error::{SqlResult, read_only_transaction, safe_updates};

use super::statement::Write;
use crate::session::Session;

impl Session {
    /// Refuses what writes within a READ ONLY transaction.
    pub(in crate::session) fn check_read_only(&self, statement: &Stmt) -> SqlResult<()> {
        let reads = matches!(
            statement,
            Stmt::Query(_)
                | Stmt::SelectInto(..)
                | Stmt::Prepare { .. }
                // What it runs is looked at by itself.
                | Stmt::Execute { .. }
                | Stmt::Deallocate(_)
                | Stmt::Explain { .. }
                | Stmt::Describe { .. }
                | Stmt::Begin { .. }
                | Stmt::Commit
                | Stmt::Rollback
                | Stmt::Savepoint(..)
                | Stmt::Set(_)
                | Stmt::SetNames(_)
                | Stmt::SetTransaction { .. }
                | Stmt::Use(_)
                | Stmt::Show(_)
                | Stmt::Kill { .. }
                | Stmt::Do(_)
                | Stmt::Flush
                | Stmt::Nothing
        );
        let usual = || self.variables.reads_only();
        if reads || !self.transaction.is_read_only(usual) {
            return Ok(());
        }
        Err(read_only_transaction())
    }

    /// Under sql_safe_updates, an UPDATE or DELETE has a LIMIT or a WHERE that uses a key column.
    pub(super) fn check_safe(&self, write: &Write, catalog: &Arc<Catalog>) -> SqlResult<()> {
        if !self.variables.updates_safely() {
            return Ok(());
        }
        let (from, selection, limited): (&[TableWithJoins], _, _) = match write {
            Write::Update(update) => {
                (std::slice::from_ref(&update.table), &update.selection, update.limit.is_some())
            }
            Write::Delete(delete, _) => {
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) =
                    &delete.from;
                (from, &delete.selection, delete.limit.is_some())
            }
            _ => return Ok(()),
        };
        let factors = from.iter().flat_map(|from| {
            std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation))
        });
        let keyed = factors.into_iter().any(|factor| {
            let TableFactor::Table { name, .. } = factor else { return false };
            let Ok(name) = table_name(name, self.variables.database()) else { return false };
            match (catalog.table_named(&name.database, &name.table), selection) {
                (Some(table), Some(condition)) => uses_key(condition, table),
                // A missing table is reported by whoever reads it.
                (None, _) => true,
                (Some(_), None) => false,
            }
        });
        if limited || keyed {
            return Ok(());
        }
        Err(safe_updates())
    }
}

/// Whether one of the conditions that must all hold compares the first column of a key.
fn uses_key(condition: &Expr, table: &Table) -> bool {
    let key = |expr: &Expr| is_key(expr, table);
    match condition {
        Expr::Nested(inner) => uses_key(inner, table),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            uses_key(left, table) || uses_key(right, table)
        }
        Expr::BinaryOp { left, op, right } => {
            let compares = matches!(
                op,
                BinaryOperator::Eq
                    | BinaryOperator::Spaceship
                    | BinaryOperator::Lt
                    | BinaryOperator::LtEq
                    | BinaryOperator::Gt
                    | BinaryOperator::GtEq
            );
            compares && (key(left) || key(right))
        }
        Expr::InList { expr, negated: false, .. }
        | Expr::InSubquery { expr, negated: false, .. }
        | Expr::Between { expr, negated: false, .. }
        | Expr::Like { expr, negated: false, .. }
        | Expr::IsNull(expr) => key(expr),
        _ => false,
    }
}

fn is_key(expr: &Expr, table: &Table) -> bool {
    let name = match expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(idents) => parts(&idents.clone().into()).pop().unwrap_or_default(),
        _ => return false,
    };
    let Some((_, column)) = table.column_named(&name) else { return false };
    let usable = table.indexes.iter().filter(|index| index.visible);
    let firsts = usable.filter_map(|index| index.columns.first());
    table.primary_key.first().into_iter().chain(firsts).any(|first| *first == column.id)
}
