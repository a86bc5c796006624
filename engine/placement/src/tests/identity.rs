//! Who a node is: what its directories say after each loss, and who may form a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Disk, Random, SimDisk};
use types::{Error, NodeId, Peer, PeerRole};

use crate::api::{Node, NodeRole, Session};
use crate::bootstrap::placement_region;
use crate::command::Command;
use crate::formation::Standing;
use crate::formation::{Answer, Request, Shown, Step, agreed};
use crate::identity::{Directories, Stamp};
use crate::own_group::{Wanted, wanted};
use crate::participant::Participant;
use crate::state::State;

const DATA: &str = "/node/data";
const LOG: &str = "/node/log";

fn directories(disk: &SimDisk) -> Directories {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Directories::new(disk, Path::new(DATA), Some(Path::new(LOG)), &["rows"])
}

/// A disk of a member that has begun `starts` sessions.
fn stamped(starts: u64) -> SimDisk {
    let disk = SimDisk::new();
    let participant = Participant::open(directories(&disk), 2, BTreeSet::from([2]), 77).unwrap();
    participant.join(9, 1_005).unwrap();
    let identity = participant.identity().unwrap();
    let random = Random::seeded(1);
    for _ in 0..starts {
        let session = identity.begin_session(&random).unwrap();
        identity.registered(&session).unwrap();
    }
    disk
}

fn refused(disk: &SimDisk, why: &str) {
    match directories(disk).open() {
        Err(Error::Revoked(text)) => {
            assert!(text.contains(why) && text.contains("joins as a new node"), "{text}");
        }
        other => panic!("{other:?}, not refused because {why}"),
    }
}

/// A directory's stamp as it is now, to be put back later.
fn copy(disk: &SimDisk, dir: &str) -> Vec<u8> {
    let file = disk.open(&PathBuf::from(dir).join("identity"), env::Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn put_back(disk: &SimDisk, dir: &str, bytes: &[u8]) {
    let file = disk.create(&PathBuf::from(dir).join("identity")).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

#[test]
fn each_directory_lost_alone_is_the_identity_lost() {
    let disk = stamped(1);
    assert_eq!(directories(&disk).open().unwrap().unwrap().node, 1_005);
    disk.remove_dir_all(Path::new(LOG)).unwrap();
    refused(&disk, "the Raft log's directory has lost its stamp");
    disk.remove_dir_all(Path::new(DATA)).unwrap();
    assert_eq!(directories(&disk).open().unwrap(), None, "both are empty");

    let disk = stamped(1);
    disk.remove_dir_all(Path::new(DATA)).unwrap();
    refused(&disk, "the data directory has lost its stamp");

    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/node/data/rows")).unwrap();
    refused(&disk, "they hold data and no stamp");
}

#[test]
fn a_directory_put_back_from_a_copy_is_older_than_the_other() {
    for (dir, why) in
        [(DATA, "the data directory is older"), (LOG, "the Raft log's directory is older")]
    {
        let disk = stamped(1);
        let old = copy(&disk, dir);
        let participant = Participant::open(directories(&disk), 2, BTreeSet::from([2]), 1).unwrap();
        let identity = participant.identity().unwrap();
        identity.begin_session(&Random::seeded(2)).unwrap();
        identity.mark().unwrap();
        put_back(&disk, dir, &old);
        refused(&disk, why);
    }
    let (disk, other) = (stamped(1), stamped(1));
    let mut foreign = directories(&other).open().unwrap().unwrap();
    foreign.birth += 1;
    directories(&other).write(&mut foreign).unwrap();
    put_back(&disk, LOG, &copy(&other, LOG));
    refused(&disk, "they belong to different nodes");
    put_back(&disk, LOG, b"ISBRNODE of some other time");
    refused(&disk, "a stamp cannot be read");
}

#[test]
fn a_crash_at_any_point_of_the_first_stamp_leaves_empty_directories_or_a_member() {
    let stamp = || Stamp::new(9, 3, 77, Standing::Member);
    let syncs = {
        let disk = SimDisk::new();
        directories(&disk).write(&mut stamp()).unwrap();
        disk.syncs()
    };
    for (nth, seed) in (1..=syncs).flat_map(|nth| (0..20).map(move |seed| (nth, seed))) {
        let disk = SimDisk::new();
        disk.crash_at_sync(nth);
        let written = directories(&disk).write(&mut stamp());
        assert!(written.is_err(), "a stamp was acknowledged before sync {nth}");
        disk.crash(seed);
        match directories(&disk).open() {
            Ok(None) => {}
            Ok(Some(found)) => assert_eq!(found.node, 3),
            Err(error) => panic!("after a crash at sync {nth}, seed {seed}: {error}"),
        }
    }
}

/// Members before there is a cluster: what is on each disk, and what each process has drawn.
struct World {
    random: Random,
    disks: Vec<SimDisk>,
    participants: Vec<Participant>,
}

impl World {
    fn new(count: usize, seed: u64) -> Self {
        let mut world = World { random: Random::seeded(seed), disks: vec![], participants: vec![] };
        for at in 0..count {
            world.disks.push(SimDisk::new());
            let participant = world.open(at, count);
            world.participants.push(participant);
        }
        world
    }

    fn open(&self, at: usize, count: usize) -> Participant {
        let listed = (1..=count as NodeId).collect();
        let draw = self.random.u64();
        Participant::open(directories(&self.disks[at]), at as NodeId + 1, listed, draw).unwrap()
    }

    fn restart(&mut self, at: usize, emptied: bool) {
        if emptied {
            self.disks[at] = SimDisk::new();
        } else {
            self.disks[at].crash(self.random.u64());
        }
        self.participants[at] = self.open(at, self.participants.len());
    }

    fn broadcast(
        &self,
        but: usize,
        loss: f64,
        request: &Request,
    ) -> BTreeMap<NodeId, Option<Answer>> {
        let others = (0..self.participants.len()).filter(|at| *at != but);
        let send = |at: usize| {
            let arrives = !self.random.chance(loss);
            let answer = arrives.then(|| self.participants[at].handle(request).unwrap());
            (at as NodeId + 1, answer.filter(|_| !self.random.chance(loss)))
        };
        others.map(send).collect()
    }

    fn cluster_of(&self, at: usize) -> Option<u64> {
        match self.participants[at].handle(&Request::Hello).unwrap().shown {
            Shown::Member(cluster) => Some(cluster),
            _ => None,
        }
    }

    /// Whoever belongs to a cluster by now, by what is on the disks.
    fn clusters(&self) -> BTreeSet<u64> {
        (0..self.participants.len()).filter_map(|at| self.cluster_of(at)).collect()
    }

    /// One look around of a member. `strike` may empty somebody between any two messages.
    fn step(&mut self, at: usize, loss: f64, mut strike: impl FnMut(&mut World)) {
        let answers = self.broadcast(at, loss, &Request::Hello);
        strike(self);
        match self.participants[at].next(&answers, self.random.u64()) {
            Some(Step::Prepare(plan)) => {
                self.participants[at].prepare(&plan).unwrap();
                strike(self);
                let answers = self.broadcast(at, loss, &Request::Prepare(plan.clone()));
                strike(self);
                if agreed(&plan, at as NodeId + 1, &answers) {
                    let before = self.clusters();
                    if self.participants[at].commit(&plan).unwrap() {
                        assert!(before.is_empty(), "a second cluster beside {before:?}");
                    }
                    strike(self);
                    self.broadcast(at, loss, &Request::Commit(plan.cluster));
                }
            }
            Some(Step::Commit(plan)) => {
                self.participants[at].commit(&plan).unwrap();
            }
            Some(Step::Join(_) | Step::Wait(_)) | None => {}
        }
    }
}

#[test]
fn formation_survives_lost_messages_restarts_and_emptied_members() {
    let mut formed = 0;
    for seed in 0..400 {
        let mut world = World::new(3, seed);
        let random = Random::seeded(seed + 1_000);
        for _ in 0..60 {
            let at = random.below(3) as usize;
            let strikes = random.clone();
            world.step(at, 0.2, |world| {
                if strikes.chance(0.03) {
                    let victim = strikes.below(3) as usize;
                    // Whoever runs the step goes on with what it knows; its disk holds the rest.
                    world.restart(victim, victim != at && strikes.chance(0.5));
                }
            });
            assert!(world.clusters().len() <= 1, "seed {seed}: {:?}", world.clusters());
        }
        // Quiet: whatever happened, one cluster at most, and nobody has formed another beside it.
        for at in (0..9).map(|n| n % 3) {
            world.step(at, 0.0, |_| {});
        }
        assert!(world.clusters().len() <= 1, "seed {seed}");
        formed += world.clusters().len();
    }
    assert!(formed > 300, "only {formed} of 400 were formed");
}

#[test]
fn an_empty_member_joins_what_is_there_and_forms_nothing_while_another_is_silent() {
    let mut world = World::new(3, 1);
    for at in [0, 1, 2] {
        world.step(at, 0.0, |_| {});
    }
    assert_eq!(world.clusters().len(), 1);
    let cluster = world.cluster_of(0).unwrap();
    for emptied in [0, 1, 2] {
        world.restart(emptied, true);
        let mut answers = world.broadcast(emptied, 0.0, &Request::Hello);
        let participant = &world.participants[emptied];
        assert_eq!(participant.next(&answers, 5), Some(Step::Join(cluster)));
        // The others are down: they may be all that is left of a cluster.
        answers.values_mut().for_each(|answer| *answer = None);
        assert!(matches!(participant.next(&answers, 5), Some(Step::Wait(_))));
        participant.join(cluster, 1_000 + emptied as NodeId).unwrap();
        assert_eq!(participant.handle(&Request::Hello).unwrap().shown, Shown::Member(cluster));
    }
}

#[test]
fn a_plan_made_before_a_member_was_emptied_is_not_agreed() {
    let mut world = World::new(3, 3);
    let answers = world.broadcast(0, 0.0, &Request::Hello);
    let Some(Step::Prepare(plan)) = world.participants[0].next(&answers, 4) else { panic!() };
    world.participants[0].prepare(&plan).unwrap();
    world.broadcast(0, 0.0, &Request::Prepare(plan.clone()));
    world.restart(1, true);
    let answers = world.broadcast(0, 0.0, &Request::Prepare(plan.clone()));
    assert!(!agreed(&plan, 1, &answers), "{answers:?}");
    assert_eq!(answers[&2].unwrap().shown, Shown::Blank);
}

// ---- registration ---------------------------------------------------------------------------

fn node(id: NodeId, address: &str) -> Node {
    let (rpc_address, client_address) = (address.to_owned(), String::new());
    Node { id, role: NodeRole::Row, rpc_address, client_address }
}

fn register(state: &mut State, node: &Node, session: &Session) -> Result<(), Error> {
    let command = Command::Register { node: node.clone(), session: session.clone() };
    state.apply(command).map(|_| ())
}

#[test]
fn a_node_that_was_replaced_at_its_address_never_comes_back() {
    let mut state = State::new();
    let session = Session::default();
    for id in 1..=3 {
        register(&mut state, &node(id, &format!("h:{id}")), &session).unwrap();
    }
    register(&mut state, &node(1_000, "h:2"), &session).unwrap();
    assert_eq!(state.nodes.keys().copied().collect::<Vec<_>>(), [1, 3, 1_000]);
    let back = register(&mut state, &node(2, "h:2"), &session);
    assert!(matches!(back, Err(Error::Revoked(_))), "{back:?}");
    assert!(state.check_session(2, None).is_err());
    register(&mut state, &node(1_001, "h:2"), &session).unwrap();
    assert_eq!(state.successor(2), Some(1_001));

    // Its place in placement's own group goes to whoever is there now.
    let region = placement_region(&[1, 2, 3]).unwrap();
    let voter = |id| Peer { id, node: id, role: PeerRole::Voter };
    let left = vec![voter(1), voter(3)];
    assert_eq!(wanted(&region, &state, |_| false), Some(Wanted { peers: left, new: Some(1_001) }));
    let mut begun = region.clone();
    begun.peers.push(Peer { id: 1_002, node: 1_001, role: PeerRole::Learner });
    let new = Peer { id: 1_002, node: 1_001, role: PeerRole::Voter };
    let peers = vec![voter(1), voter(3), new];
    assert_eq!(wanted(&begun, &state, |_| false), Some(Wanted { peers: peers.clone(), new: None }));
    begun.peers = peers;
    assert_eq!(wanted(&begun, &state, |_| false), None);
}

#[test]
fn a_damaged_member_is_replaced_on_its_own_node_whoever_leads_meanwhile() {
    let mut state = State::new();
    for id in 1..=4 {
        register(&mut state, &node(id, &format!("h:{id}")), &Session::default()).unwrap();
    }
    let voter = |id, node| Peer { id, node, role: PeerRole::Voter };
    let damaged = |peer: &Peer| peer.id == 2;
    let mut region = placement_region(&[1, 2, 3]).unwrap();
    let left = vec![voter(1, 1), voter(3, 3)];
    let first = Wanted { peers: left.clone(), new: Some(2) };
    assert_eq!(wanted(&region, &state, damaged), Some(first.clone()));
    // The leader went away when the member had left.
    region.peers = left.clone();
    assert_eq!(wanted(&region, &state, damaged), Some(first));
    // Another one when the new member had begun to learn.
    region.peers.push(Peer { id: 1_000, node: 2, role: PeerRole::Learner });
    let peers = [left, vec![voter(1_000, 2)]].concat();
    let last = Wanted { peers: peers.clone(), new: None };
    assert_eq!(wanted(&region, &state, damaged), Some(last));
    region.peers = peers;
    assert_eq!(wanted(&region, &state, damaged), None);
}

#[test]
fn an_older_copy_of_a_directory_is_refused_and_a_lost_confirmation_is_not() {
    let disk = stamped(0);
    let open = |disk: &SimDisk| {
        let participant = Participant::open(directories(disk), 2, BTreeSet::from([2]), 1).unwrap();
        participant.identity().unwrap()
    };
    let random = Random::seeded(5);
    let (mut state, me) = (State::new(), node(1_005, "h:2"));
    let identity = open(&disk);
    let first = identity.begin_session(&random).unwrap();
    register(&mut state, &me, &first).unwrap();
    identity.registered(&first).unwrap();
    let across = (copy(&disk, DATA), copy(&disk, LOG));
    let put = |(data, log): &(Vec<u8>, Vec<u8>)| {
        put_back(&disk, DATA, data);
        put_back(&disk, LOG, log);
    };

    // The confirmation of the second start is lost with the process.
    let second = open(&disk).begin_session(&random).unwrap();
    register(&mut state, &me, &second).unwrap();
    let identity = open(&disk);
    let third = identity.begin_session(&random).unwrap();
    register(&mut state, &me, &third).unwrap();
    identity.registered(&third).unwrap();

    // Within a start: its mark has gone on since.
    let within = (copy(&disk, DATA), copy(&disk, LOG));
    let mark = identity.mark().unwrap();
    state.apply(Command::Mark { node: 1_005, session: third.id, mark }).unwrap();
    let now = (copy(&disk, DATA), copy(&disk, LOG));
    for older in [&across, &within] {
        put(older);
        // Also a second attempt is one of the copy.
        for _ in 0..2 {
            let session = open(&disk).begin_session(&random).unwrap();
            let refused = register(&mut state, &me, &session);
            assert!(matches!(refused, Err(Error::Revoked(_))), "{refused:?}");
        }
    }
    put(&now);
    let fourth = open(&disk).begin_session(&random).unwrap();
    register(&mut state, &me, &fourth).unwrap();
    assert!(state.check_session(1_005, Some(third.id)).is_err(), "an earlier process is accepted");
    assert!(state.check_session(1_005, Some(fourth.id)).is_ok());
}
