//! What a row store holds in all: read once, where a cluster goes on from what is left of it.
//!
//! Reads everything, so it is nothing for a node that serves.

use std::collections::BTreeMap;

use kv::Keyspace;
use types::{Result, Table, TableId, Timestamp};

use crate::layout::{self, DataRecord, Fate, split_fate_key};
use crate::locks::Lock;
use crate::store::RowStore;

/// Behind every key.
const END: [u8; 16] = [u8::MAX; 16];

impl RowStore {
    /// The largest timestamp in versions, locks, fates and floors.
    pub fn newest_held(&self) -> Result<Timestamp> {
        let kv = self.snapshot();
        let mut newest = self.newest_timestamp().unwrap_or_default();
        for pair in kv.scan(Keyspace::Data, &[], &END) {
            let record = DataRecord::decode(pair?.1)?;
            newest = newest.max(record.commit_ts).max(record.start_ts).max(record.held_ts);
        }
        for pair in kv.scan(Keyspace::Fate, &[], &END) {
            let (key, value) = pair?;
            let (_, start_ts) = split_fate_key(&key)?;
            newest = newest.max(start_ts).max(Fate::decode(&value)?.commit_ts().unwrap_or_default());
        }
        for pair in kv.scan(Keyspace::Lock, &[], &END) {
            let lock: Lock = layout::decode(&pair?.1)?;
            newest = newest.max(lock.start_ts);
        }
        let floors = self.regions().into_iter().map(|view| view.floors.read.max(view.floors.settled));
        Ok(floors.fold(newest, Timestamp::max))
    }

    /// The newest description of each table that a region here was told of.
    pub fn newest_schemas(&self) -> Vec<Table> {
        let mut newest: BTreeMap<TableId, Table> = BTreeMap::new();
        for view in self.regions() {
            for ((id, version), table) in view.schemas.iter() {
                if newest.get(id).is_none_or(|known| known.version < *version) {
                    newest.insert(*id, Table::clone(table));
                }
            }
        }
        newest.into_values().collect()
    }
}
