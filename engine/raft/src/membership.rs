//! How a region's members get from what they are to what they shall be: one safe step at a time.
//!
//! Pure: it looks at two lists and says what to propose next. One member changes per entry, so
//! any two consecutive majorities overlap and no joint configuration is needed (Ongaro, "Consensus:
//! Bridging Theory and Practice", 4.1). A new voter first follows as a learner until it has caught
//! up, so an empty newcomer never counts in the majority that a write waits for; and a voter never leaves others behind
//! that are no majority, for the leader hears nothing of them.

use raft_rs::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2};
use serde::{Deserialize, Serialize};
use types::{Error, Peer, PeerId, PeerRole, Region, Result};

/// One member's change, as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MemberChange {
    /// Adds a member, or gives it another role.
    Set(Peer),
    /// Removes a member for good.
    Remove(PeerId),
    /// All other members are lost: this one goes on as the only voter. Never proposed, see
    /// [`crate::offline`].
    Alone {
        /// Who goes on, and as a voter if it was a learner.
        peer: Peer,
        /// The membership's count from then on, above all that lost members may have reached.
        conf: u64,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: the members are as wanted.
    Done,
    /// Propose this.
    Propose(MemberChange),
    /// Wait for this member to catch up, or to be heard of.
    Await(PeerId),
    /// Hand leadership to this member first: a leader does not remove itself, since those who
    /// stay might not have learnt that it is gone.
    HandOver(PeerId),
}

impl MemberChange {
    /// The region after the change; none if it changes nothing or cannot apply.
    pub fn apply(&self, region: &Region) -> Option<Region> {
        let mut changed = region.clone();
        let mut conf = region.epoch.conf + 1;
        match self {
            MemberChange::Alone { peer, conf: above } => {
                changed.peers = vec![Peer { role: PeerRole::Voter, ..*peer }];
                conf = conf.max(*above);
            }
            MemberChange::Set(peer) => {
                let known = changed.peers.iter_mut().find(|known| known.id == peer.id);
                match known {
                    Some(known) if known == peer || known.node != peer.node => return None,
                    Some(known) => known.role = peer.role,
                    None if region.peer_on(peer.node).is_some() => return None,
                    None => changed.peers.push(*peer),
                }
            }
            MemberChange::Remove(id) => {
                region.peer(*id)?;
                changed.peers.retain(|peer| peer.id != *id);
            }
        }
        changed.voters().next()?;
        changed.epoch.conf = conf;
        Some(changed)
    }

    /// As raft-rs says it.
    pub fn conf_change(&self) -> ConfChangeV2 {
        match self {
            MemberChange::Set(Peer { id, role: PeerRole::Learner, .. }) => {
                single(ConfChangeType::AddLearnerNode, *id)
            }
            MemberChange::Set(peer) | MemberChange::Alone { peer, .. } => {
                single(ConfChangeType::AddNode, peer.id)
            }
            MemberChange::Remove(id) => single(ConfChangeType::RemoveNode, *id),
        }
    }

    /// What raft-rs is to do when the change takes effect in `region`: it changes one member at a time.
    pub fn steps(&self, region: &Region) -> Vec<ConfChangeV2> {
        let mut steps = vec![self.conf_change()];
        if let MemberChange::Alone { peer, .. } = self {
            let others = region.peers.iter().filter(|other| other.id != peer.id);
            steps.extend(others.map(|other| MemberChange::Remove(other.id).conf_change()));
        }
        steps
    }
}

fn single(kind: ConfChangeType, id: PeerId) -> ConfChangeV2 {
    let mut single = ConfChangeSingle::default();
    single.set_change_type(kind);
    single.node_id = id;
    let mut change = ConfChangeV2::default();
    change.set_changes(vec![single].into());
    change
}

/// Refuses what could never be reached.
pub(crate) fn check_target(region: &Region, target: &[Peer]) -> Result<()> {
    let invalid = |why: &str| {
        Err(Error::Invalid(format!("members asked for region {} are wrong: {why}", region.id)))
    };
    if !target.iter().any(|peer| peer.role == PeerRole::Voter) {
        return invalid("there is no voter");
    }
    for (index, peer) in target.iter().enumerate() {
        let earlier = target.get(..index).unwrap_or_default();
        if earlier.iter().any(|other| other.id == peer.id || other.node == peer.node) {
            return invalid("a node or a peer id is named twice");
        }
        match region.peer(peer.id) {
            Some(known) if known.node != peer.node => return invalid("a peer cannot change node"),
            Some(known) if known.role == PeerRole::Voter && peer.role == PeerRole::Learner => {
                return invalid("a voter cannot become a learner: use a new peer id");
            }
            _ => {}
        }
    }
    Ok(())
}

/// What a leader knows of members.
pub(crate) trait Followers {
    /// Whether a member has everything, or nearly.
    fn caught_up(&self, member: PeerId) -> bool;
    /// Whether it was heard of lately.
    fn active(&self, member: PeerId) -> bool;
}

/// The next step from the members of `region` to `target`, for a leader with peer id `leader`.
pub(crate) fn next_step(
    region: &Region,
    target: &[Peer],
    leader: PeerId,
    followers: &impl Followers,
) -> Step {
    let leaving = |peer: &&Peer| !target.iter().any(|wanted| wanted.id == peer.id);
    for wanted in target {
        if region.peer(wanted.id).is_some() {
            continue;
        }
        return match region.peer_on(wanted.node).filter(leaving) {
            // Its node holds another peer that is leaving anyway.
            Some(old) => remove(region, target, old, leader, followers),
            None => Step::Propose(MemberChange::Set(Peer { role: PeerRole::Learner, ..*wanted })),
        };
    }
    for wanted in target.iter().filter(|peer| peer.role == PeerRole::Voter) {
        let learns = region.peer(wanted.id).is_some_and(|peer| peer.role == PeerRole::Learner);
        if learns && followers.caught_up(wanted.id) {
            return Step::Propose(MemberChange::Set(*wanted));
        }
        if learns {
            return Step::Await(wanted.id);
        }
    }
    match region.peers.iter().find(leaving) {
        Some(old) => remove(region, target, old, leader, followers),
        None => Step::Done,
    }
}

fn remove(
    region: &Region,
    target: &[Peer],
    old: &Peer,
    leader: PeerId,
    followers: &impl Followers,
) -> Step {
    if old.id != leader {
        return match missing(region, old, leader, followers) {
            Some(missing) => Step::Await(missing),
            None => Step::Propose(MemberChange::Remove(old.id)),
        };
    }
    let stays =
        |peer: &&Peer| peer.id != leader && target.iter().any(|wanted| wanted.id == peer.id);
    let transferees: Vec<PeerId> = region.voters().filter(stays).map(|peer| peer.id).collect();
    let caught_up = transferees.iter().find(|transferee| followers.caught_up(**transferee));
    match caught_up.or(transferees.first()) {
        Some(transferee) => Step::HandOver(*transferee),
        None => Step::Await(old.id),
    }
}

/// A voter without which those that stay behind a member would decide nothing any more; `None` if enough are there.
fn missing(
    region: &Region,
    gone: &Peer,
    leader: PeerId,
    followers: &impl Followers,
) -> Option<PeerId> {
    if gone.role != PeerRole::Voter {
        return None;
    }
    let staying: Vec<PeerId> =
        region.voters().map(|peer| peer.id).filter(|id| *id != gone.id).collect();
    let is_there = |id: &&PeerId| **id == leader || followers.active(**id);
    let there = staying.iter().filter(is_there).count();
    if there * 2 > staying.len() {
        return None;
    }
    staying.into_iter().find(|id| !is_there(&id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, RegionKind};

    /// All have caught up; these are away.
    struct Away(&'static [PeerId]);

    impl Followers for Away {
        fn caught_up(&self, _: PeerId) -> bool {
            true
        }

        fn active(&self, member: PeerId) -> bool {
            !self.0.contains(&member)
        }
    }

    const ALL: Away = Away(&[]);

    fn peer(id: PeerId, role: PeerRole) -> Peer {
        Peer { id, node: id % 10, role }
    }

    fn region(peers: Vec<Peer>) -> Region {
        let epoch = Epoch { version: 1, conf: 1 };
        let kind = RegionKind::Records(1);
        Region { id: 1, epoch, kind, start: vec![1], end: vec![2], peers }
    }

    /// Takes every step and returns the memberships on the way.
    fn walk(mut now: Region, target: &[Peer]) -> Vec<Vec<(PeerId, PeerRole)>> {
        let mut seen = Vec::new();
        loop {
            match next_step(&now, target, 1, &ALL) {
                Step::Propose(change) => now = change.apply(&now).unwrap(),
                Step::Done => return seen,
                other => panic!("{other:?} after {seen:?}"),
            }
            seen.push(now.peers.iter().map(|peer| (peer.id, peer.role)).collect());
        }
    }

    #[test]
    fn a_voter_is_replaced_by_learning_first_and_leaving_last() {
        use PeerRole::{Learner, Voter};
        let now = region(vec![peer(1, Voter), peer(2, Voter), peer(3, Voter)]);
        let target = [peer(1, Voter), peer(2, Voter), peer(4, Voter)];
        let steps = walk(now, &target);
        let old = [(1, Voter), (2, Voter), (3, Voter)];
        assert_eq!(
            steps,
            [
                [&old[..], &[(4, Learner)]].concat(),
                [&old[..], &[(4, Voter)]].concat(),
                vec![(1, Voter), (2, Voter), (4, Voter)],
            ]
        );
    }

    #[test]
    fn a_new_peer_on_the_same_node_waits_for_the_old_one_to_leave() {
        use PeerRole::{Learner, Voter};
        let now = region(vec![peer(1, Voter), peer(2, Learner)]);
        let steps = walk(now, &[peer(1, Voter), peer(12, Learner)]);
        assert_eq!(steps, [vec![(1, Voter)], vec![(1, Voter), (12, Learner)]]);
    }

    #[test]
    fn no_voter_leaves_a_minority_behind() {
        use PeerRole::{Learner, Voter};
        let now = region(vec![peer(1, Voter), peer(2, Voter), peer(3, Voter), peer(4, Learner)]);
        // The node of 2 is to have another peer: until 3 is back, the old one stays.
        let target = [peer(1, Voter), peer(12, Voter), peer(3, Voter), peer(4, Learner)];
        assert_eq!(next_step(&now, &target, 1, &Away(&[3])), Step::Await(3));
        let leaves = Step::Propose(MemberChange::Remove(2));
        assert_eq!(next_step(&now, &target, 1, &ALL), leaves);
        assert_eq!(next_step(&now, &target, 1, &Away(&[2, 4])), leaves, "who is away may leave");
        let without_learner = [peer(1, Voter), peer(2, Voter), peer(3, Voter)];
        let leaves = Step::Propose(MemberChange::Remove(4));
        assert_eq!(next_step(&now, &without_learner, 1, &Away(&[2, 4])), leaves);
    }

    #[test]
    fn a_leader_hands_over_before_it_leaves() {
        let now = region(vec![peer(1, PeerRole::Voter), peer(2, PeerRole::Voter)]);
        let target = [peer(2, PeerRole::Voter)];
        assert_eq!(next_step(&now, &target, 1, &ALL), Step::HandOver(2));
        assert_eq!(next_step(&now, &target, 2, &ALL), Step::Propose(MemberChange::Remove(1)));
    }

    #[test]
    fn who_goes_on_alone_is_the_only_voter_and_ahead_of_all() {
        use PeerRole::{Learner, Voter};
        let now = region(vec![peer(1, Voter), peer(2, Voter), peer(3, Learner), peer(4, Learner)]);
        let change = MemberChange::Alone { peer: peer(3, Learner), conf: 900 };
        let alone = change.apply(&now).unwrap();
        assert_eq!((alone.peers, alone.epoch.conf), (vec![peer(3, Voter)], 900));
        assert_eq!(change.steps(&now).len(), 4, "made a voter, and the three others removed");
        let late = MemberChange::Alone { peer: peer(3, Voter), conf: 1 };
        assert_eq!(late.apply(&now).unwrap().epoch.conf, 2, "a count never goes back");
    }

    #[test]
    fn impossible_targets_are_refused() {
        let now = region(vec![peer(1, PeerRole::Voter)]);
        assert!(check_target(&now, &[peer(1, PeerRole::Learner)]).is_err());
        assert!(check_target(&now, &[]).is_err());
        let twice = [peer(1, PeerRole::Voter), peer(11, PeerRole::Voter)];
        assert!(check_target(&now, &twice).is_err());
        assert!(MemberChange::Remove(1).apply(&now).is_none(), "the last voter stays");
    }
}
