//! Read indexes of one peer: many requests share one quorum round.
//!
//! A round's index answers only requests that came before the round began. raft-rs drops a round
//! silently when there is no leader or the leader is new, so rounds are repeated; every repetition
//! bears a number that no earlier one ever had, restarts included, so a late answer to an old
//! round is never taken for a new one.

use types::{Error, PeerId, RegionId};

use crate::reply::{Answers, Reply, Wait};

/// A request for a read index.
struct ReadRequest {
    wait: Wait,
    reply: Reply<u64>,
}

/// Waits for an index that a leader named to be applied.
struct ReachRequest {
    index: u64,
    wait: Wait,
    reply: Reply<()>,
}

/// A round under way.
struct Round {
    /// Numbers of its repetitions, ascending.
    numbers: Vec<u64>,
    sent: u64,
    requests: Vec<ReadRequest>,
}

/// Read indexes of one peer.
pub(crate) struct Reads {
    /// Numbers begin here; above any that an earlier run of the process used.
    next: u64,
    peer: PeerId,
    queued: Vec<ReadRequest>,
    rounds: Vec<Round>,
    /// Confirmed at an index, waiting for it to be applied.
    confirmed: Vec<(u64, Vec<ReadRequest>)>,
    reaching: Vec<ReachRequest>,
}

impl Reads {
    /// `boot`: how often the node was started.
    pub fn new(peer: PeerId, boot: u64) -> Self {
        Reads {
            next: boot << 32,
            peer,
            queued: Vec::new(),
            rounds: Vec::new(),
            confirmed: Vec::new(),
            reaching: Vec::new(),
        }
    }

    /// Queues a request for the next round.
    pub fn request(&mut self, wait: Wait, reply: Reply<u64>) {
        self.queued.push(ReadRequest { wait, reply });
    }

    /// Answers once `index` is applied.
    pub fn reach(&mut self, index: u64, wait: Wait, reply: Reply<()>) {
        self.reaching.push(ReachRequest { index, wait, reply });
    }

    /// Begins a round for the requests since the last one, and returns the context to give to Raft.
    pub fn begin(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.queued.is_empty() {
            return None;
        }
        let number = self.number();
        let requests = std::mem::take(&mut self.queued);
        self.rounds.push(Round { numbers: vec![number], sent: now, requests });
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
            self.confirmed.push((index, round.requests));
        }
    }

    /// Everything up to `applied` is visible.
    pub fn applied(&mut self, applied: u64, answers: &mut Answers) {
        let mut later = Vec::new();
        for (index, requests) in self.confirmed.drain(..) {
            if index > applied {
                later.push((index, requests));
                continue;
            }
            for request in requests {
                answers.push(request.reply, Ok(index));
            }
        }
        self.confirmed = later;
        for request in self.reaching.extract_if(.., |request| request.index <= applied) {
            answers.push(request.reply, Ok(()));
        }
    }

    /// Gives up on requests that waited too long.
    pub fn expire(&mut self, region: RegionId, now: u64, answers: &mut Answers) {
        for (stage, requests) in self.stages() {
            for request in requests.extract_if(.., |request| request.wait.deadline <= now) {
                let millis = Wait::millis(request.wait.since, now);
                let what = format!("a read index of region {region} ({stage})");
                answers.push(request.reply, Err(Error::Timeout { what, millis }));
            }
        }
        for request in self.reaching.extract_if(.., |request| request.wait.deadline <= now) {
            let millis = Wait::millis(request.wait.since, now);
            let what = format!("index {} of region {region} to be applied here", request.index);
            answers.push(request.reply, Err(Error::Timeout { what, millis }));
        }
        self.rounds.retain(|round| !round.requests.is_empty());
        self.confirmed.retain(|(_, requests)| !requests.is_empty());
    }

    /// The peer stopped.
    pub fn abandon(&mut self, error: &Error, answers: &mut Answers) {
        for (_, requests) in self.stages() {
            for request in requests.drain(..) {
                answers.push(request.reply, Err(error.clone()));
            }
        }
        for request in self.reaching.drain(..) {
            answers.push(request.reply, Err(error.clone()));
        }
        self.rounds.clear();
        self.confirmed.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
            && self.rounds.is_empty()
            && self.confirmed.is_empty()
            && self.reaching.is_empty()
    }

    fn stages(&mut self) -> impl Iterator<Item = (&'static str, &mut Vec<ReadRequest>)> {
        let queued = std::iter::once(("not yet sent", &mut self.queued));
        let rounds =
            self.rounds.iter_mut().map(|round| ("no leader confirmed", &mut round.requests));
        let confirmed =
            self.confirmed.iter_mut().map(|(_, requests)| ("not yet applied here", requests));
        queued.chain(rounds).chain(confirmed)
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
    use crate::reply::reply_channel;
    use futures::FutureExt;

    const WAIT: Wait = Wait { since: 0, deadline: 100 };

    #[test]
    fn a_round_answers_only_requests_before_it() {
        let mut reads = Reads::new(7, 1);
        let mut answers = Answers::default();
        let (reply, mut first) = reply_channel("a read index");
        reads.request(WAIT, reply);
        let round = reads.begin(0).unwrap();
        let (reply, mut second) = reply_channel("a read index");
        reads.request(WAIT, reply);
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
    fn an_index_that_is_waited_for_is_answered_once_applied_or_too_late() {
        let mut reads = Reads::new(7, 1);
        let mut answers = Answers::default();
        let (reply, mut near) = reply_channel("an index");
        reads.reach(5, WAIT, reply);
        let (reply, mut far) = reply_channel("an index");
        reads.reach(9, WAIT, reply);
        reads.applied(4, &mut answers);
        answers.send();
        assert!((&mut near).now_or_never().is_none(), "answered before it was applied");
        reads.applied(8, &mut answers);
        answers.send();
        assert_eq!((&mut near).now_or_never(), Some(Ok(())));
        assert!((&mut far).now_or_never().is_none() && !reads.is_empty());
        reads.expire(1, WAIT.deadline, &mut answers);
        answers.send();
        assert!(matches!((&mut far).now_or_never(), Some(Err(Error::Timeout { .. }))));
        assert!(reads.is_empty());
    }

    #[test]
    fn an_answer_to_a_run_before_the_restart_is_ignored() {
        let mut reads = Reads::new(7, 1);
        let (reply, _gone) = reply_channel("a read index");
        reads.request(WAIT, reply);
        let old = reads.begin(0).unwrap();
        let mut reads = Reads::new(7, 2);
        let (reply, mut pending) = reply_channel("a read index");
        reads.request(WAIT, reply);
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
