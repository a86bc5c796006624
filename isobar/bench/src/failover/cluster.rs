//! The cluster whose nodes are ended: who leads what, which nodes to take, and when all is whole again.
//!
//! It ends only processes of its own playground. What placement knows is asked of `isobar ctl status`, as an operator would.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use mysql_async::prelude::Queryable;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::Args;
use crate::playground::{Playground, Setup};
use crate::processes;
use crate::target::Target;

/// How long a look at the cluster may take.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
/// How long a cluster may take to be whole.
const WHOLE_LIMIT: Duration = Duration::from_secs(240);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// So many looks in a row must show the same leaders.
const QUIET_LOOKS: usize = 4;
/// How long a process may take to end after it was asked to.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Pause between two looks whether it has ended.
const STOP_PAUSE: Duration = Duration::from_millis(10);
/// Voters of a region, and of placement.
const VOTERS: usize = 3;
/// The internal port of the first row node of a playground, from its first port.
const ROW_PORT: u16 = 20;

/// Which nodes are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Victim {
    /// Those that lead most regions; of equal ones not placement's leader
    Leaders,
    /// Placement's leader, then those that lead most regions
    Placement,
}

/// How they are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// SIGKILL, as a crash
    Kill,
    /// SIGTERM, as an operator
    Planned,
}

/// What `isobar ctl status --json` says, as far as it is wanted here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Status {
    placement_leader: u64,
    placement: Voters,
    nodes: Vec<Node>,
    regions: Vec<Region>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Voters {
    voters: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Node {
    id: u64,
    role: String,
    rpc_address: String,
    up: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Region {
    id: u64,
    leader: Option<u64>,
    voters: Vec<u64>,
    peers: Vec<Peer>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Peer {
    node: u64,
    ready: bool,
}

/// A node that is to be ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ended {
    /// Its number in the cluster.
    pub node: u64,
    /// Its process in the playground, as `row-2`.
    pub name: String,
    /// Regions that it led.
    pub led: usize,
    /// Whether it led placement.
    pub led_placement: bool,
}

/// A region that has lost its majority.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lost {
    /// Its number.
    pub region: u64,
    /// Its table.
    pub table: String,
}

impl Status {
    fn led(&self, node: u64) -> usize {
        self.regions.iter().filter(|region| region.leader == Some(node)).count()
    }

    /// Regions in all.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// The nodes to end. A majority of placement's voters stays: without it nothing at all would be answered.
    fn victims(&self, of: Victim, count: usize) -> Result<Vec<u64>> {
        let rows = self.nodes.iter().filter(|node| node.role == "row" && node.up);
        let mut ranked: Vec<u64> = rows.map(|node| node.id).collect();
        let leads = |node: u64| node == self.placement_leader;
        ranked.sort_by_key(|node| {
            let first = of == Victim::Placement && leads(*node);
            (!first, std::cmp::Reverse(self.led(*node)), leads(*node), *node)
        });
        let mut chosen: BTreeSet<u64> = BTreeSet::new();
        for node in ranked {
            if chosen.len() == count {
                break;
            }
            chosen.insert(node);
            if !has_majority(&self.placement.voters, &chosen) {
                chosen.remove(&node);
            }
        }
        if chosen.len() < count {
            bail!("{count} nodes cannot be ended without placement's majority: use --nodes 6");
        }
        Ok(chosen.into_iter().collect())
    }

    /// Why the cluster is not whole, if it is not.
    fn missing(&self, nodes: usize) -> Option<String> {
        let up = self.nodes.iter().filter(|node| node.up && node.role == "row");
        let up: BTreeSet<u64> = up.map(|node| node.id).collect();
        if up.len() < nodes {
            return Some(format!("{} of {nodes} row nodes are up", up.len()));
        }
        let voters = VOTERS.min(nodes);
        if self.placement.voters.len() < voters {
            return Some(format!("placement has {} voters", self.placement.voters.len()));
        }
        for region in &self.regions {
            let ready = |node: &&u64| {
                up.contains(node)
                    && region.peers.iter().any(|peer| peer.node == **node && peer.ready)
            };
            let ready = region.voters.iter().filter(ready).count();
            if ready < voters || ready < region.voters.len() || region.leader.is_none() {
                return Some(format!("region {} has {ready} voters that are ready", region.id));
            }
        }
        None
    }

    fn leaders(&self) -> (u64, Vec<Option<u64>>) {
        (self.placement_leader, self.regions.iter().map(|region| region.leader).collect())
    }
}

/// Whether more than half of some voters are left.
fn has_majority(voters: &[u64], without: &BTreeSet<u64>) -> bool {
    let left = voters.iter().filter(|voter| !without.contains(voter)).count();
    left * 2 > voters.len()
}

/// A playground with a SQL node of its own, which stays.
pub struct Cluster {
    /// The SQL node.
    pub target: Target,
    playground: Playground,
    isobar: PathBuf,
    port_base: u16,
    nodes: usize,
}

impl Cluster {
    /// Starts it.
    pub async fn start(args: &Args) -> Result<Self> {
        let isobar = match &args.isobar {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("cannot find this program's file")?,
        };
        let target = Target::parse(&format!("mysql://root@127.0.0.1:{}/bench", args.port_base))?;
        let setup = Setup {
            isobar: Some(isobar.clone()),
            data: args.data.clone(),
            row: args.nodes,
            sql: 1,
            batch_sql: false,
            columnar: 0,
            port_base: args.port_base,
            online_cpus: None,
            batch_cpus: None,
        };
        let playground = Playground::start(&setup, &[&target]).await?;
        let (port_base, nodes) = (args.port_base, usize::from(args.nodes));
        Ok(Cluster { target, playground, isobar, port_base, nodes })
    }

    /// What placement knows.
    pub async fn status(&self) -> Result<Status> {
        let members: Vec<String> = (0..self.nodes.min(VOTERS))
            .map(|member| format!("127.0.0.1:{}", usize::from(self.port_base + ROW_PORT) + member))
            .collect();
        let mut command = Command::new(&self.isobar);
        command.args(["ctl", "status", "--json", "--placement", &members.join(",")]);
        command.kill_on_drop(true);
        let done = timeout(LOOK_LIMIT, command.output()).await;
        let done = done.context("isobar ctl status does not end")?.context("cannot run it")?;
        if !done.status.success() {
            bail!("isobar ctl status: {}", String::from_utf8_lossy(&done.stderr).trim());
        }
        serde_json::from_slice(&done.stdout).context("isobar ctl status says something unknown")
    }

    /// Waits until every region has all of its voters, and leaders stay where they are: placement spreads them, one at a
    /// time.
    pub async fn whole(&self) -> Result<Status> {
        let end = Instant::now() + WHOLE_LIMIT;
        let (mut last, mut quiet) = (None, 0);
        loop {
            let missing = match self.status().await {
                Ok(status) => match status.missing(self.nodes) {
                    None => {
                        quiet = if last == Some(status.leaders()) { quiet + 1 } else { 0 };
                        last = Some(status.leaders());
                        if quiet >= QUIET_LOOKS {
                            return Ok(status);
                        }
                        "leaders still move".to_owned()
                    }
                    Some(missing) => missing,
                },
                Err(error) => format!("{error:#}"),
            };
            if Instant::now() > end {
                bail!("after {} s the cluster is not whole: {missing}", WHOLE_LIMIT.as_secs());
            }
            sleep(PAUSE).await;
        }
    }

    /// Tables of regions.
    pub async fn tables(&self) -> Result<BTreeMap<u64, String>> {
        let mut conn = self.target.connect().await.context("cannot connect")?;
        let query = "SELECT region_id, table_name FROM information_schema.regions WHERE table_name IS NOT NULL";
        let regions: Vec<(u64, String)> =
            conn.query(query).await.context("cannot ask for regions")?;
        Ok(regions.into_iter().collect())
    }

    /// The nodes to end now.
    pub fn choose(&self, status: &Status, of: Victim, count: usize) -> Result<Vec<Ended>> {
        let victims = status.victims(of, count)?;
        let described = victims.into_iter().map(|id| {
            let known = status.nodes.iter().find(|node| node.id == id);
            let address = known.map(|node| node.rpc_address.as_str()).unwrap_or_default();
            let port = address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            let number = port.and_then(|port| port.checked_sub(self.port_base + ROW_PORT));
            let number = number.with_context(|| format!("node {id} is not of this playground"))?;
            Ok(Ended {
                node: id,
                name: format!("row-{}", number + 1),
                led: status.led(id),
                led_placement: id == status.placement_leader,
            })
        });
        described.collect()
    }

    /// Regions that lose their majority without these nodes.
    pub fn lost(status: &Status, tables: &BTreeMap<u64, String>, ended: &[Ended]) -> Vec<Lost> {
        let gone: BTreeSet<u64> = ended.iter().map(|node| node.node).collect();
        let lost = status.regions.iter().filter(|region| !has_majority(&region.voters, &gone));
        let named = lost.map(|region| Lost {
            region: region.id,
            table: tables.get(&region.id).cloned().unwrap_or_else(|| "no table".to_owned()),
        });
        named.collect()
    }

    /// Has these nodes stay down until what is returned is dropped, and finds their processes.
    pub fn keep_down(&self, ended: &[Ended]) -> Result<(Down, Vec<u32>)> {
        let running = self.playground.nodes();
        let find = |node: &Ended| {
            running.get(&node.name).copied().with_context(|| format!("{} does not run", node.name))
        };
        let pids = ended.iter().map(find).collect::<Result<Vec<u32>>>()?;
        let mut down = Down(Vec::new());
        for node in ended {
            let settings = self.playground.data().join(&node.name).join("isobar.toml");
            let away = settings.with_extension("away");
            std::fs::rename(&settings, &away)
                .with_context(|| format!("cannot take {} away", settings.display()))?;
            down.0.push((away, settings));
        }
        Ok((down, pids))
    }

    /// Stops it.
    pub async fn close(self) {
        self.playground.stop().await;
    }
}

/// Settings that are away; back when this is dropped, upon which the playground starts their nodes again.
pub struct Down(Vec<(PathBuf, PathBuf)>);

impl Drop for Down {
    fn drop(&mut self) {
        for (away, settings) in &self.0 {
            if let Err(error) = std::fs::rename(away, settings) {
                crate::output::note(&format!("{} is not back: {error}", settings.display()));
            }
        }
    }
}

/// Ends processes; seconds until the last one was gone.
pub async fn end(pids: &[u32], how: Stop) -> Result<f64> {
    let began = Instant::now();
    for pid in pids {
        match how {
            Stop::Kill => crate::system::kill(*pid),
            Stop::Planned => crate::system::terminate(*pid),
        }
    }
    while pids.iter().any(|pid| processes::runs(*pid)) {
        if began.elapsed() > STOP_LIMIT {
            bail!("a node did not end within {} s", STOP_LIMIT.as_secs());
        }
        sleep(STOP_PAUSE).await;
    }
    Ok(began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six row nodes of which the first three form placement; `led` are the leaders of regions on neighbours.
    fn status(placement_leader: u64, led: &[u64]) -> Status {
        let node = |id| Node { id, role: "row".into(), rpc_address: String::new(), up: true };
        let region = |(at, leader): (usize, &u64)| {
            let voters: Vec<u64> = (0..3).map(|next| (leader - 1 + next) % 6 + 1).collect();
            let peers = voters.iter().map(|node| Peer { node: *node, ready: true }).collect();
            Region { id: at as u64 + 10, leader: Some(*leader), voters, peers }
        };
        Status {
            placement_leader,
            placement: Voters { voters: vec![1, 2, 3] },
            nodes: (1..=6).map(node).collect(),
            regions: led.iter().enumerate().map(region).collect(),
        }
    }

    #[test]
    fn the_node_that_leads_most_is_chosen_and_of_equal_ones_not_placements_leader() {
        let of = |status: &Status, of, count| status.victims(of, count).unwrap();
        assert_eq!(of(&status(1, &[2, 5, 5, 1]), Victim::Leaders, 1), [5]);
        assert_eq!(of(&status(1, &[1, 1, 2, 2]), Victim::Leaders, 1), [2]);
        assert_eq!(of(&status(1, &[4, 4, 2, 2]), Victim::Placement, 1), [1]);
        assert_eq!(of(&status(1, &[4, 4, 2, 2]), Victim::Placement, 2), [1, 4]);
    }

    #[test]
    fn placement_keeps_its_majority() {
        let mut six = status(1, &[2, 2, 2, 3, 3, 4]);
        assert_eq!(six.victims(Victim::Leaders, 2).unwrap(), [2, 4], "2 and 3 are both its voters");
        six.nodes.truncate(3);
        assert!(six.victims(Victim::Leaders, 2).is_err());
    }

    #[test]
    fn regions_without_a_majority_are_named() {
        let six = status(1, &[2, 4]);
        let ended = |node| Ended { node, name: String::new(), led: 0, led_placement: false };
        let tables = BTreeMap::from([(10, "a".to_owned()), (11, "b".to_owned())]);
        let lost = Cluster::lost(&six, &tables, &[ended(4), ended(5)]);
        assert_eq!(lost, [Lost { region: 11, table: "b".into() }], "voters 4, 5, 6");
        assert_eq!(Cluster::lost(&six, &tables, &[ended(4)]), []);
    }

    #[test]
    fn a_cluster_is_whole_with_all_voters_and_leaders() {
        let whole = status(1, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(whole.missing(6), None);
        let mut down = whole.clone();
        down.nodes[3].up = false;
        assert!(down.missing(6).unwrap().contains("5 of 6"));
        let mut empty = whole.clone();
        empty.regions[2].peers[1].ready = false;
        assert!(empty.missing(6).unwrap().contains("region 12"));
        empty.regions[2].leader = None;
        empty.regions[2].peers[1].ready = true;
        assert!(empty.missing(6).unwrap().contains("region 12"));
    }
}
