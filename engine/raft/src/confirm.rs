//! Which voters a leader asks whether it still leads, and when enough have answered.
//!
//! Pure: questions and answers are carried by others. An answer counts for the round that it names alone.

use std::collections::{BTreeMap, BTreeSet};

use types::{Peer, PeerId, RegionId};

use crate::groups::PeerStatus;
use crate::reply::Reply;

/// A round under way.
struct Round {
    region: RegionId,
    term: u64,
    /// Voters that were asked and have not answered.
    asked: BTreeSet<PeerId>,
    /// Answers that are missing for a majority.
    missing: usize,
    reply: Reply<()>,
}

/// Rounds of one process.
pub(crate) struct Confirmations {
    /// Numbers begin here; above any that an earlier run of the process used.
    next: u64,
    rounds: BTreeMap<u64, Round>,
    /// Voters that let a round come to nothing and have answered none since: asked where no others are enough.
    silent: BTreeSet<PeerId>,
}

impl Confirmations {
    /// `boot`: how often the node was started.
    pub fn new(boot: u64) -> Self {
        Confirmations { next: boot << 32, rounds: BTreeMap::new(), silent: BTreeSet::new() }
    }

    /// Begins a round of a leader that is not its group's only voter: its number, and whom to ask.
    pub fn begin(&mut self, status: &PeerStatus, reply: Reply<()>) -> (u64, Vec<Peer>) {
        let voters: Vec<Peer> = status.region.voters().copied().collect();
        // Its own voice counts as one.
        let missing = voters.len() / 2;
        let others = voters.into_iter().filter(|voter| voter.id != status.peer.id);
        let (silent, mut asked): (Vec<Peer>, Vec<Peer>) =
            others.partition(|voter| self.silent.contains(&voter.id));
        if asked.len() < missing {
            asked.extend(silent);
        } else {
            asked.truncate(missing);
        }
        let number = self.next;
        self.next += 1;
        let ids = asked.iter().map(|voter| voter.id).collect();
        let (region, term) = (status.region.id, status.term);
        self.rounds.insert(number, Round { region, term, asked: ids, missing, reply });
        (number, asked)
    }

    /// A voter answered: the reply of the round that this completes.
    pub fn answered(
        &mut self,
        region: RegionId,
        term: u64,
        from: PeerId,
        number: u64,
    ) -> Option<Reply<()>> {
        let round = self.rounds.get_mut(&number)?;
        if round.region != region || round.term != term || !round.asked.remove(&from) {
            return None;
        }
        self.silent.remove(&from);
        round.missing = round.missing.saturating_sub(1);
        if round.missing > 0 {
            return None;
        }
        self.rounds.remove(&number).map(|round| round.reply)
    }

    /// Nobody waits for a round any more. If it is not complete, who has not answered is asked later than others.
    pub fn give_up(&mut self, number: u64) {
        if let Some(round) = self.rounds.remove(&number) {
            self.silent.extend(round.asked);
        }
    }
}
