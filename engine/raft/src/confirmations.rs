//! Which voters a leader asks whether it still leads, and when enough have answered.
//!
//! Pure: questions and answers are carried by others. An answer counts for the round that it names alone.

use std::collections::{BTreeMap, BTreeSet};

use types::{Peer, PeerId, RegionId};

use crate::groups::PeerStatus;
use crate::reply::Reply;

/// Ticks for which a voter is not asked that let a round come to nothing.
const SILENT_TICKS: u64 = 100;
/// Every so many rounds of a region all voters are asked, and who answers first is asked first from then on.
const ROUNDS_BY_NEAREST: u64 = 256;

/// A round under way.
struct Round {
    region: RegionId,
    term: u64,
    /// Voters that were asked and have not answered.
    asked: BTreeSet<PeerId>,
    /// Answers that are missing for a majority.
    missing: usize,
    /// Tick at which it began.
    since: u64,
    /// Whether all voters were asked.
    of_all: bool,
    reply: Reply<()>,
}

/// Rounds of one process.
pub(crate) struct Confirmations {
    /// Begins above the numbers that an earlier run of the process has used, but for one of days: a leader of then led in
    /// an earlier term.
    next: u64,
    /// Ticks since start.
    now: u64,
    rounds: BTreeMap<u64, Round>,
    /// Voters that let a round come to nothing and have answered none since, and the tick until which they are not asked.
    silent: BTreeMap<PeerId, u64>,
    /// By region: who answered first when all were asked, and how many rounds were begun since.
    nearest: BTreeMap<RegionId, (PeerId, u64)>,
}

impl Confirmations {
    /// `boot`: how often the node was started.
    pub fn new(boot: u64) -> Self {
        Confirmations {
            next: boot << 32,
            now: 0,
            rounds: BTreeMap::new(),
            silent: BTreeMap::new(),
            nearest: BTreeMap::new(),
        }
    }

    /// Time passes.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        self.silent.retain(|_, until| *until > now);
    }

    /// Begins a round of a leader: its number, and whom to ask. None if too few are expected to answer.
    pub fn begin(&mut self, status: &PeerStatus, reply: Reply<()>) -> Option<(u64, Vec<Peer>)> {
        let region = status.region.id;
        // Its own voice counts as one.
        let missing = status.region.voters().count() / 2;
        let others = status.region.voters().filter(|voter| voter.id != status.peer.id);
        let mut asked: Vec<Peer> =
            others.filter(|voter| !self.silent.contains_key(&voter.id)).copied().collect();
        if missing == 0 || asked.len() < missing {
            return None;
        }
        let known = self.nearest.get_mut(&region).filter(|(_, rounds)| *rounds < ROUNDS_BY_NEAREST);
        let of_all = known.is_none();
        if let Some((nearest, rounds)) = known {
            *rounds += 1;
            asked.sort_by_key(|voter| voter.id != *nearest);
            asked.truncate(missing);
        }
        let number = self.next;
        self.next += 1;
        let (ids, since) = (asked.iter().map(|voter| voter.id).collect(), self.now);
        let round = Round { region, term: status.term, asked: ids, missing, since, of_all, reply };
        self.rounds.insert(number, round);
        Some((number, asked))
    }

    /// A voter answered: the reply of the round that this completes.
    pub fn answered(
        &mut self,
        region: RegionId,
        term: u64,
        from: PeerId,
        number: u64,
    ) -> Option<Reply<()>> {
        self.silent.remove(&from);
        let round = self.rounds.get_mut(&number)?;
        if round.region != region || round.term != term || !round.asked.remove(&from) {
            return None;
        }
        if std::mem::take(&mut round.of_all) {
            self.nearest.insert(region, (from, 0));
        }
        round.missing = round.missing.saturating_sub(1);
        if round.missing > 0 {
            return None;
        }
        self.rounds.remove(&number).map(|round| round.reply)
    }

    /// Nobody waits for a round any more. If that took a tick, who has not answered is not asked for a while.
    pub fn give_up(&mut self, number: u64) {
        let Some(round) = self.rounds.remove(&number) else { return };
        if self.now > round.since {
            let until = self.now + SILENT_TICKS;
            self.silent.extend(round.asked.into_iter().map(|voter| (voter, until)));
        }
    }
}
