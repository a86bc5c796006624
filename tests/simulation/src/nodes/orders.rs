//! Carries out placement's orders on a node, each once at a time.
//!
//! An order that fails is forgotten: placement repeats it until the reports show its effect.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use placement::PlacementClient;
use placement::api::Order;
use raft::Groups;
use tokio::time::timeout;
use txn::api::{RegionRef, Request, Response};
use txn::{RowTransport, TxnService};
use types::{Error, RegionId, Result};

/// How long a leader tries to hand its row locks over.
const HAND_OVER: Duration = Duration::from_millis(500);

/// Carries out orders in the background.
#[derive(Clone)]
pub(crate) struct Orders {
    pub groups: Arc<dyn Groups>,
    pub txn: Option<Arc<TxnService>>,
    pub placement: PlacementClient,
    pub rows: Arc<dyn RowTransport>,
    pub busy: Arc<Mutex<BTreeSet<RegionId>>>,
}

impl Orders {
    /// Begins an order unless one for the region is under way.
    pub(crate) fn carry_out(&self, order: Order) {
        let region = order.region();
        if !self.busy.lock().insert(region) {
            return;
        }
        let orders = self.clone();
        tokio::spawn(async move {
            // Placement repeats what has not been done.
            let _ = orders.obey(order).await;
            orders.busy.lock().remove(&region);
        });
    }

    async fn obey(&self, order: Order) -> Result<()> {
        order.check(self.groups.as_ref())?;
        match order {
            Order::Create(region) => self.groups.create(region).await,
            Order::Destroy { region, .. } => self.groups.destroy(region).await,
            Order::Membership { region, peers, .. } => {
                self.groups.change_membership(region, peers).await.map(|_| ())
            }
            Order::Transfer(region, to) => {
                let held = self.txn.as_ref().map_or_else(Vec::new, |txn| txn.handover(region));
                let next = self.groups.status(region).and_then(|status| {
                    let peer = status.region.peers.iter().find(|peer| peer.id == to)?;
                    Some(peer.node)
                });
                for held in held {
                    let Some(next) = next else { break };
                    let _ = timeout(HAND_OVER, self.rows.call(next, held)).await;
                }
                self.groups.transfer(region, to);
                Ok(())
            }
            Order::Split(region) => self.split(region).await,
        }
    }

    /// Cuts a region in two, where it says.
    async fn split(&self, region: RegionId) -> Result<()> {
        let txn = self.txn.as_ref();
        let txn = txn.ok_or_else(|| Error::Invalid("only row nodes split regions".into()))?;
        let status = self.groups.status(region).ok_or(Error::RegionNotFound(region))?;
        let at = RegionRef { id: region, epoch: status.region.epoch };
        let keys = match txn.handle(Request::SplitKeys { region: at, parts: 2 }).await {
            Response::Keys(keys) => keys,
            Response::Failed(error) => return Err(error),
            other => return Err(Error::Corrupt(format!("split keys answered by {other:?}"))),
        };
        let each = 1 + status.region.peers.len() as u64;
        let first = self.placement.ids(each as u32 * keys.len() as u32).await?;
        let cuts = keys.into_iter().zip((first..).step_by(each as usize));
        let cuts = cuts.map(|(key, id)| (key, id, (id + 1..id + each).collect())).collect();
        match txn.handle(Request::Split { region: at, cuts }).await {
            Response::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }
}
