//! Scenarios as scripts: what a person would try by hand, and what came of it.
//! `UPDATE_GOLDENFILES=1` writes the results anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use common::{Rig, put};
use env::Random;
use futures::FutureExt;
use goldenscript::{Command, Context, Runner};
use raft::testing::{EchoCommand, SimOptions};
use raft::{Groups, PeerStatus, Pending, Position, StoreConfig};
use types::{NodeId, Peer, PeerRole, Region, RegionId};

#[test]
fn every_scenario_goes_as_written() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 9, "scripts are missing");
    for script in scripts {
        println!("{}", script.display());
        goldenscript::run(&mut Scene::default(), &script).unwrap();
    }
}

#[derive(Default)]
struct Scene {
    rig: Option<Rig>,
    asked: BTreeMap<String, Pending<u64>>,
}

type Said = Result<String, Box<dyn Error>>;

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is no number"))
}

/// `1v` is a voter on node 1, `4l` a learner on node 4; `4l@77` names the peer's id.
fn members(region: RegionId, texts: &[String]) -> Vec<Peer> {
    let member = |text: &String| {
        let (place, id) = match text.split_once('@') {
            Some((place, id)) => (place, Some(number(id))),
            None => (text.as_str(), None),
        };
        let (node, role) = place.split_at(place.len() - 1);
        let role = if role == "v" { PeerRole::Voter } else { PeerRole::Learner };
        let node = number(node);
        Peer { id: id.unwrap_or(region * 1000 + node), node, role }
    };
    texts.iter().map(member).collect()
}

fn describe(peers: &[Peer]) -> String {
    let name = |peer: &Peer| {
        let role = if peer.role == PeerRole::Voter { "v" } else { "l" };
        format!("{}{role}@{}", peer.node, peer.id)
    };
    peers.iter().map(name).collect::<Vec<_>>().join(" ")
}

impl Scene {
    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().expect("a script begins with 'cluster'")
    }

    fn cluster(&mut self, args: &Args) -> Said {
        let config = StoreConfig {
            keep_entries: args.named("keep").map_or(4096, number),
            keep_entries_for_slow: args.named("keep").map_or(65_536, number),
            persist_entries: 1,
            compact_ticks: 10,
            ..StoreConfig::new(0)
        };
        let nodes = number(&args.all[0]);
        self.rig = Some(Rig::with(SimOptions { nodes, config, ..SimOptions::default() }));
        Ok(String::new())
    }

    fn create(&mut self, args: &Args) -> Said {
        let id = number(&args.all[0]);
        let peers = members(id, &args.all[1..]);
        let region = Region { peers, ..common::region(id, &[]) };
        self.rig().cluster.create(&region)?;
        let leader = self.rig().wait_leader(id);
        Ok(format!("node {leader} leads"))
    }

    fn write(&mut self, args: &Args) -> Said {
        let region = number(&args.all[0]);
        let mut said = String::new();
        for (key, value) in &args.pairs {
            let at = self.rig().write(region, key, number(value))?;
            said = format!("written at {}", at.index);
        }
        Ok(said)
    }

    /// Asks a node, and shows what it holds once the answer is there.
    fn read(&mut self, args: &Args) -> Said {
        let (node, region) = (number(&args.all[0]), number(&args.all[1]));
        let groups = self.rig().cluster.groups(node)?;
        self.rig().cluster.run_until(300, |_| groups.status(region).is_some());
        let pending = groups.read_index(region);
        let index = self.rig().answer(pending, 300)?;
        Ok(format!("index {index}: {}", self.content(node, region)))
    }

    fn content(&mut self, node: NodeId, region: RegionId) -> String {
        let state = self.rig().state(node, region);
        let mut last = BTreeMap::new();
        for (_, key, value) in &state.history {
            last.insert(String::from_utf8_lossy(key).into_owned(), *value);
        }
        let pairs: Vec<String> =
            last.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        if pairs.is_empty() { "nothing".to_owned() } else { pairs.join(" ") }
    }

    fn read_index(&mut self, args: &Args) -> Said {
        let (node, region) = (number(&args.all[0]), number(&args.all[1]));
        let pending = self.rig().cluster.groups(node)?.read_index(region);
        self.asked.insert(args.all[2].clone(), pending);
        Ok(String::new())
    }

    /// Proposes to a node in the term that it knows: node, region, key and value.
    fn proposal(&mut self, args: &Args) -> Result<Pending<Position>, Box<dyn Error>> {
        let (node, region) = (number(&args.all[0]), number(&args.all[1]));
        let groups = self.rig().cluster.groups(node)?;
        let term = groups.status(region).map_or(0, |status| status.term);
        let (key, value) = &args.pairs[0];
        Ok(groups.propose(region, term, put(key, number(value))))
    }

    /// Proposes without waiting: node, region, a name for the answer.
    fn propose_later(&mut self, args: &Args) -> Said {
        let pending = self.proposal(args)?.map(|answer| answer.map(|at| at.index)).boxed();
        self.asked.insert(args.all[2].clone(), pending);
        Ok(String::new())
    }

    fn answered(&mut self, args: &Args) -> Said {
        let pending = self.asked.get_mut(&args.all[0]).expect("no such request");
        Ok(match pending.now_or_never() {
            None => "no answer yet".to_owned(),
            Some(Ok(index)) => format!("index {index}"),
            Some(Err(error)) => error.to_string(),
        })
    }

    fn members(&mut self, args: &Args) -> Said {
        let region = number(&args.all[0]);
        let target = members(region, &args.all[1..]);
        for _ in 0..5 {
            let leader = self.rig().wait_leader(region);
            let groups = self.rig().cluster.groups(leader)?;
            let pending = groups.change_membership(region, target.clone());
            match self.rig().answer(pending, 700) {
                Ok(changed) => return Ok(describe(&changed.peers)),
                // The leader is leaving, and handed over first.
                Err(types::Error::NotLeader { .. }) => self.rig().cluster.run(5),
                Err(error) => return Err(error.into()),
            }
        }
        Err("leadership did not settle".into())
    }

    fn split(&mut self, args: &Args) -> Said {
        let (region, child) = (number(&args.all[0]), number(&args.all[2]));
        let leader = self.rig().wait_leader(region);
        let groups = self.rig().cluster.groups(leader)?;
        let status = groups.status(region).unwrap();
        let mut peers = status.region.peers.clone();
        for peer in &mut peers {
            peer.id = child * 1000 + peer.node;
        }
        let at = args.all[1].as_bytes().to_vec();
        let command = EchoCommand::Split { at, child, peers, epoch: status.region.epoch };
        let pending = groups.propose(region, status.term, command.encode()?);
        let at = self.rig().answer(pending, 100)?;
        Ok(format!("split at {}", at.index))
    }

    fn show(&mut self, args: &Args) -> Said {
        let mut said = String::new();
        for node in self.rig().cluster.nodes() {
            if !self.rig().cluster.is_up(node) {
                writeln!(said, "node {node}: down")?;
                continue;
            }
            for status in self.rig().cluster.groups(node)?.statuses() {
                let id = status.region.id;
                if args.all.first().is_none_or(|wanted| number(wanted) == id) {
                    let content = self.content(node, id);
                    writeln!(said, "node {node}: {}, {content}", short(&status))?;
                }
            }
        }
        Ok(said)
    }

    fn propose_to(&mut self, args: &Args) -> Said {
        let pending = self.proposal(args)?;
        Ok(format!("written at {}", self.rig().answer(pending, 300)?.index))
    }
}

fn short(status: &PeerStatus) -> String {
    let role = match (status.decides, status.peer.role) {
        (true, _) => "leader",
        (false, PeerRole::Voter) => "follower",
        (false, PeerRole::Learner) => "learner",
    };
    let empty = if status.ready { "" } else { " waits for a snapshot" };
    format!(
        "region {} peer {} {role}{empty} at {} of {}",
        status.region.id,
        status.peer.id,
        status.applied.index,
        describe(&status.region.peers)
    )
}

struct Args {
    all: Vec<String>,
    pairs: Vec<(String, String)>,
}

impl Args {
    fn of(command: &Command) -> Self {
        let mut args = Args { all: Vec::new(), pairs: Vec::new() };
        for arg in &command.args {
            match arg {
                goldenscript::Argument::Positional(text) => args.all.push(text.clone()),
                goldenscript::Argument::KeyValue(key, value) => {
                    args.pairs.push((key.clone(), value.clone()));
                }
                _ => panic!("argument {arg} is of no known kind"),
            }
        }
        args
    }

    fn named(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.all.iter().map(|text| number(text)).collect()
    }
}

impl Runner for Scene {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Said {
        let args = Args::of(command);
        match command.name.as_str() {
            "cluster" => return self.cluster(&args),
            "create" => return self.create(&args),
            "write" => return self.write(&args),
            "propose" => return self.propose_to(&args),
            "read" => return self.read(&args),
            "propose-later" => return self.propose_later(&args),
            "read-index" => return self.read_index(&args),
            "answered" => return self.answered(&args),
            "members" => return self.members(&args),
            "split" => return self.split(&args),
            "show" => return self.show(&args),
            "leader" => {
                let region = number(&args.all[0]);
                let leader = self.rig().wait_leader(region);
                return Ok(format!("node {leader}"));
            }
            "elected" => {
                let (region, before) = (number(&args.all[0]), self.rig().cluster.ticks());
                let leader = self.rig().wait_leader(region);
                let after = self.rig().cluster.ticks() - before;
                return Ok(format!("node {leader} after {after} ticks"));
            }
            "messages" => {
                let before = self.rig().cluster.messages_sent();
                self.rig().cluster.run(number(&args.all[0]));
                return Ok(format!("{} messages", self.rig().cluster.messages_sent() - before));
            }
            "run" => self.rig().cluster.run(number(&args.all[0])),
            "slow-disk" => {
                let (node, ticks) = (number(&args.all[0]), number(&args.all[1]));
                self.rig().cluster.set_write_time(node, ticks)?;
            }
            "slow-store" => {
                let (node, ticks) = (number(&args.all[0]), number(&args.all[1]));
                self.rig().cluster.set_work_time(node, ticks)?;
                let chance = if ticks > 0 { 1.0 } else { 0.0 };
                self.rig().machines[&node].be_busy(Random::seeded(0), chance);
            }
            "crash" => args.nodes().into_iter().for_each(|node| self.rig().crash(node, false)),
            "restart" => {
                for node in args.nodes() {
                    self.rig().cluster.restart(node)?;
                }
            }
            "away" => self.rig().cluster.partition(&args.nodes()),
            "heal" => self.rig().cluster.partition(&[]),
            "transfer" => {
                let region = number(&args.all[0]);
                let leader = self.rig().wait_leader(region);
                let to = number(&args.all[1]);
                self.rig().cluster.groups(leader)?.transfer(region, to);
                self.rig().cluster.run(5);
            }
            "destroy" => {
                let (node, region) = (number(&args.all[0]), number(&args.all[1]));
                let pending = self.rig().cluster.groups(node)?.destroy(region);
                self.rig().answer(pending, 10)?;
            }
            other => return Err(format!("no command '{other}'").into()),
        }
        Ok(String::new())
    }
}
