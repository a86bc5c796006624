//! Rows that may meet others of the same key: INSERT … ON DUPLICATE KEY UPDATE, REPLACE, INSERT
//! IGNORE, UPDATE IGNORE.
//!
//! What a row meets decides what is done with it, so its keys are locked before they are looked at
//! (in an optimistic transaction they are read, and conflicts show at commit). Never decided by what
//! another session may still change.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use placement::api::Catalog;
use sqlparser::ast::Insert;
use types::{Table, Value, key, row};
use values::error::{SqlError, SqlResult};

use super::assigning::Assigning;
use super::cascades::{Consequence, carry_out};
use super::fitting::Fitting;
use super::insert::{Insertion, Numbered, Source, whole};
use super::net::NetChange;
use super::new_values::Pair;
use super::pending_changes::{Clash, PendingChanges};
use crate::session::transaction::finding::Finding;
use crate::session::transaction::state::Open;
use crate::session::{Session, impossible};
use definitions::number_of;
use execution::reply::{Done, Reply};
use storage::rows;
use storage::{Expect, Taking};

/// What becomes of a new row whose key another one has.
enum Meeting {
    /// The other one is changed.
    Update(Box<Assigning>),
    /// The other one goes.
    Replace,
    /// The new one is left out, with a warning.
    Ignore,
}

/// Rows counted as MySQL counts them.
#[derive(Default)]
struct Tally {
    /// New rows, and changed ones.
    copied: u64,
    /// Rows met that were changed or replaced.
    changed: u64,
    /// Rows met, changed or not.
    touched: u64,
    /// The first number given to a row that was added.
    first_id: u64,
    /// AUTO_INCREMENT of the last row dealt with.
    last_id: u64,
}

/// Ends a row that another one replaces; what that counts. As MySQL: a row met by its last key is
/// changed in place, and an equal one is not counted.
fn replaced(pending: &mut PendingChanges, clash: Clash, by: &[Value]) -> SqlResult<u64> {
    let same = clash.last && clash.row == by;
    pending.delete(clash.row)?;
    Ok(u64::from(!same))
}

/// Whether an INSERT says what to do about rows of the same key.
pub(in crate::session) fn meets(insert: &Insert) -> bool {
    insert.ignore || insert.replace_into || insert.on.is_some()
}

impl Session {
    /// Runs such an INSERT or REPLACE within a transaction.
    pub(super) async fn insert_meeting(
        &mut self,
        insert: &Insert,
        catalog: &Arc<Catalog>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<Reply> {
        let mut insertion = self.bound_insert(insert, catalog, finding).await?;
        let Source { given, beside } = self.given(&mut insertion).await?;
        let Insertion { table, bound, .. } = insertion;
        let records = given.len();
        let mut fitting = Fitting::ignoring(insert.ignore);
        let Numbered { rows: new, missing, broken, .. } =
            self.complete_numbered(&table, &bound.positions, given, 1, &mut fitting).await?;
        let meeting = match &bound.on_duplicate {
            // Without a record nothing is met, and nothing shows the types of what a query gives.
            Some(_) if records == 0 => Meeting::Replace,
            Some(on) => {
                let first = beside.first().map(Vec::as_slice).unwrap_or_default();
                let on = (on, &bound.columns[..]);
                Meeting::Update(Box::new(Assigning::new(self, &table, on, first)?))
            }
            None if insert.replace_into => Meeting::Replace,
            None => Meeting::Ignore,
        };
        let mut pending = PendingChanges::new(table.clone());
        self.learn(&mut pending, &table, new.iter(), open, finding).await?;
        let mut tally = Tally::default();
        let number = number_of(&table);
        let mut orphans = match (&meeting, insert.ignore) {
            (Meeting::Ignore, true) => self.without_parents(&table, &new, open).await?,
            _ => BTreeMap::new(),
        };
        for (at, row) in new.into_iter().enumerate() {
            if broken.binary_search(&at).is_ok() {
                continue;
            }
            if let Some(error) = orphans.remove(&at) {
                fitting.leave_out(error)?;
                continue;
            }
            let numbered = missing.binary_search(&at).is_ok();
            tally.last_id = number.map_or(0, |number| whole(row.get(number)));
            let beside = beside.get(at).map(Vec::as_slice).unwrap_or_default();
            let so_far = (&mut pending, &mut tally, &mut fitting);
            let added = self.meet(row, &meeting, beside, (&table, open, finding), so_far).await?;
            if added && numbered && tally.first_id == 0 {
                tally.first_id = tally.last_id;
            }
        }
        self.write_pending(&pending, &table, open, finding).await?;
        let ignored = matches!(meeting, Meeting::Ignore);
        self.diagnostics.extend(fitting.into_warnings());
        Ok(Reply::Done(self.tallied(&tally, records, ignored)))
    }

    /// Adds a row, or does about the row that it meets what is to be done; whether it was added.
    async fn meet(
        &self,
        row: Vec<Value>,
        meeting: &Meeting,
        beside: &[ArrayRef],
        (table, open, finding): (&Arc<Table>, &Open, &Finding),
        (pending, tally, fitting): (&mut PendingChanges, &mut Tally, &mut Fitting),
    ) -> SqlResult<bool> {
        loop {
            let Some(clash) = pending.clash(&row, None)? else {
                pending.insert(row)?;
                tally.copied += 1;
                return Ok(true);
            };
            let assigning = match meeting {
                Meeting::Ignore => {
                    fitting.leave_out(rows::duplicate(table, &clash.key))?;
                    return Ok(false);
                }
                Meeting::Replace => {
                    tally.changed += replaced(pending, clash, &row)?;
                    continue;
                }
                Meeting::Update(assigning) => assigning,
            };
            let new = assigning.assigned(self, &clash.row, &row, beside, fitting)?;
            let mut pair = [(clash.row.clone(), new)];
            self.derive_pairs(table, &mut pair, fitting)?;
            self.count_changed(table, &pair).await?;
            let [(_, new)] = pair;
            tally.touched += 1;
            tally.last_id = number_of(table).map_or(0, |number| whole(new.get(number)));
            if self.change_met(pending, clash, new, (table, open, finding), fitting).await? {
                tally.changed += 1;
                tally.copied += 1;
            }
            return Ok(false);
        }
    }

    /// Puts rows into a transaction, one after the other; of those that meet others of the same key,
    /// either the others go or they are left out. How many came, and how many went.
    pub(super) async fn meet_rows(
        &self,
        table: &Arc<Table>,
        rows: &[Vec<Value>],
        replace: bool,
        open: &Open,
        fitting: &mut Fitting,
    ) -> SqlResult<(u64, u64)> {
        let finding = self.finding(open);
        let mut pending = PendingChanges::new(table.clone());
        self.learn(&mut pending, table, rows.iter(), open, &finding).await?;
        let (mut copied, mut deleted) = (0, 0);
        let mut orphans = match replace {
            false => self.without_parents(table, rows, open).await?,
            true => BTreeMap::new(),
        };
        for (at, row) in rows.iter().enumerate() {
            if let Some(error) = orphans.remove(&at) {
                fitting.leave_out(error)?;
                continue;
            }
            loop {
                let Some(clash) = pending.clash(row, None)? else {
                    pending.insert(row.clone())?;
                    copied += 1;
                    break;
                };
                if !replace {
                    fitting.leave_out(rows::duplicate(table, &clash.key))?;
                    break;
                }
                deleted += replaced(&mut pending, clash, row)?;
            }
        }
        self.write_pending(&pending, table, open, &finding).await?;
        Ok((copied, deleted))
    }

    /// Changes a row that was met, unless it stays as it is or may not be changed so.
    async fn change_met(
        &self,
        pending: &mut PendingChanges,
        clash: Clash,
        new: Vec<Value>,
        (table, open, finding): (&Arc<Table>, &Open, &Finding),
        fitting: &mut Fitting,
    ) -> SqlResult<bool> {
        if new == clash.row {
            return Ok(false);
        }
        self.learn(pending, table, std::iter::once(&new), open, finding).await?;
        if let Some(other) = pending.clash(&new, Some(&clash.record))? {
            fitting.leave_out(rows::duplicate(table, &other.key))?;
            return Ok(false);
        }
        pending.update(clash.row, new)?;
        Ok(true)
    }

    /// UPDATE IGNORE: changes rows one after the other, leaving out those whose key another has.
    /// The pairs that were changed, and the others as they stay.
    pub(super) async fn update_ignoring(
        &mut self,
        table: &Arc<Table>,
        pairs: Vec<(Vec<Value>, Vec<Value>)>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<Reply> {
        let found = pairs.len();
        let pairs = self.allowed_pairs(table, pairs, open, finding).await?;
        let (pending, changed) = self.stage_ignoring(table, pairs, open, finding).await?;
        self.write_pending(&pending, table, open, finding).await?;
        let warnings = self.diagnostics.count();
        let info = format!("Rows matched: {found}  Changed: {changed}  Warnings: {warnings}");
        let affected_rows = self.identity.counted(found as u64, changed);
        Ok(Reply::Done(Done { affected_rows, info, ..Done::default() }))
    }

    /// Rows that come and have no parent, by their places, with the error of each.
    async fn without_parents(
        &self,
        table: &Arc<Table>,
        rows: &[Vec<Value>],
        open: &Open,
    ) -> SqlResult<BTreeMap<usize, SqlError>> {
        let catalog = self.engine.storage.catalog().await?;
        if catalog.foreign_keys.of(table.id).is_empty() || !self.checks_foreign_keys()? {
            return Ok(BTreeMap::new());
        }
        let come: Vec<NetChange> = rows.iter().map(NetChange::come).collect();
        self.orphans(&catalog, table, &come, None, open).await
    }

    /// The pairs of an UPDATE IGNORE that foreign keys allow; a warning for each of the others.
    pub(super) async fn allowed_pairs(
        &mut self,
        table: &Arc<Table>,
        mut pairs: Vec<Pair>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<Vec<Pair>> {
        if !self.is_referring(table).await? {
            return Ok(pairs);
        }
        let net: Vec<NetChange> =
            pairs.iter().map(|(old, new)| NetChange::changed(old, new)).collect();
        let forbidden = self.forbidden((table, &net), open, finding).await?;
        let mut at = 0..;
        pairs.retain(|_| at.next().is_none_or(|at| !forbidden.contains_key(&at)));
        forbidden.into_values().for_each(|error| self.diagnostics.warn(error));
        Ok(pairs)
    }

    /// What an UPDATE IGNORE makes of pairs, not yet written, and how many of them it changes.
    pub(super) async fn stage_ignoring(
        &mut self,
        table: &Arc<Table>,
        pairs: Vec<(Vec<Value>, Vec<Value>)>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<(PendingChanges, u64)> {
        let mut pending = PendingChanges::new(table.clone());
        let mut fitting = Fitting::ignoring(true);
        let both = pairs.iter().flat_map(|(old, new)| [old, new]);
        self.learn(&mut pending, table, both, open, finding).await?;
        let mut changed = 0;
        for (old, new) in pairs {
            let record = rows::record_key(table, &old);
            let clash = Clash { key: Vec::new(), record, row: old, last: false };
            let place = (table, open, finding);
            if self.change_met(&mut pending, clash, new, place, &mut fitting).await? {
                changed += 1;
            }
        }
        self.diagnostics.extend(fitting.into_warnings());
        Ok((pending, changed))
    }

    /// Learns what has the unique keys of rows.
    async fn learn<'a>(
        &self,
        pending: &mut PendingChanges,
        table: &Arc<Table>,
        rows: impl Iterator<Item = &'a Vec<Value>>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<()> {
        let mut keys = Vec::new();
        for row in rows {
            keys.extend(rows::unique_keys(table, row)?);
        }
        let start = key::records_start(table.id);
        let mut records = Vec::new();
        let unknown = pending.unknown(keys);
        for (found, value) in self.held(table, unknown, open, finding).await? {
            match value {
                None => pending.learn(found, None),
                Some(value) if found.starts_with(&start) => {
                    pending.learn_row(found.clone(), row::decode(table, &value)?);
                    pending.learn(found.clone(), Some(found));
                }
                Some(value) => {
                    let index = table
                        .indexes
                        .iter()
                        .find(|index| found.starts_with(&key::index_start(table.id, index.id)));
                    let index = index.ok_or_else(|| impossible("an entry of no index"))?;
                    let record = key::record_of_index_entry(table, index, &found, &value)?;
                    pending.learn(found, Some(record.clone()));
                    records.push(record);
                }
            }
        }
        let unknown = pending.unknown(records);
        for (found, value) in self.held(table, unknown, open, finding).await? {
            if let Some(value) = value {
                pending.learn_row(found.clone(), row::decode(table, &value)?);
                pending.learn(found.clone(), Some(found));
            } else {
                pending.learn(found, None);
            }
        }
        Ok(())
    }

    /// Keys with their rows as they are now and stay: locked, in a transaction that locks.
    async fn held(
        &self,
        table: &Arc<Table>,
        keys: Vec<Vec<u8>>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<Vec<(Vec<u8>, Option<Vec<u8>>)>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        if let Finding::Lock(_, taking) = finding {
            let by = (open, Taking { expect: Expect::Nothing, ..*taking });
            let acquired = self.acquire(by, table, keys, None).await?;
            return Ok(acquired.rows.into_iter().map(|one| (one.key, one.row)).collect());
        }
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        let present = transaction.get(keys.clone()).await?;
        let mut found: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::with_capacity(keys.len());
        for key in keys {
            let row = present.binary_search_by(|(at, _)| at.cmp(&key)).ok();
            let row = row.and_then(|at| present.get(at)).map(|(_, row)| row.clone());
            // What is looked at decides, so nobody may change it before the commit.
            transaction.lock(table, key.clone())?;
            found.push((key, row));
        }
        Ok(found)
    }

    /// Writes pending changes; a failure takes back what the statement wrote.
    async fn write_pending(
        &self,
        pending: &PendingChanges,
        table: &Arc<Table>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<()> {
        if pending.is_empty() {
            return Ok(());
        }
        let owned = self.contested_of(pending, table, open, finding).await?;
        let consequences = match self.is_referring(table).await? {
            true => self.enforce(&[(table, &pending.net())], open, finding).await?,
            false => Vec::new(),
        };
        self.put_pending(pending, table, open, (&owned, &consequences)).await
    }

    /// Waits for the entries that pending changes leave or take.
    pub(super) async fn contested_of(
        &self,
        pending: &PendingChanges,
        table: &Arc<Table>,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<rows::Owned> {
        let contested = self.held(table, pending.contested()?, open, finding).await?;
        let owned = contested.into_iter().filter_map(|(key, row)| Some((key, row?)));
        Ok(rows::Owned::of(owned))
    }

    /// Puts pending changes into the transaction, without waiting for other sessions.
    pub(super) async fn put_pending(
        &self,
        pending: &PendingChanges,
        table: &Arc<Table>,
        open: &Open,
        (owned, consequences): (&rows::Owned, &[Consequence]),
    ) -> SqlResult<()> {
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        let before = transaction.savepoint();
        let written = pending
            .write(transaction.as_mut(), owned)
            .map_err(|error| rows::error(error, std::slice::from_ref(table)))
            .and_then(|()| carry_out(transaction.as_mut(), consequences));
        if let Err(error) = written {
            transaction.rollback_to(before);
            return Err(error);
        }
        Ok(())
    }

    fn tallied(&mut self, tally: &Tally, records: usize, ignored: bool) -> Done {
        if tally.first_id > 0 {
            self.diagnostics.set_last_insert_id(tally.first_id);
        }
        let met = self.identity.counted(tally.touched.max(tally.changed), tally.changed);
        let last = if tally.copied > 0 { tally.last_id } else { 0 };
        let last_insert_id = if tally.first_id > 0 { tally.first_id } else { last };
        let warnings = self.diagnostics.count();
        let duplicates = if ignored { records as u64 - tally.copied } else { met };
        let info = match records {
            0 | 1 => String::new(),
            _ => format!("Records: {records}  Duplicates: {duplicates}  Warnings: {warnings}"),
        };
        Done { affected_rows: tally.copied + met, last_insert_id, warnings: 0, info }
    }
}
