//! What operators and placement do to regions, at any time: leaders, members, cuts, descriptions, replicas.

use std::time::Duration;

use placement::api::CatalogChange;
use raft::{Groups, PeerStatus};
use tokio::time::{sleep, timeout};
use txn::RowTransport;
use txn::api::{RegionRef, Request, Response};
use types::{NodeId, Peer, PeerRole, Table};

use super::Nemesis;
use crate::store::RaftNode;
use crate::table::{self, DATABASE, NAME};
use crate::world::Kind;

/// How long an operator waits for something.
const BOUND: Duration = Duration::from_secs(20);
/// Most regions that the table is cut into.
const MOST_REGIONS: usize = 8;

impl Nemesis {
    /// A region of the table, or at times placement's, with its leader.
    fn led(&self, placement: bool) -> Option<(RaftNode, PeerStatus)> {
        let mut regions: Vec<u64> = self
            .world
            .statuses()
            .iter()
            .filter(|(_, status)| placement || status.region.table().is_some())
            .map(|(_, status)| status.region.id)
            .collect();
        regions.sort_unstable();
        regions.dedup();
        self.world.leader(self.pick(&regions)?)
    }

    pub(super) async fn meet_region(&self, name: &str) -> bool {
        match name {
            "transfer" => {
                let Some((raft, status)) = self.led(true) else { return false };
                let voters: Vec<Peer> = status.region.voters().copied().collect();
                let Some(to) = self.pick(&voters) else { return false };
                raft.transfer(status.region.id, to.id);
                true
            }
            "membership" => self.move_voter(),
            "replica" => self.remove_replica(),
            "split" => self.split().await,
            _ => self.alter().await,
        }
    }

    /// A voter goes to another row node, or a learner is made of nothing where there is none to go to.
    fn move_voter(&self) -> bool {
        let Some((raft, status)) = self.led(false) else { return false };
        let mut peers = status.region.peers.clone();
        let rows: Vec<NodeId> = self.world.row_nodes();
        let free = |node: &NodeId| !peers.iter().any(|peer| peer.node == *node);
        let free: Vec<NodeId> = rows.into_iter().filter(free).collect();
        let voters: Vec<Peer> = status.region.voters().copied().collect();
        let (Some(node), Some(gone)) = (self.pick(&free), self.pick(&voters)) else {
            return false;
        };
        let world = self.world.clone();
        tokio::spawn(async move {
            let _doing = world.doing("members changing");
            let Ok(id) = world.placement().ids(1).await else { return };
            peers.retain(|peer| peer.id != gone.id);
            peers.push(Peer { id, node, role: PeerRole::Voter });
            // Half a change is a state of its own; placement mends what is left of it.
            let _ = timeout(BOUND, raft.change_membership(status.region.id, peers)).await;
        });
        true
    }

    /// A columnar replica is removed; placement makes it anew, perhaps on the same node.
    fn remove_replica(&self) -> bool {
        let Some((raft, status)) = self.led(false) else { return false };
        let mut peers = status.region.peers.clone();
        let learners: Vec<Peer> = status.region.learners().copied().collect();
        let Some(gone) = self.pick(&learners) else { return false };
        peers.retain(|peer| peer.id != gone.id);
        let world = self.world.clone();
        tokio::spawn(async move {
            let _doing = world.doing("replica remade");
            let _ = timeout(BOUND, raft.change_membership(status.region.id, peers)).await;
            // Until it is there again, about.
            sleep(Duration::from_secs(2)).await;
        });
        true
    }

    async fn split(&self) -> bool {
        let Some((_, status)) = self.led(false) else { return false };
        let region = status.region.clone();
        let count = self.world.statuses().iter().filter(|(_, it)| it.decides).count();
        if count > MOST_REGIONS {
            return false;
        }
        let Some(table) = region.table() else { return false };
        let id = match self.random.chance(0.3) {
            true => self.random.below(400) as i64,
            false => 10_000 + self.random.below(100_003) as i64,
        };
        let key = table::key_of(table, id);
        if key <= region.start || key >= region.end {
            return false;
        }
        let world = self.world.clone();
        tokio::spawn(async move {
            let _doing = world.doing("splitting");
            let (_, caller) = world.operator();
            let each = region.peers.len() as u32;
            let Ok(first) = world.placement().ids(1 + each).await else { return };
            let peers = (first + 1..).take(each as usize).collect();
            let at = RegionRef { id: region.id, epoch: region.epoch };
            let request = Request::Split { region: at, cuts: vec![(key, first, peers)] };
            let call = caller.call(status.peer.node, request);
            if let Ok(Ok(Response::Regions(_))) = timeout(BOUND, call).await {
                world.history.event("split done", &[region.id, first]);
            }
            sleep(Duration::from_millis(500)).await;
        });
        true
    }

    /// The next version of the table: one more column, one less, or another number of replicas.
    async fn alter(&self) -> bool {
        let world = self.world.clone();
        let columns = world.hosts(Kind::Columns).len() as u64;
        let (draw, replicas) = (self.random.below(5), 1 + self.random.below(columns.max(1)) as u8);
        tokio::spawn(async move {
            let _doing = world.doing("schema changing");
            let placement = world.placement();
            if placement.timestamp().await.is_err() {
                return;
            }
            let Ok(catalog) = placement.catalog().await else { return };
            let Some(table) = catalog.table_named(DATABASE, NAME) else { return };
            let other = Table {
                version: table.version + 1,
                columnar_replicas: replicas,
                ..Table::clone(table)
            };
            let next = match draw {
                0..3 => table::wider(table),
                3 => table::narrower(table).unwrap_or(other),
                _ => other,
            };
            let change = CatalogChange::AlterTable(Box::new(next));
            if let Ok(Some(changed)) = placement.change(change).await {
                world.history.event("altered", &[u64::from(changed.version)]);
            }
            sleep(Duration::from_secs(1)).await;
        });
        true
    }
}
