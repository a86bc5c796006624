//! UPDATE and DELETE with joins: which rows of which tables, each changed once however often it is
//! matched.
//!
//! Rows of the tables that are written are locked; rows of tables that are only read are seen as of
//! the statement, and not locked.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;
use std::sync::Arc;

use placement::api::Catalog;
use sqlparser::ast::{
    AssignmentTarget, Delete, Expr, FromTable, Ident, ObjectName, Query, SelectItem, SetExpr,
    TableFactor, TableWithJoins, Update, Visitor,
};
use syntax::names::{parts, table_name};
use syntax::parser;
use syntax::walk::{Part, finds};
use types::{Table, Value};
use values::coerce::Place;
use values::error::{
    SqlError, SqlResult, ambiguous_column, no_column, not_in_multi_delete, reads_target,
    unsupported, value_for_generated, wrong_usage,
};
use values::temporal::Zone;

use super::changes::Changes;
use super::clauses::is_default;
use super::clauses::{assigned, ignores};
use super::fitting::Fitting;
use super::hidden::refuse_hidden;
use super::matched_rows::Weight;
use crate::session::query::tables::readable;
use crate::session::transaction::finding::Finding;
use crate::session::transaction::locking::{READS, factors, is_row, restless};
use crate::session::transaction::state::Open;
use crate::session::{Session, impossible};
use execution::reply::{Done, Reply};
use storage::Savepoint;
use storage::rows;

/// A row as it was, and as it is to be.
type OldAndNew = (Vec<Value>, Vec<Value>);
/// Rows by their record keys.
type ByKey = BTreeMap<Vec<u8>, Vec<Value>>;

/// Columns that an UPDATE sets: the number of the table, and the column's place in it.
type ColumnsSet = Vec<(usize, usize)>;

/// A table of the FROM, by the name it goes by there.
struct Named {
    name: String,
    table: Arc<Table>,
}

/// Whether an UPDATE is of joined tables.
pub(in crate::session) fn updates_joined(update: &Update) -> bool {
    !update.table.joins.is_empty()
        || matches!(update.table.relation, TableFactor::NestedJoin { .. })
}

/// Whether a DELETE names its tables apart from its FROM.
pub(in crate::session) fn deletes_joined(delete: &Delete) -> bool {
    !delete.tables.is_empty() || delete.using.is_some()
}

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
        let from = std::slice::from_ref(&update.table);
        let named = self.named(from, catalog, at.1)?;
        let zone = self.context().zone()?;
        let (set, computed) = self.joined_assignments(update, &named, zone)?;
        let targets = targets_of(&named, set.iter().map(|(of, _)| *of))?;
        if targets
            .values()
            .any(|one| targets.values().filter(|other| other.table.id == one.table.id).count() > 1)
        {
            return Err(unsupported("UPDATE of one table under two names"));
        }
        for one in targets.values() {
            refuse_reading(
                &one.table,
                self.variables.database(),
                (&update.selection, &update.assignments),
            )?;
        }
        let called = called(&named);
        refuse_hidden(&called, &update.table)?;
        refuse_hidden(&called, &update.selection)?;
        refuse_hidden(&called, &update.assignments)?;
        let weight = self.weight();
        let by = (at.1, &weight);
        let found = self
            .matched_rows(from, update.selection.as_ref(), &targets, &computed, catalog, by)
            .await?;
        let mut fitting = Fitting::ignoring(ignores(update));
        let mut changed: Vec<(Arc<Table>, Vec<OldAndNew>)> = Vec::new();
        for (of, rows) in found {
            let Some(target) = targets.get(&of) else { continue };
            let of_table = set.iter().map(|(table, at)| (*table == of).then_some(*at));
            let set: Vec<Option<usize>> = of_table.collect();
            let mut pairs =
                self.pairs_set(&target.table, rows.into_values(), &set, zone, &mut fitting)?;
            self.derive_pairs(&target.table, &mut pairs, &mut fitting)?;
            self.count_changed(&target.table, &pairs).await?;
            changed.push((target.table.clone(), pairs));
        }
        self.diagnostics.extend(fitting.into_warnings());
        self.write_updates(changed, ignores(update), at).await
    }

    /// The columns that an UPDATE sets, each with the number of its table, and what it sets them to.
    fn joined_assignments(
        &self,
        update: &Update,
        named: &[Named],
        zone: Zone,
    ) -> SqlResult<(ColumnsSet, Vec<Expr>)> {
        let (mut set, mut computed) = (Vec::new(), Vec::new());
        for assignment in &update.assignments {
            let (of, column) = assigned_of(&assignment.target, named)?;
            let described = named.get(of).and_then(|one| one.table.columns.get(column));
            let described = described.ok_or_else(|| impossible("a column of no table"))?;
            if described.generated().is_some() {
                // It has its value anyhow.
                if is_default(&assignment.value) {
                    continue;
                }
                let table = named.get(of).map(|one| &one.table);
                let table = table.ok_or_else(|| impossible("a column of no table"))?;
                return Err(value_for_generated(&described.name, &table.name));
            }
            computed.push(match is_default(&assignment.value) {
                true => syntax::constant::expression(&self.default_value(described, zone)?),
                false => super::column_values::for_column(assignment.value.clone(), described.ty),
            });
            set.push((of, column));
        }
        Ok((set, computed))
    }

    /// Rows of a table before and after; `set` says which of its columns each computed value is for,
    /// if it is for one of them.
    fn pairs_set(
        &self,
        table: &Table,
        rows: impl ExactSizeIterator<Item = (Vec<Value>, Vec<Value>)>,
        set: &[Option<usize>],
        zone: Zone,
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<OldAndNew>> {
        let mut pairs = Vec::with_capacity(rows.len());
        for (number, (old, values)) in rows.enumerate() {
            let mut new = old.clone();
            for (at, value) in set.iter().zip(values) {
                let Some(at) = at else { continue };
                let Some(column) = table.columns.get(*at) else { continue };
                let value = fitting.column(value, Place { column, row: number + 1, zone })?;
                if let Some(slot) = new.get_mut(*at) {
                    *slot = value;
                }
            }
            if new != old {
                for (at, column) in table.columns.iter().enumerate() {
                    let given = set.contains(&Some(at));
                    if let (true, false, Some(slot)) =
                        (column.on_update_now, given, new.get_mut(at))
                    {
                        *slot = self.now_for(column, zone)?;
                    }
                }
            }
            pairs.push((old, new));
        }
        Ok(pairs)
    }

    async fn write_updates(
        &mut self,
        changed: Vec<(Arc<Table>, Vec<OldAndNew>)>,
        ignore: bool,
        at: (&Open, &Finding, bool),
    ) -> SqlResult<Reply> {
        let found: usize = changed.iter().map(|(_, pairs)| pairs.len()).sum();
        let differ = |(old, new): &&(Vec<Value>, Vec<Value>)| old != new;
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
        changed: Vec<(Arc<Table>, Vec<OldAndNew>)>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<usize> {
        let (mut ready, mut count) = (Vec::with_capacity(changed.len()), 0);
        for (table, pairs) in changed {
            let (pending, changed) = self.stage_ignoring(&table, pairs, open, finding).await?;
            let owned = self.contested_of(&pending, &table, open, finding).await?;
            count += usize::try_from(changed).unwrap_or(usize::MAX);
            ready.push((table, pending, owned));
        }
        let _held = self.interrupts.hold();
        let before = savepoint(open).await?;
        for (table, pending, owned) in ready {
            if let Err(error) = self.put_pending(&pending, &table, open, &owned).await {
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
        let (wanted, from) = match &delete.using {
            Some(using) => (from.iter().map(table_of).collect::<SqlResult<Vec<_>>>()?, using),
            None => (delete.tables.clone(), from),
        };
        let named = self.named(from, catalog, at.1)?;
        let mut positions = Vec::new();
        for name in &wanted {
            let path = parts(name);
            let called = path.last().cloned().unwrap_or_default();
            let database = path.len().checked_sub(2).and_then(|at| path.get(at));
            let position = named.iter().position(|one| {
                one.name.eq_ignore_ascii_case(&called)
                    && database.is_none_or(|d| one.table.database.eq_ignore_ascii_case(d))
            });
            positions.push(position.ok_or_else(|| not_in_multi_delete(&called))?);
        }
        let targets = targets_of(&named, positions.into_iter())?;
        for one in targets.values() {
            refuse_reading(
                &one.table,
                self.variables.database(),
                (&delete.selection, &delete.order_by),
            )?;
        }
        refuse_hidden(&called(&named), from)?;
        refuse_hidden(&called(&named), &delete.selection)?;
        let weight = self.weight();
        let by = (at.1, &weight);
        let found =
            self.matched_rows(from, delete.selection.as_ref(), &targets, &[], catalog, by).await?;
        // A table may be a target under two names: a row goes once all the same.
        let mut ended: BTreeMap<u64, (Arc<Table>, ByKey)> = BTreeMap::new();
        for (of, rows) in found {
            let Some(target) = targets.get(&of) else { continue };
            let table = &target.table;
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
        let _held = self.interrupts.hold();
        let before = savepoint(open).await?;
        for (table, changes, owned) in ready {
            if let Err(error) = self.apply(&table, changes, open, &owned).await {
                return Err(taken_back(open, before, error).await);
            }
        }
        Ok(())
    }

    /// The stored tables of a FROM.
    fn named(
        &self,
        from: &[TableWithJoins],
        catalog: &Catalog,
        finding: &Finding,
    ) -> SqlResult<Vec<Named>> {
        let mut named = Vec::new();
        for factor in factors(from) {
            let TableFactor::Table { name, alias, args: None, .. } = factor else { continue };
            let name = table_name(name, self.variables.database())?;
            if information_schema::is_virtual(&name.database) {
                continue;
            }
            let table = readable(catalog, &name.database, &name.table, finding.ts())?;
            let alias = alias.as_ref().map(|alias| alias.name.value.to_lowercase());
            let name = alias.unwrap_or_else(|| table.name.to_lowercase());
            named.push(Named { name, table });
        }
        // In the order of the text, for messages and for whom a bare column means.
        Ok(named)
    }

    /// Rows of the targets that a join finds, by target and record key, with the values computed
    /// beside the first match of each; locked, if they are to be.
    async fn matched_rows(
        &self,
        from: &[TableWithJoins],
        selection: Option<&Expr>,
        targets: &BTreeMap<usize, &Named>,
        computed: &[Expr],
        catalog: &Arc<Catalog>,
        (finding, weight): (&Finding, &Weight),
    ) -> SqlResult<MatchedRows> {
        let query = joined_query(from, selection, targets, computed)?;
        let width = targets.values().map(|one| one.table.columns.len()).sum();
        let (_, of_exprs) = self.diagnostics.mark();
        for _ in 0..READS {
            self.diagnostics.forget_expr_warnings(of_exprs);
            let reader = self.beside(finding).await?;
            weight.clear();
            let mut found = MatchedRows::new();
            let each = |row: Vec<Value>, values: Vec<Value>| -> SqlResult<()> {
                let mut from = 0;
                for (of, one) in targets {
                    let to = from + one.table.columns.len();
                    let own = row.get(from..to).unwrap_or_default();
                    from = to;
                    if !is_row(&one.table, own) {
                        continue;
                    }
                    let rows = found.entry(*of).or_default();
                    if let Entry::Vacant(first) = rows.entry(rows::record_key(&one.table, own)) {
                        weight.add(own)?;
                        weight.add(&values)?;
                        first.insert((own.to_vec(), values.clone()));
                    }
                }
                Ok(())
            };
            let listening = self.diagnostics.listening();
            let read = (catalog, &reader);
            self.each_by_plan(query.clone(), read, width, listening, each).await?;
            let Finding::Lock(open, waiting, expect) = finding else { return Ok(found) };
            let mut newer = None;
            for (of, rows) in &found {
                let Some(one) = targets.get(of) else { continue };
                let (keys, by) = (rows.keys().cloned().collect(), (open, *waiting, *expect));
                let acquired = self.acquire(by, &one.table, keys, Some(reader.ts())).await?;
                newer = newer.max(acquired.newer);
            }
            if newer.is_none() {
                return Ok(found);
            }
        }
        Err(targets.values().next().map_or_else(|| impossible("no table"), |o| restless(&o.table)))
    }
}

/// Target → record key → row and computed values.
type MatchedRows = BTreeMap<usize, BTreeMap<Vec<u8>, (Vec<Value>, Vec<Value>)>>;

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

/// The tables by the names that they go by.
fn called(named: &[Named]) -> Vec<(&str, &Table)> {
    named.iter().map(|one| (one.name.as_str(), one.table.as_ref())).collect()
}

fn targets_of(
    named: &[Named],
    positions: impl Iterator<Item = usize>,
) -> SqlResult<BTreeMap<usize, &Named>> {
    let target = |at| named.get(at).map(|one| (at, one));
    let targets: Option<BTreeMap<usize, &Named>> = positions.map(target).collect();
    targets.ok_or_else(|| impossible("a target of no table"))
}

fn table_of(from: &TableWithJoins) -> SqlResult<ObjectName> {
    match &from.relation {
        TableFactor::Table { name, alias: None, args: None, .. } if from.joins.is_empty() => {
            Ok(name.clone())
        }
        _ => Err(values::error::syntax("DELETE FROM names tables, and joins them after USING")),
    }
}

/// The table and the column that an assignment means.
fn assigned_of(target: &AssignmentTarget, named: &[Named]) -> SqlResult<(usize, usize)> {
    let column = assigned(target)?;
    let AssignmentTarget::ColumnName(path) = target else {
        return Err(unsupported("assignment of several columns at once"));
    };
    let path = parts(path);
    let qualifier = path.len().checked_sub(2).and_then(|at| path.get(at));
    let database = path.len().checked_sub(3).and_then(|at| path.get(at));
    let has = |one: &Named| {
        qualifier.is_none_or(|q| one.name.eq_ignore_ascii_case(q))
            && database.is_none_or(|d| one.table.database.eq_ignore_ascii_case(d))
    };
    let mut found = named.iter().enumerate().filter(|(_, one)| has(one)).filter_map(|(of, one)| {
        let (at, column) = one.table.column_named(&column)?;
        (!column.hidden).then_some((of, at))
    });
    match (found.next(), found.next()) {
        (Some(found), None) => Ok(found),
        (Some(_), Some(_)) => Err(ambiguous_column(&column, "field list")),
        (None, _) => Err(no_column(&column, "field list")),
    }
}

/// SELECT of every column of the targets, then of the new values.
fn joined_query(
    from: &[TableWithJoins],
    selection: Option<&Expr>,
    targets: &BTreeMap<usize, &Named>,
    computed: &[Expr],
) -> SqlResult<Query> {
    let sqlparser::ast::Statement::Query(mut query) = parser::parse_sql("SELECT 1")? else {
        return Err(impossible("SELECT 1 is no query"));
    };
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(impossible("SELECT 1 is no SELECT"));
    };
    select.from = from.to_vec();
    select.selection = selection.cloned();
    let mut at = 0;
    let mut item = |expr: Expr| {
        at += 1;
        SelectItem::ExprWithAlias { expr, alias: Ident::new(format!("__joined_{at}")) }
    };
    let mut projection = Vec::new();
    for one in targets.values() {
        for column in &one.table.columns {
            let quoted = |name: &str| Ident::with_quote('`', name);
            let path = vec![quoted(&one.name), quoted(&column.name)];
            projection.push(item(Expr::CompoundIdentifier(path)));
        }
    }
    projection.extend(computed.iter().cloned().map(item));
    select.projection = projection;
    Ok(*query)
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
