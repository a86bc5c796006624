//! Strong reads of this node's regions: wait for the learner to reach the read index, get past
//! pending locks, pin, scan.
//!
//! Every wait is bounded. It returns all rows of a snapshot or an error, never some of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use columnar::{ColumnarStore, PartitionScan, ScanRequest, TabletHandle, TabletSnapshot};
use datafusion::common::{DataFusionError, Result as DfResult};
use futures::Stream;
use raft::Groups;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use txn::client::TxnClient;
use types::{Error, NodeId, RegionId, Result, Timestamp};

use crate::error::MppError;
use crate::pruning;
use crate::scan_spec::ScanSpec;

/// How long a strong read may wait for its regions.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a lock of a living transaction is looked at again.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Batches read ahead of the consumer, for each partition.
const READ_AHEAD: usize = 2;

/// A region, pinned at the snapshot.
pub type Pinned = TabletSnapshot;

/// Reads the regions that this node holds.
pub struct Reader {
    node: NodeId,
    store: ColumnarStore,
    groups: Arc<dyn Groups>,
    txn: TxnClient,
    /// Batches that scans have read.
    batches: Arc<AtomicU64>,
}

impl Reader {
    /// A reader of a node's columnar store; `txn` is for locks of dead transactions.
    pub fn new(
        node: NodeId,
        store: ColumnarStore,
        groups: Arc<dyn Groups>,
        txn: TxnClient,
    ) -> Self {
        Reader { node, store, groups, txn, batches: Arc::default() }
    }

    /// How many batches this node's scans have read since it started.
    pub fn batches_read(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Pins every region of a scan at its snapshot.
    pub async fn pin(&self, spec: &ScanSpec) -> DfResult<Vec<Pinned>> {
        let all = spec.regions.iter().map(|(region, epoch, _)| async move {
            let tablet = self.caught_up(*region, spec.ts).await?;
            tablet.snapshot_at(spec.ts, *epoch)
        });
        let pins = futures::future::try_join_all(all);
        match tokio::time::timeout(READ_TIMEOUT, pins).await {
            Ok(pins) => pins.map_err(|error| MppError::from(error).into()),
            Err(_) => {
                let what = format!("columnar replicas of {} to catch up", spec.table.name);
                Err(MppError::from(Error::timeout(what, READ_TIMEOUT)).into())
            }
        }
    }

    /// The tablet, once it shows everything that committed at or before `ts`.
    ///
    /// A commit timestamp is fetched after every lock of its transaction has applied. So once this
    /// replica has applied the read index, which is taken after `ts` was, whatever commits at or
    /// before `ts` is either here or a lock here.
    async fn caught_up(&self, region: RegionId, ts: Timestamp) -> Result<TabletHandle> {
        loop {
            self.groups.read_index(region).await?;
            let tablet = self.store.tablet(region).ok_or(Error::RegionNotFound(region))?;
            let locks = tablet.pending_locks(ts);
            if locks.is_empty() {
                return Ok(tablet);
            }
            if self.txn.resolve(&locks, ts).await?.alive.is_some() {
                tokio::time::sleep(LOCK_PAUSE).await;
            }
        }
    }

    /// One partition of a pinned scan. Reading and decoding run on a blocking thread, a little
    /// ahead of the consumer; dropping the stream stops them.
    pub fn scan(
        &self,
        tablets: Vec<Pinned>,
        spec: &ScanSpec,
        partition: usize,
        partitions: usize,
        batch_rows: usize,
    ) -> DfResult<impl Stream<Item = DfResult<RecordBatch>> + use<>> {
        let schema = spec.schema()?;
        let columns = spec.columns()?;
        let predicate = pruning::predicate(&spec.prune, &spec.table);
        let mut scans = Vec::with_capacity(tablets.len());
        for tablet in tablets {
            let request =
                ScanRequest { columns: columns.clone(), predicate: predicate.clone(), batch_rows };
            let parts = tablet.scan(request).map_err(MppError::from)?.partitions(partitions);
            scans.extend(parts.into_iter().nth(partition));
        }
        let batches = self.batches.clone();
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        tokio::task::spawn_blocking(move || feed(scans, &schema, &sender, &batches));
        Ok(ReceiverStream::new(receiver))
    }
}

fn feed(
    scans: Vec<PartitionScan>,
    schema: &SchemaRef,
    sender: &mpsc::Sender<DfResult<RecordBatch>>,
    read: &AtomicU64,
) {
    for batch in scans.into_iter().flatten() {
        let batch = batch
            .map_err(|error| DataFusionError::from(MppError::from(error)))
            .and_then(|batch| named(batch, schema));
        read.fetch_add(1, Ordering::Relaxed);
        let failed = batch.is_err();
        if sender.blocking_send(batch).is_err() || failed {
            return;
        }
    }
}

/// The batch under the plan's column names.
fn named(batch: RecordBatch, schema: &SchemaRef) -> DfResult<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
