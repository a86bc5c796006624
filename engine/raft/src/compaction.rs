//! Cutting the log: what every machine holds durably need not be kept, save for members that are
//! a little behind.

use raft_rs::Storage as _;
use types::RegionId;

use crate::log::LogWrite;
use crate::machine::Position;
use crate::peer::{Peer, Slot};
use crate::storage::write_cut;
use crate::store::Store;
use crate::work::Task;

/// Entries that a cut must remove to be worth a write.
const WORTH: u64 = 64;

impl Store {
    /// Cuts every group's log where that is worth it, has machines persisted that lag, and frees
    /// log files.
    pub(crate) fn compact(&mut self) {
        let regions: Vec<RegionId> = self.peers.keys().copied().collect();
        for region in regions {
            self.compact_group(region, false);
        }
        let log = self.log.clone();
        if let Some(behind) = self.worker.purge(&log) {
            self.purged(behind);
        }
    }

    /// Cuts the groups whose old entries keep log files from going, whoever is behind.
    pub fn purged(&mut self, behind: Vec<RegionId>) {
        for region in behind {
            self.compact_group(region, true);
        }
    }

    fn compact_group(&mut self, region: RegionId, forced: bool) {
        let config = self.config.clone();
        if self.check_writable().is_err() {
            return;
        }
        let Some(peer) = self.peers.get_mut(&region).filter(|peer| peer.runs()) else { return };
        let Slot::Here(machine) = &peer.slot else { return };
        let durable = machine.durable_index();
        let applied = peer.applied.index;
        let kept = applied.saturating_sub(config.keep_entries);
        let floor = match peer.slowest_member() {
            _ if forced => durable,
            Some(slowest) => durable
                .min(slowest.min(kept).max(applied.saturating_sub(config.keep_entries_for_slow))),
            None => durable.min(kept),
        };
        if peer.work.is_empty() && peer.raw.store().last() == peer.applied {
            peer.raw.mut_store().shrink_cache(applied);
        }
        if let Err(error) = cut(peer, floor, forced, &mut self.later) {
            tracing::warn!(region, %error, "the Raft log is not cut");
        }
        let lag = applied.saturating_sub(durable);
        let persist = lag >= config.persist_entries || (forced && lag > 0);
        if persist
            && peer.work.is_empty()
            && let Some(job) = peer.lend(Task::Persist, Slot::Persisting, &self.spools)
            && let Some(returned) = self.worker.run(job)
        {
            self.returned(returned);
        }
    }
}

/// Raft forgets the entries now, and the disk with the next write.
fn cut(peer: &mut Peer, floor: u64, forced: bool, write: &mut LogWrite) -> types::Result<()> {
    let region = peer.region.id;
    let storage = peer.raw.store();
    let from = storage.cut();
    let worth = if forced { 1 } else { WORTH };
    if floor < from.index + worth || floor > storage.last().index {
        return Ok(());
    }
    let term = storage
        .term(floor)
        .map_err(|error| types::Error::Corrupt(format!("region {region}: {error}")))?;
    let to = Position { index: floor, term };
    write_cut(write, region, to)?;
    write.cut_below(region, floor + 1);
    peer.raw.mut_store().cut_to(to);
    Ok(())
}
