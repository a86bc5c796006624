//! What a row store holds in all: read once, where a cluster goes on from what is left of it.
//!
//! Reads everything, so it is nothing for a node that serves.

use std::collections::BTreeMap;

use kv::Keyspace;
use types::{Result, Table, TableId, Timestamp};

use crate::api::Mode;
use crate::layout::{DataRecord, Fate, split_fate_key};
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
            newest = newest.max(record.newest(Mode::Exclusive)).max(record.start_ts);
        }
        for pair in kv.scan(Keyspace::Fate, &[], &END) {
            let (key, value) = pair?;
            let (_, start_ts) = split_fate_key(&key)?;
            newest =
                newest.max(start_ts).max(Fate::decode(&value)?.commit_ts().unwrap_or_default());
        }
        for pair in kv.scan(Keyspace::Lock, &[], &END) {
            let lock = Lock::decode(&pair?.1)?;
            newest = newest.max(lock.newest());
        }
        let floors =
            self.regions().into_iter().map(|view| view.floors.read.max(view.floors.settled));
        Ok(floors.fold(newest, Timestamp::max))
    }

    /// The newest description of each table that a region here has received.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kv::{KvEngine, MemoryKv, WriteBatch};

    use super::*;
    use crate::fact::AsyncCommit;
    use crate::layout::fate_key;

    fn newest(fill: impl FnOnce(&mut WriteBatch)) -> Timestamp {
        let engine = Arc::new(MemoryKv::new());
        let mut batch = WriteBatch::default();
        let record = DataRecord {
            commit_ts: Timestamp(20),
            start_ts: Timestamp(10),
            ..DataRecord::default()
        };
        batch.put(Keyspace::Data, *b"a", record.encode());
        fill(&mut batch);
        engine.write(batch).unwrap();
        RowStore::open(engine).unwrap().newest_held().unwrap()
    }

    #[test]
    fn versions_holds_and_fates_count() {
        assert_eq!(newest(|_| ()), Timestamp(20));
        let held = DataRecord { held_ts: Timestamp(30), ..DataRecord::default() };
        assert_eq!(newest(|batch| batch.put(Keyspace::Data, *b"b", held.encode())), Timestamp(30));
        let fate = |of: Fate| {
            newest(|batch| batch.put(Keyspace::Fate, fate_key(b"b", Timestamp(35)), of.encode()))
        };
        assert_eq!(fate(Fate::RolledBack), Timestamp(35));
        assert_eq!(fate(Fate::Committed(Timestamp(40))), Timestamp(40));
    }

    #[test]
    fn locks_count() {
        let lock = Lock {
            key: b"b".to_vec(),
            start_ts: Timestamp(50),
            primary: b"b".to_vec(),
            kind: crate::fact::WriteKind::Lock,
            row: None,
            replaces: None,
            ttl: 1,
            for_update_ts: None,
            async_commit: None,
        };
        let bytes = lock.encode().unwrap();
        assert_eq!(newest(|batch| batch.put(Keyspace::Lock, *b"b", bytes)), Timestamp(50));
        let commit = AsyncCommit { min_commit_ts: Timestamp(60), secondaries: vec![b"c".to_vec()] };
        let lock = Lock { async_commit: Some(commit), ..lock };
        let bytes = lock.encode().unwrap();
        assert_eq!(Lock::decode(&bytes), Ok(lock));
        assert_eq!(newest(|batch| batch.put(Keyspace::Lock, *b"b", bytes)), Timestamp(60));
    }
}
