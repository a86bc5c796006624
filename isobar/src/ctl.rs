//! `isobar ctl`: looks at a running cluster, for people and for programs; and mends one that cannot run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Result;
use clap::Subcommand;
use node::config::Member;
use node::recover;
use placement::api::{PeerReport, Route, TimeStatus};
use placement::client::{ClusterStatus, ClusterVersions};
use placement::oracle::AHEAD_MS;
use serde_json::{Value, json};
use types::{ClusterVersion, NodeId, RegionKind};

use crate::health::{DOWN_MS, placement_client};

/// Look at a running cluster, or mend one that cannot run.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Show nodes, regions, leaders, replica lag, disk and faults
    Status {
        /// Internal addresses of row nodes [default: those of a playground]
        #[arg(
            long,
            value_delimiter = ',',
            value_name = "HOST:PORT",
            default_value = "127.0.0.1:4020,127.0.0.1:4021,127.0.0.1:4022"
        )]
        placement: Vec<SocketAddr>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    RecoverUnsafe(recover::Args),
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let (placement, json) = match args.command {
        Command::Status { placement, json } => (placement, json),
        Command::RecoverUnsafe(args) => {
            return tokio::task::spawn_blocking(move || recover::run(&args)).await?;
        }
    };
    let members: Vec<Member> =
        (1..).zip(placement).map(|(id, address)| Member { id, address }).collect();
    let placement = placement_client(&members);
    let status = placement.status().await?;
    let versions = Versions::of(placement.versions().await)?;
    match json {
        true => println!("{:#}", as_json(&status, &versions)),
        false => print!("{}", as_text(&status, &versions)),
    }
    Ok(())
}

/// The cluster's version, and what each node's program speaks.
struct Versions {
    cluster: ClusterVersion,
    nodes: BTreeMap<NodeId, Option<ClusterVersion>>,
}

impl Versions {
    /// As placement's leader says; one of a release before there were versions says nothing.
    fn of(said: types::Result<ClusterVersions>) -> Result<Self> {
        match said {
            Ok(ClusterVersions { cluster, nodes }) => {
                Ok(Versions { cluster, nodes: nodes.into_iter().collect() })
            }
            Err(types::Error::Invalid(_)) => Ok(Versions { cluster: 1, nodes: BTreeMap::new() }),
            Err(error) => Err(error.into()),
        }
    }

    fn of_node(&self, node: NodeId) -> Option<ClusterVersion> {
        self.nodes.get(&node).copied().flatten()
    }

    /// One line: the version, and who holds it back.
    fn note(&self) -> String {
        let cluster = self.cluster;
        let behind = self.nodes.iter().filter(|(_, speaks)| speaks.is_none_or(|s| s <= cluster));
        let behind: Vec<String> = behind.map(|(node, _)| node.to_string()).collect();
        match self.nodes.values().flatten().max() {
            Some(most) if *most > cluster => format!(
                "cluster version {cluster}: it goes on to {most} once these nodes speak it: {}",
                behind.join(", ")
            ),
            _ => format!("cluster version {cluster}"),
        }
    }
}

fn kind(kind: RegionKind) -> String {
    match kind {
        RegionKind::Placement => "placement".to_owned(),
        RegionKind::Records(table) => format!("records of table {table}"),
        RegionKind::Index(table, index) => format!("index {index} of table {table}"),
        RegionKind::Table(table) => format!("indexes and records of table {table}"),
    }
}

/// Nodes of the voters of placement's own group, as its leader reports it.
fn placement_voters(status: &ClusterStatus) -> Vec<NodeId> {
    let own = status
        .peers
        .iter()
        .find(|(node, peer)| *node == status.leader && peer.region.kind == RegionKind::Placement);
    own.map(|(_, peer)| peer.region.voters().map(|voter| voter.node).collect()).unwrap_or_default()
}

fn reports<'a>(
    status: &'a ClusterStatus,
    route: &'a Route,
) -> impl Iterator<Item = (NodeId, &'a PeerReport)> {
    let peers = status.peers.iter().filter(|(_, peer)| peer.region.id == route.region.id);
    peers.map(|(node, peer)| (*node, peer))
}

/// The status as JSON; numbers of nodes and regions as JSON numbers.
fn as_json(status: &ClusterStatus, versions: &Versions) -> Value {
    let nodes: Vec<Value> = status
        .nodes
        .iter()
        .map(|node| {
            json!({
                "id": node.node.id,
                "role": node.node.role.name(),
                "rpc_address": node.node.rpc_address,
                "client_address": node.node.client_address,
                "up": node.silent_ms.is_some_and(|silent| silent < DOWN_MS),
                "silent_ms": node.silent_ms,
                "version": versions.of_node(node.node.id),
                "disk_bytes": node.report.disk_bytes,
                "disk_free": node.report.disk_free,
                "faults": node.report.faults,
            })
        })
        .collect();
    let regions: Vec<Value> = status
        .routes
        .iter()
        .map(|route| {
            let peers: Vec<Value> = reports(status, route)
                .map(|(node, peer)| {
                    json!({
                        "node": node,
                        "leader": peer.leader,
                        "ready": peer.ready,
                        "term": peer.term,
                        "applied": peer.applied,
                        "committed": peer.committed,
                        "rows": peer.rows,
                        "bytes": peer.bytes,
                        "lag_ms": peer.lag.and_then(|lag| lag.last_ms),
                        "lag_p50_ms": peer.lag.map(|lag| lag.p50_ms),
                        "lag_p99_ms": peer.lag.map(|lag| lag.p99_ms),
                        "lag_batches": peer.lag.map(|lag| lag.batches),
                    })
                })
                .collect();
            json!({
                "id": route.region.id,
                "kind": kind(route.region.kind),
                "epoch": [route.region.epoch.version, route.region.epoch.conf],
                "leader": route.leader,
                "voters": route.region.voters().map(|voter| voter.node).collect::<Vec<_>>(),
                "columnar": route.ready_learners,
                "rows": route.rows,
                "bytes": route.bytes,
                "peers": peers,
            })
        })
        .collect();
    let clocks = status.time.clocks.iter();
    json!({
        "version": versions.cluster,
        "placement_leader": status.leader,
        "placement": { "voters": placement_voters(status) },
        "nodes": nodes,
        "regions": regions,
        "timestamps": {
            "high_water_ms": status.time.high_water_ms,
            "ahead_ms": status.time.ahead_ms,
            "clocks": clocks.map(|(node, off)| json!({ "node": node, "ahead_ms": off })).collect::<Vec<_>>(),
            "damage": status.time.damage,
        },
    })
}

/// What is to be said of timestamps and clocks, a line each; nothing while all is well.
fn time_notes(time: &TimeStatus) -> Vec<String> {
    let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1_000.0);
    let mut notes: Vec<String> = time.damage.iter().map(|why| format!("fault: {why}")).collect();
    match time.ahead_ms {
        Some(ahead) if ahead > AHEAD_MS => notes.push(format!(
            "timestamps run {} ahead of the clocks of a majority of the row nodes, and go at half \
             speed until those have caught up",
            seconds(ahead)
        )),
        Some(_) => {}
        None => notes.push(
            "placement's leader does not know the clocks of a majority of the row nodes".to_owned(),
        ),
    }
    let wrong = time.clocks.iter().filter(|(_, off)| off.unsigned_abs() > AHEAD_MS);
    notes.extend(wrong.map(|(node, off)| {
        let way = if *off > 0 { "ahead of" } else { "behind" };
        let off = seconds(off.unsigned_abs());
        format!("the clock of node {node} is {off} {way} the median of the row nodes: set it")
    }));
    notes
}

fn as_text(status: &ClusterStatus, versions: &Versions) -> String {
    let mut text = String::new();
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let _ = writeln!(
        text,
        "{:>6}  {:<9} {:<6} {:<22} {:<22} disk",
        "node", "role", "state", "internal", "clients"
    );
    for node in &status.nodes {
        let up = node.silent_ms.is_some_and(|silent| silent < DOWN_MS);
        let mark = if node.node.id == status.leader { "*" } else { "" };
        let _ = writeln!(
            text,
            "{:>6}  {:<9} {:<6} {:<22} {:<22} {}",
            format!("{}{mark}", node.node.id),
            node.node.role.name(),
            if up { "up" } else { "down" },
            node.node.rpc_address,
            node.node.client_address,
            mib(node.report.disk_bytes),
        );
        for fault in &node.report.faults {
            let _ = writeln!(text, "        fault: {fault}");
        }
    }
    let _ = writeln!(text, "(* leads placement)");
    let _ = writeln!(text, "{}", versions.note());
    for note in time_notes(&status.time) {
        let _ = writeln!(text, "{note}");
    }
    let _ = writeln!(text);
    let _ = writeln!(
        text,
        "{:>7}  {:<26} {:>6} {:>10} {:>12}  columnar (lag)",
        "region", "keys", "leader", "rows", "size"
    );
    for route in &status.routes {
        let learners: Vec<String> = reports(status, route)
            .filter(|(_, peer)| peer.lag.is_some())
            .map(|(node, peer)| match (peer.ready, peer.lag) {
                (true, Some(lag)) => format!("{node} (p99 {} ms)", lag.p99_ms),
                _ => format!("{node} (not ready)"),
            })
            .collect();
        let leader = route.leader.map_or("-".to_owned(), |leader| leader.to_string());
        let _ = writeln!(
            text,
            "{:>7}  {:<26} {leader:>6} {:>10} {:>12}  {}",
            route.region.id,
            kind(route.region.kind),
            route.rows,
            mib(route.bytes),
            learners.join(", "),
        );
    }
    text
}
