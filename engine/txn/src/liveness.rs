//! Which row nodes answer, and who leads a region as its voters know it: ends waits for nodes that
//! were stopped or cut off, once their regions have other leaders.
//!
//! It is a hint about whom to ask. What a request has done is never concluded from it: a request
//! that was sent and given up has an unknown outcome.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use types::{NodeId, Region, RegionId, Result};

use crate::api::{Request, Response};
use crate::routes::Target;
use crate::transport::{RowTransport, within_call};

/// Pause of a call before its region's voters are asked who leads, and between two such looks …
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// … and how long a voter may take to say it; …
const LOOK_LIMIT: Duration = Duration::from_millis(300);
/// … both while the node that was asked is silent, until another one leads.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// For how long a look answers others who want the same.
const LOOK_LIFE: Duration = Duration::from_millis(100);
/// Regions whose looks are shared, at most; beyond, they begin anew.
const LOOKS: usize = 4_096;

/// How a call ended.
pub(crate) enum Called {
    /// With an answer, or an error of the transport.
    Answered(Result<Response>),
    /// Not at all: another node leads by now.
    Moved {
        /// The leader.
        leader: NodeId,
        /// Whether the request was sent before, so that it may have been carried out.
        sent: bool,
    },
}

/// What the voters of a region last said, and when.
type Look = Arc<tokio::sync::Mutex<Option<(Instant, Option<NodeId>)>>>;

/// What is known of nodes that do not answer.
#[derive(Default)]
pub(crate) struct Liveness {
    silent: Mutex<HashSet<NodeId>>,
    looks: Mutex<HashMap<RegionId, Look>>,
}

impl Liveness {
    /// Asks a region's leader, for as long as no other node is known to lead the region.
    pub(crate) async fn call(
        &self,
        transport: &dyn RowTransport,
        target: &Target,
        request: Request,
    ) -> Called {
        let node = target.node;
        let silent = self.silent.lock().contains(&node);
        if silent && let Some(leader) = self.leader_elsewhere(transport, target).await {
            return Called::Moved { leader, sent: false };
        }
        let call = within_call("a row node", transport.call(node, request));
        let moved = async {
            loop {
                sleep(self.pick(node, LOOK_EVERY)).await;
                if let Some(leader) = self.leader_elsewhere(transport, target).await {
                    return leader;
                }
            }
        };
        tokio::select! {
            biased;
            answer = call => {
                if answer.is_ok() {
                    self.silent.lock().remove(&node);
                }
                Called::Answered(answer)
            }
            leader = moved => {
                tracing::info!(node, leader, region = target.region.id, "a call to a former leader is given up");
                Called::Moved { leader, sent: true }
            }
        }
    }

    /// A pause or bound that concerns a node: a short one where it was silent already.
    fn pick(&self, node: NodeId, usual: Duration) -> Duration {
        if self.silent.lock().contains(&node) { LOOK_AGAIN } else { usual }
    }

    /// Another node that leads the target's region, in a later term than any in which the target's
    /// node says that it does, and that answers.
    async fn leader_elsewhere(
        &self,
        transport: &dyn RowTransport,
        target: &Target,
    ) -> Option<NodeId> {
        let region = &target.region;
        if region.voters().all(|peer| peer.node == target.node) {
            return None;
        }
        let look = {
            let mut looks = self.looks.lock();
            if looks.len() >= LOOKS && !looks.contains_key(&region.id) {
                looks.clear();
            }
            looks.entry(region.id).or_default().clone()
        };
        let mut look = look.lock().await;
        let leader = match *look {
            Some((at, leader)) if at.elapsed() < LOOK_LIFE => leader,
            _ => {
                let leader = self.query_voters(transport, region).await;
                *look = Some((Instant::now(), leader));
                leader
            }
        };
        leader.filter(|leader| *leader != target.node)
    }

    /// The leader of the latest term that a voter knows of, if it answers.
    async fn query_voters(&self, transport: &dyn RowTransport, region: &Region) -> Option<NodeId> {
        let calls = region.voters().map(|peer| async move {
            let limit = self.pick(peer.node, LOOK_LIMIT);
            let call = transport.call(peer.node, Request::Leader { region: region.id });
            (peer.node, timeout(limit, call).await)
        });
        let answers = join_all(calls).await;
        let mut silent = self.silent.lock();
        let mut latest: Option<(u64, NodeId)> = None;
        for (node, answer) in answers {
            match answer {
                Ok(Ok(answer)) => {
                    silent.remove(&node);
                    if let Response::Leader { leader: Some(leader), term } = answer {
                        latest = latest.max(Some((term, leader)));
                    }
                }
                Ok(Err(_)) | Err(_) => {
                    silent.insert(node);
                }
            }
        }
        let (_, leader) = latest?;
        (!silent.contains(&leader)).then_some(leader)
    }
}
