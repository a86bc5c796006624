//! Who reads: a snapshot, or an open transaction that sees its own writes.

use std::sync::Arc;

use tokio::sync::Mutex;
use types::{Result, TableId, Timestamp};

use crate::{Pair, Scan, Snapshot, Transaction};

/// A transaction that plans read from while its session owns it; empty once it has ended.
pub type Shared = Arc<Mutex<Option<Box<dyn Transaction>>>>;

/// A source of rows at one timestamp.
#[derive(Clone)]
pub enum Reader {
    /// A snapshot, or what a transaction showed once.
    Snapshot(Arc<dyn Snapshot>),
    /// A transaction, and when it reads: at its start, or now for rows that it has locked.
    Transaction(Shared, Timestamp),
}

impl Reader {
    /// When it reads.
    pub fn ts(&self) -> Timestamp {
        match self {
            Reader::Snapshot(snapshot) => snapshot.ts(),
            Reader::Transaction(_, ts) => *ts,
        }
    }

    /// Whether it shows what a transaction has written to a table and not committed.
    pub async fn has_written(&self, table: TableId) -> bool {
        match self {
            Reader::Snapshot(snapshot) => snapshot.has_written(table),
            Reader::Transaction(shared, _) => {
                shared.lock().await.as_ref().is_some_and(|open| open.has_written(table))
            }
        }
    }

    /// Pairs of those keys that have a row, ascending.
    pub async fn get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Pair>> {
        match self {
            Reader::Snapshot(snapshot) => snapshot.get(keys).await,
            Reader::Transaction(shared, ts) => match shared.lock().await.as_ref() {
                Some(transaction) => transaction.get_at(keys, *ts).await,
                None => Err(types::Error::RolledBack(*ts)),
            },
        }
    }

    /// The rows of a range. What a transaction writes afterwards is not seen by the scan.
    pub async fn scan(
        &self,
        start: Vec<u8>,
        end: Vec<u8>,
        reverse: bool,
        few: Option<u32>,
    ) -> Box<dyn Scan> {
        match self {
            Reader::Snapshot(snapshot) => snapshot.scan(start, end, reverse, few),
            Reader::Transaction(shared, ts) => match shared.lock().await.as_ref() {
                Some(transaction) => transaction.scan_at((start, end), reverse, few, *ts),
                None => Box::new(Ended(*ts)),
            },
        }
    }
}

/// A scan of a transaction that is over.
struct Ended(Timestamp);

#[async_trait::async_trait]
impl Scan for Ended {
    async fn next_page(&mut self) -> Result<Option<Vec<Pair>>> {
        Err(types::Error::RolledBack(self.0))
    }
}
