//! A node that follows the leader's logs at its own pace, and what it has promised to keep through a crash.

use std::collections::BTreeMap;

use raft::{Effect, Machine, Machines};
use types::{Error, RegionId, Result};

use crate::leader::Leader;

/// One node that follows the leader's logs.
pub trait Replica {
    fn peers(&mut self) -> &mut BTreeMap<RegionId, Box<dyn Machine>>;
    fn machines(&self) -> &dyn Machines;
    /// Cuts the power and starts again with what survived.
    fn crash(&mut self, seed: u64);
    /// Whether the disk waits for [`Replica::crash`].
    fn is_down(&self) -> bool;
}

/// A replica, and what it has promised to keep.
pub struct Follower<R> {
    pub replica: R,
    /// Highest durable index that it reported of each region: the log may be cut there.
    pub reported: BTreeMap<RegionId, u64>,
    pub crashes: u64,
}

impl<R: Replica> Follower<R> {
    pub fn new(replica: R) -> Self {
        Follower { replica, reported: BTreeMap::new(), crashes: 0 }
    }

    pub fn applied(&mut self, region: RegionId) -> Option<u64> {
        self.replica.peers().get(&region).map(|peer| peer.applied().index)
    }

    pub fn apply_one(&mut self, leader: &Leader, region: RegionId) -> Result<bool> {
        let Some(peer) = self.replica.peers().get_mut(&region) else { return Ok(false) };
        let applied = peer.applied().index;
        if applied == 0 {
            return Ok(false);
        }
        let Some((at, entry)) = leader.logs[&region].after(applied) else { return Ok(false) };
        if let Effect::Split(children) = peer.apply(at, entry.command())? {
            // As the Raft store does: a split ends its batch, durably, before its children live.
            peer.finish_batch()?;
            peer.persist()?;
            for child in children {
                self.replica.peers().insert(child.region().id, child);
            }
        }
        Ok(true)
    }

    pub fn finish(&mut self) -> Result<()> {
        self.replica.peers().values_mut().try_for_each(|peer| peer.finish_batch())?;
        self.note_durable();
        Ok(())
    }

    pub fn persist(&mut self, region: RegionId) -> Result<()> {
        if let Some(peer) = self.replica.peers().get_mut(&region) {
            peer.persist()?;
        }
        self.note_durable();
        Ok(())
    }

    pub fn note_durable(&mut self) {
        for (region, peer) in self.replica.peers() {
            let reported = self.reported.entry(*region).or_default();
            *reported = (*reported).max(peer.durable_index());
        }
    }

    /// Applies every log to its end, and asks for copies of what no log leads to.
    pub fn catch_up(&mut self, leader: &Leader) -> Result<()> {
        loop {
            let mut moved = self.adopt(leader)?;
            for region in leader.regions() {
                while self.apply_one(leader, region)? {
                    moved = true;
                }
            }
            self.finish()?;
            if !moved {
                return Ok(());
            }
        }
    }

    fn adopt(&mut self, leader: &Leader) -> Result<bool> {
        let mut moved = false;
        for region in leader.regions() {
            let wanted = match self.applied(region) {
                Some(applied) => applied == 0,
                None => match leader.logs[&region].parent {
                    None => true,
                    Some((parent, split)) => self.applied(parent).is_some_and(|at| at >= split),
                },
            };
            if wanted {
                self.copy(leader, region)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Takes a voter's snapshot, beside or instead of what is there.
    pub fn copy(&mut self, leader: &Leader, region: RegionId) -> Result<()> {
        let mut copy = leader.copy(region);
        if self.applied(region).is_none() {
            let peer = self.replica.machines().create(&copy.region, false)?;
            self.replica.peers().insert(region, peer);
        }
        // A replica that is being replaced promises nothing until it has the snapshot.
        self.reported.remove(&region);
        let (descriptor, at) = (copy.region.clone(), copy.at);
        self.replica.peers().get_mut(&region).unwrap().restore(&descriptor, at, &mut copy)?;
        self.note_durable();
        Ok(())
    }

    pub fn crash(&mut self, seed: u64) {
        self.crashes += 1;
        self.replica.crash(seed);
        for (region, reported) in std::mem::take(&mut self.reported) {
            let recovered = self.applied(region).unwrap_or(0);
            assert!(
                recovered >= reported,
                "region {region}: {reported} was durable, {recovered} is"
            );
        }
        self.note_durable();
    }

    /// After an error: the disk must be down; cut the power, start again.
    pub fn recover(&mut self, error: &Error, seed: u64) {
        assert!(self.replica.is_down(), "an error without a crash: {error}");
        self.crash(seed);
    }
}
