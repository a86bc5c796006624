//! The vocabulary of placement's log, and what each command does to the state.
//!
//! A command carries everything that its leader decided, times included. Applying one reads no
//! clock and draws no randomness; a command that cannot be carried out changes nothing and says
//! why to its proposer, in the same way on every node.

use serde::{Deserialize, Serialize};
use types::query_watch::{QueryWatch, Runaway};
use types::{
    ClusterVersion, Error, LeaseId, NodeId, Region, RegionId, RegionKind, Result, Table, TableId,
    Timestamp,
};

use crate::advisory;
use crate::alone::Survivors;
use crate::api::{CatalogChange, Freed, Hold, Lease, Node, SafePoint, Session};
use crate::catalog::{self, EligibleNodes};
use crate::leases;
use crate::replicas;
use crate::runaways;
use crate::safe_point;
use crate::state::{RegionRecord, State, Tombstone, is_newer};

/// What a proposal is known by, so that its proposer finds its outcome. Never repeated: the first
/// number is drawn when a process starts, the second counts.
pub type Ticket = (u64, u64);

/// One entry of placement's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Who waits for it.
    pub ticket: Ticket,
    /// What to do.
    pub command: Command,
}

/// The entry by which placement's group goes on without a quorum.
pub fn going_on(survivors: Survivors) -> Result<Vec<u8>> {
    let command = Command::GoOn(Box::new(survivors));
    Ok(postcard::to_stdvec(&Proposal { ticket: (0, 0), command })?)
}

/// What can happen to the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Timestamps up to this Unix millisecond may be handed out.
    ExtendWindow {
        /// Exclusive.
        until_ms: u64,
    },
    /// Takes numbers for nodes, regions and peers.
    TakeIds {
        /// How many.
        count: u32,
    },
    /// Makes a node known or updates its addresses.
    Register {
        /// The node.
        node: Node,
        /// Its process.
        session: Session,
    },
    /// What leaders and initial voters say of their regions.
    Report {
        /// Descriptors, as leaders know them.
        regions: Vec<Region>,
        /// Initial voters that were seen on these nodes.
        created: Vec<(RegionId, NodeId)>,
        /// A timestamp of the leader's, for regions of tables that are gone.
        now: Timestamp,
    },
    /// Forgets dropped regions that no node holds any more.
    Purge(Vec<RegionId>),
    /// Changes the catalog.
    Change {
        /// What to change.
        change: CatalogChange,
        /// Nodes that may hold voters of new regions.
        eligible: EligibleNodes,
        /// Timestamp at which dropped things end.
        now: Timestamp,
    },
    /// Takes AUTO_INCREMENT numbers.
    AutoIncrement {
        /// Table.
        table: TableId,
        /// How many.
        count: u64,
        /// Numbers up to this are taken.
        above: u64,
    },
    /// Takes a lease.
    TakeLease {
        /// Snapshot.
        ts: Timestamp,
        /// Who takes it.
        owner: String,
        /// Unix milliseconds now.
        now_ms: u64,
        /// How long it lives.
        ttl_ms: u64,
    },
    /// Prolongs a lease.
    RenewLease {
        /// Which.
        lease: LeaseId,
        /// Unix milliseconds by which it must not have ended.
        now_ms: u64,
        /// Unix milliseconds from which it is prolonged.
        from_ms: u64,
        /// How long it lives from then on.
        ttl_ms: u64,
    },
    /// Ends a lease.
    ReleaseLease(LeaseId),
    /// Removes leases that ended.
    ExpireLeases {
        /// Unix milliseconds now.
        now_ms: u64,
    },
    /// Sets the signing key, unless there is one.
    SetSigningKey(Vec<u8>),
    /// Versions below a point may go, as far as no lease forbids it.
    Collect {
        /// The point, as the leader saw it.
        point: SafePoint,
        /// Unix milliseconds now.
        now_ms: u64,
    },
    /// Sets how long versions stay readable without a lease.
    SetLife(u64),
    /// Gives an advisory lock to a session.
    TakeLock {
        /// Name.
        name: String,
        /// To whom.
        by: Hold,
    },
    /// Frees advisory locks.
    FreeLocks(Vec<Freed>),
    /// Columns are complete of these tables for the first time since replicas were asked for.
    NoteComplete(Vec<TableId>),
    /// A session has synced a mark.
    Mark {
        /// Node.
        node: NodeId,
        /// Its session.
        session: u64,
        /// The mark.
        mark: u64,
    },
    /// Goes on where a quorum is lost. Never proposed, see [`crate::alone`].
    GoOn(Box<Survivors>),
    /// All nodes speak this version from now on.
    RaiseVersion(ClusterVersion),
    /// Watches queries.
    Watch(QueryWatch),
    /// Ends a watch.
    Unwatch(u64),
    /// Keeps runaways that were met.
    NoteRunaways(Vec<Runaway>),
}

/// What a command gave its proposer.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing to return.
    Done,
    /// First of the numbers taken.
    First(u64),
    /// A lease.
    Lease(Lease),
    /// Who else holds the advisory lock; nobody if it was given.
    Lock(Option<Hold>),
    /// The catalog changed.
    Changed {
        /// Its version from now on.
        catalog: u64,
        /// The table as changed, where one was.
        table: Option<Box<Table>>,
        /// Regions that were created.
        created: Vec<RegionId>,
    },
}

impl State {
    /// Carries out one command, or changes nothing and says why.
    pub fn apply(&mut self, command: Command) -> Result<Outcome> {
        match command {
            Command::TakeIds { count } => {
                return self.take_ids(u64::from(count)).map(Outcome::First);
            }
            Command::Change { change, eligible, now } => {
                let (table, created) = catalog::apply(self, change, &eligible, now)?;
                let catalog = self.catalog.version;
                return Ok(Outcome::Changed { catalog, table: table.map(Box::new), created });
            }
            Command::AutoIncrement { table, count, above } => {
                return self.take_numbers(table, count, above).map(Outcome::First);
            }
            Command::TakeLease { ts, owner, now_ms, ttl_ms } => {
                return leases::take(self, ts, owner, now_ms, ttl_ms).map(Outcome::Lease);
            }
            Command::RenewLease { lease, now_ms, from_ms, ttl_ms } => {
                return leases::renew(self, lease, now_ms, from_ms, ttl_ms).map(Outcome::Lease);
            }
            Command::TakeLock { name, by } => {
                return advisory::take(self, name, by).map(Outcome::Lock);
            }
            Command::Watch(watch) => return runaways::watch(self, watch).map(Outcome::First),
            Command::Unwatch(id) => runaways::unwatch(self, id)?,
            Command::NoteRunaways(met) => runaways::note(self, met)?,
            Command::ExtendWindow { until_ms } => {
                self.high_water_ms = self.high_water_ms.max(until_ms);
            }
            Command::Register { node, session } => self.register(node, &session)?,
            Command::Mark { node, session, mark } => self.mark(node, session, mark),
            Command::Report { regions, created, now } => self.report_all(regions, created, now),
            Command::Purge(regions) => regions.iter().for_each(|region| {
                self.tombstones.remove(region);
            }),
            Command::ReleaseLease(lease) => _ = self.leases.remove(&lease),
            Command::ExpireLeases { now_ms } => leases::expire(self, now_ms),
            Command::SetSigningKey(key) if self.signing_key.is_empty() => self.signing_key = key,
            Command::SetSigningKey(_) => {}
            Command::Collect { point, now_ms } => safe_point::advance(self, point, now_ms),
            Command::SetLife(life_ms) => safe_point::set_life(self, life_ms)?,
            Command::FreeLocks(freed) => advisory::free(self, &freed),
            Command::NoteComplete(tables) => replicas::note_complete(self, &tables),
            Command::RaiseVersion(version) => self.version = self.version.max(version),
            Command::GoOn(survivors) => _ = self.go_on(*survivors)?,
        }
        Ok(Outcome::Done)
    }

    fn report_all(
        &mut self,
        regions: Vec<Region>,
        created: Vec<(RegionId, NodeId)>,
        now: Timestamp,
    ) {
        regions.into_iter().for_each(|region| self.report(region, now));
        for (region, node) in created {
            if let Some(record) = self.regions.get_mut(&region) {
                record.uncreated.remove(&node);
            }
        }
    }

    /// Takes over a leader's descriptor if it is newer than the one known.
    fn report(&mut self, region: Region, now: Timestamp) {
        if region.kind == RegionKind::Placement {
            return;
        }
        if let Some(tombstone) = self.tombstones.get_mut(&region.id) {
            if is_newer(&region, &tombstone.region) {
                tombstone.region = region;
            }
            return;
        }
        if !self.is_live(region.kind) {
            // A half that was split off while its table was being dropped.
            self.tombstones.insert(region.id, Tombstone { region, dropped: now });
            return;
        }
        match self.regions.get_mut(&region.id) {
            None => {
                let record = RegionRecord { region, uncreated: Default::default() };
                self.regions.insert(record.region.id, record);
            }
            Some(record) if is_newer(&region, &record.region) => {
                record.uncreated.retain(|node| region.peer_on(*node).is_some());
                record.region = region;
            }
            Some(_) => {}
        }
    }

    /// AUTO_INCREMENT: `count` consecutive numbers above everything given out and above `above`.
    fn take_numbers(&mut self, table: TableId, count: u64, above: u64) -> Result<u64> {
        let Some(described) = self.catalog.tables.iter().find(|listed| listed.id == table) else {
            return Err(Error::not_found("table", table.to_string()));
        };
        let taken = self.auto_increment.get(&table).copied().unwrap_or(0).max(above);
        let exhausted = || {
            let name = format!("{}.{}", described.database, described.name);
            Error::Invalid(format!("AUTO_INCREMENT of table {name} has run out of numbers"))
        };
        // The number behind the last one must exist too: it is the answer when none is taken.
        let last = taken.checked_add(count).ok_or_else(exhausted)?;
        let first = taken.checked_add(1).filter(|_| last < u64::MAX).ok_or_else(exhausted)?;
        self.auto_increment.insert(table, last);
        Ok(first)
    }
}
