//! Raising how far back a region can be asked, by its leader.
//!
//! Three things make the point safe that is proposed here. Locks that are older were resolved by
//! the caller, and the entry is dropped where one is left. Older transactions are turned away
//! *before* the entry is proposed, so none can lock behind it. And the point itself comes from
//! placement, which promises that no lease and no living transaction lies below it.

use types::error::LockInfo;
use types::{Error, Region, RegionId, Result, Timestamp};

use crate::api::RegionRef;
use crate::fact::{Fact, Floors};
use crate::service::TxnService;

impl TxnService {
    /// What a region that this node leads can be asked for.
    pub fn floors(&self, region: RegionId) -> Option<Floors> {
        self.store.region(region).filter(|view| view.whole).map(|view| view.floors)
    }

    /// Locks of a region that keep it from being collected up to `ts`, at most `limit`.
    pub fn older_locks(&self, region: RegionId, ts: Timestamp, limit: usize) -> Vec<LockInfo> {
        let Some(view) = self.store.region(region) else { return Vec::new() };
        let Region { start, end, .. } = &view.region;
        let locks = self.store.locks().older(start, end, ts, limit);
        locks.iter().map(|lock| lock.info()).collect()
    }

    /// Makes it known to the region's group that nobody asks for less any more. `Locked` while a
    /// transaction that began before holds a key.
    pub async fn collect(&self, region: RegionId, floors: Floors) -> Result<()> {
        let known = self.store.expect_region(region)?.region.epoch;
        let (status, view) = self.led(RegionRef { id: region, epoch: known })?;
        let floors = view.floors.max(floors);
        let floors = Floors { settled: floors.settled.min(floors.read), ..floors };
        if floors == view.floors {
            return Ok(());
        }
        if let Some(lock) = self.older_locks(region, floors.read, 1).pop() {
            return Err(Error::Locked(Box::new(lock)));
        }
        {
            let mut oldest = self.oldest.write();
            *oldest = floors.read.max(*oldest);
        }
        self.propose(&status, &view, vec![Fact::Collect(floors)])?.await?;
        Ok(())
    }
}
