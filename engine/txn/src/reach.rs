//! How a replica that does not lead comes to hold everything a read at a timestamp needs.
//!
//! The leader is asked, not Raft: only it knows of commits that are under way in one entry and may have their timestamps
//! already. It answers by its lease, or after a round.

use std::time::Duration;

use raft::Groups;
use tokio::time::{Instant, sleep};
use types::retry::Pauses;
use types::{Error, Region, RegionId, Result, Timestamp};

use crate::api::{Request, Response};
use crate::client::TxnClient;
use crate::resolve::unexpected;

/// The first pause while nobody leads, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// How long a round of Raft may take in place of a leader's answer.
const OLD_ROUND: Duration = Duration::from_millis(500);

impl TxnClient {
    /// Returns once this node's replica of a region has applied everything that was committed at or before `ts`, or a
    /// lock of it. Goes on for as long as it is polled while nobody leads the region.
    ///
    /// # Errors
    ///
    /// `RegionNotFound` where this node has no such replica; `Timeout` where it does not catch up.
    pub async fn catch_up(
        &self,
        groups: &dyn Groups,
        region: RegionId,
        ts: Timestamp,
    ) -> Result<()> {
        let mut pauses = Pauses::doubling(PAUSES.0, PAUSES.1);
        let mut hint = None;
        loop {
            let status = groups.status(region).ok_or(Error::RegionNotFound(region))?;
            let leader = status.leader.map(|leader| leader.node);
            // What this node decides is in order without a message.
            if leader == Some(status.peer.node) {
                return groups.read_index(region).await.map(drop);
            }
            let asked = hint.take().or(leader);
            let error = match asked {
                Some(node) => match self.ask_how_far(&status.region, node, ts).await {
                    Ok(index) => return groups.reached(region, index).await,
                    Err(error) => error,
                },
                None => Error::NotLeader { region, leader: None },
            };
            match error {
                // A program of before leaders were asked does not commit in one entry, and its cluster has
                // none that does. One that took its place since would not have begun so soon.
                Error::Invalid(_) if !self.commits_at_once() => {
                    let begun = Instant::now();
                    groups.read_index(region).await?;
                    if begun.elapsed() < OLD_ROUND {
                        return Ok(());
                    }
                }
                Error::NotLeader { leader: Some(node), .. } if asked != Some(node) => {
                    hint = Some(node);
                    continue;
                }
                error if error.is_retryable() => {}
                error => return Err(error),
            }
            sleep(pauses.take()).await;
        }
    }

    async fn ask_how_far(
        &self,
        region: &Region,
        node: types::NodeId,
        ts: Timestamp,
    ) -> Result<u64> {
        match self.send_to_node(region, node, Request::Reach { region: region.id, ts }).await? {
            Response::Applied(index) => Ok(index),
            _ => Err(unexpected("how far a replica has to read")),
        }
    }
}
