//! Strong reads of this node's regions: wait for the learner to reach what its leader names, get past
//! pending locks, pin, scan.
//!
//! Every wait is bounded. It returns all rows of a snapshot or an error, never some of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use columnar::{ColumnarStore, PartitionScan, ScanRequest, TabletHandle};
use datafusion::common::{DataFusionError, Result as DfResult};
use futures::{Stream, StreamExt};
use raft::Groups;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use txn::client::TxnClient;
use types::{Error, NodeId, RegionId, Result, Timestamp};

use crate::error::MppError;
use crate::payer::{self, Paying};
use crate::prepared_scan::PreparedScan;
use crate::pruning;
use crate::scan_spec::ScanSpec;

/// How long a strong read may wait for its regions.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a lock of a living transaction is looked at again.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Batches read ahead of the consumer, for each partition.
const READ_AHEAD: usize = 2;

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

    /// Pins every region of a scan at its snapshot, for so many partitions.
    pub(crate) async fn pin(
        &self,
        spec: &ScanSpec,
        partitions: usize,
        batch_rows: usize,
    ) -> DfResult<Arc<PreparedScan>> {
        let predicate = pruning::predicate(&spec.prune, &spec.table);
        let request = ScanRequest { columns: spec.columns()?, predicate, batch_rows };
        let all = spec.regions.iter().map(|(region, epoch, _)| async move {
            let tablet = self.caught_up(*region, spec.ts).await?;
            tablet.snapshot_at(spec.ts, *epoch)
        });
        let pins = futures::future::try_join_all(all);
        match tokio::time::timeout(READ_TIMEOUT, pins).await {
            Ok(pins) => {
                let tablets = pins.map_err(MppError::from)?;
                Ok(Arc::new(PreparedScan::new(tablets, request, partitions)))
            }
            Err(_) => {
                let what = format!("columnar replicas of {} to catch up", spec.table.name);
                Err(MppError::from(Error::timeout(what, READ_TIMEOUT)).into())
            }
        }
    }

    /// The tablet, once it shows everything that committed at or before `ts`.
    ///
    /// A commit timestamp is fetched after every lock of its transaction has applied, or was announced at the leader.
    /// So once this replica has applied what the leader names after `ts` was given, whatever commits at or before
    /// `ts` is either here or a lock here.
    async fn caught_up(&self, region: RegionId, ts: Timestamp) -> Result<TabletHandle> {
        loop {
            self.txn.catch_up(self.groups.as_ref(), region, ts).await?;
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

    /// One partition of a scan. Preparing, reading and decoding run on a blocking thread, a little
    /// ahead of the consumer; dropping the stream stops them.
    pub(crate) fn scan(
        &self,
        scan: Arc<PreparedScan>,
        partition: usize,
        schema: SchemaRef,
        payer: Option<Arc<Paying>>,
    ) -> impl Stream<Item = DfResult<RecordBatch>> + use<> {
        let batches = self.batches.clone();
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        let work = tokio::task::spawn_blocking(move || match scan.take(partition) {
            Ok(scans) => feed(scans, &schema, &sender, (&batches, payer.as_deref())),
            // Who has left by now needs no error.
            Err(error) => drop(sender.blocking_send(Err(MppError::from(error).into()))),
        });
        // A thread that panicked has sent some of the rows, and an end that is none.
        let ended = futures::stream::once(work).filter_map(|ended| async move {
            ended.err().map(|error| Err(DataFusionError::ExecutionJoin(Box::new(error))))
        });
        ReceiverStream::new(receiver).chain(ended)
    }
}

fn feed(
    scans: Vec<PartitionScan>,
    schema: &SchemaRef,
    sender: &mpsc::Sender<DfResult<RecordBatch>>,
    (read, payer): (&AtomicU64, Option<&Paying>),
) {
    let mut batches = scans.into_iter().flatten();
    while let Some(batch) = payer::read(&mut batches, payer) {
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
