//! How a cluster is formed: by two-phase commit among all listed members.
//!
//! Pure: it sends nothing and writes nothing. An empty directory must never form a cluster while a
//! listed member belongs to one or cannot be reached: it may be what is left of the cluster.
//!
//! The member with the lowest number leads. It asks everybody to prepare a plan that names each member's
//! directories by the number drawn for them; once all have it on their disks it decides, on its own
//! disk, and the others learn that from it. A member whose directories were emptied meanwhile drew another
//! number, so the plan does not count it as having agreed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use types::NodeId;

/// What distinguishes clusters; drawn when one is formed, never 0.
pub type ClusterId = u64;

/// A member as it was when the plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitialMember {
    /// Its number in the configuration, which becomes the number of its incarnation.
    pub node: NodeId,
    /// Drawn for its directories.
    pub birth: u64,
}

/// A cluster to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its number.
    pub cluster: ClusterId,
    /// Its initial members, ascending.
    pub members: Vec<InitialMember>,
}

/// How far a node is in becoming part of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It has agreed to form this cluster; perhaps nobody has decided to yet.
    Prepared(Plan),
    /// It is a member by this plan, and its peer of placement's group may not exist yet.
    Committed(Plan),
    /// It is a member.
    Member,
}

/// What members ask one another before there is a cluster, and what a joining node asks them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// How far are you?
    Hello,
    /// Be ready to form this cluster.
    Prepare(Plan),
    /// It is decided.
    Commit(ClusterId),
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shown {
    /// Its directories are empty.
    Blank,
    /// It has prepared a plan.
    Prepared(ClusterId),
    /// It belongs to a cluster.
    Member(ClusterId),
}

/// A member's answer, always: what it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Drawn for its directories.
    pub birth: u64,
    /// How far it is.
    pub shown: Shown,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask again; the text says what is missing.
    Wait(String),
    /// Lead: prepare this, here first, then everywhere; decide if all have.
    Prepare(Plan),
    /// The plan that is prepared here was decided.
    Commit(Plan),
    /// There is a cluster without this node: join it as a new one.
    Join(ClusterId),
}

/// A listed member that belongs to no cluster yet.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number in the configuration.
    pub label: NodeId,
    /// Drawn for its directories.
    pub birth: u64,
    /// The listed members, itself included.
    pub listed: BTreeSet<NodeId>,
    /// What its disk says; none while it is empty.
    pub standing: Option<Standing>,
    /// Cluster of the stamp.
    pub cluster: ClusterId,
}

impl Member {
    /// What it says of itself.
    pub fn answer(&self) -> Answer {
        let shown = match &self.standing {
            None => Shown::Blank,
            Some(Standing::Prepared(plan)) => Shown::Prepared(plan.cluster),
            Some(Standing::Committed(_) | Standing::Member) => Shown::Member(self.cluster),
        };
        Answer { birth: self.birth, shown }
    }

    /// What a request changes; to be on disk before the answer leaves.
    pub fn handle(&self, request: &Request) -> Option<Standing> {
        match (request, &self.standing) {
            (Request::Prepare(plan), None | Some(Standing::Prepared(_))) => {
                let listed: BTreeSet<NodeId> = plan.members.iter().map(|one| one.node).collect();
                let me = InitialMember { node: self.label, birth: self.birth };
                let fits = plan.members.contains(&me) && listed == self.listed;
                fits.then(|| Standing::Prepared(plan.clone()))
            }
            (Request::Commit(cluster), Some(Standing::Prepared(plan))) => {
                (plan.cluster == *cluster).then(|| Standing::Committed(plan.clone()))
            }
            _ => None,
        }
    }

    /// What to do, by what the other members answered just now; `draw` is a new cluster's number.
    pub fn next(&self, answers: &BTreeMap<NodeId, Option<Answer>>, draw: ClusterId) -> Step {
        let member_of = |answer: &Option<Answer>| match answer.as_ref()?.shown {
            Shown::Member(cluster) => Some(cluster),
            _ => None,
        };
        let clusters: BTreeSet<ClusterId> = answers.values().filter_map(member_of).collect();
        match (clusters.first(), &self.standing) {
            (Some(one), Some(Standing::Prepared(plan))) if plan.cluster == *one => {
                return Step::Commit(plan.clone());
            }
            (Some(_), _) if clusters.len() > 1 => {
                return Step::Wait(
                    "the listed members belong to different clusters: correct `placement`".into(),
                );
            }
            (Some(one), _) => return Step::Join(*one),
            (None, _) => {}
        }
        let others = || self.listed.iter().filter(|node| **node != self.label);
        let silent: Vec<String> = others()
            .filter(|node| !matches!(answers.get(node), Some(Some(_))))
            .map(|node| format!("row node {node}"))
            .collect();
        if !silent.is_empty() {
            return Step::Wait(format!(
                "an empty directory forms no cluster before every listed member answers, and none \
                 that answers belongs to one; silent: {}",
                silent.join(", ")
            ));
        }
        match self.listed.first() {
            Some(first) if *first != self.label => {
                Step::Wait(format!("row node {first} to form the cluster"))
            }
            _ => {
                let mut members = vec![InitialMember { node: self.label, birth: self.birth }];
                members.extend(others().filter_map(|node| {
                    let birth = answers.get(node)?.as_ref()?.birth;
                    Some(InitialMember { node: *node, birth })
                }));
                members.sort_by_key(|member| member.node);
                Step::Prepare(Plan { cluster: draw.max(1), members })
            }
        }
    }
}

/// Whether everybody else has prepared the plan, each in the directories that it names.
pub fn agreed(plan: &Plan, leader: NodeId, answers: &BTreeMap<NodeId, Option<Answer>>) -> bool {
    let others = plan.members.iter().filter(|member| member.node != leader);
    others.into_iter().all(|member| {
        let prepared = Answer { birth: member.birth, shown: Shown::Prepared(plan.cluster) };
        answers.get(&member.node) == Some(&Some(prepared))
    })
}
