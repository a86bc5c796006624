//! When a statement reads, and by which catalog.
//!
//! The catalog must never be older than the snapshot, or it could miss a column.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use placement::api::Catalog;
use types::{TableId, Timestamp};
use values::error::SqlResult;

use super::state::Open;
use crate::session::write::matched_rows::Weight;
use crate::session::{ATTEMPTS, Session, impossible};
use storage::reader::Reader;
use storage::{Pair, ReplicaReads, Scan, Snapshot};

impl Session {
    /// When a plain read of a transaction reads: at its snapshot, which is its beginning, or the
    /// first plain read if it had to lock rows before: what was waited for is seen then.
    async fn reads_at(&self, open: &Open) -> SqlResult<Timestamp> {
        if open.fresh {
            return Ok(self.engine.storage.timestamp().await?);
        }
        if let Some(at) = open.reads_at.get() {
            return Ok(*at);
        }
        let at = match open.locking.load(Ordering::Acquire) {
            true => self.engine.storage.timestamp().await?,
            false => open.ts,
        };
        Ok(*open.reads_at.get_or_init(|| at))
    }

    /// What a statement reads from, and the catalog as of then.
    pub(in crate::session) async fn reader(&mut self) -> SqlResult<(Reader, Arc<Catalog>)> {
        let storage = self.engine.storage.clone();
        let reader = if let Some(past) = self.transaction.past() {
            // The catalog has been no older than it since it was made.
            Reader::Snapshot(past.clone())
        } else if let Some(token) = self.transaction.snapshot() {
            storage.timestamp().await?;
            Reader::Snapshot(storage.snapshot(token.ts))
        } else if let Some(open) = self.enclosing().await? {
            let at = self.reads_at(&open).await?;
            self.kept_as_is(Reader::Transaction(open.shared, at)).await?
        } else if self.variables.low_resolution() {
            let (snapshot, catalog) = storage.lately().await?;
            return Ok((self.by_replicas(Reader::Snapshot(snapshot)), catalog));
        } else {
            let (reader, catalog) = self.present().await?;
            return Ok((self.by_replicas(reader), catalog));
        };
        Ok((self.by_replicas(reader), storage.catalog().await?))
    }

    /// The same reader over the replicas that the session wants to answer. A transaction reads from leaders, as it writes.
    fn by_replicas(&mut self, reader: Reader) -> Reader {
        self.replica_reads = None;
        let (Some(from), Reader::Snapshot(snapshot)) = (self.variables.replica_read(), &reader)
        else {
            return reader;
        };
        let reads = Arc::new(ReplicaReads::new(from));
        match snapshot.of_replicas(reads.clone()) {
            Some(snapshot) => {
                self.replica_reads = Some(reads);
                Reader::Snapshot(snapshot)
            }
            None => reader,
        }
    }

    /// A reader for the statement: where its rows are pulled after later statements of the
    /// transaction, those do not change them.
    pub(in crate::session) async fn kept_as_is(&self, reader: Reader) -> SqlResult<Reader> {
        let (true, Reader::Transaction(shared, ts)) = (self.pulled_later, &reader) else {
            return Ok(reader);
        };
        let guard = shared.lock().await;
        let transaction = guard.as_ref().ok_or_else(|| impossible("the transaction has ended"))?;
        let weight = self.weight();
        weight.add_bytes(transaction.bytes())?;
        Ok(Reader::Snapshot(Arc::new(Frozen { view: transaction.frozen(*ts), _weight: weight })))
    }

    /// The present, and a catalog that is no newer, so that every table is there at it: nobody who
    /// reads outside of a transaction shall have to try again because others rename tables.
    async fn present(&self) -> SqlResult<(Reader, Arc<Catalog>)> {
        let storage = &self.engine.storage;
        let mut known = storage.catalog().await?.version;
        let mut attempt = 1;
        loop {
            let snapshot = storage.present().await?;
            let catalog = storage.catalog().await?;
            if catalog.version == known || attempt == ATTEMPTS {
                return Ok((Reader::Snapshot(snapshot), catalog));
            }
            (known, attempt) = (catalog.version, attempt + 1);
        }
    }
}

/// What a transaction shows, and what the copy of its writes weighs.
struct Frozen {
    view: Arc<dyn Snapshot>,
    _weight: Weight,
}

#[async_trait]
impl Snapshot for Frozen {
    fn ts(&self) -> Timestamp {
        self.view.ts()
    }

    async fn get(&self, keys: Vec<Vec<u8>>) -> types::Result<Vec<Pair>> {
        self.view.get(keys).await
    }

    fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool, few: Option<u32>) -> Box<dyn Scan> {
        self.view.scan(start, end, reverse, few)
    }

    fn has_written(&self, table: TableId) -> bool {
        self.view.has_written(table)
    }
}
