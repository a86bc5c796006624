//! Reads of a region at a timestamp, by its leader; and by another replica, once that has applied what they need.
//!
//! The order matters: a lease or a read index first, so that every commit before the timestamp has at least
//! its locks applied here, or is under way in one entry; those are waited for, and this node must lead the same term
//! still; then the lock table; then a view of the store, in which locks that were gone have left their versions; and last
//! a look whether the region was still whole and unmoved, and whether the timestamp can still be asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use raft::PeerStatus;
use types::{Error, Result, Timestamp};

use crate::api::{RegionRef, Response};
use crate::locks::Lock;
use crate::mvcc::{self, Page};
use crate::service::{TxnService, bounded};
use crate::store::RegionView;

/// Most pairs in an answer to a scan.
const MAX_PAIRS: u32 = 65_536;
/// Most bytes in an answer to a scan, about.
const MAX_BYTES: u32 = 4 << 20;
/// Most keys of a get.
const MAX_KEYS: usize = 65_536;

impl TxnService {
    pub(crate) async fn get(
        &self,
        region: RegionRef,
        keys: Vec<Vec<u8>>,
        ts: Timestamp,
    ) -> Result<Response> {
        self.store.online.fetch_add(1, Ordering::Relaxed);
        let (status, view) = self.readable(region)?;
        check_keys(&view, &keys)?;
        self.reach(&status, ts).await?;
        bounded("commits under way", self.in_flight.pass_keys(&keys, ts)).await?;
        self.still_leads(&status)?;
        self.pairs_of(region, keys, ts)
    }

    /// Rows of keys by what is applied here, which must be all that a read at `ts` needs.
    pub(crate) fn pairs_of(
        &self,
        region: RegionRef,
        keys: Vec<Vec<u8>>,
        ts: Timestamp,
    ) -> Result<Response> {
        check_keys(&*self.unmoved(region)?, &keys)?;
        for key in &keys {
            locked(self.store.locks().get(key).filter(|lock| lock.blocks_reader(ts)).as_deref())?;
        }
        let mut pairs = Vec::with_capacity(keys.len());
        {
            let kv = self.store.snapshot();
            self.unmoved(region)?.floors.check(ts)?;
            for key in keys {
                if let Some(row) = mvcc::get(kv.as_ref(), &key, ts)? {
                    pairs.push((key, row));
                }
            }
        }
        Ok(Response::Pairs { pairs, resume: None })
    }

    pub(crate) async fn scan(
        &self,
        region: RegionRef,
        (start, end): (Vec<u8>, Vec<u8>),
        ts: Timestamp,
        (limit, bytes): (u32, u32),
        reverse: bool,
    ) -> Result<Response> {
        let (status, view) = self.readable(region)?;
        let start = start.max(view.region.start.clone());
        let end = end.min(view.region.end.clone());
        if start >= end {
            return Ok(Response::Pairs { pairs: vec![], resume: None });
        }
        self.reach(&status, ts).await?;
        bounded("commits under way", self.in_flight.pass_range(&start, &end, ts)).await?;
        self.still_leads(&status)?;
        self.page_of(region, (start, end), ts, (limit, bytes), reverse)
    }

    /// A page of a range by what is applied here, which must be all that a read at `ts` needs.
    pub(crate) fn page_of(
        &self,
        region: RegionRef,
        (start, end): (Vec<u8>, Vec<u8>),
        ts: Timestamp,
        (limit, bytes): (u32, u32),
        reverse: bool,
    ) -> Result<Response> {
        let view = self.unmoved(region)?;
        let start = start.max(view.region.start.clone());
        let end = end.min(view.region.end.clone());
        if start >= end {
            return Ok(Response::Pairs { pairs: vec![], resume: None });
        }
        locked(self.store.locks().blocking(&start, &end, ts).as_deref())?;
        let kv = self.store.snapshot();
        self.unmoved(region)?.floors.check(ts)?;
        let page = Page {
            start: &start,
            end: &end,
            reverse,
            limit: limit.clamp(1, MAX_PAIRS) as usize,
            bytes: bytes.clamp(1, MAX_BYTES) as usize,
        };
        let (pairs, resume) = mvcc::scan(kv.as_ref(), page, ts)?;
        Ok(Response::Pairs { pairs, resume })
    }

    /// The region, if this node leads it.
    fn readable(&self, region: RegionRef) -> Result<(PeerStatus, Arc<RegionView>)> {
        let status = self.groups.status(region.id).ok_or(Error::RegionNotFound(region.id))?;
        if status.leader.map(|leader| leader.id) != Some(status.peer.id) {
            let leader = status.leader.map(|leader| leader.node);
            return Err(Error::NotLeader { region: region.id, leader });
        }
        Ok((status, self.unmoved(region)?))
    }

    /// Whether the region is whole here and has the shape that the caller knows.
    pub(crate) fn unmoved(&self, region: RegionRef) -> Result<Arc<RegionView>> {
        let view = self.store.expect_region(region.id)?;
        self.check_epoch(region, &view)?;
        Ok(view)
    }
}

fn check_keys(view: &RegionView, keys: &[Vec<u8>]) -> Result<()> {
    if keys.len() <= MAX_KEYS && keys.iter().all(|key| view.region.contains(key)) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "a get of region {} names keys outside of it, or more than {MAX_KEYS}",
        view.region.id
    )))
}

fn locked(lock: Option<&Lock>) -> Result<()> {
    lock.map_or(Ok(()), |lock| Err(Error::Locked(Box::new(lock.info()))))
}
