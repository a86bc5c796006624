//! Who takes part: registration of nodes, and the members of placement's own group.
//!
//! A member that is gone is replaced by the node that took its place, one that is damaged by a new one on
//! its own node, one step of membership at a time. Nothing is done for a member that is only silent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::Clock;
use types::region::PLACEMENT_REGION;
use types::{Error, NodeId, Peer, PeerId, PeerRole, Region, Result};

use crate::api::{Node, NodeReport, NodeRole, Response, Session};
use crate::command::{Command, Outcome};
use crate::service::PlacementService;
use crate::state::{State, VOTERS};

impl PlacementService {
    /// Makes a node known, unless another process stands for it.
    pub(crate) async fn register(&self, node: Node, session: Session) -> Result<Response> {
        let term = self.lead()?;
        self.check_alone(term, &node, &session)?;
        self.propose_in(term, Command::Register { node, session }).await?;
        let mut leader = self.leader_state(term)?;
        leader.forget_gone(&self.view.read());
        Ok(Response::Done)
    }

    /// Refuses a second process of a node: from the same address there can be only one.
    fn check_alone(&self, term: u64, node: &Node, session: &Session) -> Result<()> {
        let leader = self.leader_state(term)?;
        let state = self.view.read();
        let (Some(last), Some(known)) = (state.sessions.get(&node.id), state.nodes.get(&node.id))
        else {
            return Ok(());
        };
        let elsewhere = known.rpc_address != node.rpc_address;
        if last.id == session.id
            || !elsewhere
            || !leader.may_live(node.id, session.id, self.clock.now())
        {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "a process of node {} is alive at {}, or was a moment ago: if this is a copy of its \
             directories, empty them; if the node has moved here, end the other process",
            node.id, known.rpc_address
        )))
    }

    /// Writes down a mark that a node has reported.
    pub(crate) async fn note_mark(
        &self,
        term: u64,
        node: NodeId,
        report: &NodeReport,
    ) -> Result<()> {
        let Some(session) = report.session else { return Ok(()) };
        let new = {
            let state = self.view.read();
            let known = state.sessions.get(&node).filter(|known| known.id == session);
            known.is_some_and(|known| known.mark < report.mark)
        };
        if new && self.check_sound(term).is_ok() {
            let mark = report.mark;
            self.propose_in(term, Command::Mark { node, session, mark }).await?;
        }
        Ok(())
    }

    /// Hands leadership to the member whose clients ask most: each statement asks for a timestamp.
    pub(crate) fn follow_clients(&self, term: u64) -> Result<()> {
        let own = self.peer()?.region;
        let nearest = self.leader_state(term)?.nearest_voter(&own, self.node, self.clock.now());
        if let Some(to) = nearest {
            tracing::info!(to, "placement is led where most is asked from now on");
            self.groups.transfer(PLACEMENT_REGION, to);
        }
        Ok(())
    }

    /// Replaces members of placement's own group that are gone or damaged.
    pub(crate) async fn tend_own_group(&self, term: u64) -> Result<()> {
        let region = self.peer()?.region;
        let wanted = {
            let (mut leader, state) = (self.leader_state(term)?, self.view.read());
            let lost = leader.lost_members(&region, self.clock.now());
            wanted(&region, &state, |member| lost.contains(&member.id))
        };
        if wanted.is_none() || self.tending.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let tended = Tending(self.tending.clone());
        let Some(Wanted { mut peers, new }) = wanted else { return Ok(()) };
        if let Some(node) = new {
            match self.propose_in(term, Command::TakeIds { count: 1 }).await? {
                Outcome::First(id) => peers.push(voter(id, node)),
                other => {
                    return Err(Error::Corrupt(format!(
                        "placement answered {other:?} for a number"
                    )));
                }
            }
        }
        tracing::info!(?peers, "placement's own group changes its members");
        let change = self.groups.change_membership(PLACEMENT_REGION, peers);
        // It waits for the new member to catch up: upkeep goes on meanwhile.
        tokio::spawn(async move {
            if let Err(error) = change.await {
                tracing::warn!(%error, "placement's own group has not changed its members yet");
            }
            drop(tended);
        });
        Ok(())
    }
}

/// Lets the next change begin when this one ends, however it ends.
struct Tending(Arc<std::sync::atomic::AtomicBool>);

impl Drop for Tending {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Members as they should be, and a node that needs a peer number for its new member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub peers: Vec<Peer>,
    pub new: Option<NodeId>,
}

fn voter(id: PeerId, node: NodeId) -> Peer {
    Peer { id, node, role: PeerRole::Voter }
}

/// The next members of placement's own group, if they should change: one gone member less, and in its
/// place the node that is where it was. Without such a node the gone one stays: fewer voters would be
/// worse than a silent one. A damaged member is replaced on its own node, which it has to leave first; so
/// what an earlier leader has begun is completed: learners are to vote, and two voters to become three.
pub(crate) fn wanted(
    region: &Region,
    state: &State,
    damaged: impl Fn(&Peer) -> bool,
) -> Option<Wanted> {
    let row = |node: &NodeId| state.is_row(*node);
    for lost in &region.peers {
        let node = match (state.gone.contains_key(&lost.node), damaged(lost)) {
            (true, _) => state.successor(lost.node).filter(row),
            (false, true) => Some(lost.node),
            (false, false) => None,
        };
        let Some(node) = node else { continue };
        let mut peers = region.peers.clone();
        peers.retain(|peer| peer.id != lost.id);
        let new = match peers.iter_mut().find(|peer| peer.node == node) {
            // An earlier attempt has come so far.
            Some(begun) => {
                begun.role = PeerRole::Voter;
                None
            }
            None => Some(node),
        };
        return Some(Wanted { peers, new });
    }
    let mut peers = region.peers.clone();
    if peers.iter().any(|peer| peer.role == PeerRole::Learner) {
        peers.iter_mut().for_each(|peer| peer.role = PeerRole::Voter);
        return Some(Wanted { peers, new: None });
    }
    let free = |node: &NodeId| row(node) && region.peer_on(*node).is_none();
    let third = state.nodes.keys().copied().find(free).filter(|_| peers.len() == 2);
    seated(region, state).or_else(|| third.map(|node| Wanted { peers, new: Some(node) }))
}

/// The next members where voters were lost with the quorum: one more of the row nodes that are where
/// those were. It begins only once there are enough for three: two would be worse than one.
fn seated(region: &Region, state: &State) -> Option<Wanted> {
    let address = |node| state.nodes.get(&node).map(|known| known.rpc_address.as_str());
    let voters: Vec<&str> = region.voters().filter_map(|voter| address(voter.node)).collect();
    let free: Vec<&String> =
        state.recovered.seats.iter().filter(|seat| !voters.contains(&seat.as_str())).collect();
    let rows = state.nodes.values().filter(|node| node.role == NodeRole::Row);
    let there: Vec<NodeId> =
        rows.filter(|node| free.contains(&&node.rpc_address)).map(|node| node.id).collect();
    let count = region.voters().count();
    if count + there.len() < (count + free.len()).min(VOTERS) {
        return None;
    }
    let node = *there.first()?;
    let mut peers = region.peers.clone();
    let begun = peers.iter_mut().find(|peer| peer.node == node);
    let new = if begun.is_none() { Some(node) } else { None };
    if let Some(begun) = begun {
        begun.role = PeerRole::Voter;
    }
    Some(Wanted { peers, new })
}
