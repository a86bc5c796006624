//! Scripts of cluster views and the moves that they call for.

use std::collections::BTreeMap;
use std::fmt::Write;

use types::{Epoch, Peer, PeerRole, Region, RegionKind, key};

use super::scripts::{Args, Script, run_all};
use crate::api::NodeRole;
use crate::scheduler::{ClusterView, Health, Move, NodeView, RegionView, SPLIT_BYTES, plan};

#[test]
fn scheduler_scripts() {
    run_all::<SchedulerScript>("scheduler");
}

#[derive(Default)]
struct SchedulerScript {
    cluster: ClusterView,
    peers: u64,
}

impl SchedulerScript {
    fn node(&mut self, args: &Args) {
        let role = match args.text(1) {
            "row" => NodeRole::Row,
            "columnar" => NodeRole::Columnar,
            _ => NodeRole::Sql,
        };
        let health = match () {
            () if args.has("gone") => Health::Gone,
            () if args.has("silent") => Health::Silent,
            () => Health::Live,
        };
        let id = args.number(0);
        self.cluster.nodes.retain(|node| node.id != id);
        self.cluster.nodes.push(NodeView { id, role, health });
        self.cluster.nodes.sort_by_key(|node| node.id);
    }

    /// Peers are numbered region × 100 + node, so that outputs are easy to read.
    fn region(&mut self, args: &Args) {
        let id = args.number(0);
        let table = args.named_number("table", 100);
        let kind = match args.named("index") {
            Some(index) => RegionKind::Index(table, index.parse().unwrap()),
            None if args.has("shared") => RegionKind::Table(table),
            None => RegionKind::Records(table),
        };
        let (start, mut end) = key::range(kind).unwrap();
        if args.has("entries") {
            end = key::records_start(table);
        }
        let peer = |node: u64, role| Peer { id: id * 100 + node, node, role };
        let mut peers: Vec<Peer> =
            args.numbers("voters").into_iter().map(|node| peer(node, PeerRole::Voter)).collect();
        peers.extend(args.numbers("learners").into_iter().map(|n| peer(n, PeerRole::Learner)));
        let all = peers.iter().map(|peer| peer.node).collect();
        let ready = match args.named("ready") {
            Some(_) => args.numbers("ready").into_iter().collect(),
            None => all,
        };
        let region = Region { id, epoch: Epoch::default(), kind, start, end, peers };
        self.cluster.regions.retain(|view| view.region.id != id);
        self.cluster.regions.push(RegionView {
            region,
            leader: args.named("leader").map(|node| node.parse().unwrap()),
            bytes: args.named_number("mib", 0) << 20,
            ready,
            missing: args.numbers("missing").into_iter().collect(),
            busy: args.has("busy"),
            near: args.named("near").map(|node| node.parse().unwrap()),
        });
        self.cluster.regions.sort_by_key(|view| view.region.id);
    }

    /// Carries a move out at once, as a fast cluster would.
    fn perform(&mut self, due: &Move) {
        let view =
            self.cluster.regions.iter_mut().find(|view| view.region.id == due.region()).unwrap();
        match due {
            Move::Add { node, role, .. } => {
                self.peers += 1;
                let id = 90_000 + self.peers;
                view.region.peers.push(Peer { id, node: *node, role: *role });
                view.ready.insert(*node);
            }
            Move::Promote { peer, .. } => {
                let mut members = view.region.peers.iter_mut();
                let member = members.find(|member| member.id == *peer).unwrap();
                member.role = PeerRole::Voter;
                view.ready.insert(member.node);
            }
            Move::Remove { peer, .. } => {
                let node = view.region.peer(*peer).unwrap().node;
                view.region.peers.retain(|member| member.id != *peer);
                view.ready.remove(&node);
                view.missing.remove(&node);
            }
            Move::Transfer { to, .. } => view.leader = Some(view.region.peer(*to).unwrap().node),
            Move::Split { .. } => view.bytes = SPLIT_BYTES / 2,
        }
    }

    fn run(&mut self) -> String {
        let mut moves = 0;
        for round in 1..=1_000 {
            let due = plan(&self.cluster);
            if due.is_empty() {
                return format!(
                    "at rest after {moves} moves in {} rounds\n{}",
                    round - 1,
                    self.show()
                );
            }
            let mut regions: Vec<u64> = due.iter().map(Move::region).collect();
            regions.dedup();
            assert_eq!(regions.len(), due.len(), "two moves for one region: {due:?}");
            moves += due.len();
            due.iter().for_each(|due| self.perform(due));
        }
        panic!("the scheduler does not come to rest: {:?}", plan(&self.cluster));
    }

    fn show(&self) -> String {
        let mut out = String::new();
        for node in &self.cluster.nodes {
            let held = |role| {
                let peers = self.cluster.regions.iter().flat_map(|view| &view.region.peers);
                peers.filter(|peer| peer.node == node.id && peer.role == role).count()
            };
            let led =
                self.cluster.regions.iter().filter(|view| view.leader == Some(node.id)).count();
            let mut tables: BTreeMap<u64, usize> = BTreeMap::new();
            for view in &self.cluster.regions {
                if view.region.learners().any(|peer| peer.node == node.id) {
                    *tables.entry(view.region.table().unwrap()).or_default() += 1;
                }
            }
            let (voters, learners) = (held(PeerRole::Voter), held(PeerRole::Learner));
            match node.role {
                NodeRole::Row => writeln!(out, "node {}: {voters} voters, leads {led}", node.id),
                _ => writeln!(out, "node {}: {learners} learners, by table {tables:?}", node.id),
            }
            .unwrap();
        }
        out
    }
}

impl Script for SchedulerScript {
    fn line(&mut self, name: &str, args: &Args) -> String {
        match name {
            "node" => self.node(args),
            "table" => {
                let replicas = args.named_number("replicas", 0) as u8;
                self.cluster.replicas.insert(args.number(0), replicas);
            }
            "region" => self.region(args),
            "regions" => {
                // `regions 1 9 …`: the same for each number from the first to the last.
                for id in args.number(0)..=args.number(1) {
                    let plain = [vec![id.to_string()], args.plain[2..].to_vec()].concat();
                    self.region(&Args { plain, named: args.named.clone() });
                }
            }
            "transferring" => self.cluster.transferring = true,
            "run" => return self.run(),
            "plan" => {
                let due = plan(&self.cluster);
                let lines: Vec<String> = due.iter().map(|due| format!("{due:?}")).collect();
                return if lines.is_empty() { "nothing".into() } else { lines.join("\n") };
            }
            _ => panic!("unknown command {name}"),
        }
        String::new()
    }
}
