//! Rows that statements of pessimistic transactions lock: found, locked, and seen as they are then.
//!
//! A row that was read and has changed before it was locked is read again; what comes out is one
//! timestamp's rows, all of them locked. Gaps between rows are not locked. A locking read never
//! goes to columns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use binder::{BoundQuery, RowsOf, Target, Targets};
use placement::api::Catalog;
use sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, LimitClause, LockClause, LockType, NonBlock,
    ObjectName, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value as SqlValue,
};
use syntax::constant;
use syntax::names::parts;
use types::{Table, Timestamp, Value, key, row};
use values::error::{
    SqlError, SqlResult, lock_as_of, lock_in_the_past, rows_kept_changing, unresolved_lock_table,
    unsupported,
};

use super::finding::Finding;
use super::state::Open;
use crate::session::query::plain::plain_select;
use crate::session::query::point::{Lookup, find, lookup};
use crate::session::query::unplanned;
use crate::session::write::matched_rows::{Weight, table_of};
use crate::session::{Session, impossible};
use execution::reply::Reply;
use storage::reader::Reader;
use storage::rows;
use storage::{Acquired, Expect, Mode, Taking, Waiting};

/// How often a statement reads rows that others change before it has locked them.
pub(in crate::session) const READS: usize = 32;

/// A SELECT whose rows are locked.
pub(in crate::session) enum Locked {
    /// Its answer came with the locks.
    Answer(Reply),
    /// It is to be answered from here.
    Read(Reader, Arc<Catalog>),
}

/// A table whose rows a SELECT locks, and the name it goes by there.
struct Locking {
    table: Arc<Table>,
    name: String,
}

impl Session {
    /// How a statement within a transaction finds rows.
    pub(in crate::session) fn finding(&self, open: &Open) -> Finding {
        match open.pessimistic {
            true => Finding::Lock(open.clone(), Taking::alone(self.row_wait(), Expect::Rows)),
            false => Finding::Read(Reader::Transaction(open.shared.clone(), open.ts)),
        }
    }

    /// How long a statement waits for a row.
    pub(in crate::session) fn row_wait(&self) -> Waiting {
        Waiting::For(self.variables.row_wait_seconds().saturating_mul(1_000))
    }

    /// What a statement reads besides the rows that it locks.
    pub(in crate::session) async fn beside(&self, finding: &Finding) -> SqlResult<Reader> {
        Ok(match finding {
            Finding::Read(reader) => reader.clone(),
            Finding::Lock(open, ..) => {
                Reader::Transaction(open.shared.clone(), self.engine.storage.timestamp().await?)
            }
        })
    }

    /// Locks keys of a table.
    pub(in crate::session) async fn acquire(
        &self,
        (open, taking): (&Open, Taking),
        table: &Arc<Table>,
        keys: Vec<Vec<u8>>,
        read_at: Option<Timestamp>,
    ) -> SqlResult<Acquired> {
        if keys.is_empty() {
            return Ok(Acquired::default());
        }
        open.locking.store(true, Ordering::Release);
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        let acquired = transaction.acquire(table, keys, taking, read_at).await;
        acquired.map_err(|error| rows::error(error, std::slice::from_ref(table)))
    }

    /// The rows that a look-up by key finds, each with its record key.
    pub(in crate::session) async fn look_up(
        &self,
        table: &Arc<Table>,
        finding: &Finding,
        lookup: Lookup,
    ) -> SqlResult<Vec<(Vec<u8>, Vec<Value>)>> {
        let by = match finding {
            Finding::Read(reader) => return find(table, reader, lookup).await,
            Finding::Lock(open, taking) => (open, *taking),
        };
        let keys = match lookup {
            Lookup::Records(keys) => keys,
            Lookup::Entries(index, keys) => {
                let entries = self.acquire(by, table, keys, None).await?.rows;
                let entries = entries.iter().filter_map(|one| Some((&one.key, one.row.as_ref()?)));
                entries
                    .map(|(key, value)| key::record_of_index_entry(table, &index, key, value))
                    .collect::<types::Result<Vec<_>>>()?
            }
        };
        let mut found = Vec::with_capacity(keys.len());
        for one in self.acquire(by, table, keys, None).await?.rows {
            if let Some(stored) = one.row {
                found.push((one.key, row::decode(table, &stored)?));
            }
        }
        Ok(found)
    }

    /// Rows that a bound query finds, and the values found beside them; locked, if they are to be.
    pub(in crate::session) async fn found_by_plan(
        &self,
        query: &BoundQuery,
        catalog: &Arc<Catalog>,
        finding: &Finding,
        (table, weight): (&Arc<Table>, &Weight),
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        let (open, by) = match finding {
            Finding::Read(reader) => {
                return self.found_at(query, (catalog, reader), (table, weight)).await;
            }
            Finding::Lock(open, taking) => (open, (open, *taking)),
        };
        let (_, of_exprs) = self.diagnostics.mark();
        for _ in 0..READS {
            self.diagnostics.forget_expr_warnings(of_exprs);
            let at = self.engine.storage.timestamp().await?;
            let reader = Reader::Transaction(open.shared.clone(), at);
            weight.clear();
            let found = self.found_at(query, (catalog, &reader), (table, weight)).await?;
            let keys = found.iter().map(|(row, _)| rows::record_key(table, row)).collect();
            if self.acquire(by, table, keys, Some(at)).await?.newer.is_none() {
                return Ok(found);
            }
        }
        Err(restless(table))
    }

    /// Rows of one table that a bound query finds, and the values found beside them, not locked.
    async fn found_at(
        &self,
        query: &BoundQuery,
        at: (&Arc<Catalog>, &Reader),
        (table, weight): (&Arc<Table>, &Weight),
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        if let Some(query) = query.row_query(table)
            && let all = (0..table.columns.len()).collect::<Vec<_>>()
            && let Some(rows) = unplanned::rows_of(&query, table, at.1, &all).await?
        {
            let row = |row: Vec<Value>| weight.add(&row).map(|()| (row, Vec::new()));
            return unplanned::part(&query, rows).map(row).collect();
        }
        let listening = self.diagnostics.listening();
        self.all_found(query, at, table.columns.len(), weight, listening).await
    }

    /// Locks the rows of a SELECT … FOR UPDATE or FOR SHARE.
    pub(in crate::session) async fn locking_select(
        &mut self,
        query: &mut Query,
        open: &Open,
    ) -> SqlResult<Locked> {
        if self.transaction.snapshot().is_some() {
            return Err(lock_in_the_past());
        }
        if self.transaction.past().is_some() {
            return Err(lock_as_of());
        }
        let catalog = self.engine.storage.catalog().await?;
        let locks = std::mem::take(&mut query.locks);
        let waiting = self.waiting_of(&locks);
        let finding = match self.finding(open) {
            Finding::Lock(open, _) => {
                let mode = mode_of(&locks);
                Finding::Lock(open, Taking { mode, waiting, expect: Expect::Nothing })
            }
            read => read,
        };
        let reply = match &finding {
            Finding::Lock(..) => self.point_select(query, &[], Some(&finding)).await?,
            Finding::Read(_) => None,
        };
        let locked = match reply {
            Some(reply) => Locked::Answer(reply),
            None => {
                let reader = self.lock_rows(query, &locks, &catalog, &finding).await?;
                Locked::Read(reader, catalog)
            }
        };
        query.locks = locks;
        Ok(locked)
    }

    fn waiting_of(&self, locks: &[LockClause]) -> Waiting {
        let nonblock =
            |kind: &NonBlock| locks.iter().any(|lock| lock.nonblock.as_ref() == Some(kind));
        if nonblock(&NonBlock::SkipLocked) {
            Waiting::Skip
        } else if nonblock(&NonBlock::Nowait) {
            Waiting::No
        } else {
            self.row_wait()
        }
    }

    /// Locks every row that a query takes from its tables; gives what the query then is to read.
    async fn lock_rows(
        &self,
        query: &mut Query,
        locks: &[LockClause],
        catalog: &Arc<Catalog>,
        finding: &Finding,
    ) -> SqlResult<Reader> {
        let (bound, tables) = self.locked_rows(query, locks, catalog, finding).await?;
        let (by, waiting) = match finding {
            Finding::Lock(open, taking) => (Some((open, *taking)), taking.waiting),
            Finding::Read(_) => (None, Waiting::No),
        };
        if let (Finding::Read(reader), Some(lookup)) = (finding, by_key(query, &tables, finding)) {
            let [one] = tables.as_slice() else { return Ok(reader.clone()) };
            let found = find(&one.table, reader, lookup).await?;
            let keys = found.into_iter().map(|(key, _)| key).collect();
            self.lock_keys(finding, &one.table, keys, reader.ts()).await?;
            return Ok(reader.clone());
        }
        let skip = waiting == Waiting::Skip;
        if skip && tables.len() != 1 {
            return Err(unsupported("SKIP LOCKED for more than one table"));
        }
        for _ in 0..READS {
            let reader = self.beside(finding).await?;
            let width = tables.iter().map(|one| one.table.columns.len()).sum();
            let weight = self.weight();
            // Finding rows to lock gives no warnings: the query itself will.
            let found = self.all_found(&bound, (catalog, &reader), width, &weight, None).await?;
            let mut newer = None;
            let mut from = 0;
            for one in &tables {
                let to = from + one.table.columns.len();
                let of_table = found.iter().filter_map(|(row, _)| row.get(from..to));
                let rows: Vec<&[Value]> = of_table.filter(|row| is_row(&one.table, row)).collect();
                from = to;
                if skip {
                    let Some(by) = by else { continue };
                    let (got, late) = self.lock_free_rows(query, one, rows, by, &reader).await?;
                    newer = newer.max(late);
                    if newer.is_none() {
                        restrict(query, one, &got);
                    }
                    continue;
                }
                let keys = rows.iter().map(|row| rows::record_key(&one.table, row)).collect();
                newer = newer.max(self.lock_keys(finding, &one.table, keys, reader.ts()).await?);
            }
            if newer.is_none() {
                return Ok(reader);
            }
        }
        Err(tables.first().map_or_else(|| impossible("no table"), |one| restless(&one.table)))
    }

    /// Locks keys that were read at a timestamp; a newer version, if there is one.
    async fn lock_keys(
        &self,
        finding: &Finding,
        table: &Arc<Table>,
        keys: Vec<Vec<u8>>,
        at: Timestamp,
    ) -> SqlResult<Option<Timestamp>> {
        match finding {
            Finding::Lock(open, taking) => {
                Ok(self.acquire((open, *taking), table, keys, Some(at)).await?.newer)
            }
            Finding::Read(Reader::Transaction(shared, _)) => {
                let mut guard = shared.lock().await;
                let transaction =
                    guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
                for key in keys {
                    transaction.lock(table, key)?;
                }
                Ok(None)
            }
            Finding::Read(Reader::Snapshot(_)) => Ok(None),
        }
    }

    /// SKIP LOCKED: locks rows in order until there are as many as the query wants.
    async fn lock_free_rows<'a>(
        &self,
        query: &Query,
        one: &Locking,
        rows: Vec<&'a [Value]>,
        by: (&Open, Taking),
        reader: &Reader,
    ) -> SqlResult<(Vec<&'a [Value]>, Option<Timestamp>)> {
        let wanted = limit_of(query).unwrap_or(usize::MAX);
        let (mut got, mut newer) = (Vec::new(), None);
        let mut rest = rows.as_slice();
        while got.len() < wanted && !rest.is_empty() {
            let (now, later) = rest.split_at((wanted - got.len()).min(rest.len()));
            rest = later;
            let keys = now.iter().map(|row| rows::record_key(&one.table, row)).collect();
            let acquired = self.acquire(by, &one.table, keys, Some(reader.ts())).await?;
            newer = newer.max(acquired.newer);
            let held: BTreeSet<Vec<u8>> = acquired.rows.into_iter().map(|row| row.key).collect();
            let free = |row: &&&[Value]| held.contains(&rows::record_key(&one.table, row));
            got.extend(now.iter().filter(free).copied());
        }
        Ok((got, newer))
    }

    /// The rows that a query's lock clauses mean, and their tables: those of its FROM, or those named after OF.
    async fn locked_rows(
        &self,
        query: &Query,
        locks: &[LockClause],
        catalog: &Arc<Catalog>,
        finding: &Finding,
    ) -> SqlResult<(BoundQuery, Vec<Locking>)> {
        let SetExpr::Select(select) = &*query.body else {
            return Err(unsupported("FOR UPDATE or FOR SHARE of a UNION"));
        };
        if query.with.is_some() {
            return Err(unsupported("FOR UPDATE or FOR SHARE with a common table expression"));
        }
        let (from, condition) = (&select.from[..], select.selection.as_ref());
        let mut rows = RowsOf { from, condition, order_by: &[], limit: None };
        let resolved = self.tables_of_change(&rows, &[], (catalog, finding)).await?;
        let of: Option<Vec<ObjectName>> = locks.iter().map(|lock| lock.of.clone()).collect();
        let targets = of.as_deref().map_or(Targets::Stored, Targets::Named);
        let mut bound = self.bound_change(&rows, targets, &resolved)?;
        let unknown = |name: &&ObjectName| !bound.targets.iter().any(|target| target.goes_by(name));
        if let Some(unknown) = of.iter().flatten().find(unknown) {
            return Err(unresolved_lock_table(parts(unknown).pop().unwrap_or_default()));
        }
        let locking = |target: &Target| {
            Ok(Locking { table: table_of(target, &resolved)?, name: target.called.clone() })
        };
        let tables = bound.targets.iter().map(locking).collect::<SqlResult<Vec<_>>>()?;
        let order = match query.order_by.as_ref().map(|order| &order.kind) {
            None => &[][..],
            Some(OrderByKind::Expressions(by)) => by,
            Some(OrderByKind::All(_)) => return Ok((bound.query, tables)),
        };
        let skips = locks.iter().any(|lock| lock.nonblock == Some(NonBlock::SkipLocked));
        if is_plain(select) && by_columns(order, &tables) {
            rows.order_by = order;
            rows.limit = query.limit_clause.clone().filter(|_| !skips);
            bound = self.bound_change(&rows, targets, &resolved)?;
        }
        Ok((bound.query, tables))
    }
}

pub(in crate::session) fn restless(table: &Table) -> SqlError {
    rows_kept_changing(&table.name, READS)
}

/// How lock clauses hold rows: with FOR UPDATE among them, all of them alone.
fn mode_of(locks: &[LockClause]) -> Mode {
    match locks.iter().all(|lock| lock.lock_type == LockType::Share) {
        true => Mode::Shared,
        false => Mode::Exclusive,
    }
}

/// The rows that a query takes from one table, if it names them by their whole keys.
fn by_key(query: &Query, tables: &[Locking], finding: &Finding) -> Option<Lookup> {
    let (select, [one]) = (plain_select(query)?, tables) else { return None };
    lookup(&one.table, Some(&one.name), select.selection.as_ref()?, finding.ts())
}

/// Whether values are a row of the table, not what an outer join puts in its place.
pub(in crate::session) fn is_row(table: &Table, row: &[Value]) -> bool {
    table.key_positions().iter().all(|at| row.get(*at).is_some_and(|value| !value.is_null()))
}

/// Whether a SELECT's rows are those that an order and a limit are of: groups are made of all rows, and what an order is by
/// must be there without the select list.
fn is_plain(select: &Select) -> bool {
    matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
        && select.having.is_none()
        && select.distinct.is_none()
        && select.projection.iter().all(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
            }
            _ => true,
        })
}

fn named(one: &Locking, column: &str) -> Expr {
    let path = vec![Ident::with_quote('`', &one.name), Ident::with_quote('`', column)];
    Expr::CompoundIdentifier(path)
}

fn by_columns(order: &[OrderByExpr], tables: &[Locking]) -> bool {
    let known = |name: &str| tables.iter().any(|one| one.table.column_named(name).is_some());
    order.iter().all(|by| match &by.expr {
        Expr::Identifier(name) => known(&name.value),
        Expr::CompoundIdentifier(_) => true,
        _ => false,
    })
}

/// The number of a LIMIT without an offset.
fn limit_of(query: &Query) -> Option<usize> {
    match query.limit_clause.as_ref()? {
        LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by }
            if limit_by.is_empty() =>
        {
            match constant::literal(limit)? {
                Value::Int(n) => usize::try_from(n).ok(),
                Value::UInt(n) => usize::try_from(n).ok(),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Makes a query answer with these rows of a table only.
fn restrict(query: &mut Query, one: &Locking, rows: &[&[Value]]) {
    let positions = one.table.key_positions();
    let equal = |row: &&[Value]| {
        let column = |at: &usize| {
            let (column, value) = (one.table.columns.get(*at)?, row.get(*at)?);
            let (left, right) = (named(one, &column.name), constant::expression(value));
            Some(joined(left, BinaryOperator::Eq, right))
        };
        let all = positions.iter().filter_map(column);
        all.reduce(|left, right| joined(left, BinaryOperator::And, right))
    };
    let mut any: Vec<Expr> = rows.iter().filter_map(equal).collect();
    // Pair by pair: a tree that is as deep as there are rows could not be planned.
    while any.len() > 1 {
        let mut halves = Vec::with_capacity(any.len().div_ceil(2));
        let mut left = any.into_iter();
        while let Some(first) = left.next() {
            halves.push(match left.next() {
                Some(second) => Expr::Nested(Box::new(joined(first, BinaryOperator::Or, second))),
                None => first,
            });
        }
        any = halves;
    }
    let nothing = || Expr::value(SqlValue::Boolean(false));
    let only = Expr::Nested(Box::new(any.pop().unwrap_or_else(nothing)));
    if let SetExpr::Select(select) = &mut *query.body {
        let before = select.selection.take();
        select.selection = Some(match before {
            Some(before) => joined(Expr::Nested(Box::new(before)), BinaryOperator::And, only),
            None => only,
        });
    }
}

fn joined(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}
