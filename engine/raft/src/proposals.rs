//! Proposals of one peer that wait for their entry to be applied.
//!
//! A proposal is called dropped only where it is certain that it never takes effect: another
//! entry was applied in its place. Leadership lost is no proof: the entry may still commit.

use std::collections::BTreeMap;

use types::{Error, RegionId, Result};

use crate::machine::Position;
use crate::reply::{Answers, Reply, Wait};

/// A proposal in the log.
struct Proposal {
    term: u64,
    since: u64,
    deadline: u64,
    reply: Reply<Position>,
}

/// Proposals by index. A peer that led, lost its log's tail and leads again has several at one
/// index, and only what is applied there decides between them.
#[derive(Default)]
pub(crate) struct Proposals {
    waiting: BTreeMap<u64, Vec<Proposal>>,
    /// Applied, and to be answered when the batch ends.
    done: Vec<(Reply<Position>, Result<Position>)>,
}

impl Proposals {
    /// Notes an entry that this peer appended as leader.
    pub fn appended(&mut self, at: Position, wait: Wait, reply: Reply<Position>) {
        let Wait { since, deadline } = wait;
        let proposal = Proposal { term: at.term, since, deadline, reply };
        self.waiting.entry(at.index).or_default().push(proposal);
    }

    /// An entry was applied here: decides every proposal at its index. `took_effect`: whether the
    /// machine applied it rather than dropping it.
    pub fn applied(&mut self, at: Position, took_effect: bool) {
        for proposal in self.waiting.remove(&at.index).unwrap_or_default() {
            let answer = if proposal.term != at.term {
                Err(Error::Dropped("another leader's entry took its place".to_owned()))
            } else if took_effect {
                Ok(at)
            } else {
                Err(Error::Dropped("decided under another term or epoch".to_owned()))
            };
            self.done.push((proposal.reply, answer));
        }
    }

    /// What was applied is visible now.
    pub fn batch_ended(&mut self, answers: &mut Answers) {
        for (reply, answer) in self.done.drain(..) {
            answers.push(reply, answer);
        }
    }

    /// The log jumped over entries to a snapshot: what they were is not known here.
    pub fn jumped(&mut self, region: RegionId, to: u64, answers: &mut Answers) {
        let later = self.waiting.split_off(&(to + 1));
        for proposal in std::mem::replace(&mut self.waiting, later).into_values().flatten() {
            answers.push(proposal.reply, Err(unknown(region, "a snapshot came instead")));
        }
    }

    /// Gives up on those that waited too long.
    pub fn expire(&mut self, region: RegionId, now: u64, answers: &mut Answers) {
        for proposals in self.waiting.values_mut() {
            for proposal in proposals.extract_if(.., |proposal| proposal.deadline <= now) {
                let mut error = unknown(region, "no quorum answered in time");
                if let Error::Timeout { millis, .. } = &mut error {
                    *millis = Wait::millis(proposal.since, now);
                }
                answers.push(proposal.reply, Err(error));
            }
        }
        self.waiting.retain(|_, proposals| !proposals.is_empty());
    }

    /// The peer stopped.
    pub fn abandon(&mut self, region: RegionId, why: &str, answers: &mut Answers) {
        self.batch_ended(answers);
        for proposal in std::mem::take(&mut self.waiting).into_values().flatten() {
            answers.push(proposal.reply, Err(unknown(region, why)));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.done.is_empty()
    }
}

fn unknown(region: RegionId, why: &str) -> Error {
    Error::Timeout {
        what: format!("a proposal to region {region}, whose outcome is unknown ({why})"),
        millis: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::reply_channel;
    use futures::FutureExt;

    const WAIT: Wait = Wait { since: 0, deadline: 100 };

    fn at(index: u64, term: u64) -> Position {
        Position { index, term }
    }

    #[test]
    fn only_another_entry_in_its_place_proves_a_drop() {
        let mut proposals = Proposals::default();
        let mut answers = Answers::default();
        let mut pending = Vec::new();
        for index in 6..9 {
            let (reply, answer) = reply_channel("a proposal");
            proposals.appended(at(index, 2), WAIT, reply);
            pending.push(answer);
        }
        proposals.applied(at(6, 2), true);
        proposals.applied(at(7, 3), true);
        answers.send();
        assert!((&mut pending[0]).now_or_never().is_none(), "answered before the batch ended");
        proposals.batch_ended(&mut answers);
        answers.send();
        assert_eq!((&mut pending[0]).now_or_never(), Some(Ok(at(6, 2))));
        assert!(matches!((&mut pending[1]).now_or_never(), Some(Err(Error::Dropped(_)))));
        assert!((&mut pending[2]).now_or_never().is_none());
        proposals.expire(1, 100, &mut answers);
        answers.send();
        assert!(matches!((&mut pending[2]).now_or_never(), Some(Err(Error::Timeout { .. }))));
    }

    #[test]
    fn a_leader_that_leads_again_keeps_its_terms_apart() {
        let mut proposals = Proposals::default();
        let mut answers = Answers::default();
        let (reply, mut old) = reply_channel("a proposal");
        proposals.appended(at(9, 2), WAIT, reply);
        let (reply, mut new) = reply_channel("a proposal");
        proposals.appended(at(8, 4), WAIT, reply);
        proposals.applied(at(8, 4), true);
        proposals.applied(at(9, 4), true);
        proposals.batch_ended(&mut answers);
        answers.send();
        assert_eq!((&mut new).now_or_never(), Some(Ok(at(8, 4))));
        assert!(matches!((&mut old).now_or_never(), Some(Err(Error::Dropped(_)))));
    }
}
