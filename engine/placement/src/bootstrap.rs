//! How placement's own group comes into being: every first row node starts with the same list.
//!
//! No node decides anything here. Equal lists give equal descriptors, so the initial voters agree
//! without talking; a node that is not on the list creates nothing.

use types::region::PLACEMENT_REGION;
use types::{Error, NodeId, Peer, PeerRole, Region, RegionKind, Result};

use crate::state::FIRST_ID;
use crate::state::INITIAL_EPOCH;

/// The descriptor of placement's group, from the numbers of the first row nodes. Each voter's peer
/// number is its node's number.
///
/// # Errors
/// `Invalid` for an empty list, a number given twice, or one outside `1..1000`.
pub fn placement_region(nodes: &[NodeId]) -> Result<Region> {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    if nodes.is_empty() {
        return Err(Error::Invalid("the list of initial row nodes is empty".into()));
    }
    if let Some(pair) = nodes.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(Error::Invalid(format!(
            "initial row nodes share the number {:?}",
            pair.first()
        )));
    }
    if let Some(node) = nodes.iter().find(|node| !(1..FIRST_ID).contains(*node)) {
        return Err(Error::Invalid(format!(
            "row node number {node} is not between 1 and {}",
            FIRST_ID - 1
        )));
    }
    let voter = |node: &NodeId| Peer { id: *node, node: *node, role: PeerRole::Voter };
    Ok(Region {
        id: PLACEMENT_REGION,
        epoch: INITIAL_EPOCH,
        kind: RegionKind::Placement,
        start: Vec::new(),
        end: Vec::new(),
        peers: nodes.iter().map(voter).collect(),
    })
}
