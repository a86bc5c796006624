//! Carries out placement's orders on this node, each once at a time.
//!
//! An order that fails is forgotten: placement repeats it until the reports show its effect.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use placement::api::Order;
use placement::client::PlacementClient;
use raft::Groups;
use rpc::RpcClient;
use txn::TxnService;
use txn::api::{RegionRef, Request, Response};
use types::{Error, RegionId, Result};

use crate::handover::Handover;

/// Carries out orders in the background.
pub(crate) struct Orders {
    groups: Arc<dyn Groups>,
    txn: Option<Arc<TxnService>>,
    placement: PlacementClient,
    rows: RpcClient,
    busy: Arc<Mutex<HashSet<RegionId>>>,
}

impl Orders {
    pub(crate) fn new(
        groups: Arc<dyn Groups>,
        txn: Option<Arc<TxnService>>,
        placement: PlacementClient,
        rows: RpcClient,
    ) -> Self {
        Orders { groups, txn, placement, rows, busy: Arc::default() }
    }

    /// Begins an order unless one for the region is under way. Must be called within a runtime.
    pub(crate) fn carry_out(&self, order: Order) {
        let region = order.region();
        if !self.busy.lock().insert(region) {
            return;
        }
        let (groups, txn) = (self.groups.clone(), self.txn.clone());
        let (placement, rows) = (self.placement.clone(), self.rows.clone());
        let busy = self.busy.clone();
        tokio::spawn(async move {
            let shown = format!("{order:?}");
            match obey(&groups, txn, &placement, &rows, order).await {
                Ok(()) => tracing::info!(region, order = shown, "order carried out"),
                Err(error) => {
                    tracing::info!(region, order = shown, %error, "order not carried out")
                }
            }
            busy.lock().remove(&region);
        });
    }
}

async fn obey(
    groups: &Arc<dyn Groups>,
    txn: Option<Arc<TxnService>>,
    placement: &PlacementClient,
    rows: &RpcClient,
    order: Order,
) -> Result<()> {
    order.check(groups.as_ref())?;
    match order {
        Order::Create(region) => groups.create(region).await,
        Order::Destroy { region, .. } => groups.destroy(region).await,
        Order::Membership { region, peers, .. } => {
            groups.change_membership(region, peers).await.map(|_| ())
        }
        Order::Transfer(region, to) => {
            let status = groups.status(region).ok_or(Error::RegionNotFound(region))?;
            let to = status.region.peer(to).copied();
            let to = to.ok_or_else(|| Error::not_found("member", format!("of region {region}")))?;
            Handover::new(groups.clone(), txn, rows.clone()).to(region, to).await
        }
        Order::Split(region) => {
            let txn = txn.ok_or_else(|| Error::Invalid("only row nodes split regions".into()))?;
            split(groups, &txn, placement, region).await
        }
    }
}

/// Cuts a region in two, where it says.
async fn split(
    groups: &Arc<dyn Groups>,
    txn: &TxnService,
    placement: &PlacementClient,
    region: RegionId,
) -> Result<()> {
    let status = groups.status(region).ok_or(Error::RegionNotFound(region))?;
    let peers = status.region.peers.len() as u32;
    let at = RegionRef { id: region, epoch: status.region.epoch };
    let keys = match txn.handle(Request::SplitKeys { region: at, parts: 2 }).await {
        Response::Keys(keys) => keys,
        Response::Failed(error) => return Err(error),
        other => return Err(Error::Corrupt(format!("split keys answered by {other:?}"))),
    };
    let each = u64::from(1 + peers);
    let first = placement.ids((1 + peers) * keys.len() as u32).await?;
    let cuts = keys
        .into_iter()
        .zip((first..).step_by(each as usize))
        .map(|(key, id)| (key, id, (id + 1..id + each).collect()))
        .collect();
    match txn.handle(Request::Split { region: at, cuts }).await {
        Response::Failed(error) => Err(error),
        _ => Ok(()),
    }
}
