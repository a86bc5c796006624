//! UPDATE and DELETE with joins: which rows of which tables, each changed once however often it is
//! matched.
//!
//! Rows of the tables that are written are locked; rows of tables that are only read are seen as of
//! the statement, and not locked.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;
use std::sync::Arc;

use binder::{BoundChange, ResolvedTables, RowsOf, Targets};
use placement::api::Catalog;
use sqlparser::ast::{
    Delete, Expr, FromTable, ObjectName, SetExpr, TableFactor, TableWithJoins, Update, Visitor,
};
use syntax::names::{parts, table_name};
use syntax::walk::{Part, finds};
use types::{Table, Value};
use values::error::{
    SqlError, SqlResult, not_in_multi_delete, reads_target, unsupported, wrong_usage,
};

use super::changes::Changes;
use super::clauses::ignores;
use super::fitting::Fitting;
use super::matched_rows::{Weight, table_of};
use super::net::NetChange;
use super::new_values::{Found, NewValues, Pair};
use crate::session::transaction::finding::Finding;
use crate::session::transaction::locking::{READS, is_row, restless};
use crate::session::transaction::state::Open;
use crate::session::{Session, impossible};
use execution::reply::{Done, Reply};
use storage::Savepoint;
use storage::rows;
use syntax::from::factors;

/// Rows by their record keys.
type ByKey = BTreeMap<Vec<u8>, Vec<Value>>;
/// For each target its rows by their record keys, each with what is found with it.
type MatchedRows = Vec<BTreeMap<Vec<u8>, Found>>;

impl Session {
    /// Runs an UPDATE of joined tables within a transaction.
    pub(super) async fn update_joined(
        &mut self,
        update: &Update,
        catalog: &Arc<Catalog>,
        at: (&Open, &Finding, bool),
    ) -> SqlResult<Reply> {
        if !update.order_by.is_empty() || update.limit.is_some() {
            let what = if update.limit.is_some() { "LIMIT" } else { "ORDER BY" };
            return Err(wrong_usage("UPDATE", what));
        }
        let rows = RowsOf::of_update(update);
        let resolved = self.tables_of_change(&rows, &update.assignments, (catalog, at.1)).await?;
        let bound = self.bound_update(update, &rows, &resolved)?;
        let tables = tables_of(&bound, &resolved)?;
        for (nth, table) in tables.iter().enumerate() {
            if tables.iter().skip(nth + 1).any(|other| other.id == table.id) {
                return Err(unsupported("UPDATE of one table under two names"));
            }
            refuse_reading(
                table,
                self.variables.database(),
                (&update.selection, &update.assignments),
            )?;
        }
        let weight = self.weight();
        let found = self.matched_rows(&bound, &tables, catalog, (at.1, &weight)).await?;
        let mut fitting = Fitting::ignoring(ignores(update));
        let mut changed: Vec<(Arc<Table>, Vec<Pair>)> = Vec::new();
        for ((nth, rows), table) in found.into_iter().enumerate().zip(&tables) {
            let Some(target) = bound.targets.get(nth) else { continue };
            let set = bound.set.iter().filter(|one| one.target == nth);
            let values = NewValues::new(self, table, target, set)?;
            let mut pairs = values.of(rows.into_values().collect(), &mut fitting)?;
            self.derive_pairs(table, &mut pairs, &mut fitting)?;
            self.count_changed(table, &pairs).await?;
            changed.push((table.clone(), pairs));
        }
        self.diagnostics.extend(fitting.into_warnings());
        self.write_updates(changed, ignores(update), at).await
    }

    async fn write_updates(
        &mut self,
        changed: Vec<(Arc<Table>, Vec<Pair>)>,
        ignore: bool,
        at: (&Open, &Finding, bool),
    ) -> SqlResult<Reply> {
        let found: usize = changed.iter().map(|(_, pairs)| pairs.len()).sum();
        let differ = |(old, new): &&Pair| old != new;
        let mut count: usize =
            changed.iter().map(|(_, pairs)| pairs.iter().filter(differ).count()).sum();
        if ignore {
            count = self.write_ignoring(changed, at.0, at.1).await?;
        } else {
            let changes = changed.into_iter();
            let changes = changes.map(|(table, pairs)| (table, Changes::Update { pairs }));
            self.write_several(changes.collect(), at).await?;
        }
        let warnings = self.diagnostics.count();
        let info = format!("Rows matched: {found}  Changed: {count}  Warnings: {warnings}");
        let affected = self.identity.counted(found, count);
        Ok(Reply::Done(Done { affected_rows: affected as u64, info, ..Done::default() }))
    }

    /// Writes pairs of several tables, leaving out those whose key another row has; how many were
    /// changed. Everything that is waited for comes before the first write.
    async fn write_ignoring(
        &mut self,
        changed: Vec<(Arc<Table>, Vec<Pair>)>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<usize> {
        let (mut ready, mut count) = (Vec::with_capacity(changed.len()), 0);
        for (table, pairs) in changed {
            let pairs = self.allowed_pairs(&table, pairs, open, finding).await?;
            let (pending, changed) = self.stage_ignoring(&table, pairs, open, finding).await?;
            let owned = self.contested_of(&pending, &table, open, finding).await?;
            count += usize::try_from(changed).unwrap_or(usize::MAX);
            ready.push((table, pending, owned));
        }
        let net: Vec<_> = ready.iter().map(|(table, pending, _)| (table, pending.net())).collect();
        let done: Vec<_> = net.iter().map(|(table, net)| (*table, net.as_slice())).collect();
        let consequences = self.enforce(&done, open, finding).await?;
        let last = ready.len();
        let _held = self.interrupts.hold();
        let before = savepoint(open).await?;
        for (at, (table, pending, owned)) in (1..).zip(ready) {
            let consequences = if at == last { &consequences[..] } else { &[] };
            let owned = (&owned, consequences);
            if let Err(error) = self.put_pending(&pending, &table, open, owned).await {
                return Err(taken_back(open, before, error).await);
            }
        }
        Ok(count)
    }

    /// Runs a DELETE of rows of some of the tables that it joins.
    pub(super) async fn delete_joined(
        &mut self,
        delete: &Delete,
        catalog: &Arc<Catalog>,
        at: (&Open, &Finding, bool),
    ) -> SqlResult<Reply> {
        if !delete.order_by.is_empty() || delete.limit.is_some() {
            return Err(values::error::syntax(
                "DELETE of joined tables has no ORDER BY and no LIMIT",
            ));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        // DELETE t FROM … names its targets before FROM, DELETE FROM t USING … after it.
        let wanted = match delete.using {
            Some(_) => from.iter().map(name_of).collect::<SqlResult<Vec<_>>>()?,
            None => delete.tables.clone(),
        };
        let rows = RowsOf::of_delete(delete);
        let resolved = self.tables_of_change(&rows, &[], (catalog, at.1)).await?;
        let bound = self.bound_change(&rows, Targets::Named(&wanted), &resolved)?;
        let missing =
            wanted.iter().find(|name| !bound.targets.iter().any(|target| target.goes_by(name)));
        if let Some(missing) = missing {
            return Err(not_in_multi_delete(parts(missing).pop().unwrap_or_default()));
        }
        let tables = tables_of(&bound, &resolved)?;
        for table in &tables {
            refuse_reading(
                table,
                self.variables.database(),
                (&delete.selection, &delete.order_by),
            )?;
        }
        let weight = self.weight();
        let found = self.matched_rows(&bound, &tables, catalog, (at.1, &weight)).await?;
        // A table may be a target under two names: a row goes once all the same.
        let mut ended: BTreeMap<u64, (Arc<Table>, ByKey)> = BTreeMap::new();
        for (rows, table) in found.into_iter().zip(&tables) {
            let all = ended.entry(table.id).or_insert_with(|| (table.clone(), BTreeMap::new()));
            all.1.extend(rows.into_iter().map(|(key, (row, _))| (key, row)));
        }
        let count: usize = ended.values().map(|(_, rows)| rows.len()).sum();
        let changes = ended
            .into_values()
            .map(|(table, rows)| (table, Changes::Delete { rows: rows.into_values().collect() }));
        self.write_several(changes.collect(), at).await?;
        Ok(Reply::Done(Done { affected_rows: count as u64, ..Done::default() }))
    }

    /// Writes changes of several tables, all or none: everything that is waited for comes before the
    /// first write, and the writes are not broken off.
    async fn write_several(
        &mut self,
        changes: Vec<(Arc<Table>, Changes)>,
        (open, finding, explicit): (&Open, &Finding, bool),
    ) -> SqlResult<()> {
        let mut ready = Vec::with_capacity(changes.len());
        for (table, changes) in changes {
            let owned = self.make_way(&table, &changes, open, finding, explicit).await?;
            ready.push((table, changes, owned));
        }
        let of = |changes: &Changes| NetChange::of_changes(changes);
        let net: Vec<_> = ready.iter().map(|(table, changes, _)| (table, of(changes))).collect();
        let done: Vec<_> = net.iter().map(|(table, net)| (*table, net.as_slice())).collect();
        let consequences = self.enforce(&done, open, finding).await?;
        let last = ready.len();
        let _held = self.interrupts.hold();
        let before = savepoint(open).await?;
        for (at, (table, changes, owned)) in (1..).zip(ready) {
            let consequences = if at == last { &consequences[..] } else { &[] };
            if let Err(error) = self.apply(&table, changes, (&owned, consequences), open).await {
                return Err(taken_back(open, before, error).await);
            }
        }
        Ok(())
    }

    /// Rows of the targets that a join finds, by record key, with the values found beside the first match of each; locked,
    /// if they are to be.
    async fn matched_rows(
        &self,
        bound: &BoundChange,
        tables: &[Arc<Table>],
        catalog: &Arc<Catalog>,
        (finding, weight): (&Finding, &Weight),
    ) -> SqlResult<MatchedRows> {
        let width = tables.iter().map(|table| table.columns.len()).sum();
        let (_, of_exprs) = self.diagnostics.mark();
        for _ in 0..READS {
            self.diagnostics.forget_expr_warnings(of_exprs);
            let reader = self.beside(finding).await?;
            weight.clear();
            let mut found: MatchedRows = tables.iter().map(|_| BTreeMap::new()).collect();
            let each = |row: Vec<Value>, values: Vec<Value>| -> SqlResult<()> {
                let mut from = 0;
                for (rows, table) in found.iter_mut().zip(tables) {
                    let to = from + table.columns.len();
                    let own = row.get(from..to).unwrap_or_default();
                    from = to;
                    if !is_row(table, own) {
                        continue;
                    }
                    if let Entry::Vacant(first) = rows.entry(rows::record_key(table, own)) {
                        weight.add(own)?;
                        weight.add(&values)?;
                        first.insert((own.to_vec(), values.clone()));
                    }
                }
                Ok(())
            };
            let listening = self.diagnostics.listening();
            self.each_found(&bound.query, (catalog, &reader), width, listening, each).await?;
            let Finding::Lock(open, taking) = finding else { return Ok(found) };
            let mut newer = None;
            for (rows, table) in found.iter().zip(tables) {
                let (keys, by) = (rows.keys().cloned().collect(), (open, *taking));
                let acquired = self.acquire(by, table, keys, Some(reader.ts())).await?;
                newer = newer.max(acquired.newer);
            }
            if newer.is_none() {
                return Ok(found);
            }
        }
        Err(tables.first().map_or_else(|| impossible("no table"), |table| restless(table)))
    }
}

/// The tables that are changed, in the order of the targets.
fn tables_of(bound: &BoundChange, resolved: &ResolvedTables) -> SqlResult<Vec<Arc<Table>>> {
    bound.targets.iter().map(|target| table_of(target, resolved)).collect()
}

/// Where the writes of a statement over several tables begin.
async fn savepoint(open: &Open) -> SqlResult<Savepoint> {
    match open.shared.lock().await.as_mut() {
        Some(transaction) => Ok(transaction.savepoint()),
        None => Err(impossible("the transaction has ended")),
    }
}

/// Takes back what a statement has written since; gives the error on.
async fn taken_back(open: &Open, before: Savepoint, error: SqlError) -> SqlError {
    if let Some(transaction) = open.shared.lock().await.as_mut() {
        transaction.rollback_to(before);
    }
    error
}

fn name_of(from: &TableWithJoins) -> SqlResult<ObjectName> {
    match &from.relation {
        TableFactor::Table { name, alias: None, args: None, .. } if from.joins.is_empty() => {
            Ok(name.clone())
        }
        _ => Err(values::error::syntax("DELETE FROM names tables, and joins them after USING")),
    }
}

/// Error 1093, as MySQL's: a statement may not change a table that a subquery of it reads, unless
/// through a derived table.
pub(super) fn refuse_reading<T: Part, U: Part>(
    table: &Table,
    database: &str,
    (one, other): (&T, &U),
) -> SqlResult<()> {
    struct Reading<'a>(&'a Table, &'a str);
    impl Visitor for Reading<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let query = match expr {
                Expr::Subquery(query) => query,
                Expr::Exists { subquery, .. } | Expr::InSubquery { subquery, .. } => subquery,
                _ => return ControlFlow::Continue(()),
            };
            match reads(&query.body, self.0, self.1) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    let mut reading = Reading(table, database);
    if finds(one, &mut reading) || finds(other, &mut reading) {
        return Err(reads_target(&table.name));
    }
    Ok(())
}

/// Whether a query's own FROM, not that of a derived table, names a table.
fn reads(body: &SetExpr, table: &Table, database: &str) -> bool {
    match body {
        SetExpr::Select(select) => factors(&select.from).into_iter().any(|factor| {
            let TableFactor::Table { name, args: None, .. } = factor else { return false };
            table_name(name, database).is_ok_and(|name| {
                name.table.eq_ignore_ascii_case(&table.name)
                    && name.database.eq_ignore_ascii_case(&table.database)
            })
        }),
        SetExpr::Query(query) => reads(&query.body, table, database),
        SetExpr::SetOperation { left, right, .. } => {
            reads(left, table, database) || reads(right, table, database)
        }
        _ => false,
    }
}
