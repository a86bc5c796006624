//! The pinned regions of a plan's scan, prepared once for all of its partitions.
//!
//! A partition always reads the same rows, however often it is executed and whichever comes first. It
//! must never be given another one's, or come back empty because its own were handed out before.

use columnar::{PartitionScan, ScanRequest, TabletSnapshot};
use parking_lot::Mutex;
use types::{Error, Result};

/// See the file's head.
pub struct PreparedScan {
    tablets: Vec<TabletSnapshot>,
    request: ScanRequest,
    /// By partition: its share of every region, until it is handed out.
    shares: Mutex<Vec<Option<Vec<PartitionScan>>>>,
}

impl PreparedScan {
    /// A scan for this many partitions; nothing is read yet.
    pub fn new(tablets: Vec<TabletSnapshot>, request: ScanRequest, partitions: usize) -> Self {
        let shares = std::iter::repeat_with(|| None).take(partitions).collect();
        PreparedScan { tablets, request, shares: Mutex::new(shares) }
    }

    /// A partition's share of every region. The first to ask prepares for all, and the others wait
    /// for it; so does one that is executed again. May read from disk.
    pub fn take(&self, partition: usize) -> Result<Vec<PartitionScan>> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get_mut(partition).and_then(Option::take) {
            return Ok(share);
        }
        // Nothing is kept of a preparation that fails. What another partition has not taken yet is
        // replaced by the same: a pinned region is always divided alike.
        *shares = self.prepare(shares.len())?;
        let share = shares.get_mut(partition).and_then(Option::take);
        share.ok_or_else(|| {
            Error::Invalid(format!(
                "partition {partition} of a scan in {}: this is a planner fault",
                shares.len()
            ))
        })
    }

    fn prepare(&self, partitions: usize) -> Result<Vec<Option<Vec<PartitionScan>>>> {
        let mut shares: Vec<Vec<PartitionScan>> = Vec::new();
        shares.resize_with(partitions, Vec::new);
        for tablet in &self.tablets {
            // There may be fewer: little is not divided.
            let parts = tablet.scan(self.request.clone())?.partitions(partitions);
            for (share, part) in shares.iter_mut().zip(parts) {
                share.push(part);
            }
        }
        Ok(shares.into_iter().map(Some).collect())
    }
}
