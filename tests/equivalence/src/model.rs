//! What every replica must show: a map of versions that reads facts without `replaces`, terms or
//! epochs. The leader passes it only what stands.

use std::collections::BTreeMap;

use txn::{Fact, WriteKind};
use types::{Region, Row, Table, Timestamp};

use crate::table;

type Versions = BTreeMap<Timestamp, Option<Vec<u8>>>;

/// What a key is locked for, since when, and from when on that may be seen.
type Locked = (Timestamp, WriteKind, Option<Vec<u8>>, Timestamp);

#[derive(Default)]
pub struct Model {
    versions: BTreeMap<Vec<u8>, Versions>,
    locks: BTreeMap<Vec<u8>, Locked>,
}

impl Model {
    pub fn apply(&mut self, facts: &[Fact]) {
        let mut least = None;
        for fact in facts {
            match fact {
                Fact::Async(commit) => least = Some(commit.min_commit_ts),
                Fact::Lock { key, start_ts, kind, row, .. } => {
                    let again = self.locks.get(key).map(|(.., from)| *from);
                    let from = again.or(least).unwrap_or(*start_ts);
                    self.locks.insert(key.clone(), (*start_ts, *kind, row.clone(), from));
                }
                Fact::Commit { key, commit_ts, .. } => {
                    if let Some((_, kind, row, _)) = self.locks.remove(key)
                        && kind.changes()
                    {
                        self.versions.entry(key.clone()).or_default().insert(*commit_ts, row);
                    }
                }
                Fact::Rollback { key, start_ts } => {
                    if self.locks.get(key).is_some_and(|(start, ..)| start == start_ts) {
                        self.locks.remove(key);
                    }
                }
                Fact::Write { key, commit_ts, row, .. } => {
                    self.versions.entry(key.clone()).or_default().insert(*commit_ts, row.clone());
                }
                // What may be forgotten is not asked for; all else stays as it is.
                Fact::Split { .. } | Fact::Schema(_) | Fact::Collect(_) => {}
                Fact::Reserved => panic!("nobody decides it"),
            }
        }
    }

    /// What a region must show at a timestamp.
    pub fn rows(
        &self,
        region: &Region,
        schemas: &[Table],
        newest: &Table,
        ts: Timestamp,
    ) -> BTreeMap<Vec<u8>, Row> {
        let seen = |(key, versions): (&Vec<u8>, &Versions)| {
            let row = versions.range(..=ts).next_back()?.1.as_ref()?;
            Some((key.clone(), table::decode(schemas, newest, row)))
        };
        self.versions.iter().filter(|(key, _)| region.contains(key)).filter_map(seen).collect()
    }

    /// Keys of a region that are locked by writers who began by `ts`.
    pub fn locked(&self, region: &Region, ts: Timestamp) -> Vec<Vec<u8>> {
        let held = self.locks.iter().filter(|(key, (start, kind, ..))| {
            region.contains(key) && *start <= ts && kind.changes()
        });
        held.map(|(key, _)| key.clone()).collect()
    }

    /// The first key of a region whose lock readers at `ts` have to mind.
    pub fn blocking(&self, region: &Region, ts: Timestamp) -> Option<Vec<u8>> {
        let mut held = self.locks.iter().filter(|(key, (_, kind, _, from))| {
            region.contains(key) && *from <= ts && kind.changes()
        });
        held.next().map(|(key, _)| key.clone())
    }
}
