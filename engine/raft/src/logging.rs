//! raft-rs's log lines, handed to `tracing`. Only warnings and above: the rest is its trace.

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record, o};
use types::{PeerId, RegionId};

struct ToTracing;

impl Drain for ToTracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _values: &OwnedKVList) -> Result<(), Never> {
        match record.level() {
            Level::Critical | Level::Error => tracing::error!(target: "raft", "{}", record.msg()),
            Level::Warning => tracing::warn!(target: "raft", "{}", record.msg()),
            _ => {}
        }
        Ok(())
    }
}

/// A logger for one peer.
pub(crate) fn logger(region: RegionId, peer: PeerId) -> Logger {
    Logger::root(ToTracing, o!("region" => region, "peer" => peer))
}
