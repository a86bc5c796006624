//! The end of a history: every fault is over, the cluster comes to rest, and all that was seen is held against the model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use placement::state::VOTERS;
use raft::PeerStatus;
use tokio::time::{Instant, sleep, timeout};
use txn::mvcc::{self, Page};
use types::{Peer, RegionId, TableId, Timestamp, key};

use crate::ledger::Outcome;
use crate::model::Model;
use crate::network::{Host, Weather};
use crate::table::key_of;
use crate::world::{Kind, World};

/// How long the cluster may take to come to rest. A node that came back under another number is replaced after 300 s.
const REST: Duration = Duration::from_secs(420);
/// Timestamps at which replicas are compared, at most.
const TIMESTAMPS: usize = 40;

/// Ends every fault, and starts whatever is down.
fn mend(world: &Arc<World>) {
    world.network.mend();
    world.network.set_weather(Weather::FAIR);
    for kind in [Kind::Rows, Kind::Columns, Kind::Client] {
        for host in world.hosts(kind) {
            if let Some(machine) = world.machine(host) {
                machine.pace.slow_down(0);
                machine.disk.set_capacity(None);
                machine.disk.forget_faults();
            }
            if let Some(process) = world.process(host) {
                process.pause(false);
            }
            world.start_later(host, Duration::from_millis(10));
        }
    }
}

/// Why the cluster is not at rest, if it is not.
fn unrest(world: &World, table: TableId) -> Option<String> {
    let statuses = world.statuses();
    let mut leaders: BTreeMap<RegionId, &PeerStatus> = BTreeMap::new();
    for (host, status) in &statuses {
        if let Some(fault) = &status.fault {
            return Some(format!("region {} on host {host}: {fault}", status.region.id));
        }
        if status.decides {
            leaders.insert(status.region.id, status);
        }
    }
    for (host, status) in &statuses {
        let id = status.region.id;
        let Some(leader) = leaders.get(&id) else {
            let peers = statuses.iter().filter(|(_, other)| other.region.id == id);
            let peers = peers.map(|(host, peer)| format!("\n        host {host}: {peer:?}"));
            return Some(format!("region {id} has no leader{}", peers.collect::<String>()));
        };
        let level = status.ready && leader.region == status.region;
        if !level || leader.applied != status.applied {
            return Some(format!("region {id} on host {host} is not where its leader is"));
        }
    }
    for leader in leaders.values() {
        let id = leader.region.id;
        let there = |peer: &&Peer| {
            statuses.iter().any(|(_, other)| other.region.id == id && other.peer.id == peer.id)
        };
        if let Some(lost) = leader.region.peers.iter().find(|peer| !there(peer)) {
            return Some(format!("{lost:?} of region {id} is missing"));
        }
        let voters = leader.region.voters().count();
        if voters != VOTERS {
            return Some(format!("region {id} has {voters} voters"));
        }
    }
    let mut led: Vec<&PeerStatus> =
        leaders.into_values().filter(|status| status.region.table() == Some(table)).collect();
    led.sort_by(|a, b| a.region.start.cmp(&b.region.start));
    let first = led.first().and_then(|status| key::range(status.region.kind));
    let mut edge = first.map_or_else(|| key::table_start(table), |(start, _)| start);
    for status in &led {
        if status.region.start != edge {
            return Some(format!("a range is missing before region {}", status.region.id));
        }
        edge = status.region.end.clone();
        let holds = |peer: &Peer| {
            let mut learners = statuses.iter().filter(|(_, other)| other.peer.id == peer.id);
            learners.any(|(host, _)| world.hosts(Kind::Columns).contains(host))
        };
        if status.region.records().is_some() && !status.region.learners().any(holds) {
            return Some(format!("region {} has no columnar replica", status.region.id));
        }
    }
    (edge != key::records_end(table)).then(|| "the last range is missing".to_owned())
}

async fn rest(world: &Arc<World>, table: TableId) -> Result<(), String> {
    let began = Instant::now();
    let mut quiet = 0;
    loop {
        sleep(Duration::from_millis(250)).await;
        match unrest(world, table) {
            None if quiet >= 4 => return Ok(()),
            None => quiet += 1,
            Some(why) if began.elapsed() > REST => {
                let seconds = REST.as_secs();
                return Err(format!("not at rest {seconds} s after the last fault: {why}"));
            }
            Some(_) => quiet = 0,
        }
        if world.history.has_failed() {
            return Ok(());
        }
    }
}

/// Reads everything once, which ends what dead clients have left.
async fn read_all(world: &World, table: TableId) -> Result<Timestamp, String> {
    let (txn, _) = world.operator();
    let (start, end) = (key::records_start(table), key::records_end(table));
    let read = async {
        loop {
            let ts = txn.timestamp().await?;
            let rows = txn.snapshot(ts).scan(start.clone(), end.clone(), false).collect().await;
            match rows {
                Ok(_) => return Ok(ts),
                // A transaction whose client was only cut off may go on for a while.
                Err(types::Error::Locked(_)) => sleep(Duration::from_secs(1)).await,
                Err(error) => return Err(error),
            }
        }
    };
    match timeout(REST, read).await {
        Ok(Ok(ts)) => Ok(ts),
        Ok(Err(error)) => Err(format!("the table cannot be read after the last fault: {error}")),
        Err(_) => Err("the table stays locked after the last fault".into()),
    }
}

/// When each attempt's own row was committed, as any replica of rows has it.
fn markers(world: &World, table: TableId) -> Result<BTreeMap<i64, Timestamp>, String> {
    let mut found = BTreeMap::new();
    for (_, store) in world.row_stores() {
        let snapshot = store.snapshot();
        for attempt in world.ledger.attempts() {
            let key = key_of(table, attempt.id);
            let here = store.regions().into_iter().any(|view| {
                view.whole && view.region.table() == Some(table) && view.region.contains(&key)
            });
            let record = mvcc::data(snapshot.as_ref(), &key).map_err(|error| error.to_string())?;
            if let Some(at) = record.live().filter(|_| here) {
                found.insert(attempt.id, at);
            }
        }
    }
    Ok(found)
}

fn check_rows(world: &World, model: &Model, timestamps: &[Timestamp]) -> Result<u64, String> {
    let mut compared = 0;
    for (host, store) in world.row_stores() {
        let snapshot = store.snapshot();
        let views = store.regions().into_iter().filter(|view| view.region.table().is_some());
        for view in views.filter(|view| view.whole) {
            let (start, end) = (view.region.start.as_slice(), view.region.end.as_slice());
            for ts in timestamps.iter().filter(|ts| **ts >= view.floors.read) {
                let page =
                    Page { start, end, reverse: false, limit: usize::MAX, bytes: usize::MAX };
                let (pairs, _) = mvcc::scan(snapshot.as_ref(), page, *ts)
                    .map_err(|error| format!("rows of host {host}: {error}"))?;
                let mut wanted = model.rows(*ts);
                wanted.retain(|key, _| view.region.contains(key));
                let whence = format!("the replica of region {} on host {host}", view.region.id);
                model.compare(&pairs.into_iter().collect(), &wanted, *ts, &whence)?;
                compared += 1;
            }
        }
    }
    Ok(compared)
}

fn check_columns(world: &World, model: &Model, timestamps: &[Timestamp]) -> Result<u64, String> {
    let mut compared = 0;
    for (host, store) in world.column_stores() {
        for id in store.regions() {
            let Some(tablet) = store.tablet(id).filter(columnar::TabletHandle::is_ready) else {
                continue;
            };
            for ts in timestamps {
                compared += check_tablet(model, &tablet, (host, id), *ts)?;
            }
        }
    }
    Ok(compared)
}

fn check_tablet(
    model: &Model,
    tablet: &columnar::TabletHandle,
    (host, id): (Host, RegionId),
    ts: Timestamp,
) -> Result<u64, String> {
    let region = tablet.region();
    let whence = format!("columns of region {id} on host {host}");
    let pinned = match tablet.snapshot_at(ts, region.epoch) {
        Ok(pinned) => pinned,
        Err(types::Error::SnapshotTooOld { .. }) => return Ok(0),
        Err(error) => return Err(format!("{whence}: {error}")),
    };
    let rows = pinned.rows().map_err(|error| format!("{whence}: {error}"))?;
    let wanted = match pinned.table() {
        Some(table) => model.shown((&region.start, &region.end), &table, ts)?,
        None => BTreeMap::new(),
    };
    model.compare(&rows, &wanted, ts, &whence)?;
    Ok(1)
}

/// What a history came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Attempts that committed, that were refused, and of unknown outcome.
    pub committed: u64,
    /// Refused.
    pub refused: u64,
    /// Unknown.
    pub unknown: u64,
    /// Snapshots read from rows and from columns while faults came.
    pub rows_read: u64,
    /// The same from columns.
    pub columns_read: u64,
    /// Replicas of regions compared with the model, each at one timestamp.
    pub compared: u64,
}

impl Totals {
    /// Transactions that were tried.
    pub fn attempts(&self) -> u64 {
        self.committed + self.refused + self.unknown
    }
}

/// Mends everything, and checks all that was seen.
pub(crate) async fn settle(world: &Arc<World>, table: TableId) -> Result<Totals, String> {
    mend(world);
    // What is compared below should not be collected meanwhile.
    let longer = world.placement();
    let longer = timeout(REST, longer.set_life(Duration::from_secs(3_600))).await;
    if !matches!(longer, Ok(Ok(()))) {
        return Err("placement takes no changes after the last fault".into());
    }
    rest(world, table).await?;
    read_all(world, table).await?;
    rest(world, table).await?;
    if world.history.has_failed() {
        return Ok(Totals::default());
    }
    let found = markers(world, table)?;
    let attempts = world.ledger.attempts();
    let model = Model::new(table, world.schemas.lock().clone(), attempts.clone(), &found)?;
    model.check_attempts()?;
    for attempt in &attempts {
        model.check_reads(attempt)?;
        model.check_locks(attempt)?;
    }
    let looks = world.ledger.looks();
    looks.iter().try_for_each(|look| model.check_look(look))?;
    let timestamps = sample(model.timestamps());
    let compared =
        check_rows(world, &model, &timestamps)? + check_columns(world, &model, &timestamps)?;
    let count = |outcome: fn(&Outcome) -> bool| {
        attempts.iter().filter(|attempt| outcome(&attempt.outcome)).count() as u64
    };
    let rows = looks.iter().filter(|look| matches!(look.seen, crate::ledger::Seen::Rows(_)));
    let rows_read = rows.count() as u64;
    Ok(Totals {
        committed: count(|outcome| matches!(outcome, Outcome::Committed(_))),
        refused: count(|outcome| matches!(outcome, Outcome::Refused)),
        unknown: count(|outcome| matches!(outcome, Outcome::Unknown)),
        rows_read,
        columns_read: looks.len() as u64 - rows_read,
        compared,
    })
}

/// Timestamps all over a history, the last ones among them, and those right before.
fn sample(timestamps: Vec<Timestamp>) -> Vec<Timestamp> {
    let step = timestamps.len().div_ceil(TIMESTAMPS).max(1);
    let mut sample: Vec<Timestamp> = timestamps.iter().rev().step_by(step).copied().collect();
    sample.extend(timestamps.iter().rev().take(3).flat_map(|ts| [*ts, ts.prev()]));
    sample.sort_unstable();
    sample.dedup();
    sample
}
