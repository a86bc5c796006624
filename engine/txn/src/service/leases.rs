//! Leaders' leases at work: the thin loop around [`crate::lease`] that asks the oracle, begins rounds and waits.
//!
//! A read that no lease covers begins a round of its own, as if there were no leases: what is slow or fails here costs
//! time and never an answer. Leases that are due at about the same time are renewed together, by one timestamp and one message
//! to each node that has to acknowledge some.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use raft::{INITIAL_POSITION, PeerStatus, Pending};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use types::{
    Epoch, Error, Region, RegionId, RegionKind, Result, SchemaVersion, TableId, Timestamp,
};

use crate::client::Directory;
use crate::lease::{Fence, Leases};
use crate::service::TxnService;
use crate::transport::within_call;

/// How long the round may take that costs Raft's thread nothing, before that one is asked.
const CHEAP_ROUND: Duration = Duration::from_millis(50);
/// How long a write waits for the leases of leaders before this one.
const FENCE_WAIT: Duration = Duration::from_secs(5);
/// Pause after the oracle could not be asked.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long it is asked without an answer before the next write has to ask.
const ASK_FOR: Duration = Duration::from_secs(10);
/// The shape and the members of a region as it is created, and not cut from another one.
const CREATED: Epoch = Epoch { version: 1, conf: 1 };

/// The leases of a node's leaders, with what it takes to have some. Without an oracle there are none, and nobody waits
/// for them.
#[derive(Default)]
pub(crate) struct LeaseKeeper {
    oracle: Option<Oracle>,
    leases: Mutex<Leases>,
    renewals: Mutex<Renewals>,
    passed: Notify,
}

/// Leases that are due.
#[derive(Default)]
struct Renewals {
    /// With their terms.
    due: Vec<(RegionId, u64)>,
    /// Whether somebody renews them, and will look again for more.
    under_way: bool,
}

struct Oracle {
    directory: Arc<dyn Directory>,
    everybody_waits: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Oracle {
    async fn timestamp(&self) -> Result<Timestamp> {
        within_call("placement", self.directory.timestamp()).await
    }
}

impl LeaseKeeper {
    /// Notes that a lease is due. Whether nobody renews any.
    fn is_first_due(&self, region: RegionId, term: u64) -> bool {
        let mut renewals = self.renewals.lock();
        renewals.due.push((region, term));
        !std::mem::replace(&mut renewals.under_way, true)
    }

    /// What is due; who finds nothing has ended.
    fn take_due(&self) -> Vec<(RegionId, u64)> {
        let mut renewals = self.renewals.lock();
        let due = std::mem::take(&mut renewals.due);
        renewals.under_way = !due.is_empty();
        due
    }

    /// A timestamp to commit at, by which all tables are still there.
    pub(crate) async fn commit_timestamp(
        &self,
        tables: &[(TableId, SchemaVersion)],
    ) -> Result<Timestamp> {
        let Some(oracle) = &self.oracle else {
            return Err(Error::Unavailable("this node has no oracle to ask".into()));
        };
        within_call("placement", oracle.directory.commit_timestamp(tables)).await
    }
}

impl TxnService {
    /// The same service, with leases by a directory's timestamps. `everybody_waits` says whether all programs of the
    /// cluster are known to wait for leases before theirs: before, none is granted.
    #[must_use]
    pub fn with_leases(
        self,
        directory: Arc<dyn Directory>,
        everybody_waits: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let oracle = Oracle { directory, everybody_waits: Box::new(everybody_waits) };
        let keeper = LeaseKeeper { oracle: Some(oracle), ..LeaseKeeper::default() };
        TxnService { leases: Arc::new(keeper), ..self }
    }

    /// Takes note of what this node leads, so that new leaders have waited before the first write comes.
    pub fn note_led(&self, statuses: &[PeerStatus]) {
        let led =
            |status: &&PeerStatus| status.decides && status.region.kind != RegionKind::Placement;
        for status in statuses.iter().filter(led) {
            self.may_write(status);
        }
        let here: HashSet<RegionId> = statuses.iter().map(|status| status.region.id).collect();
        self.leases.leases.lock().keep(|region| here.contains(&region));
    }

    /// Returns once everything that was committed at or before `ts` is applied here, or covered by a lock.
    pub(crate) async fn reach(&self, status: &PeerStatus, ts: Timestamp) -> Result<()> {
        let (region, term) = (status.region.id, status.term);
        if !status.alone && status.decides && self.covers(status, ts) {
            return Ok(());
        }
        // Commits that are applied nowhere yet are covered by locks: who leads need not wait for what it has not applied.
        if status.decides && self.confirmed(self.groups.confirm(region, term)).await {
            return Ok(());
        }
        self.groups.read_index(region).await.map(drop)
    }

    async fn confirmed(&self, round: Option<Pending<()>>) -> bool {
        let Some(round) = round else { return false };
        timeout(CHEAP_ROUND, round).await.is_ok_and(|confirmed| confirmed.is_ok())
    }

    fn covers(&self, status: &PeerStatus, ts: Timestamp) -> bool {
        let (region, term) = (status.region.id, status.term);
        if !self.leases.oracle.as_ref().is_some_and(|oracle| (oracle.everybody_waits)()) {
            return false;
        }
        let verdict = self.leases.leases.lock().look(region, term, ts);
        if verdict.renew && self.leases.is_first_due(region, term) {
            let service = self.clone();
            tokio::spawn(async move { service.renew_all().await });
        }
        verdict.covered
    }

    /// Renews leases until none is due.
    async fn renew_all(&self) {
        loop {
            let due = self.leases.take_due();
            if due.is_empty() {
                return;
            }
            self.renew_together(due).await;
        }
    }

    /// One timestamp, then a round of each region; what that does not confirm soon is renewed by itself, and nobody waits for it.
    async fn renew_together(&self, due: Vec<(RegionId, u64)>) {
        let Some(oracle) = &self.leases.oracle else { return };
        let Ok(before) = oracle.timestamp().await else {
            let mut leases = self.leases.leases.lock();
            return due.iter().for_each(|(region, term)| leases.not_granted(*region, *term));
        };
        let rounds = self.groups.confirm_all(&due).into_iter().map(|round| self.confirmed(round));
        for ((region, term), confirmed) in due.into_iter().zip(join_all(rounds).await) {
            let version = self.store.region(region).map(|view| view.region.epoch.version);
            match version.filter(|_| confirmed) {
                Some(version) => {
                    self.leases.leases.lock().granted(region, term, before, version);
                }
                None => {
                    let service = self.clone();
                    tokio::spawn(async move { service.renew(region, term).await });
                }
            }
        }
    }

    async fn renew(&self, region: RegionId, term: u64) {
        let renewed = self.acknowledged(region, term).await;
        let mut leases = self.leases.leases.lock();
        match renewed {
            Ok((before, version)) => leases.granted(region, term, before, version),
            Err(error) => {
                tracing::debug!(region, term, %error, "a lease was not renewed");
                leases.not_granted(region, term);
            }
        }
    }

    /// A timestamp after which a quorum has acknowledged `term`, and the version of the region's shape then.
    async fn acknowledged(&self, region: RegionId, term: u64) -> Result<(Timestamp, u64)> {
        let oracle = self.leases.oracle.as_ref().ok_or(Error::RegionNotFound(region))?;
        let before = oracle.timestamp().await?;
        self.groups.read_index(region).await?;
        // A deposed leader's round may be answered by its successor.
        let now = self.groups.status(region).ok_or(Error::RegionNotFound(region))?;
        if now.term != term || !now.decides {
            let leader = now.leader.map(|leader| leader.node);
            return Err(Error::NotLeader { region, leader });
        }
        Ok((before, self.store.expect_region(region)?.region.epoch.version))
    }

    /// Whether a write of this term may succeed. If not yet, somebody sees to it.
    pub(crate) fn may_write(&self, status: &PeerStatus) -> bool {
        let (region, term) = (status.region.id, status.term);
        if self.leases.oracle.is_none() {
            return true;
        }
        let first = has_no_predecessor(&status.region, term);
        let fence = self.leases.leases.lock().fence(region, term, first);
        if fence == Fence::Ask {
            let service = self.clone();
            tokio::spawn(async move {
                if timeout(ASK_FOR, service.wait_for_leases(region, term)).await.is_err() {
                    service.leases.leases.lock().not_fenced(region, term);
                }
                service.leases.passed.notify_waiters();
            });
        }
        fence == Fence::Passed
    }

    /// Returns once writes of this term may succeed.
    pub(crate) async fn writable(&self, status: &PeerStatus) -> Result<()> {
        let passed = async {
            loop {
                // From here on no end of the wait is missed.
                let passed = self.leases.passed.notified();
                if self.may_write(status) {
                    return;
                }
                passed.await;
            }
        };
        timeout(FENCE_WAIT, passed).await.map_err(|_| {
            Error::Unavailable(format!(
                "the new leader of region {} could not learn from placement within {} ms that the leases before its \
                 term are over; nothing was written",
                status.region.id,
                FENCE_WAIT.as_millis()
            ))
        })
    }

    /// Asks the oracle until it has passed the leases of leaders before this term.
    async fn wait_for_leases(&self, region: RegionId, term: u64) {
        let Some(oracle) = &self.leases.oracle else { return };
        loop {
            let pause = match oracle.timestamp().await {
                Ok(now) => match self.leases.leases.lock().fenced(region, term, now) {
                    Some(left) => Duration::from_millis(left),
                    None => return,
                },
                Err(error) => {
                    tracing::debug!(region, term, %error, "writes wait for a timestamp of placement");
                    ASK_AGAIN
                }
            };
            sleep(pause).await;
        }
    }

    /// A split of a region is about to be proposed.
    pub(crate) fn splits(&self, status: &PeerStatus, region: &Region) {
        self.leases.leases.lock().splits(region.id, status.term, region.epoch.version);
    }

    /// A proposed split will certainly not be applied.
    pub(crate) fn does_not_split(&self, status: &PeerStatus, region: &Region) {
        self.leases.leases.lock().does_not_split(region.id, status.term, region.epoch.version);
    }
}

/// Whether no other leader can have held a lease of the region's range: its first term, or the only voter it has had.
fn has_no_predecessor(region: &Region, term: u64) -> bool {
    let first = region.epoch.version == CREATED.version && term == INITIAL_POSITION.term + 1;
    first || region.epoch == CREATED && region.voters().count() == 1
}
