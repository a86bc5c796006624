//! A leader's membership change under way: proposes one step after another until the region is
//! as wanted.

use types::{Error, PeerId, Region};

use crate::membership::{Followers, MemberChange, Step, check_target, next_step};
use crate::peer::{Outbox, Peer};
use crate::reply::{Answers, Reply, Wait};

/// A membership change that somebody waits for.
pub(crate) struct Change {
    target: Vec<types::Peer>,
    wait: Wait,
    pub reply: Reply<Region>,
    /// Epoch at which the last step was proposed and its deadline to be proposed again.
    proposed: Option<(u64, u64)>,
}

/// Ticks after which a step that shows no effect is proposed again.
const REPEAT_TICKS: u64 = 20;

impl Followers for Peer {
    fn caught_up(&self, member: PeerId) -> bool {
        self.has_caught_up(member)
    }

    fn active(&self, member: PeerId) -> bool {
        self.raw.raft.prs().get(member).is_some_and(|progress| progress.recent_active)
    }
}

impl Peer {
    /// Begins to change the members.
    pub fn change_membership(
        &mut self,
        target: Vec<types::Peer>,
        wait: Wait,
        reply: Reply<Region>,
        answers: &mut Answers,
    ) {
        let refused = if let Err(error) = self.check_running() {
            Some(error)
        } else if !self.leads() {
            Some(self.not_leader())
        } else if self.change.is_some() {
            let why = format!("region {} is changing its members already", self.region.id);
            Some(Error::Unavailable(why))
        } else {
            check_target(&self.region, &target).err()
        };
        match refused {
            Some(error) => answers.push(reply, Err(error)),
            None => self.change = Some(Change { target, wait, reply, proposed: None }),
        }
    }

    /// Takes the next step of a change, if there is one and it is time.
    pub fn step_membership(&mut self, now: u64, answers: &mut Answers) {
        let Some(change) = self.change.take() else { return };
        if !self.leads() || !self.runs() {
            return answers.push(change.reply, Err(self.not_leader()));
        }
        let step = next_step(&self.region, &change.target, self.me.id, self);
        let repeats = change
            .proposed
            .is_some_and(|(conf, until)| conf == self.region.epoch.conf && now < until);
        match step {
            Step::Done => answers.push(change.reply, Ok(Region::clone(&self.region))),
            Step::HandOver(transferee) => {
                self.hand_over(transferee);
                let leader = self.region.peer(transferee).map(|peer| peer.node);
                let error = Error::NotLeader { region: self.region.id, leader };
                answers.push(change.reply, Err(error));
            }
            _ if change.wait.deadline <= now => {
                let what = format!(
                    "the members of region {} to change; what was changed so far stays",
                    self.region.id
                );
                let millis = Wait::millis(change.wait.since, now);
                answers.push(change.reply, Err(Error::Timeout { what, millis }));
            }
            Step::Propose(member) if !repeats => {
                let proposed = self
                    .propose_member(&member)
                    .then_some((self.region.epoch.conf, now + REPEAT_TICKS));
                self.change = Some(Change { proposed, ..change });
            }
            Step::Propose(_) | Step::Await(_) => self.change = Some(change),
        }
    }

    /// Whether Raft took it: it takes one at a time.
    fn propose_member(&mut self, member: &MemberChange) -> bool {
        let Ok(context) = postcard::to_stdvec(member) else { return false };
        // A leader that has applied nothing of its own term may not know the members yet.
        if self.applied.term != self.raw.raft.term {
            return false;
        }
        let mut change = member.conf_change();
        change.context = context.into();
        self.guarded(|raw| raw.propose_conf_change(Vec::new(), change))
            .is_some_and(|proposed| proposed.is_ok())
    }

    /// Informs those who left the group that they did.
    pub fn dismiss(&self, before: &Region, out: &mut Outbox) {
        if !self.leads() {
            return;
        }
        let gone = |id: PeerId| self.region.peer(id).is_none();
        for peer in before.peers.iter().filter(|peer| gone(peer.id)) {
            out.envelopes.push(self.region_envelope(*peer));
        }
    }
}
