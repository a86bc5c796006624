//! Finds placement's leader and asks it. A member that does not answer is left as soon as the others
//! name a leader of a later term; until then it is waited for.
//!
//! It never sends a change of the catalog twice, and never waits without a bound.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use tokio::time::{Instant, sleep, timeout};
use types::region::PLACEMENT_REGION;
use types::retry::Pauses;
use types::{Error, NodeId, Result};

use crate::api::{Request, Response};
use crate::client::{CALL_LIMIT, CHANGE_LIMIT, Caller};

/// How long one node is waited for before another is asked.
const ONE_CALL: Duration = Duration::from_secs(2);

/// Pause of a call before the members are asked who leads, and between two such looks …
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// … and how long a member may take to say it; …
const LOOK_LIMIT: Duration = Duration::from_millis(300);

/// … both while the node that was asked is silent, until another one leads.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The first pause between rounds in which nobody led, and the longest: after an election everybody waits for it.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));

impl Caller {
    /// Sends a request to the leader, wherever it is, within the bound.
    pub(crate) fn send(&self, request: Request) -> BoxFuture<'_, Result<Response>> {
        self.send_to_leader(request).boxed()
    }

    async fn send_to_leader(&self, request: Request) -> Result<Response> {
        // Sending twice is harmless but for changes of the catalog: the second would fail for what
        // the first did.
        let once = matches!(request, Request::Change(_));
        let within = if once { CHANGE_LIMIT } else { CALL_LIMIT };
        let deadline = Instant::now() + within;
        let mut last = Error::Unavailable("no address of placement is known".into());
        let mut pauses = Pauses::doubling(PAUSES.0, PAUSES.1);
        loop {
            // The node believed to lead first, then every other one; those that were silent last.
            let (mut untried, mut next) = self.order();
            while let Some(node) = next {
                untried.retain(|other| *other != node);
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(gave_up(last, within));
                }
                let limit = if once { left } else { left.min(ONE_CALL) };
                let error = match self.send_to(node, request.clone(), limit).await {
                    Ok(response) => {
                        let mut memory = self.memory.lock();
                        memory.leader = Some(node);
                        memory.silent.remove(&node);
                        return Ok(response);
                    }
                    Err(error) => error,
                };
                if !may_retry(&error, once) {
                    return Err(error);
                }
                let hint = match &error {
                    Error::NotLeader { leader, .. } => leader.filter(|id| untried.contains(id)),
                    _ => None,
                };
                last = error;
                next = hint.or(untried.first().copied());
            }
            self.memory.lock().leader = None;
            let pause = pauses.take();
            if Instant::now() + pause >= deadline {
                return Err(gave_up(last, within));
            }
            sleep(pause).await;
        }
    }

    /// Every member, and which of them to ask first.
    fn order(&self) -> (Vec<NodeId>, Option<NodeId>) {
        let memory = self.memory.lock();
        let mut members: Vec<NodeId> = self.members.keys().copied().collect();
        members.sort_by_key(|node| memory.silent.contains(node));
        let first = memory.leader.or(members.first().copied());
        (members, first)
    }

    /// Sends a request to one node, for as long as no other one is known to have become the leader.
    async fn send_to(&self, node: NodeId, request: Request, limit: Duration) -> Result<Response> {
        let address = self.address(node);
        let address = address.ok_or_else(|| Error::not_found("node", node.to_string()))?;
        let once = matches!(request, Request::Change(_));
        let begun = Instant::now();
        let call = self.transport.call(&address, request);
        let deposed = self.deposed(node);
        tokio::pin!(call, deposed);
        let answer = timeout(limit, async {
            tokio::select! {
                biased;
                answer = &mut call => Ok(answer),
                leader = &mut deposed => Err(leader),
            }
        });
        match answer.await {
            Ok(Ok(answer)) => match answer? {
                Response::Failed(error) => Err(error),
                response => Ok(response),
            },
            // It may have carried the change out before it fell silent.
            Ok(Err(_)) if once => {
                Err(Error::timeout(format!("placement on node {node}"), begun.elapsed()))
            }
            Ok(Err(leader)) => {
                Err(Error::NotLeader { region: PLACEMENT_REGION, leader: Some(leader) })
            }
            Err(_) => Err(Error::timeout(format!("placement on node {node}"), limit)),
        }
    }

    /// Resolves once another member than `node` is known to lead, in a later term than any in which
    /// `node` says that it does.
    async fn deposed(&self, node: NodeId) -> NodeId {
        loop {
            sleep(self.pick(node, LOOK_EVERY)).await;
            if let Some(leader) = self.look().await.filter(|leader| *leader != node) {
                tracing::info!(node, leader, "placement's leader is another one now");
                return leader;
            }
        }
    }

    /// A pause or bound that concerns a member: a short one where it was silent already.
    fn pick(&self, node: NodeId, usual: Duration) -> Duration {
        if self.memory.lock().silent.contains(&node) { LOOK_AGAIN } else { usual }
    }

    /// The leader of the latest term that a member knows of, by a query to every one.
    async fn look(&self) -> Option<NodeId> {
        let calls = self.members.keys().map(|node| async move {
            let Some(address) = self.address(*node) else { return (*node, None) };
            let call = self.transport.call(&address, Request::Leader);
            (*node, timeout(self.pick(*node, LOOK_LIMIT), call).await.ok())
        });
        let answers = join_all(calls).await;
        let mut memory = self.memory.lock();
        let mut latest: Option<(u64, NodeId)> = None;
        for (node, answer) in answers {
            match answer {
                Some(Ok(Response::Leader { leader, term })) => {
                    memory.silent.remove(&node);
                    latest = latest.max(leader.map(|leader| (term, leader)));
                }
                Some(Ok(_)) => {
                    memory.silent.remove(&node);
                }
                Some(Err(_)) | None => {
                    memory.silent.insert(node);
                }
            }
        }
        let (_, leader) = latest?;
        if self.members.contains_key(&leader) && !memory.silent.contains(&leader) {
            memory.leader = Some(leader);
            return Some(leader);
        }
        None
    }

    fn address(&self, node: NodeId) -> Option<String> {
        let memory = self.memory.lock();
        let known = memory.nodes.get(&node).map(|node| node.rpc_address.clone());
        known.or_else(|| self.members.get(&node).cloned())
    }
}

/// Whether another node, or the same one later, may be asked the same.
fn may_retry(error: &Error, once: bool) -> bool {
    match error {
        Error::NotLeader { region, .. } => *region == PLACEMENT_REGION,
        Error::Unavailable(_) | Error::Dropped(_) => true,
        other => !once && other.is_retryable(),
    }
}

fn gave_up(last: Error, within: Duration) -> Error {
    match last {
        Error::Timeout { .. } => last,
        other => Error::Unavailable(format!(
            "placement did not answer within {} s ({other}): check that a majority of the row \
             nodes runs",
            within.as_secs()
        )),
    }
}
