//! The oracle: a map of versions, made of the transactions that committed, and what must hold of it.
//!
//! It knows nothing of locks, regions, logs or nodes.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use types::{Row, Table, TableId, Timestamp};

use crate::ledger::{Attempt, Look, Outcome, Seen};
use crate::table::{Schemas, key_of};

type Versions = BTreeMap<Timestamp, Option<Vec<u8>>>;

/// Every version of every row.
pub(crate) struct Model {
    table: TableId,
    schemas: Schemas,
    versions: BTreeMap<i64, Versions>,
    /// Committed attempts and when.
    committed: Vec<(Timestamp, Attempt)>,
}

impl Model {
    /// `found` says of an attempt's marker when it was committed, if it is there.
    pub(crate) fn new(
        table: TableId,
        schemas: Schemas,
        attempts: Vec<Attempt>,
        found: &BTreeMap<i64, Timestamp>,
    ) -> Result<Self, String> {
        let mut committed = Vec::new();
        for attempt in attempts.into_iter().filter(|attempt| !attempt.writes.is_empty()) {
            let Attempt { id, what, .. } = attempt;
            match (attempt.outcome, found.get(&id).copied()) {
                (Outcome::Committed(answer), Some(at)) if answer == at => {
                    committed.push((at, attempt))
                }
                (Outcome::Committed(answer), Some(at)) => {
                    return Err(format!(
                        "{what} {id} was acknowledged at {answer} and committed at {at}"
                    ));
                }
                (Outcome::Committed(answer), None) => {
                    return Err(format!("acknowledged {what} {id} of {answer} is lost"));
                }
                (Outcome::Refused, Some(at)) => {
                    return Err(format!("{what} {id} was refused and is there since {at}"));
                }
                (Outcome::Unknown, Some(at)) => committed.push((at, attempt)),
                (Outcome::Refused | Outcome::Unknown, None) => {}
            }
        }
        committed.sort_by_key(|(at, attempt)| (*at, attempt.id));
        let mut versions: BTreeMap<i64, Versions> = BTreeMap::new();
        for (at, attempt) in &committed {
            for (id, row) in &attempt.writes {
                let former = versions.entry(*id).or_default().insert(*at, row.clone());
                if former.is_some() {
                    return Err(format!("row {id} has two versions of {at}"));
                }
            }
        }
        Ok(Model { table, schemas, versions, committed })
    }

    /// Timestamps at which something changed.
    pub(crate) fn timestamps(&self) -> Vec<Timestamp> {
        self.committed.iter().map(|(at, _)| *at).collect()
    }

    fn row(&self, id: i64, ts: Timestamp) -> Option<&Vec<u8>> {
        self.versions.get(&id)?.range(..=ts).next_back()?.1.as_ref()
    }

    /// The rows at a timestamp.
    pub(crate) fn rows(&self, ts: Timestamp) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let live = self.versions.keys().filter_map(|id| Some((*id, self.row(*id, ts)?)));
        live.map(|(id, row)| (key_of(self.table, id), row.clone())).collect()
    }

    /// The rows of a range at a timestamp as a description shows them.
    pub(crate) fn shown(
        &self,
        (start, end): (&[u8], &[u8]),
        table: &Table,
        ts: Timestamp,
    ) -> Result<BTreeMap<Vec<u8>, Row>, String> {
        let rows = self.rows(ts).into_iter().filter(|(key, _)| {
            let key = key.as_slice();
            start <= key && key < end
        });
        rows.map(|(key, row)| Ok((key, self.schemas.shown(table, &row)?))).collect()
    }

    /// Whether a read found what was there.
    pub(crate) fn check_look(&self, look: &Look) -> Result<(), String> {
        let Look { ts, whence, seen, .. } = look;
        match seen {
            Seen::Rows(rows) => self.compare(rows, &self.rows(*ts), *ts, whence),
            Seen::Columns { start, end, table: Some(table), rows } => {
                let wanted = self.shown((start, end), table, *ts)?;
                self.compare(rows, &wanted, *ts, whence)
            }
            Seen::Columns { start, end, table: None, .. } => {
                let all = self.rows(*ts);
                let missing = all.keys().any(|key| start <= key && key < end);
                if missing { Err(format!("{whence} shows no rows at {ts}")) } else { Ok(()) }
            }
        }
    }

    pub(crate) fn compare<R: PartialEq + std::fmt::Debug>(
        &self,
        seen: &BTreeMap<Vec<u8>, R>,
        wanted: &BTreeMap<Vec<u8>, R>,
        ts: Timestamp,
        whence: &str,
    ) -> Result<(), String> {
        if seen == wanted {
            return Ok(());
        }
        let ids: BTreeMap<Vec<u8>, i64> =
            self.versions.keys().map(|id| (key_of(self.table, *id), *id)).collect();
        let name = |key: &Vec<u8>| ids.get(key).copied().unwrap_or(-1);
        let missing: Vec<i64> =
            wanted.keys().filter(|key| !seen.contains_key(*key)).map(name).collect();
        let surplus: Vec<i64> =
            seen.keys().filter(|key| !wanted.contains_key(*key)).map(name).collect();
        let other = |(key, row): &(&Vec<u8>, &R)| wanted.get(*key).is_some_and(|it| it != *row);
        let other: Vec<i64> = seen.iter().filter(other).map(|(key, _)| name(key)).collect();
        let shown = |ids: &[i64]| ids.iter().take(8).map(i64::to_string).collect::<Vec<_>>();
        Err(format!(
            "{whence} at {ts}: {} of {} rows missing {:?}, {} too many {:?}, {} different {:?}",
            missing.len(),
            wanted.len(),
            shown(&missing),
            surplus.len(),
            shown(&surplus),
            other.len(),
            shown(&other)
        ))
    }

    /// Snapshot isolation, attempt by attempt.
    pub(crate) fn check_attempts(&self) -> Result<(), String> {
        self.committed.iter().try_for_each(|(at, attempt)| self.check_attempt(*at, attempt))?;
        self.check_order()
    }

    /// What every attempt read at its start, committed or not.
    pub(crate) fn check_reads(&self, attempt: &Attempt) -> Result<(), String> {
        for (id, row) in &attempt.reads {
            if self.row(*id, attempt.start_ts) != row.as_ref() {
                return Err(format!(
                    "{} {} read row {id} at {} as it was not then",
                    attempt.what, attempt.id, attempt.start_ts
                ));
            }
        }
        Ok(())
    }

    /// Rows that were only locked, by an attempt that was acknowledged, were all true at one timestamp.
    pub(crate) fn check_locks(&self, attempt: &Attempt) -> Result<(), String> {
        let Outcome::Committed(_) = attempt.outcome else { return Ok(()) };
        let latest = attempt.held.values().map(|held| held.newest).max().unwrap_or_default();
        for (id, held) in &attempt.held {
            let Some(versions) = self.versions.get(id) else { continue };
            // What was held without a change shows as newer than the row's last version.
            if let Some(other) = between(versions, held.newest, latest) {
                return Err(format!(
                    "{} {} locked row {id} as of {} beside one of {latest}, and another wrote it at \
                     {other}",
                    attempt.what, attempt.id, held.newest
                ));
            }
            if self.row(*id, held.newest) != held.row.as_ref() {
                return Err(format!(
                    "{} {} locked row {id} as of {} as it was not then",
                    attempt.what, attempt.id, held.newest
                ));
            }
        }
        Ok(())
    }

    fn check_attempt(&self, at: Timestamp, attempt: &Attempt) -> Result<(), String> {
        let Attempt { what, id: number, start_ts, .. } = attempt;
        if at <= *start_ts {
            return Err(format!("{what} {number} committed at {at}, before it began"));
        }
        for (id, held) in &attempt.held {
            if self.row(*id, at.prev()) != held.row.as_ref() {
                return Err(format!("{what} {number} held row {id}, which changed before {at}"));
            }
        }
        for id in attempt.writes.keys() {
            let since = attempt.held.get(id).map_or(*start_ts, |held| held.newest.max(*start_ts));
            let Some(versions) = self.versions.get(id) else { continue };
            if let Some(other) = between(versions, since, at) {
                return Err(format!(
                    "{what} {number} of {start_ts} wrote row {id} at {at} over the version of \
                     {other}, which it had not seen: a lost update"
                ));
            }
        }
        for id in &attempt.inserts {
            if self.row(*id, at.prev()).is_some() {
                return Err(format!("{what} {number} inserted row {id}, which was there"));
            }
        }
        Ok(())
    }

    /// What was acknowledged before another attempt began is seen by it.
    fn check_order(&self) -> Result<(), String> {
        let mut ends: BTreeMap<u64, (Timestamp, i64)> = BTreeMap::new();
        let mut latest = (Timestamp::ZERO, 0);
        let mut ended: Vec<_> = self.committed.iter().collect();
        ended.sort_by_key(|(_, attempt)| attempt.ended);
        for (at, attempt) in ended {
            if let Some(ended) = attempt.ended {
                latest = latest.max((*at, attempt.id));
                ends.insert(ended, latest);
            }
        }
        for (_, attempt) in &self.committed {
            let before = ends.range((Unbounded, Excluded(attempt.begun))).next_back();
            if let Some((_, (at, other))) = before.filter(|(_, (at, _))| *at >= attempt.start_ts) {
                return Err(format!(
                    "attempt {} began at {} after attempt {other} was acknowledged at {at}",
                    attempt.id, attempt.start_ts
                ));
            }
        }
        Ok(())
    }
}

/// A version that came after one timestamp and before another.
fn between(versions: &Versions, after: Timestamp, before: Timestamp) -> Option<Timestamp> {
    let next = versions.range((Excluded(after), Unbounded)).next();
    next.map(|(at, _)| *at).filter(|at| *at < before)
}
