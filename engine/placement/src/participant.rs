//! A node's part in forming or joining a cluster: answers the other listed members, and persists what it
//! agrees to before it answers.
//!
//! Once the node is a member nothing is written here any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use types::{Error, NodeId, Result};

use crate::formation::{Answer, Member, Plan, Request, Step};
use crate::formation::{ClusterId, Standing};
use crate::identity::{Directories, Identity, Stamp};

/// A node that may not be part of a cluster yet.
pub struct Participant {
    directories: Arc<Directories>,
    inner: Mutex<Inner>,
}

struct Inner {
    member: Member,
    stamp: Option<Stamp>,
}

impl Participant {
    /// Opens a node's directories. `label` is its number in the configuration, `listed` are placement's
    /// members there, and `draw` stands for directories that are empty.
    pub fn open(
        directories: Directories,
        label: NodeId,
        listed: BTreeSet<NodeId>,
        draw: u64,
    ) -> Result<Self> {
        let stamp = directories.open()?;
        let (birth, cluster) = stamp.as_ref().map_or((draw, 0), |s| (s.birth, s.cluster));
        let standing = stamp.as_ref().map(|stamp| stamp.standing.clone());
        let member = Member { label, birth, listed, standing, cluster };
        let inner = Mutex::new(Inner { member, stamp });
        Ok(Participant { directories: Arc::new(directories), inner })
    }

    /// Answers another node; what it agrees to is on disk by then.
    pub fn handle(&self, request: &Request) -> Result<Answer> {
        let mut inner = self.inner.lock();
        if let Some(standing) = inner.member.handle(request) {
            self.take(&mut inner, standing)?;
        }
        Ok(inner.member.answer())
    }

    /// What to do, by what the others answered; none once the node is a member.
    pub fn next(
        &self,
        answers: &BTreeMap<NodeId, Option<Answer>>,
        draw: ClusterId,
    ) -> Option<Step> {
        let inner = self.inner.lock();
        let open =
            !matches!(inner.member.standing, Some(Standing::Committed(_) | Standing::Member));
        open.then(|| inner.member.next(answers, draw))
    }

    /// Prepares a plan here.
    pub fn prepare(&self, plan: &Plan) -> Result<()> {
        self.handle(&Request::Prepare(plan.clone())).map(|_| ())
    }

    /// Decides the plan that is prepared here, or takes note that it was decided; false if another
    /// one is prepared by now.
    pub fn commit(&self, plan: &Plan) -> Result<bool> {
        self.handle(&Request::Commit(plan.cluster)).map(|_| ())?;
        Ok(
            matches!(&self.inner.lock().member.standing, Some(Standing::Committed(now)) if now == plan),
        )
    }

    /// Stamps the directories as those of a new member with this number.
    pub fn join(&self, cluster: ClusterId, node: NodeId) -> Result<()> {
        let mut inner = self.inner.lock();
        if matches!(inner.member.standing, Some(Standing::Committed(_) | Standing::Member)) {
            return Err(Error::Invalid("this node is a member already".into()));
        }
        self.stamp(&mut inner, cluster, node, Standing::Member)
    }

    /// The node's identity, once it is a member.
    pub fn identity(&self) -> Option<Identity> {
        let inner = self.inner.lock();
        let stamp = inner.stamp.as_ref()?;
        let member = matches!(stamp.standing, Standing::Committed(_) | Standing::Member);
        member.then(|| Identity::new(self.directories.clone(), stamp.clone()))
    }

    fn take(&self, inner: &mut Inner, standing: Standing) -> Result<()> {
        let cluster = match &standing {
            Standing::Prepared(plan) | Standing::Committed(plan) => plan.cluster,
            Standing::Member => inner.member.cluster,
        };
        let label = inner.member.label;
        self.stamp(inner, cluster, label, standing)
    }

    fn stamp(
        &self,
        inner: &mut Inner,
        cluster: ClusterId,
        node: NodeId,
        standing: Standing,
    ) -> Result<()> {
        let new = || Stamp::new(cluster, node, inner.member.birth, standing.clone());
        let mut stamp = inner.stamp.clone().unwrap_or_else(new);
        (stamp.cluster, stamp.node, stamp.standing) = (cluster, node, standing.clone());
        self.directories.write(&mut stamp)?;
        inner.stamp = Some(stamp);
        inner.member.standing = Some(standing);
        inner.member.cluster = cluster;
        Ok(())
    }
}
