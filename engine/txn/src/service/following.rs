//! Reads by a node's replica of a region that it does not lead.
//!
//! It asks its leader how far it has to have applied the log, and reads no row before; then it goes by the rules that the
//! leader's reads go by. What it has once applied for a timestamp it has for good: nothing is committed at or before it
//! any more that is neither there nor covered by a lock. It asks for no later time than the reader's: an import may still
//! write below that, and only readers know by their catalog whether one does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use raft::PeerStatus;
use tokio::time::timeout;
use types::{Error, PeerId, RegionId, Result, Timestamp};

use crate::api::{RegionRef, Request, Response};
use crate::client::TxnClient;
use crate::service::TxnService;

/// How long a replica tries to hold what a read needs.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Regions whose timestamps are remembered, at most; beyond, it begins anew.
const REMEMBERED: usize = 16_384;

/// A peer, and the version of its region's shape.
type Shape = (PeerId, u64);

/// What a node has applied for readers of its replicas.
#[derive(Default)]
pub(crate) struct Followers {
    /// Asks leaders.
    client: Option<TxnClient>,
    /// By region: the peer and the version of its shape, and the latest timestamp of which everything is applied.
    reached: Mutex<HashMap<RegionId, (Shape, Timestamp)>>,
}

impl Followers {
    fn have(&self, region: RegionId, shape: Shape, ts: Timestamp) -> bool {
        let reached = self.reached.lock();
        reached.get(&region).is_some_and(|(known, reached)| *known == shape && *reached >= ts)
    }

    fn note(&self, region: RegionId, shape: Shape, ts: Timestamp) {
        let mut reached = self.reached.lock();
        if reached.len() >= REMEMBERED && !reached.contains_key(&region) {
            reached.clear();
        }
        let known = reached.entry(region).or_insert((shape, ts));
        *known = if known.0 == shape { (shape, known.1.max(ts)) } else { (shape, ts) };
    }
}

impl TxnService {
    /// The same service, which answers reads of regions that it does not lead, too. The client asks their leaders.
    #[must_use]
    pub fn with_followers(mut self, client: TxnClient) -> Self {
        let followers = Followers { client: Some(client), ..Followers::default() };
        self.followers = Arc::new(followers);
        self
    }

    /// Answers a read by this node's replica, whether it leads or not.
    pub(crate) async fn by_replica(&self, read: Request) -> Result<Response> {
        let (Request::Get { region, ts, .. } | Request::Scan { region, ts, .. }) = &read else {
            return Err(Error::Invalid("replicas answer nothing but reads".into()));
        };
        let (region, ts) = (*region, *ts);
        let status = self.groups.status(region.id).ok_or(Error::RegionNotFound(region.id))?;
        let leads = status.leader.map(|leader| leader.id) == Some(status.peer.id);
        let asked = !leads && self.follow(region, &status, ts).await?;
        let answer = match (read, leads) {
            (Request::Get { region, keys, ts }, true) => self.get(region, keys, ts).await?,
            (Request::Get { region, keys, ts }, false) => self.pairs_of(region, keys, ts)?,
            (Request::Scan { region, start, end, ts, limit, bytes, reverse }, true) => {
                self.scan(region, (start, end), ts, (limit, bytes), reverse).await?
            }
            (Request::Scan { region, start, end, ts, limit, bytes, reverse }, false) => {
                self.page_of(region, (start, end), ts, (limit, bytes), reverse)?
            }
            (other, _) => {
                return Err(Error::Invalid(format!("replicas do not answer {other:?}")));
            }
        };
        match answer {
            Response::Pairs { pairs, resume } => {
                Ok(Response::ByReplica { pairs, resume, leads, asked })
            }
            other => Ok(other),
        }
    }

    /// Returns once this replica has applied everything that was committed at or before `ts`, or a lock of it; whether
    /// its leader was asked.
    async fn follow(&self, region: RegionRef, status: &PeerStatus, ts: Timestamp) -> Result<bool> {
        let shape = (status.peer.id, self.unmoved(region)?.region.epoch.version);
        if self.followers.have(region.id, shape, ts) {
            return Ok(false);
        }
        if status.leader.is_none() {
            return Err(Error::NotLeader { region: region.id, leader: None });
        }
        let Some(client) = &self.followers.client else {
            return Err(Error::Unavailable("this node answers for what it leads alone".into()));
        };
        let caught_up = client.catch_up(self.groups.as_ref(), region.id, ts);
        timeout(CATCH_UP, caught_up).await.map_err(|_| {
            Error::Unavailable(format!(
                "this node's replica of region {} has not caught up within {} ms",
                region.id,
                CATCH_UP.as_millis()
            ))
        })??;
        // Had it come to lead meanwhile, it would have asked nobody, and passed what is under way here in one entry.
        let term = self.groups.status(region.id).map(|now| now.term);
        if term != Some(status.term) {
            return Err(Error::Unavailable(format!(
                "region {} has had another leader while this node caught up with it",
                region.id
            )));
        }
        self.followers.note(region.id, shape, ts);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_applied_for_a_timestamp_is_there_for_earlier_ones() {
        let followers = Followers::default();
        followers.note(1, (11, 1), Timestamp(10));
        followers.note(1, (11, 1), Timestamp(5));
        assert!(
            followers.have(1, (11, 1), Timestamp(10)) && followers.have(1, (11, 1), Timestamp(3))
        );
        assert!(!followers.have(1, (11, 1), Timestamp(11)), "nobody has asked for that");
        assert!(!followers.have(1, (11, 2), Timestamp(3)), "another shape");
        assert!(!followers.have(1, (12, 1), Timestamp(3)), "another peer");
        followers.note(1, (11, 2), Timestamp(4));
        assert!(!followers.have(1, (11, 2), Timestamp(10)));
    }
}
