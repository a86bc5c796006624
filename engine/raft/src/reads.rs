//! Read indexes of one peer: many askers share one quorum round.
//!
//! A round's index answers only those who asked before the round began. raft-rs drops a round
//! silently when there is no leader or the leader is new, so rounds are repeated; every repetition
//! bears a number that no earlier one ever had, restarts included, so a late answer to an old
//! round is never taken for a new one.

use types::{Error, PeerId, RegionId};

use crate::reply::{Answers, Reply, Wait};

/// Somebody who asked.
struct Asker {
    wait: Wait,
    reply: Reply<u64>,
}

/// A round under way.
struct Round {
    /// Numbers of its repetitions, ascending.
    numbers: Vec<u64>,
    sent: u64,
    askers: Vec<Asker>,
}

/// Read indexes of one peer.
pub(crate) struct Reads {
    /// Numbers begin here; above any that an earlier run of the process used.
    next: u64,
    peer: PeerId,
    asked: Vec<Asker>,
    rounds: Vec<Round>,
    /// Confirmed at an index, waiting for it to be applied.
    confirmed: Vec<(u64, Vec<Asker>)>,
}

impl Reads {
    /// `boot`: how often the node was started.
    pub fn new(peer: PeerId, boot: u64) -> Self {
        Reads {
            next: boot << 32,
            peer,
            asked: Vec::new(),
            rounds: Vec::new(),
            confirmed: Vec::new(),
        }
    }

    /// Notes an asker; the next round is theirs.
    pub fn ask(&mut self, wait: Wait, reply: Reply<u64>) {
        self.asked.push(Asker { wait, reply });
    }

    /// Begins a round for those who asked since the last one: the context to give to Raft.
    pub fn begin(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.asked.is_empty() {
            return None;
        }
        let number = self.number();
        let askers = std::mem::take(&mut self.asked);
        self.rounds.push(Round { numbers: vec![number], sent: now, askers });
        Some(self.context(number))
    }

    /// Contexts of the rounds to repeat now.
    pub fn repeat(&mut self, now: u64, after: u64) -> Vec<Vec<u8>> {
        let mut contexts = Vec::new();
        for index in 0..self.rounds.len() {
            let number = self.next;
            let Some(round) = self.rounds.get_mut(index) else { break };
            if round.sent + after <= now {
                round.sent = now;
                round.numbers.push(number);
                self.next += 1;
                contexts.push(self.context(number));
            }
        }
        contexts
    }

    /// Raft confirmed a round.
    pub fn confirmed(&mut self, context: &[u8], index: u64) {
        let Some(number) = self.parse(context) else { return };
        let found = self.rounds.iter().position(|round| round.numbers.contains(&number));
        if let Some(found) = found {
            let round = self.rounds.remove(found);
            self.confirmed.push((index, round.askers));
        }
    }

    /// Everything up to `applied` is visible.
    pub fn applied(&mut self, applied: u64, answers: &mut Answers) {
        let mut later = Vec::new();
        for (index, askers) in self.confirmed.drain(..) {
            if index > applied {
                later.push((index, askers));
                continue;
            }
            for asker in askers {
                answers.push(asker.reply, Ok(index));
            }
        }
        self.confirmed = later;
    }

    /// Gives up on those that waited too long.
    pub fn expire(&mut self, region: RegionId, now: u64, answers: &mut Answers) {
        for (stage, askers) in self.stages() {
            for asker in askers.extract_if(.., |asker| asker.wait.deadline <= now) {
                let millis = Wait::millis(asker.wait.since, now);
                let what = format!("a read index of region {region} ({stage})");
                answers.push(asker.reply, Err(Error::Timeout { what, millis }));
            }
        }
        self.rounds.retain(|round| !round.askers.is_empty());
        self.confirmed.retain(|(_, askers)| !askers.is_empty());
    }

    /// The peer stopped.
    pub fn abandon(&mut self, error: &Error, answers: &mut Answers) {
        for (_, askers) in self.stages() {
            for asker in askers.drain(..) {
                answers.push(asker.reply, Err(error.clone()));
            }
        }
        self.rounds.clear();
        self.confirmed.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.rounds.is_empty() && self.confirmed.is_empty()
    }

    fn stages(&mut self) -> impl Iterator<Item = (&'static str, &mut Vec<Asker>)> {
        let asked = std::iter::once(("not yet sent", &mut self.asked));
        let rounds = self.rounds.iter_mut().map(|round| ("no leader confirmed", &mut round.askers));
        let confirmed =
            self.confirmed.iter_mut().map(|(_, askers)| ("not yet applied here", askers));
        asked.chain(rounds).chain(confirmed)
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn context(&self, number: u64) -> Vec<u8> {
        [self.peer.to_be_bytes(), number.to_be_bytes()].concat()
    }

    fn parse(&self, context: &[u8]) -> Option<u64> {
        let (peer, number) = context.split_first_chunk::<8>()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        (u64::from_be_bytes(*peer) == self.peer).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::question;
    use futures::FutureExt;

    const WAIT: Wait = Wait { since: 0, deadline: 100 };

    #[test]
    fn a_round_answers_only_those_who_asked_before_it() {
        let mut reads = Reads::new(7, 1);
        let mut answers = Answers::default();
        let (reply, mut first) = question("a read index");
        reads.ask(WAIT, reply);
        let round = reads.begin(0).unwrap();
        let (reply, mut second) = question("a read index");
        reads.ask(WAIT, reply);
        reads.confirmed(&round, 9);
        reads.applied(8, &mut answers);
        answers.send();
        assert!((&mut first).now_or_never().is_none(), "answered before it was applied");
        reads.applied(9, &mut answers);
        answers.send();
        assert_eq!((&mut first).now_or_never(), Some(Ok(9)));
        assert!((&mut second).now_or_never().is_none());
        assert!(reads.begin(1).is_some_and(|next| next != round));
    }

    #[test]
    fn an_answer_to_a_run_before_the_restart_is_ignored() {
        let mut reads = Reads::new(7, 1);
        let (reply, _gone) = question("a read index");
        reads.ask(WAIT, reply);
        let old = reads.begin(0).unwrap();
        let mut reads = Reads::new(7, 2);
        let (reply, mut pending) = question("a read index");
        reads.ask(WAIT, reply);
        let new = reads.begin(0).unwrap();
        let mut answers = Answers::default();
        reads.confirmed(&old, 3);
        reads.applied(10, &mut answers);
        answers.send();
        assert!((&mut pending).now_or_never().is_none());
        let repeated = reads.repeat(2, 2);
        assert_eq!(repeated.len(), 1);
        reads.confirmed(&new, 10);
        reads.applied(10, &mut answers);
        answers.send();
        assert_eq!((&mut pending).now_or_never(), Some(Ok(10)));
        assert!(reads.is_empty());
    }
}
