//! How a node becomes part of a cluster: who it is, and that nobody else is.
//!
//! Directories that are empty found a cluster together with all listed members, or join one as a new
//! node; others go on as who they were. No group is taken part in before placement has registered the
//! process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use placement::api::{Node, Session};
use placement::desk::Desk;
use placement::founding::{Answer, Plan, Request, Step, agreed};
use placement::identity::{ClusterId, Directories, Identity};
use raft::{Participation, StoreHandle};
use tokio::time::Instant;
use types::{Error, NodeId};

use super::Common;
use crate::config::Role;

/// How long a node waits for placement at its start before it gives up.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it goes on asking after a refusal that may pass: another process of it was heard of.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two rounds of asking.
const PAUSE: Duration = Duration::from_millis(20);
/// How often a person is told what is waited for.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How long a member of placement looks for a leader to register with before it takes part in
/// placement's group: without it there may be none.
const ALONE_FOR: Duration = Duration::from_millis(300);
/// How long the first member waits for the others to take note that the cluster is founded.
const NOTE_TIMEOUT: Duration = Duration::from_secs(1);

/// A node that knows who it is.
pub(super) struct Me {
    pub node: NodeId,
    pub identity: Arc<Identity>,
    pub session: Session,
}

impl Common {
    /// Opens this node's directories.
    pub(super) fn desk(&self) -> Result<Arc<Desk>> {
        let config = &self.config;
        let log_dir = self.config.log_dir();
        let (log, contents): (Option<PathBuf>, &[&str]) = match config.role {
            Role::Row => (Some(log_dir), &super::row::CONTENTS),
            Role::Columnar => (Some(log_dir), &["columns", "spool"]),
            Role::Sql => (None, &[]),
        };
        let disk = self.disk.clone();
        let directories = Directories::new(disk, &config.data_dir, log.as_deref(), contents);
        let listed = config.placement.iter().map(|member| member.id).collect();
        let label = config.node_id.unwrap_or(0);
        Ok(Arc::new(Desk::open(directories, label, listed, env::Random::from_os().u64())?))
    }

    /// Who this node is: as its directories say, or as a new one.
    pub(super) async fn establish(&self, desk: &Arc<Desk>) -> Result<Me> {
        let label = self.config.node_id.filter(|_| self.config.role == Role::Row);
        let listed: BTreeSet<NodeId> = self.config.placement.iter().map(|m| m.id).collect();
        let founder = label.filter(|label| listed.contains(label));
        let random = env::Random::from_os();
        let began = Instant::now();
        let mut said = began;
        let identity = loop {
            if let Some(identity) = desk.identity() {
                break identity;
            }
            let answers = self.ask_members(founder).await;
            let step = match founder {
                Some(_) => desk.next(&answers, random.u64()),
                None => joinable(&answers),
            };
            let missing = match step {
                None => continue,
                Some(Step::Wait(what)) => what,
                Some(Step::Commit(plan)) => {
                    desk.commit(&plan)?;
                    continue;
                }
                Some(Step::Join(cluster)) => match self.join(desk, cluster).await {
                    Ok(()) => continue,
                    Err(error) => format!("placement ({error:#})"),
                },
                Some(Step::Prepare(plan)) => {
                    let Some(label) = founder else { continue };
                    match self.lead_founding(desk, label, &plan).await? {
                        true => continue,
                        false => "every listed member to agree: are their `placement` lists equal?"
                            .into(),
                    }
                }
            };
            // Row nodes wait for one another for as long as it takes: nobody else can begin.
            if founder.is_none() && began.elapsed() > JOIN_TIMEOUT {
                bail!("not within {} s: {missing}", JOIN_TIMEOUT.as_secs());
            }
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                tracing::warn!("waiting for: {missing}");
            }
            tokio::time::sleep(PAUSE).await;
        };
        self.channels.join(identity.cluster());
        let session = identity.begin_session(&random)?;
        let (node, cluster) = (identity.node(), identity.cluster());
        tracing::info!(
            node,
            cluster = format!("{cluster:016x}"),
            boot = session.boot,
            "who this is"
        );
        Ok(Me { node, identity: Arc::new(identity), session })
    }

    /// What the listed members but this one say, asked at the same time.
    async fn ask_members(&self, but: Option<NodeId>) -> BTreeMap<NodeId, Option<Answer>> {
        self.tell_members(but, &Request::Hello).await
    }

    async fn tell_members(
        &self,
        but: Option<NodeId>,
        request: &Request,
    ) -> BTreeMap<NodeId, Option<Answer>> {
        let others = self.config.placement.iter().filter(|member| Some(member.id) != but);
        let asked = others.map(|member| async move {
            let answer = self.rpc.founding(&member.address.to_string(), request).await;
            (member.id, answer.ok())
        });
        futures::future::join_all(asked).await.into_iter().collect()
    }

    /// Both phases of founding; false if somebody does not agree.
    async fn lead_founding(&self, desk: &Desk, label: NodeId, plan: &Plan) -> Result<bool> {
        desk.prepare(plan)?;
        let answers = self.tell_members(Some(label), &Request::Prepare(plan.clone())).await;
        if !agreed(plan, label, &answers) || !desk.commit(plan)? {
            return Ok(false);
        }
        tracing::info!(members = ?plan.members, "the cluster is founded");
        // Whoever misses it asks.
        let commit = Request::Commit(plan.cluster);
        let _ = tokio::time::timeout(NOTE_TIMEOUT, self.tell_members(Some(label), &commit)).await;
        Ok(true)
    }

    /// Takes a new number from the cluster and stamps the directories with it.
    async fn join(&self, desk: &Desk, cluster: ClusterId) -> Result<()> {
        self.channels.join(cluster);
        let node = self.placement.ids(1).await?;
        desk.join(cluster, node)?;
        tracing::info!(node, "joins as a new node");
        Ok(())
    }

    /// Has placement register this process; retried, because placement may only be electing.
    pub(super) async fn register(&self, me: &Me, node: Node) -> Result<()> {
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
                _ if self.config.role == Role::Row => Duration::MAX,
                _ => JOIN_TIMEOUT,
            };
            if began.elapsed() >= limit {
                return Err(error).context("placement does not register this node");
            }
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                tracing::warn!(%error, "waiting to be registered");
            }
            tokio::time::sleep(5 * PAUSE).await;
        }
        me.identity.registered(&me.session)?;
        Ok(())
    }

    /// Registers, and takes part in this node's groups from then on. `founder`: it holds the peer of
    /// placement's group that the cluster begins with, so there is nobody to register with yet.
    pub(super) async fn take_part(
        &self,
        me: &Me,
        node: Node,
        store: &StoreHandle,
        founder: bool,
    ) -> Result<()> {
        let registering = self.register(me, node);
        tokio::pin!(registering);
        let alone = tokio::time::sleep(if founder { Duration::ZERO } else { ALONE_FOR });
        tokio::select! {
            registered = &mut registering => registered?,
            () = alone => {
                store.participate(Participation::Placement);
                registering.await?;
            }
        }
        store.participate(Participation::All);
        Ok(())
    }
}

/// For a node that is no listed member: the cluster that the members belong to.
fn joinable(answers: &BTreeMap<NodeId, Option<Answer>>) -> Option<Step> {
    use placement::founding::Shown;
    let cluster = |answer: &Option<Answer>| match answer.as_ref()?.shown {
        Shown::Member(cluster) => Some(cluster),
        _ => None,
    };
    let found: BTreeSet<ClusterId> = answers.values().filter_map(cluster).collect();
    Some(match (found.first(), found.len()) {
        (Some(one), 1) => Step::Join(*one),
        (None, _) => Step::Wait("the row nodes to found the cluster: are they up?".into()),
        _ => Step::Wait(
            "the listed row nodes belong to different clusters: correct `placement`".into(),
        ),
    })
}
