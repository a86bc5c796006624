//! Hands leadership over: one region's at placement's order, and everything that a row node leads before it stops.
//!
//! It never waits for long: what nobody takes over in time ends with the node, and the others elect a leader.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use raft::{Groups, PeerStatus};
use rpc::RpcClient;
use tokio::time::{Instant, sleep, timeout};
use txn::api::Response;
use txn::{RowTransport, TxnService};
use types::region::PLACEMENT_REGION;
use types::{Error, Peer, RegionId, Result};

/// How long a voter may take to answer whether it takes a region over, and its row locks with it.
const ASK_LIMIT: Duration = Duration::from_millis(500);
/// How long it may take to lead.
const LEAD_LIMIT: Duration = Duration::from_millis(300);
/// Pause between two looks whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Pause before voters that were willing, and do not lead, are tried again.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a stopping node tries to be rid of all that it leads.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Hands over what this node leads.
pub(crate) struct Handover {
    groups: Arc<dyn Groups>,
    txn: Option<Arc<TxnService>>,
    rows: RpcClient,
}

impl Handover {
    pub(crate) fn new(
        groups: Arc<dyn Groups>,
        txn: Option<Arc<TxnService>>,
        rows: RpcClient,
    ) -> Self {
        Handover { groups, txn, rows }
    }

    /// Hands a region to a voter, row locks first, as far as Raft is willing.
    ///
    /// # Errors
    ///
    /// `Unavailable` or `Timeout` where its node does not answer, or is stopping: it leads nothing, then.
    pub(crate) async fn to(&self, region: RegionId, voter: Peer) -> Result<()> {
        // Row locks are in this leader's memory only.
        let handover = self.txn.as_ref().map_or_else(Vec::new, |txn| txn.handover(region));
        for handover in handover {
            let asked = timeout(ASK_LIMIT, self.rows.call(voter.node, handover)).await;
            let silent = |_| Error::timeout(format!("an answer of node {}", voter.node), ASK_LIMIT);
            if let Response::Failed(error) = asked.map_err(silent)?? {
                return Err(error);
            }
        }
        self.groups.transfer(region, voter.id);
        Ok(())
    }

    /// Hands over everything that this node leads, because it is about to stop: whether it leads nothing more. Returns soon
    /// in any case, at once where nobody is there to take something over.
    pub(crate) async fn all(&self) -> bool {
        if let Some(txn) = &self.txn {
            txn.retire();
        }
        let (began, before) = (Instant::now(), self.led().len());
        let in_time = timeout(STOP_LIMIT, self.everything()).await.is_ok();
        let (left, millis) = (self.led().len(), began.elapsed().as_millis() as u64);
        tracing::info!(led = before, left, millis, in_time, "handed over what this node led");
        left == 0
    }

    async fn everything(&self) {
        // Regions first: who leads one next asks placement for the time. What was on its way here comes in a later turn.
        loop {
            let mut regions = self.led();
            regions.retain(|region| *region != PLACEMENT_REGION);
            let leaving = regions.iter().enumerate().map(|(at, region)| self.leave(*region, at));
            if join_all(leaving).await.iter().all(|left| !left) {
                break;
            }
        }
        self.leave(PLACEMENT_REGION, 0).await;
    }

    /// What this node leads.
    fn led(&self) -> Vec<RegionId> {
        let statuses = self.groups.statuses().into_iter();
        statuses.filter(leads).map(|status| status.region.id).collect()
    }

    /// Hands a region to one of its voters, beginning with the `at`th so that not all go to the same one, until another
    /// node leads it, or nobody takes it over: whether one does.
    async fn leave(&self, region: RegionId, at: usize) -> bool {
        loop {
            let Some(status) = self.groups.status(region).filter(leads) else { return true };
            let others = status.region.voters().filter(|voter| voter.id != status.peer.id);
            let mut others: Vec<Peer> = others.copied().collect();
            if others.is_empty() {
                return false;
            }
            let first = at % others.len();
            others.rotate_left(first);
            let mut willing = false;
            for voter in others {
                match self.to(region, voter).await {
                    Ok(()) if self.is_led_elsewhere(region).await => return true,
                    Ok(()) => willing = true,
                    Err(error) => {
                        tracing::debug!(region, node = voter.node, %error, "a region is not taken over");
                    }
                }
            }
            if !willing {
                return false;
            }
            sleep(AGAIN).await;
        }
    }

    /// Waits a bounded time until another node leads a region, as far as this one knows.
    async fn is_led_elsewhere(&self, region: RegionId) -> bool {
        let until = Instant::now() + LEAD_LIMIT;
        loop {
            let status = self.groups.status(region);
            let elsewhere = status.as_ref().is_none_or(|status| {
                status.leader.is_some_and(|leader| leader.id != status.peer.id)
            });
            if elsewhere || Instant::now() >= until {
                return elsewhere;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

fn leads(status: &PeerStatus) -> bool {
    status.leader.is_some_and(|leader| leader.id == status.peer.id)
}
