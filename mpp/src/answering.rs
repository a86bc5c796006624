//! What a coordinator checks before and while it waits for a plan's first row: that the snapshot can
//! still be read, and that the plan's nodes answer.
//!
//! It ends a wait, never an answer: what was sent to a client stays sent.

use std::collections::BTreeSet;

use types::{Error, NodeId, Timestamp};

use crate::error::{MppCode, MppError, MppResult};
use crate::exec::Engine;
use crate::layout::Owner;

impl Engine {
    /// Fails if versions of a snapshot may be gone, as far as this node knows. A replica that
    /// has dropped some, or was copied from one that had, refuses by itself; this refuses the same
    /// snapshot on all of them, as rows do.
    pub(crate) fn check_readable(&self, ts: Timestamp) -> MppResult<()> {
        match self.placement.safe_point().floor {
            floor if ts < floor => Err(Error::SnapshotTooOld { ts, floor }.into()),
            _ => Ok(()),
        }
    }

    /// Nodes that did not answer this one, or its caller, who has `named` them; after a failure also
    /// those with no recent heartbeat, or that accept no connection.
    pub(crate) async fn nodes_to_avoid(&self, named: &[NodeId], again: bool) -> Vec<NodeId> {
        let silent = self.pulse.silent().into_iter().chain(named.iter().copied());
        let mut avoid: Vec<NodeId> = silent.collect();
        if again {
            avoid.extend(self.doubtful_nodes().await);
        }
        avoid
    }

    /// Waits for the first row of a plan that needs these nodes, unless one of them stops answering:
    /// then it is to be planned again, at once if `without` says that others can do their part.
    pub(crate) async fn while_answered<T>(
        &self,
        nodes: Vec<Owner>,
        without: impl Fn(&BTreeSet<NodeId>) -> bool,
        first: impl Future<Output = MppResult<T>>,
    ) -> MppResult<T> {
        let address = |owner: Owner| {
            let port = owner.worker.port_or_known_default()?;
            Some((owner.node, format!("{}:{port}", owner.worker.host_str()?)))
        };
        let here = self.reader.node();
        let others = nodes.into_iter().filter(|owner| owner.node != here);
        let others: Vec<_> = others.filter_map(address).collect();
        if others.is_empty() {
            return first.await;
        }
        match self.pulse.watch(&others, without, first).await {
            Ok(answer) => answer,
            Err(silent) => {
                let nodes: Vec<String> = silent.iter().map(NodeId::to_string).collect();
                Err(MppError::new(
                    MppCode::Unavailable,
                    format!(
                        "columnar node {} does not answer: check that it runs, or wait until its \
                         tables have replicas elsewhere",
                        nodes.join(", ")
                    ),
                ))
            }
        }
    }
}
