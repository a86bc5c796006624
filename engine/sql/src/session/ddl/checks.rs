//! CHECK constraints of a table that is there: added, dropped, switched on and off.
//!
//! A new check holds for every writer before the rows that are there are looked at, so no row slips
//! in between; where one of them breaks it, the check goes again.

use sqlparser::ast::ObjectName;
use syntax::statement::Alter;
use tokio_util::sync::CancellationToken;
use types::{Check, Table, key, row};
use values::error::{SqlError, SqlResult, interrupted, no_check, no_constraint, unsupported};

use super::publish::check_at_rest;
use crate::session::write::derived::Proof;
use crate::session::{Session, done};
use definitions::expressions;
use execution::reply::Reply;

/// Whether an action is about a check.
pub(super) fn is_check(action: &Alter) -> bool {
    matches!(action, Alter::AddCheck { .. } | Alter::DropCheck { .. } | Alter::Enforce { .. })
}

impl Session {
    /// An ALTER TABLE that is about checks, and nothing else.
    pub(super) async fn alter_checks(
        &mut self,
        name: &ObjectName,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        if !actions.iter().all(is_check) {
            return Err(unsupported(
                "ALTER TABLE … CHECK beside other actions (give it a statement of its own)",
            ));
        }
        let before = self.at_rest(name, cancel).await?;
        let drops = actions.iter().any(|action| matches!(action, Alter::DropCheck { .. }));
        if drops && !actions.iter().all(|action| matches!(action, Alter::DropCheck { .. })) {
            // What is dropped could not be put back where a row breaks what is added.
            return Err(unsupported(
                "DROP of a constraint beside ADD or ALTER of one (give each a statement)",
            ));
        }
        let after = changed(&before, actions)?;
        let actions = &named(actions, &before, &after);
        self.check_expressions(&after)?;
        // What is enforced from now on and was not before.
        let is_new = |check: &&Check| {
            check.enforced && before.check_named(&check.name).is_none_or(|known| known != *check)
        };
        let new: Vec<Check> = after.checks.iter().filter(is_new).cloned().collect();
        let table = self
            .publish(before.clone(), |table| {
                // A column that a check names may be about to get another name.
                check_at_rest(table)?;
                *table = changed(table, actions)?;
                Ok(())
            })
            .await?;
        if new.is_empty() {
            return Ok(done());
        }
        let proven = match self.prove(&table, &new, cancel).await {
            Ok(()) => return Ok(done()),
            Err(error) => error,
        };
        self.publish(table, |table| {
            let is_new = |check: &Check| new.iter().any(|new| new.name == check.name);
            let known = |check: &Check| before.check_named(&check.name).is_some();
            table.checks.retain(|check| !is_new(check) || known(check));
            for check in table.checks.iter_mut().filter(|check| is_new(check)) {
                check.enforced = false;
            }
            Ok(())
        })
        .await?;
        Err(proven)
    }

    /// Whether the rows that are there keep checks that writers know of since this version.
    async fn prove(
        &self,
        table: &Table,
        checks: &[Check],
        cancel: &CancellationToken,
    ) -> SqlResult<()> {
        // One version more: now nobody is left who writes rows without looking at the checks.
        let table = self.publish(table.clone(), |_| Ok(())).await?;
        let proof = Proof::new(&table, checks, self)?;
        let look = async {
            self.settle(&table).await?;
            let now = self.engine.storage.present().await?;
            let (start, end) = (key::records_start(table.id), key::records_end(table.id));
            let mut scan = now.scan(start, end, false, None);
            while let Some(page) = scan.next_page().await? {
                let rows = page.iter().map(|(_, stored)| row::decode(&table, stored));
                proof.hold(&table, &rows.collect::<types::Result<Vec<_>>>()?)?;
            }
            Ok::<(), SqlError>(())
        };
        cancel.run_until_cancelled(look).await.ok_or_else(interrupted)?
    }
}

/// Actions that call new checks what they are called in a table after them: under these names they
/// are proven, and taken back if they do not hold, whatever others add meanwhile.
fn named(actions: &[Alter], before: &Table, after: &Table) -> Vec<Alter> {
    let mut new = after.checks.iter().skip(before.checks.len());
    let mut actions = actions.to_vec();
    for action in &mut actions {
        if let Alter::AddCheck { name, .. } = action {
            *name = new.next().map(|check| check.name.clone()).or_else(|| name.take());
        }
    }
    actions
}

/// A table after actions on its checks.
fn changed(table: &Table, actions: &[Alter]) -> SqlResult<Table> {
    let mut table = table.clone();
    for action in actions {
        match action {
            Alter::AddCheck { name, condition, enforced } => {
                let name = name.as_deref();
                expressions::push_check(&mut table, name, condition, Some(*enforced), None)?;
                let last = table.checks.len().saturating_sub(1);
                expressions::settle_check(&mut table, last)?;
            }
            Alter::DropCheck { name, constraint } => drop_check(&mut table, name, *constraint)?,
            Alter::Enforce { name, enforced } => {
                let known = table.check_named(name).map(|check| check.name.clone());
                let known = known.ok_or_else(|| no_check(name))?;
                for check in table.checks.iter_mut().filter(|check| check.name == known) {
                    check.enforced = *enforced;
                }
            }
            _ => return Err(unsupported("ALTER TABLE … CHECK beside other actions")),
        }
    }
    Ok(table)
}

/// DROP CHECK; DROP CONSTRAINT, which may name a unique key as well.
fn drop_check(table: &mut Table, name: &str, constraint: bool) -> SqlResult<()> {
    if table.check_named(name).is_some() {
        table.checks.retain(|check| !check.name.eq_ignore_ascii_case(name));
        return Ok(());
    }
    if !constraint {
        return Err(no_check(name));
    }
    if name.eq_ignore_ascii_case("PRIMARY") {
        return Err(unsupported("DROP CONSTRAINT PRIMARY (rows are stored by it)"));
    }
    if table.index_named(name).is_none_or(|index| !index.unique) {
        return Err(no_constraint(name));
    }
    table.indexes.retain(|index| !index.name.eq_ignore_ascii_case(name));
    Ok(())
}
