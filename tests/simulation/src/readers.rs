//! Readers of whole snapshots, from rows and from columns, at the present and at older timestamps, with leases and without.
//!
//! What they find is held against the model in the end; an error must be a typed one, and no lease may be broken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use env::Random;
use placement::PlacementClient;
use tokio::time::{Instant, sleep};
use txn::TxnClient;
use types::{Error, RegionKind, Result, TableId, Timestamp, key};

use crate::ledger::{Look, Seen};
use crate::network::{Caller, Host};
use crate::run::Span;
use crate::workload::{BOUNDS, is_expected};
use crate::world::World;

/// Longest pause between two reads of a reader, in milliseconds.
const PAUSE_MS: u64 = 1_500;
/// How long a lease lasts, and for how long it is relied upon.
const LEASE: Duration = Duration::from_secs(20);
const RELIED: Duration = Duration::from_secs(8);

/// One way of reading.
struct Reader<'a> {
    world: &'a World,
    host: Host,
    table: TableId,
    txn: TxnClient,
    placement: PlacementClient,
    caller: Arc<Caller>,
    random: &'a Random,
}

impl Reader<'_> {
    async fn rows(&self, ts: Timestamp) -> Result<()> {
        let (start, end) = (key::records_start(self.table), key::records_end(self.table));
        let reverse = self.random.chance(0.3);
        let page = 1 + self.random.below(200) as u32;
        let scan = self.txn.snapshot(ts).scan(start, end, reverse).page_pairs(page);
        let rows: BTreeMap<_, _> = scan.collect().await?.into_iter().collect();
        let whence = format!("rows read by host {}", self.host);
        self.world.history.event("rows", &[self.host, ts.0, rows.len() as u64]);
        self.world.ledger.look(Look { ts, whence, seen: Seen::Rows(rows) });
        Ok(())
    }

    async fn columns(&self, ts: Timestamp) -> Result<()> {
        let routes = self.placement.fresh_regions(RegionKind::Records(self.table)).await?;
        for route in routes {
            let region = route.region;
            let count = route.ready_learners.len() as u64;
            let pick = self.random.below(count) as usize;
            let Some(node) = route.ready_learners.get(pick).copied() else { continue };
            let Some(to) = self.caller.network.home(node) else { continue };
            let (id, epoch) = (region.id, region.epoch);
            let request = [id.to_le_bytes(), ts.0.to_le_bytes()].concat();
            let answer =
                self.caller.network.call(&self.caller.process, to, ("columns", request), |there| {
                    let reader = there.handlers().columns?;
                    Some(Box::pin(reader.read(id, epoch, ts)))
                });
            let late = || Error::timeout("columns", RELIED);
            let answer = tokio::time::timeout(RELIED, answer).await.map_err(|_| late())?;
            let (table, rows) = match answer? {
                Ok(found) => found,
                // Of a disk that fails, or is gone, its node as good as down.
                Err(Error::Io(_)) => continue,
                Err(error) if is_expected(&error) => continue,
                Err(error) => return Err(error),
            };
            let numbers = [self.host, to, id, ts.0, rows.len() as u64];
            self.world.history.event("columns", &numbers);
            let whence = format!("columns of region {id} on host {to}");
            let seen = Seen::Columns { start: region.start, end: region.end, table, rows };
            self.world.ledger.look(Look { ts, whence, seen });
        }
        Ok(())
    }

    async fn read(&self, ts: Timestamp) -> Result<()> {
        if self.random.chance(0.5) { self.rows(ts).await } else { self.columns(ts).await }
    }

    /// Takes a lease, and reads at it again and again.
    async fn leased(&self) -> Result<()> {
        let lease = self.placement.take_lease(None, LEASE, "a reader").await?;
        let taken = Instant::now();
        while taken.elapsed() < RELIED {
            let read = self.read(lease.ts).await;
            if let Err(Error::SnapshotTooOld { ts, floor }) = &read
                && taken.elapsed() < RELIED
            {
                self.world.history.fail(format!(
                    "a lease of {ts} was passed by {floor} within {} ms",
                    taken.elapsed().as_millis()
                ));
            }
            read?;
            sleep(Duration::from_millis(self.random.below(2_500))).await;
        }
        self.placement.release_lease(lease.id).await
    }

    async fn look(&self) -> Result<()> {
        match self.random.below(10) {
            0..5 => {
                let ts = self.txn.timestamp().await?;
                self.read(ts).await
            }
            5 => self.leased().await,
            6 => {
                // A present that is kept readable for as long as it is looked at.
                let snapshot = self.txn.present().await?;
                self.read(snapshot.ts()).await?;
                sleep(Duration::from_millis(self.random.below(6_000))).await;
                let ts = snapshot.ts();
                self.read(ts).await
            }
            _ => {
                let commits = self.world.ledger.commits();
                let pick = self.random.below(commits.len() as u64) as usize;
                match commits.get(pick) {
                    Some(ts) if self.random.chance(0.5) => self.read(*ts).await,
                    Some(ts) => self.read(ts.prev()).await,
                    None => Ok(()),
                }
            }
        }
    }
}

/// Reads snapshots from a host until the time is over.
pub(crate) async fn read(
    world: Arc<World>,
    host: Host,
    table: TableId,
    random: Random,
    span: Span,
) {
    while span.goes_on(&world) {
        sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
        let Some((txn, placement, caller, process)) = world.client(host) else { continue };
        if !process.running().await {
            continue;
        }
        let txn = txn.with_bounds(BOUNDS.0, BOUNDS.1);
        let reader = Reader { world: &world, host, table, txn, placement, caller, random: &random };
        let read = tokio::select! {
            biased;
            () = process.died() => continue,
            read = reader.look() => read,
        };
        if let Err(error) = read
            && !is_expected(&error)
        {
            world.history.fail(format!("a read from host {host}: {error}"));
        }
    }
}
