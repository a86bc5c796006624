//! Which keys of which records and indexes lie in a region. Apart from the descriptor itself, which errors carry, and keys
//! fail with errors.

use crate::key;
use crate::region::Region;
use crate::region_kind::RegionKind;

impl Region {
    /// The part of a kind's range that lies in this region: first key and end; none where no key of the kind does.
    pub fn part_of(&self, kind: RegionKind) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.kind == RegionKind::Placement {
            return None;
        }
        let (start, end) = key::range(kind)?;
        let (start, end) = (start.max(self.start.clone()), end.min(self.end.clone()));
        (start < end).then_some((start, end))
    }

    /// Whether a key of the kind may lie in this region.
    pub fn holds(&self, kind: RegionKind) -> bool {
        self.part_of(kind).is_some()
    }

    /// The part of this region that records of its table lie in: first key and end; none where it holds entries of
    /// indexes alone.
    pub fn records(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.part_of(RegionKind::Records(self.table()?))
    }
}
