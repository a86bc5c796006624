//! How a node becomes part of a cluster: who it is, and that nobody else is.
//!
//! Directories that are empty form a cluster together with all listed members, or join one as a new
//! node; others go on as who they were. No group is taken part in before placement has registered the
//! process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use env::Random;
use raft::Participation;
use tokio::time::Instant;
use types::{Error, NodeId, Result};

use crate::api::{Node, NodeRole, Session};
use crate::client::PlacementClient;
use crate::formation::ClusterId;
use crate::formation::{Answer, Plan, Request, Shown, Step, agreed};
use crate::identity::Identity;
use crate::participant::Participant;

/// How long a node waits for placement at its start before it gives up.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it goes on asking after a refusal that may pass: another process of it may be alive.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two rounds of asking.
const PAUSE: Duration = Duration::from_millis(20);
/// How often what is waited for is logged.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How long a member of placement looks for a leader to register with before it takes part in
/// placement's group: without it there may be none.
const ALONE_FOR: Duration = Duration::from_millis(300);
/// How long the first member waits for the others to take note that the cluster is formed.
const NOTE_TIMEOUT: Duration = Duration::from_secs(1);

/// How listed members are reached before it is known who anybody is. Every call is bounded.
#[async_trait]
pub trait FormationTransport: Send + Sync {
    /// Sends a request to the member at an address.
    async fn send(&self, address: &str, request: &Request) -> Result<Answer>;

    /// This node belongs to that cluster: its requests say so from now on.
    fn join(&self, cluster: ClusterId);
}

/// A node that knows who it is.
pub struct Me {
    /// Its number.
    pub node: NodeId,
    /// The stamp in its directories.
    pub identity: Arc<Identity>,
    /// This start.
    pub session: Session,
}

/// A node on its way into a cluster.
pub struct Entry {
    /// What it is for.
    pub role: NodeRole,
    /// Its number in the configuration, of row nodes.
    pub label: Option<NodeId>,
    /// Placement's members in the configuration, and their addresses.
    pub listed: BTreeMap<NodeId, String>,
    /// To those members.
    pub members: Arc<dyn FormationTransport>,
    /// Placement, once there is a cluster.
    pub placement: PlacementClient,
    /// For the numbers of clusters and sessions.
    pub random: Random,
}

impl Entry {
    /// Who this node is: as its directories say, or as a new one.
    ///
    /// # Errors
    /// `Unavailable` where there is no cluster to join in time; what the disk says.
    pub async fn establish(&self, participant: &Participant) -> Result<Me> {
        let initial_member = self
            .label
            .filter(|label| self.role == NodeRole::Row && self.listed.contains_key(label));
        let began = Instant::now();
        let mut said = began;
        let identity = loop {
            if let Some(identity) = participant.identity() {
                break identity;
            }
            let answers = self.send_to_members(initial_member, &Request::Hello).await;
            let step = match initial_member {
                Some(_) => participant.next(&answers, self.random.u64()),
                None => Some(joinable(&answers)),
            };
            let Some(missing) = self.take(participant, initial_member, step).await? else {
                continue;
            };
            // Row nodes wait for one another for as long as it takes: nobody else can begin.
            if initial_member.is_none() && began.elapsed() > JOIN_TIMEOUT {
                let seconds = JOIN_TIMEOUT.as_secs();
                return Err(Error::Unavailable(format!("not within {seconds} s: {missing}")));
            }
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                tracing::warn!("waiting for: {missing}");
            }
            tokio::time::sleep(PAUSE).await;
        };
        self.members.join(identity.cluster());
        let session = identity.begin_session(&self.random)?;
        let (node, cluster) = (identity.node(), identity.cluster());
        tracing::info!(
            node,
            cluster = format!("{cluster:016x}"),
            boot = session.boot,
            "who this is"
        );
        Ok(Me { node, identity: Arc::new(identity), session })
    }

    /// Takes a step; what is missing, unless there is another one to take at once.
    async fn take(
        &self,
        participant: &Participant,
        initial_member: Option<NodeId>,
        step: Option<Step>,
    ) -> Result<Option<String>> {
        Ok(match step {
            None => None,
            Some(Step::Wait(what)) => Some(what),
            Some(Step::Commit(plan)) => {
                participant.commit(&plan)?;
                None
            }
            Some(Step::Join(cluster)) => {
                let joined = self.join(participant, cluster).await;
                joined.err().map(|error| format!("placement ({error})"))
            }
            Some(Step::Prepare(plan)) => match initial_member {
                Some(label) if !self.lead_formation(participant, label, &plan).await? => Some(
                    "every listed member to agree: are their `placement` lists equal?".to_owned(),
                ),
                _ => None,
            },
        })
    }

    /// What the listed members but one say, asked at the same time.
    async fn send_to_members(
        &self,
        but: Option<NodeId>,
        request: &Request,
    ) -> BTreeMap<NodeId, Option<Answer>> {
        let others = self.listed.iter().filter(|(member, _)| Some(**member) != but);
        let calls = others.map(|(member, address)| async move {
            (*member, self.members.send(address, request).await.ok())
        });
        futures::future::join_all(calls).await.into_iter().collect()
    }

    /// Both phases of forming the cluster; false if somebody does not agree.
    async fn lead_formation(
        &self,
        participant: &Participant,
        label: NodeId,
        plan: &Plan,
    ) -> Result<bool> {
        participant.prepare(plan)?;
        let answers = self.send_to_members(Some(label), &Request::Prepare(plan.clone())).await;
        if !agreed(plan, label, &answers) || !participant.commit(plan)? {
            return Ok(false);
        }
        tracing::info!(members = ?plan.members, "the cluster is formed");
        // Whoever misses it asks.
        let commit = Request::Commit(plan.cluster);
        let _ =
            tokio::time::timeout(NOTE_TIMEOUT, self.send_to_members(Some(label), &commit)).await;
        Ok(true)
    }

    /// Takes a new number from the cluster and stamps the directories with it.
    async fn join(&self, participant: &Participant, cluster: ClusterId) -> Result<()> {
        self.members.join(cluster);
        let node = self.placement.ids(1).await?;
        participant.join(cluster, node)?;
        tracing::info!(node, "joins as a new node");
        Ok(())
    }

    /// Has placement register this process; retried, because placement may only be electing.
    ///
    /// # Errors
    /// `Revoked` where the directories are an older copy; `Invalid` where another process stands for the node.
    pub async fn register(&self, me: &Me, node: Node) -> Result<()> {
        let began = Instant::now();
        let mut said = began;
        loop {
            let error = match self.placement.register(node.clone(), me.session.clone()).await {
                Ok(()) => break,
                Err(error) => error,
            };
            let limit = match error {
                Error::Revoked(_) => Duration::ZERO,
                Error::Invalid(_) => REFUSED_TIMEOUT,
                // Row nodes may have to wait for one another.
                _ if self.role == NodeRole::Row => Duration::MAX,
                _ => JOIN_TIMEOUT,
            };
            if began.elapsed() >= limit {
                return Err(error);
            }
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                tracing::warn!(%error, "waiting to be registered");
            }
            tokio::time::sleep(5 * PAUSE).await;
        }
        me.identity.registered(&me.session)
    }

    /// Registers, and takes part in this node's groups from then on. `bootstrapped`: it has just created
    /// its peer of placement's group, so there is nobody to register with yet.
    ///
    /// # Errors
    /// As [`Entry::register`].
    pub async fn take_part(
        &self,
        me: &Me,
        node: Node,
        participate: impl Fn(Participation) + Send,
        bootstrapped: bool,
    ) -> Result<()> {
        let registering = self.register(me, node);
        tokio::pin!(registering);
        let alone = tokio::time::sleep(if bootstrapped { Duration::ZERO } else { ALONE_FOR });
        tokio::select! {
            // In this order, so that one seed replays one history.
            biased;
            registered = &mut registering => registered?,
            () = alone => {
                participate(Participation::Placement);
                registering.await?;
            }
        }
        participate(Participation::All);
        Ok(())
    }
}

/// For a node that is no listed member: the cluster that the members belong to.
fn joinable(answers: &BTreeMap<NodeId, Option<Answer>>) -> Step {
    let cluster = |answer: &Option<Answer>| match answer.as_ref()?.shown {
        Shown::Member(cluster) => Some(cluster),
        _ => None,
    };
    let found: BTreeSet<ClusterId> = answers.values().filter_map(cluster).collect();
    match (found.first(), found.len()) {
        (Some(one), 1) => Step::Join(*one),
        (None, _) => Step::Wait("the row nodes to form the cluster: are they up?".into()),
        _ => Step::Wait(
            "the listed row nodes belong to different clusters: correct `placement`".into(),
        ),
    }
}
