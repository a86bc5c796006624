//! An import's dealings with the cluster: shuts others out of the table, cuts its regions, writes,
//! and lets everybody in again.
//!
//! Every step may be repeated, by this process or by the next. It keeps nothing outside of the
//! cluster: what an import has come to stands in the catalog and in the regions.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use indicatif::ProgressBar;
use placement::PlacementClient;
use placement::api::{CatalogChange, Import};
use rpc::RpcClient;
use sql::engine::Engine;
use storage::Storage;
use storage::cluster::ClusterStorage;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use txn::TxnClient;
use types::{Error, NodeId, RegionKind, Table, TableId, Timestamp, key, row};

use crate::commit_lease::CommitLease;
use crate::paying::Paying;
use crate::sort::{Entry, Merge, Run};

/// Bytes of keys and rows that a new region is cut for.
const REGION_BYTES: u64 = 48 << 20;
/// Bytes of one batch.
const BATCH_BYTES: usize = 1 << 20;
/// Batches under way at a time.
const PARALLEL: usize = 6;

type Pair = (Vec<u8>, Vec<u8>);

/// A client of everything that an import needs.
pub struct Cluster {
    placement: PlacementClient,
    txn: TxnClient,
    storage: ClusterStorage,
}

/// What two passes over the sorted rows share: where regions are cut, and how much there is.
#[derive(Debug, Default)]
pub struct Layout {
    /// Keys, by the records or the index that they are of.
    cuts: Vec<(RegionKind, Vec<Vec<u8>>)>,
    /// Bytes of all keys and rows.
    pub bytes: u64,
}

/// Two entries with one key.
pub struct DuplicateKey(pub Entry, pub Entry);

impl Layout {
    /// Looks at all entries in order: the first two with one key, or the layout.
    ///
    /// # Errors
    ///
    /// A run that cannot be read.
    pub fn plan(runs: &[Run]) -> Result<Result<Layout, DuplicateKey>> {
        let mut layout = Layout::default();
        let mut last: Option<Entry> = None;
        let (mut since, mut indexed) = (0, false);
        for entry in Merge::new(runs)? {
            let entry = entry?;
            let size = (entry.key.len() + entry.row.len()) as u64;
            let kind = key::region_kind(&entry.key).context("a key that is of no table")?;
            let before = last.as_ref().and_then(|last| key::region_kind(&last.key));
            if let Some(last) = last.take()
                && last.key == entry.key
            {
                return Ok(Err(DuplicateKey(last, entry)));
            }
            indexed |= matches!(kind, RegionKind::Index(..));
            if before == Some(kind) && since >= REGION_BYTES {
                match layout.cuts.last_mut() {
                    Some((last, cuts)) if *last == kind => cuts.push(entry.key.clone()),
                    _ => layout.cuts.push((kind, vec![entry.key.clone()])),
                }
                since = 0;
            }
            since += size;
            layout.bytes += size;
            last = Some(entry);
        }
        // Entries and records do not share a region of a large table.
        let table = last.as_ref().and_then(|last| key::table(&last.key));
        if let Some(table) = table.filter(|_| indexed && !layout.cuts.is_empty()) {
            let first = key::records_start(table);
            layout.cuts.push((RegionKind::Records(table), vec![first]));
        }
        Ok(Ok(layout))
    }
}

impl Cluster {
    /// Reaches the cluster through its row nodes.
    pub fn new(rows: Vec<(NodeId, String)>) -> Self {
        let rpc = RpcClient::new(rpc::AddressBook::default(), rpc::Channels::default());
        for (id, address) in &rows {
            rpc.book().insert(*id, address.clone());
        }
        let placement = PlacementClient::new(Arc::new(rpc.clone()), rows);
        let txn = TxnClient::new(Arc::new(rpc), Arc::new(placement.clone()));
        let storage = ClusterStorage::new(txn.clone(), placement.clone());
        Cluster { placement, txn, storage }
    }

    /// What makes sessions that check and convert rows.
    pub fn engine(&self) -> Engine {
        Engine::new(Arc::new(self.storage.clone()), Arc::new(env::RealClock::new()))
    }

    async fn table(&self, id: TableId) -> Result<(Table, Option<Import>)> {
        // Brings the catalog up to date.
        self.txn.timestamp().await?;
        let catalog = self.placement.catalog().await?;
        let table = catalog.table(id).context("the table was dropped meanwhile")?;
        Ok((table.clone(), catalog.importing.get(&id).copied()))
    }

    /// Fails if the table has rows, unless an import has begun to fill it.
    ///
    /// # Errors
    ///
    /// That, or a region that cannot be read.
    pub async fn check_empty(&self, table: &Table) -> Result<()> {
        let (_, import) = self.table(table.id).await?;
        if import.is_some() {
            return Ok(());
        }
        let (start, end) = (key::records_start(table.id), key::records_end(table.id));
        match self.txn.check_empty(start, end, self.txn.timestamp().await?).await {
            Err(Error::Duplicate { .. }) => bail!(
                "table {}.{} has rows: an import fills an empty table only",
                table.database,
                table.name
            ),
            other => Ok(other?),
        }
    }

    /// Takes the table for this import, or goes on with it: its description, and when its rows will
    /// become visible. Where that timestamp is too old, it begins anew at another one. Rows were
    /// made as `described` says.
    ///
    /// # Errors
    ///
    /// A table that has rows, that was altered since, or that another import has.
    pub async fn begin(&self, described: &Table, digest: u64) -> Result<(Table, CommitLease)> {
        let id = described.id;
        // From here on the version guards the description: a change of it makes the next step fail.
        let (table, import) = self.table(id).await?;
        check_unchanged(described, &table)?;
        match import {
            Some(Import { digest: known, .. }) if known != digest => bail!(
                "table {}.{} holds a part of an import of other rows: run that one again, or drop \
                 the table",
                table.database,
                table.name
            ),
            Some(Import { commit_ts: Some(ts), .. }) => {
                return match CommitLease::again(&self.placement, ts, owner(&table)).await? {
                    Some(lease) => {
                        self.storage.publish_schema(&table).await?;
                        Ok((table, lease))
                    }
                    None => self.become_visible(&table, digest).await,
                };
            }
            _ => {}
        }
        let begun = Some(Import { digest, commit_ts: None });
        let table = self.change(&table, begun).await?;
        // Regions take rows of the newest two versions: now nobody is left who knows of no import.
        let table = self.change(&table, begun).await?;
        let (start, end) = (key::records_start(id), key::records_end(id));
        if let Err(error) = self.txn.check_empty(start, end, self.txn.timestamp().await?).await {
            self.change(&table, None).await?;
            return Err(match error {
                Error::Duplicate { .. } => anyhow::anyhow!(
                    "table {}.{} was given rows meanwhile: an import fills an empty table only",
                    table.database,
                    table.name
                ),
                error => error.into(),
            });
        }
        self.become_visible(&table, digest).await
    }

    /// Sets, and holds, when the rows become visible.
    async fn become_visible(&self, table: &Table, digest: u64) -> Result<(Table, CommitLease)> {
        let lease = CommitLease::now(&self.placement, owner(table)).await?;
        let import = Import { digest, commit_ts: Some(lease.ts) };
        match self.change(table, Some(import)).await {
            Ok(table) => Ok((table, lease)),
            Err(error) => {
                lease.release().await;
                Err(error)
            }
        }
    }

    /// One step of the catalog, known to every region of the table when it returns.
    async fn change(&self, table: &Table, import: Option<Import>) -> Result<Table> {
        let version = table.version + 1;
        let change = CatalogChange::Import { table: table.id, version, import };
        let changed = match self.placement.change(change).await {
            Ok(changed) => changed.context("placement changed no table")?,
            // An answer may be lost, and then the change is there.
            Err(error) => match self.table(table.id).await? {
                (now, there) if now.version == version && there == import => now,
                _ => return Err(error.into()),
            },
        };
        self.storage.publish_schema(&changed).await?;
        Ok(changed)
    }

    /// Cuts the table's regions where its rows will need it.
    ///
    /// # Errors
    ///
    /// A region that cannot be cut in time.
    pub async fn cut(&self, layout: &Layout) -> Result<()> {
        for (kind, cuts) in &layout.cuts {
            self.storage.split_at(*kind, cuts).await?;
        }
        Ok(())
    }

    /// Writes everything, for which a resource group pays; what is there already is left alone.
    ///
    /// # Errors
    ///
    /// What a region or a run fails with; a part may be written.
    pub async fn write(
        &self,
        table: &Table,
        commit_ts: Timestamp,
        runs: Arc<Vec<Run>>,
        group: &str,
        progress: &ProgressBar,
    ) -> Result<()> {
        let paying = Paying::begin(self.placement.clone(), group).await?;
        let txn = self.txn.charged_to(paying.payer.clone());
        let anew = self.placement.catalog().await?.imported_anew(table.id, commit_ts);
        let (batches, queue) = mpsc::channel::<Result<Vec<Pair>>>(PARALLEL);
        let version = table.version;
        let feeder = tokio::task::spawn_blocking(move || {
            if let Err(error) = feed(&runs, version, &batches) {
                // Fails only if nobody wants to know any more.
                _ = batches.blocking_send(Err(error));
            }
        });
        let (txn, pays) = (&txn, &paying);
        let writing = ReceiverStream::new(queue).map(|batch| async move {
            let batch = batch?;
            let bytes: usize = batch.iter().map(|(key, row)| key.len() + row.len()).sum();
            pays.admit().await?;
            txn.import(table, (commit_ts, anew), batch).await?;
            progress.inc(bytes as u64);
            anyhow::Ok(())
        });
        let writing = writing.buffer_unordered(PARALLEL).try_collect::<Vec<()>>();
        paying.scheduled.run(writing).await?;
        paying.end().await;
        // It ends before its last batch is written, or it has lost entries by ending early.
        feeder.await.context("sorted rows were not all read")
    }

    /// Lets everybody read and write the table, with all its rows.
    ///
    /// # Errors
    ///
    /// Placement or a region that does not answer.
    pub async fn finish(&self, table: &Table, highest: u64) -> Result<()> {
        if highest > 0 {
            self.placement.raise_auto_increment(table.id, highest).await?;
        }
        self.change(table, None).await?;
        Ok(())
    }
}

/// Fails where rows that were made for one description would be read by another.
///
/// # Errors
///
/// 1412, with what can be done.
pub fn check_unchanged(described: &Table, table: &Table) -> Result<()> {
    let same = described.columns == table.columns
        && described.primary_key == table.primary_key
        && described.indexes == table.indexes
        && described.checks == table.checks;
    if same {
        return Ok(());
    }
    let why = "was altered while its rows were read and sorted: nothing was written, run the \
               import again";
    Err(values::error::table_changed(&table.database, &table.name, why).into())
}

/// What an import's lease is listed under.
fn owner(table: &Table) -> String {
    let mut owner = format!("import of {}.{}", table.database, table.name);
    // As long as an owner may be; names are of any letters.
    while owner.len() > 256 {
        owner.pop();
    }
    owner
}

/// Cuts the sorted entries into batches, each of keys of one kind.
fn feed(runs: &[Run], version: u32, batches: &mpsc::Sender<Result<Vec<Pair>>>) -> Result<()> {
    let mut batch: Vec<Pair> = Vec::new();
    let mut bytes = 0;
    for entry in Merge::new(runs)? {
        let Entry { key, row, .. } = entry?;
        let is_record = matches!(key::region_kind(&key), Some(RegionKind::Records(_)));
        // Written under the version that every region has just received.
        let row = if is_record { row::restamp(&row, version)? } else { row };
        bytes += key.len() + row.len();
        batch.push((key, row));
        if bytes >= BATCH_BYTES {
            bytes = 0;
            if batches.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
                return Ok(());
            }
        }
    }
    if !batch.is_empty() {
        _ = batches.blocking_send(Ok(batch));
    }
    Ok(())
}
