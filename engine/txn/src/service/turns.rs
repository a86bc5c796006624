//! The turn of a write: waited for, decided in, and kept until what was proposed in it is settled.
//!
//! No other decision on the same keys is made meanwhile, by whatever path the proposal ends.

use std::time::Duration;

use raft::PeerStatus;
use tokio::sync::OwnedRwLockReadGuard;
use types::{Error, Result, SchemaVersion, TableId, Timestamp};

use super::{TxnService, bounded, certain, check_schema};
use crate::api::{Mode, RegionRef, Response};
use crate::decide::Known;
use crate::fact::{Fact, Facts};
use crate::in_flight::Announced;
use crate::latches::Latched;
use crate::share::shared_key;
use crate::store::RegionView;

/// How long to wait before asking again whether a proposal of unknown outcome is settled.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// A leader's decision: what to write, and what to answer once that is applied.
pub(super) type Decision = (Vec<Fact>, Response);

/// What keeps other decisions away until a proposal is settled. Fields are dropped in their order: the next one announces
/// its commit once it has the latches.
pub(crate) struct Turn {
    /// To readers, where no lock will be, or none is yet.
    pub(super) announced: Option<Announced>,
    _fence: Option<OwnedRwLockReadGuard<()>>,
    _latched: Latched,
    /// The term in which it was given: a commit timestamp is asked for in it, and a later leader may have answered reads
    /// behind that.
    term: u64,
}

impl TxnService {
    /// Decides on some keys of a transaction, or on others where it is none, and waits until the decision is applied.
    pub(super) async fn write(
        &self,
        region: RegionRef,
        (owner, keys): (Timestamp, Vec<Vec<u8>>),
        schema: Option<(TableId, SchemaVersion)>,
        decide: impl FnOnce(Known<'_>, &RegionView) -> Result<Decision> + Send,
    ) -> Result<Response> {
        let turn = self.enter(region, (owner, &keys), schema).await?;
        self.take_turn(turn, region, &keys, schema, decide).await
    }

    /// Waits for the turn to decide on some keys.
    pub(super) async fn enter(
        &self,
        region: RegionRef,
        (owner, keys): (Timestamp, &[Vec<u8>]),
        schema: Option<(TableId, SchemaVersion)>,
    ) -> Result<Turn> {
        // A request that cannot succeed should not wait behind those that can.
        let (status, _) = self.led(region)?;
        if schema.is_some() {
            self.writable(&status).await?;
        }
        let fence = match schema {
            Some(_) => {
                let shared = self.fence(region.id).read_owned();
                Some(bounded("a schema change of the region", shared).await?)
            }
            None => None,
        };
        let latched = self.latch(decided(owner, keys)).await?;
        Ok(Turn { announced: None, _fence: fence, _latched: latched, term: status.term })
    }

    /// Decides, and waits until the decision is applied.
    pub(super) async fn take_turn(
        &self,
        turn: Turn,
        region: RegionRef,
        keys: &[Vec<u8>],
        schema: Option<(TableId, SchemaVersion)>,
        decide: impl FnOnce(Known<'_>, &RegionView) -> Result<Decision> + Send,
    ) -> Result<Response> {
        // The term is read before the state: should leadership change in between, the proposal's
        // term is over and it is refused.
        let (status, view) = self.led(region)?;
        if schema.is_some() && (status.term != turn.term || !self.may_write(&status)) {
            return Err(Error::Unavailable(format!("region {} has got a new leader", region.id)));
        }
        if keys.iter().any(|key| !view.region.contains(key)) {
            return Err(Error::Invalid(format!(
                "a key of the request lies outside of region {}",
                region.id
            )));
        }
        if let Some((table, sent)) = schema {
            check_schema(&view, table, sent)?;
        }
        let decided = {
            let oldest = self.oldest.read();
            let kv = self.store.snapshot();
            let floors = view.floors;
            let known =
                Known { kv: kv.as_ref(), locks: self.store.locks(), floors, oldest: *oldest };
            decide(known, &view).and_then(|(facts, response)| match facts.is_empty() {
                true => Ok((None, response)),
                false => Ok((Some(self.propose(&status, &view, facts)?), response)),
            })
        };
        let (applied, response) = match decided {
            Ok((Some(applied), response)) => (applied, response),
            Ok((None, response)) => return self.confirm(&status).await.map(|()| response),
            Err(error) if lasts(&error) => return Err(error),
            Err(error) => return self.confirm(&status).await.and(Err(error)),
        };
        let service = self.clone();
        // A task of its own, for a caller who goes away must not take the latches along.
        let task = tokio::spawn(async move {
            let outcome = applied.await;
            if outcome.as_ref().is_err_and(|error| !certain(error)) {
                tokio::spawn(service.hold_until_settled(status, turn));
            }
            outcome
        });
        task.await
            .map_err(|error| Error::Cancelled(format!("waiting for a proposal: {error}")))??;
        Ok(response)
    }

    /// Whether this node has led the term up to now: what it decided without an entry was decided on
    /// everything that had happened by then. One that is deposed and does not know it lacks what its
    /// successor has committed, such as the lock that a commit asks for.
    async fn confirm(&self, status: &PeerStatus) -> Result<()> {
        self.groups.read_index(status.region.id).await?;
        self.still_leads(status)
    }

    /// Fails unless this node still leads the term. A round that a deposed leader began is answered by its successor, which
    /// has announced what is under way to its own readers alone; and what was under way in a peer that has stopped may be
    /// committed, and was not applied here.
    pub(crate) fn still_leads(&self, status: &PeerStatus) -> Result<()> {
        let region = status.region.id;
        let now = self.groups.status(region).ok_or(Error::RegionNotFound(region))?;
        if now.term == status.term && now.leader.map(|leader| leader.id) == Some(now.peer.id) {
            return Ok(());
        }
        Err(Error::NotLeader { region, leader: now.leader.map(|leader| leader.node) })
    }

    /// Takes the latches of keys, within the bound.
    pub(crate) async fn latch(&self, keys: Vec<(Vec<u8>, Mode)>) -> Result<Latched> {
        bounded("other writes of the same keys", self.latches.acquire(keys)).await
    }

    /// Keeps latches while a proposal of unknown outcome may still be applied: until an empty entry
    /// of the same term has been applied behind it, or this node no longer leads that term, whose
    /// successor decides only after applying everything before its own, or the peer has stopped. A
    /// peer whose disk is full has not: its log holds the proposal, and goes on when there is room.
    async fn hold_until_settled(self, status: PeerStatus, turn: Turn) {
        let region = status.region.id;
        while let Some(now) = self.groups.status(region) {
            if now.term != status.term || now.stopped {
                break;
            }
            // The region's shape of now: under the old one, the entry would be dropped for ever.
            let epoch = now.region.epoch;
            let empty = Facts { term: status.term, epoch, facts: vec![] }.encode();
            let Ok(empty) = empty else { break };
            match self.groups.propose(region, status.term, empty).await {
                Ok(_) | Err(Error::NotLeader { .. } | Error::RegionNotFound(_)) => break,
                // Dropped says something of this entry only, not of the one before it.
                Err(_) => tokio::time::sleep(SETTLE_PAUSE).await,
            }
        }
        drop(turn);
    }
}

/// What a decision on a transaction's keys is about: these and, beside others, the keys that they are shares of.
fn decided(owner: Timestamp, keys: &[Vec<u8>]) -> Vec<(Vec<u8>, Mode)> {
    let shared =
        keys.iter().filter_map(|key| Some((shared_key(key, owner)?.to_vec(), Mode::Shared)));
    keys.iter().map(|key| (key.clone(), Mode::Exclusive)).chain(shared).collect()
}

/// Whether a refusal is as good from a leader that is deposed and does not know it: a newer version
/// stays, and who meets a lock asks about it.
fn lasts(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. } | Error::Locked(_) | Error::Held { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::share_key;

    #[test]
    fn who_shares_a_key_decides_beside_others_that_do_and_nobody_else() {
        let (key, owner) = (b"k".to_vec(), Timestamp(7));
        let share = share_key(&key, owner);
        let shares = decided(owner, std::slice::from_ref(&share));
        assert_eq!(shares, [(share, Mode::Exclusive), (key.clone(), Mode::Shared)]);
        assert_eq!(decided(owner, std::slice::from_ref(&key)), [(key, Mode::Exclusive)]);
    }
}
