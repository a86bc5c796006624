//! Which survivor goes on with a group that has lost its quorum.
//!
//! Pure, and the same on every survivor that is given the same reports: nobody is there to vote.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use types::{NodeId, RegionId};

use crate::offline::Replica;

/// By how much terms, and counts of memberships, are raised above everything that survivors know. What
/// was lost may have gone on beyond that, but not so far.
pub const FAR: u64 = 1 << 20;

/// How a group goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A majority of its voters is among the survivors: it needs no help.
    Quorum,
    /// This node goes on without the other members.
    Alone {
        /// Which.
        node: NodeId,
        /// In this term.
        term: u64,
        /// With this count of its membership.
        conf: u64,
    },
    /// No survivor holds data of it.
    Lost,
}

/// Decides for each group of which a survivor holds a peer.
pub fn decide(survivors: &BTreeMap<NodeId, Vec<Replica>>) -> BTreeMap<RegionId, Outcome> {
    let mut groups: BTreeMap<RegionId, Vec<(NodeId, &Replica)>> = BTreeMap::new();
    for (node, replicas) in survivors {
        for replica in replicas {
            groups.entry(replica.region.id).or_default().push((*node, replica));
        }
    }
    groups.into_iter().map(|(region, replicas)| (region, outcome(&replicas))).collect()
}

fn outcome(replicas: &[(NodeId, &Replica)]) -> Outcome {
    if has_quorum(replicas) {
        return Outcome::Quorum;
    }
    let whole = || replicas.iter().filter(|(_, replica)| replica.holds_data());
    let Some((_, known)) = whole().max_by_key(|(_, replica)| replica.committed.index) else {
        return Outcome::Lost;
    };
    // What one survivor knows to be committed must not go, even if another one's log ends later: that
    // may hold entries of a leader who never had a majority.
    let fits = |replica: &Replica| {
        replica.committed.index >= known.committed.index
            || replica.term_at(known.committed.index) == Some(known.committed.term)
    };
    let most = whole().filter(|(_, replica)| fits(replica)).max_by_key(|(node, replica)| {
        (replica.last.term, replica.last.index, replica.committed.index, Reverse(*node))
    });
    match most {
        Some((node, _)) => {
            let terms = replicas.iter().map(|(_, replica)| replica.term);
            let confs = replicas.iter().map(|(_, replica)| replica.region.epoch.conf);
            let far = |highest: Option<u64>| highest.unwrap_or(0).saturating_add(FAR);
            Outcome::Alone { node: *node, term: far(terms.max()), conf: far(confs.max()) }
        }
        None => Outcome::Lost,
    }
}

/// Whether a majority of the voters is there, by the newest membership that any of them has applied.
fn has_quorum(replicas: &[(NodeId, &Replica)]) -> bool {
    let newest = replicas
        .iter()
        .filter(|(_, replica)| replica.holds_data())
        .max_by_key(|(_, replica)| (replica.region.epoch.conf, replica.applied.index));
    let Some((_, newest)) = newest else { return false };
    let voters = newest.region.voters().count();
    let there = newest.region.voters().filter(|voter| {
        replicas.iter().any(|(node, replica)| {
            *node == voter.node && replica.peer.id == voter.id && replica.fault.is_none()
        })
    });
    there.count() > voters / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Position;
    use types::{Epoch, Peer, PeerRole, Region, RegionKind};

    fn position(term: u64, index: u64) -> Position {
        Position { index, term }
    }

    /// A replica of a group of nodes 1 to 5.
    fn replica(node: NodeId, committed: Position, tail: &[Position], last: Position) -> Replica {
        let voter = |node| Peer { id: 100 + node, node, role: PeerRole::Voter };
        let region = Region {
            id: 7,
            epoch: Epoch { version: 1, conf: 3 },
            kind: RegionKind::Records(1),
            start: vec![1],
            end: vec![2],
            peers: (1..=5).map(voter).collect(),
        };
        let term = last.term;
        let (applied, fault) = (committed, None);
        let tail = tail.to_vec();
        Replica { region, peer: voter(node), term, last, committed, applied, tail, fault }
    }

    fn decided(replicas: Vec<Replica>) -> Outcome {
        let survivors = replicas.into_iter().map(|one| (one.peer.node, vec![one])).collect();
        decide(&survivors).remove(&7).unwrap()
    }

    fn winner(replicas: Vec<Replica>) -> NodeId {
        match decided(replicas) {
            Outcome::Alone { node, .. } => node,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_later_log_goes_on_above_every_term_and_membership() {
        let short = replica(1, position(4, 10), &[], position(4, 10));
        let mut long = replica(2, position(4, 9), &[position(4, 10)], position(4, 20));
        long.term = 6;
        long.region.epoch.conf = 5;
        let expected = Outcome::Alone { node: 2, term: 6 + FAR, conf: 5 + FAR };
        assert_eq!(decided(vec![short.clone(), long]), expected);
        let later = replica(2, position(4, 9), &[position(5, 10)], position(5, 10));
        assert_eq!(winner(vec![replica(1, position(4, 9), &[], position(4, 30)), later]), 2);
        let equal = replica(2, position(4, 10), &[], position(4, 10));
        assert_eq!(winner(vec![short, equal]), 1, "the same on every survivor");
    }

    #[test]
    fn what_one_knows_to_be_committed_outweighs_a_later_log_without_it() {
        let knows = replica(1, position(3, 10), &[], position(3, 10));
        // Its last entries are of a leader of term 4 who had no majority.
        let later = replica(2, position(3, 8), &[position(4, 9)], position(4, 12));
        assert_eq!(winner(vec![knows.clone(), later]), 1);
        let has_it =
            replica(2, position(3, 8), &[position(3, 9), position(4, 11)], position(4, 12));
        assert_eq!(winner(vec![knows, has_it]), 2);
    }

    #[test]
    fn a_majority_of_the_voters_needs_no_help() {
        let at = |node| replica(node, position(3, 10), &[], position(3, 10));
        assert_eq!(decided(vec![at(1), at(2), at(3)]), Outcome::Quorum);
        let stopped = Replica { fault: Some("its Raft log is gone".into()), ..at(3) };
        assert_eq!(winner(vec![at(1), at(2), stopped.clone()]), 1);
        let empty = Replica { applied: Position::default(), ..at(2) };
        assert_eq!(decided(vec![empty, stopped]), Outcome::Lost);
    }
}
