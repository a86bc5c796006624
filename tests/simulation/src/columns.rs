//! Strong reads of a columnar node's regions: the order of steps that the Flight server keeps.
//!
//! It answers with all rows of a snapshot or an error, never with some of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use columnar::{ColumnarStore, TabletHandle};
use raft::Groups;
use tokio::time::{sleep, timeout};
use txn::TxnClient;
use types::{Epoch, Error, RegionId, Result, Row, Table, Timestamp};

/// How long a strong read may wait for its region.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a lock of a living transaction is looked at again.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Reads the regions that a node holds.
pub(crate) struct ColumnReader {
    store: ColumnarStore,
    groups: Arc<dyn Groups>,
    txn: TxnClient,
}

/// A region's rows at a snapshot, in the shape of the newest schema that the tablet knew.
pub(crate) type RegionRows = (Option<Arc<Table>>, BTreeMap<Vec<u8>, Row>);

impl ColumnReader {
    pub(crate) fn new(store: ColumnarStore, groups: Arc<dyn Groups>, txn: TxnClient) -> Self {
        ColumnReader { store, groups, txn }
    }

    pub(crate) async fn read(
        self: Arc<Self>,
        region: RegionId,
        epoch: Epoch,
        ts: Timestamp,
    ) -> Result<RegionRows> {
        let caught_up = timeout(READ_TIMEOUT, self.caught_up(region, ts)).await;
        let late = || Error::timeout("a columnar replica to catch up", READ_TIMEOUT);
        let pinned = caught_up.map_err(|_| late())??.snapshot_at(ts, epoch)?;
        Ok((pinned.table(), pinned.rows()?))
    }

    async fn caught_up(&self, region: RegionId, ts: Timestamp) -> Result<TabletHandle> {
        loop {
            self.txn.catch_up(self.groups.as_ref(), region, ts).await?;
            let tablet = self.store.tablet(region).ok_or(Error::RegionNotFound(region))?;
            let locks = tablet.pending_locks(ts);
            if locks.is_empty() {
                return Ok(tablet);
            }
            if self.txn.resolve(&locks, ts).await?.alive.is_some() {
                sleep(LOCK_PAUSE).await;
            }
        }
    }
}
