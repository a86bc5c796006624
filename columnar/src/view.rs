//! A tablet as readers see it: what lies in segments and in memory, as of one applied position.
//!
//! A view never changes once published.

use std::sync::Arc;

use raft::Position;
use types::{Region, Timestamp};

use crate::deletions::PinnedDeletions;
use crate::delta::DeltaView;
use crate::reader::Segment;
use crate::schemas::Schemas;

/// Rows of a segment, and which of them are deleted.
#[derive(Clone)]
pub(crate) struct PartView {
    pub segment: Arc<Segment>,
    pub from: u32,
    pub to: u32,
    pub deletions: PinnedDeletions,
}

/// A tablet as of one applied position.
pub(crate) struct View {
    pub region: Region,
    pub generation: u64,
    pub applied: Position,
    pub floor: Timestamp,
    pub schemas: Arc<Schemas>,
    pub parts: Vec<PartView>,
    pub deltas: Vec<DeltaView>,
}
