//! Rows that others refer to: what becomes of these when they go or get another key.
//!
//! A parent's key is locked alone before its children are looked for, at a timestamp from after that: whoever adds one must hold
//! that key beside others until it has committed, so from then on there are none but those that are found. Rows of children that go or
//! change are locked as those of the statement are, and may have children themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use futures::future::FutureExt;
use futures::{StreamExt, TryStreamExt, stream};
use placement::api::Catalog;
use storage::reader::Reader;
use storage::{Expect, Taking, Transaction, rows};
use types::foreign_key::Way;
use types::{Error, ForeignKey, OnParent, Table, TableId, Timestamp, Value, key, row};
use values::coerce::{self, Place};
use values::error::{SqlError, SqlResult, cascade_too_deep, row_referred_to};
use values::temporal::Zone;

use super::changes::Changes;
use super::fitting::Fitting;
use super::matched_rows::Weight;
use super::net::NetChange;
use crate::session::transaction::finding::Finding;
use crate::session::transaction::locking::{READS, restless};
use crate::session::transaction::state::Open;
use crate::session::{Session, impossible};
use definitions::{key_clause, qualified};

/// Most levels of rows that go with rows, as in MySQL.
const DEEPEST: usize = 15;
/// Keys whose children are looked for at a time.
const AT_A_TIME: usize = 16;

/// Changes of a child's rows that follow from a statement's, ready to be written.
pub(in crate::session) struct Consequence {
    table: Arc<Table>,
    changes: Changes,
    owned: rows::Owned,
}

/// What a statement does to the rows of one table.
pub(in crate::session) type TableChanges<'a> = (&'a Arc<Table>, &'a [NetChange]);

/// A row that the statement has changed.
struct Changed {
    /// As it is by now; none if it has gone.
    row: Option<Vec<Value>>,
    /// Where it stands among the changes of its table.
    place: usize,
}

/// Changes whose rows may have children.
struct Level {
    table: Arc<Table>,
    changes: Vec<NetChange>,
    depth: usize,
    /// Tables on the way here whose rows were updated, this one included if its are.
    updated: Vec<TableId>,
}

/// A row of a child.
struct Child {
    /// Which change of its parent's table it is found by.
    by: usize,
    record: Vec<u8>,
    row: Vec<Value>,
    /// Whether the statement has changed it already, and so holds it.
    held: bool,
}

/// A foreign key that refers to a table, seen from there.
struct Referred<'c> {
    key: &'c ForeignKey,
    child: Arc<Table>,
    /// Positions of the parent's columns and of the child's.
    of_parent: Vec<usize>,
    of_child: Vec<usize>,
    to_parent: Way,
    to_children: Way,
}

impl<'c> Referred<'c> {
    /// A key of a child; none where it is not as both tables are, which no change of them leaves it.
    fn new(
        key: &'c ForeignKey,
        child: TableId,
        parent: &Table,
        catalog: &Catalog,
    ) -> SqlResult<Self> {
        let found = || {
            let child = catalog.tables.iter().find(|table| table.id == child)?.clone();
            let of_parent = key.referenced_positions(parent)?;
            let of_child = key.positions(&child)?;
            let to_parent = Way::to_parent(parent, &ids(parent, &of_parent)?)?;
            let to_children = Way::to_children(&child, &ids(&child, &of_child)?)?;
            Some(Referred { key, child, of_parent, of_child, to_parent, to_children })
        };
        found().ok_or_else(|| impossible("a foreign key that does not fit its tables"))
    }

    /// The key that a change takes from the parent's row, if it does.
    fn left(&self, change: &NetChange) -> Option<Vec<Value>> {
        let before = values(change.before.as_ref()?, &self.of_parent)?;
        let after = change.after.as_ref().and_then(|row| values(row, &self.of_parent));
        (after.as_ref() != Some(&before)).then_some(before)
    }

    /// What becomes of the children of a change. Where an UPDATE would come back to a table that it has changed, nothing may,
    /// as in MySQL.
    fn action(&self, change: &NetChange, level: &Level) -> OnParent {
        let action = match change.after {
            None => self.key.on_delete,
            Some(_) if level.updated.contains(&self.child.id) => OnParent::Restrict,
            Some(_) => self.key.on_update,
        };
        if self.key.proven { action } else { OnParent::Restrict }
    }

    /// Error 1451.
    fn fails(&self) -> SqlError {
        row_referred_to(qualified(&self.child), key_clause(self.key, &self.child.database))
    }

    /// A child's row with its parent's new key, or without one.
    fn followed(
        &self,
        child: &[Value],
        change: &NetChange,
        action: OnParent,
    ) -> SqlResult<Vec<Value>> {
        let mut row = child.to_vec();
        for (own, of_parent) in self.of_child.iter().zip(&self.of_parent) {
            let new = change.after.as_ref().filter(|_| action == OnParent::Cascade);
            let new = new.and_then(|row| row.get(*of_parent)).cloned().unwrap_or(Value::Null);
            let Some(column) = self.child.columns.get(*own) else { continue };
            let place = Place { column, row: 1, zone: Zone::UTC };
            // A text that was short enough before may be too long now.
            let new = coerce::to_column(new, place).map_err(|_| self.fails())?;
            if let Some(slot) = row.get_mut(*own) {
                *slot = new;
            }
        }
        Ok(row)
    }
}

fn ids(table: &Table, positions: &[usize]) -> Option<Vec<u32>> {
    positions.iter().map(|at| table.columns.get(*at).map(|column| column.id)).collect()
}

/// A row's values at positions; none if one of them is NULL.
fn values(row: &[Value], positions: &[usize]) -> Option<Vec<Value>> {
    let value = |at: &usize| row.get(*at).filter(|value| !value.is_null()).cloned();
    positions.iter().map(value).collect()
}

/// A statement whose consequences are being found.
struct Cascade<'a> {
    catalog: Arc<Catalog>,
    open: &'a Open,
    finding: &'a Finding,
    changed: HashMap<(TableId, Vec<u8>), Changed>,
    consequences: Vec<Consequence>,
    weight: Weight,
}

impl Cascade<'_> {
    fn note(&mut self, table: &Table, changes: &[NetChange]) {
        // A row may come by a key that another one leaves.
        for (place, before) in changes.iter().map(|change| &change.before).enumerate() {
            if let Some(before) = before {
                let gone = Changed { row: None, place };
                self.changed.insert((table.id, rows::record_key(table, before)), gone);
            }
        }
        for (place, after) in changes.iter().map(|change| &change.after).enumerate() {
            if let Some(after) = after {
                let now = Changed { row: Some(after.clone()), place };
                self.changed.insert((table.id, rows::record_key(table, after)), now);
            }
        }
    }
}

impl Session {
    /// Checks what a statement does by the foreign keys of its tables and by those that refer to them; what else is to be done
    /// because of them. Here other sessions are waited for.
    pub(super) async fn enforce(
        &self,
        done: &[TableChanges<'_>],
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<Vec<Consequence>> {
        match self.cascade(done, open, finding).await? {
            // Its future is large, and so no part of every statement's.
            Some(cascade) => Box::pin(self.enforce_from(cascade, done)).await,
            None => Ok(Vec::new()),
        }
    }

    async fn enforce_from(
        &self,
        mut cascade: Cascade<'_>,
        done: &[TableChanges<'_>],
    ) -> SqlResult<Vec<Consequence>> {
        let mut levels = VecDeque::new();
        for (table, changes) in done {
            let orphans =
                self.orphans(&cascade.catalog, table, changes, None, cascade.open).await?;
            if let Some((_, error)) = orphans.into_iter().next() {
                return Err(error);
            }
            levels.push_back(first_level(table, changes));
        }
        while let Some(level) = levels.pop_front() {
            levels.extend(self.follow(&mut cascade, &level).await?);
        }
        Ok(cascade.consequences)
    }

    /// The changes of one table that foreign keys forbid, by their places, with the error of each.
    pub(super) async fn forbidden(
        &self,
        done: TableChanges<'_>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<BTreeMap<usize, SqlError>> {
        let Some(cascade) = self.cascade(&[done], open, finding).await? else {
            return Ok(BTreeMap::new());
        };
        let (table, changes) = done;
        let mut forbidden = self.orphans(&cascade.catalog, table, changes, None, open).await?;
        let level = first_level(table, changes);
        for (child, key) in cascade.catalog.foreign_keys.to(table) {
            let key = Referred::new(key, child, table, &cascade.catalog)?;
            let left = self.keys_left(&cascade, &key, &level).await?;
            let (children, _) = self.children(&cascade, &key, &left).await?;
            for child in children {
                let Some(change) = changes.get(child.by) else { continue };
                if key.action(change, &level).forbids() {
                    forbidden.entry(child.by).or_insert_with(|| key.fails());
                }
            }
        }
        Ok(forbidden)
    }

    /// The beginning of a statement's consequences; none where no foreign key has to do with it.
    async fn cascade<'a>(
        &self,
        done: &[TableChanges<'_>],
        open: &'a Open,
        finding: &'a Finding,
    ) -> SqlResult<Option<Cascade<'a>>> {
        let catalog = self.engine.storage.catalog().await?;
        if catalog.foreign_keys.is_empty()
            || !done.iter().any(|(table, _)| catalog.foreign_keys.concern(table))
            || !self.checks_foreign_keys()?
        {
            return Ok(None);
        }
        let (changed, consequences) = (HashMap::new(), Vec::new());
        let weight = self.weight();
        let mut cascade = Cascade { catalog, open, finding, changed, consequences, weight };
        done.iter().for_each(|(table, changes)| cascade.note(table, changes));
        Ok(Some(cascade))
    }

    /// Finds what becomes of the children of changed rows; the changes that follow from that.
    async fn follow(&self, cascade: &mut Cascade<'_>, level: &Level) -> SqlResult<Vec<Level>> {
        let catalog = cascade.catalog.clone();
        let mut next = Vec::new();
        for (child, key) in catalog.foreign_keys.to(&level.table) {
            let key = Referred::new(key, child, &level.table, &catalog)?;
            let left = self.keys_left(cascade, &key, level).await?;
            if left.is_empty() {
                continue;
            }
            let children = self.locked_children(cascade, &key, level, &left).await?;
            let (mut going, mut pairs) = (Vec::new(), Vec::new());
            for child in children {
                let Some(change) = level.changes.get(child.by) else { continue };
                match key.action(change, level) {
                    action if action.forbids() => return Err(key.fails()),
                    OnParent::Cascade if change.after.is_none() => going.push(child.row),
                    action => {
                        let new = key.followed(&child.row, change, action)?;
                        pairs.push((child.row, new));
                    }
                }
            }
            self.derive_pairs(&key.child, &mut pairs, &mut Fitting::Strict)?;
            self.count_changed(&key.child, &pairs).await?;
            for changes in [Changes::Delete { rows: going }, Changes::Update { pairs }] {
                if !changes.is_empty() {
                    next.push(self.consequence(cascade, &key, level, changes).await?);
                }
            }
        }
        Ok(next)
    }

    /// Locks what changes of a child take and leave, checks its other keys, and takes the changes in.
    async fn consequence(
        &self,
        cascade: &mut Cascade<'_>,
        key: &Referred<'_>,
        level: &Level,
        changes: Changes,
    ) -> SqlResult<Level> {
        let depth = level.depth + 1;
        if depth > DEEPEST {
            return Err(cascade_too_deep(DEEPEST));
        }
        let (child, open) = (&key.child, cascade.open);
        let lock = Finding::Lock(open.clone(), Taking::alone(self.row_wait(), Expect::Rows));
        let owned = self.make_way(child, &changes, open, &lock, true).await?;
        let net = NetChange::of_changes(&changes);
        let orphans = self.orphans(&cascade.catalog, child, &net, Some(key.key), open).await?;
        if let Some((_, error)) = orphans.into_iter().next() {
            return Err(error);
        }
        cascade.note(child, &net);
        let mut updated = level.updated.clone();
        if matches!(changes, Changes::Update { .. }) {
            updated.push(child.id);
        }
        cascade.consequences.push(Consequence { table: child.clone(), changes, owned });
        Ok(Level { table: child.clone(), changes: net, depth, updated })
    }

    /// The keys that changes take from rows, by the changes' places; locked alone.
    async fn keys_left(
        &self,
        cascade: &Cascade<'_>,
        key: &Referred<'_>,
        level: &Level,
    ) -> SqlResult<Vec<(usize, Vec<Value>)>> {
        let changes = level.changes.iter().enumerate();
        let left: Vec<(usize, Vec<Value>)> =
            changes.filter_map(|(at, change)| Some((at, key.left(change)?))).collect();
        let keys: BTreeSet<Vec<u8>> =
            left.iter().map(|(_, values)| key.to_parent.prefix(&level.table, values)).collect();
        // One that locks its rows holds these already. Of one that does not, the rows must be as it has read them.
        let read_at = match cascade.finding {
            Finding::Read(reader) => Some(reader.ts()),
            Finding::Lock(..) => None,
        };
        let by = (cascade.open, Taking::alone(self.row_wait(), Expect::Rows));
        let acquired = self.acquire(by, &level.table, keys.into_iter().collect(), read_at).await?;
        match (acquired.newer, acquired.rows.first()) {
            (Some(newer), Some(row)) if read_at.is_some() => {
                let start = cascade.open.ts;
                Err(Error::Conflict { start, key: row.key.clone(), committed: newer }.into())
            }
            _ => Ok(left),
        }
    }

    /// Children as they are now, those that are to change locked.
    async fn locked_children(
        &self,
        cascade: &Cascade<'_>,
        key: &Referred<'_>,
        level: &Level,
        left: &[(usize, Vec<Value>)],
    ) -> SqlResult<Vec<Child>> {
        for _ in 0..READS {
            let (mut children, at) = self.children(cascade, key, left).await?;
            let forbids = |child: &Child| {
                let change = level.changes.get(child.by);
                change.is_some_and(|change| key.action(change, level).forbids())
            };
            if children.iter().any(forbids) {
                return Err(key.fails());
            }
            // Those that the statement has ended count for what is forbidden alone.
            children.retain(|child| !self.has_gone(cascade, &key.child, child));
            let free = children.iter().filter(|child| !child.held);
            let keys: Vec<Vec<u8>> = free.map(|child| child.record.clone()).collect();
            let by = (cascade.open, Taking::alone(self.row_wait(), Expect::Rows));
            if self.acquire(by, &key.child, keys, Some(at)).await?.newer.is_none() {
                return Ok(children);
            }
        }
        Err(restless(&key.child))
    }

    fn has_gone(&self, cascade: &Cascade<'_>, table: &Table, child: &Child) -> bool {
        let known = cascade.changed.get(&(table.id, child.record.clone()));
        known.is_some_and(|known| known.row.is_none())
    }

    /// Children of keys as they are at a timestamp of now and after what the statement has done so far; and that timestamp. A row
    /// of the parent's own table that the statement ends behind its parent still counts as a child: rows go one after the other.
    async fn children(
        &self,
        cascade: &Cascade<'_>,
        key: &Referred<'_>,
        left: &[(usize, Vec<Value>)],
    ) -> SqlResult<(Vec<Child>, Timestamp)> {
        if left.is_empty() {
            return Ok((Vec::new(), Timestamp::ZERO));
        }
        let at = self.engine.storage.timestamp().await?;
        let reader = Reader::Transaction(cascade.open.shared.clone(), at);
        let looks: Vec<_> = left
            .iter()
            .map(|(by, values)| {
                let prefix = key.to_children.prefix(&key.child, values);
                let (child, way) = (key.child.clone(), key.to_children.clone());
                rows_at(reader.clone(), child, way, (*by, prefix)).boxed()
            })
            .collect();
        let mut found = stream::iter(looks).buffered(AT_A_TIME);
        let mut children = Vec::new();
        while let Some((by, rows)) = found.try_next().await? {
            for (record, row) in rows {
                let known = cascade.changed.get(&(key.child.id, record.clone()));
                let (row, held) = match known {
                    None => (row, false),
                    Some(Changed { row: None, place }) if *place > by && key.is_to_itself() => {
                        (row, true)
                    }
                    Some(Changed { row: None, .. }) => continue,
                    Some(Changed { row: Some(now), .. }) => (now.clone(), true),
                };
                let values_now = values(&row, &key.of_child);
                let wanted = left.binary_search_by_key(&by, |(at, _)| *at).ok();
                if wanted.and_then(|at| left.get(at)).map(|(_, values)| values)
                    == values_now.as_ref()
                {
                    cascade.weight.add(&row)?;
                    children.push(Child { by, record, row, held });
                }
            }
        }
        Ok((children, at))
    }

    /// Leaves out of a DELETE IGNORE the rows that others refer to, with a warning each.
    pub(super) async fn keep_referred_to(
        &mut self,
        table: &Arc<Table>,
        changes: &mut Changes,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<()> {
        let Changes::Delete { rows } = changes else { return Ok(()) };
        if !self.is_referring(table).await? {
            return Ok(());
        }
        let net: Vec<NetChange> = rows.iter().map(NetChange::gone).collect();
        let forbidden = self.forbidden((table, &net), open, finding).await?;
        let mut at = 0..;
        rows.retain(|_| at.next().is_none_or(|at| !forbidden.contains_key(&at)));
        forbidden.into_values().for_each(|error| self.diagnostics.warn(error));
        Ok(())
    }

    /// Whether a table has foreign keys, or is referred to.
    pub(super) async fn is_referring(&self, table: &Table) -> SqlResult<bool> {
        let keys = &self.engine.storage.catalog().await?.foreign_keys;
        Ok(!keys.is_empty() && keys.concern(table))
    }
}

/// Writes consequences into a transaction, in order. What fails is taken back by the caller.
pub(super) fn carry_out(into: &mut dyn Transaction, consequences: &[Consequence]) -> SqlResult<()> {
    for Consequence { table, changes, owned } in consequences {
        let written = changes.write(into, table, owned);
        written.map_err(|error| rows::error(error, std::slice::from_ref(table)))?;
    }
    Ok(())
}

impl Referred<'_> {
    /// Whether the child is its own parent.
    fn is_to_itself(&self) -> bool {
        self.key.refers_to(&self.child)
    }
}

fn first_level(table: &Arc<Table>, changes: &[NetChange]) -> Level {
    let updates = changes.iter().any(|change| change.before.is_some() && change.after.is_some());
    let updated = if updates { vec![table.id] } else { Vec::new() };
    Level { table: table.clone(), changes: changes.to_vec(), depth: 0, updated }
}

/// Rows of a table whose keys begin so, with their record keys; and what they are looked for by.
async fn rows_at(
    reader: Reader,
    table: Arc<Table>,
    way: Way,
    (by, prefix): (usize, Vec<u8>),
) -> SqlResult<(usize, Vec<(Vec<u8>, Vec<Value>)>)> {
    let end = key::prefix_end(&prefix);
    let mut scan = reader.scan(prefix, end, false, None).await;
    let mut found = Vec::new();
    while let Some(page) = scan.next_page().await? {
        let records = match &way {
            Way::Records => page,
            Way::Entries(index) => {
                let record = |(entry, value): &(Vec<u8>, Vec<u8>)| {
                    key::record_of_index_entry(&table, index, entry, value)
                };
                reader.get(page.iter().map(record).collect::<types::Result<Vec<_>>>()?).await?
            }
        };
        for (record, stored) in records {
            found.push((record, row::decode(&table, &stored)?));
        }
    }
    Ok((by, found))
}
