//! Placement's leader at work: answers requests, keeps time, hands out orders.
//!
//! Every node of the group runs one; all but the leader answer `NotLeader`. What must not be lost
//! goes through the log; what may be read is confirmed by a quorum first. It never waits without a
//! bound.

mod granting;
mod leasing;
mod lookups;
mod sharing;
mod timestamps;
mod upkeep;
mod watching;

pub use timestamps::{Given, Proxy};

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use env::{Clock, Random, SteadyClock};
use futures::FutureExt;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use raft::{Groups, PeerStatus};
use tokio::time::timeout;
use types::region::PLACEMENT_REGION;
use types::{ClusterVersion, Error, NodeId, RegionId, Result, Timestamp, version};

use crate::api::{CatalogChange, NodeReport, Order, PeerReport, Request, Response};
use crate::batch::{Batcher, TIMESTAMP_BATCHES};
use crate::catalog::EligibleNodes;
use crate::command::{Command, Outcome, Proposal, Ticket};
use crate::deadlock::WaitGraph;
use crate::leader_state::LeaderState;
use crate::oracle::Reading;
use crate::safe_point;
use crate::view::View;

/// How long a heartbeat without orders waits for some to come up.
pub const HOLD: Duration = Duration::from_millis(250);

/// How long a change of the catalog waits for its new regions to have leaders.
const LEADERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Most numbers of one request.
const MAX_IDS: u32 = 1 << 20;

/// Bytes of the signing key (HMAC-SHA-256's natural size).
const KEY_BYTES: usize = 32;

/// Placement on one row node.
pub struct PlacementService {
    pub(crate) node: NodeId,
    pub(crate) groups: Arc<dyn Groups>,
    pub(crate) view: Arc<View>,
    /// What leases and timestamps go by: a machine's clock that is set moves neither.
    pub(crate) clock: SteadyClock,
    random: Random,
    run: u64,
    tickets: AtomicU64,
    leader_state: Mutex<Option<LeaderState>>,
    /// Who waits for whom, as reported in a term.
    waits: Mutex<(u64, WaitGraph)>,
    /// What is known in a term of rates and of processors.
    pub(crate) resources: Mutex<Option<sharing::TermResources>>,
    /// Waits for advisory locks, as reported in a term.
    pub(crate) lock_queue: granting::LockQueue,
    extending: tokio::sync::Mutex<()>,
    /// Whether the members of placement's own group are being changed.
    pub(crate) tending: Arc<AtomicBool>,
    timestamps: OnceLock<Batcher<u32, Given>>,
    /// Asks placement's leader for others.
    proxy: OnceLock<Proxy>,
}

impl PlacementService {
    /// A service over this node's groups and the view of its placement machine, with its upkeep,
    /// which ends with the last handle. Must be called within a tokio runtime.
    pub fn start(
        node: NodeId,
        groups: Arc<dyn Groups>,
        view: Arc<View>,
        clock: Arc<dyn Clock>,
        random: Random,
    ) -> Arc<Self> {
        let service = Self::new(node, groups, view, clock, random);
        tokio::spawn(upkeep::run(Arc::downgrade(&service)));
        service
    }

    /// As [`PlacementService::start`], without upkeep: it answers, and does nothing unasked.
    pub fn new(
        node: NodeId,
        groups: Arc<dyn Groups>,
        view: Arc<View>,
        clock: Arc<dyn Clock>,
        random: Random,
    ) -> Arc<Self> {
        let service = Arc::new(PlacementService {
            node,
            groups,
            view,
            clock: SteadyClock::new(clock),
            run: random.u64(),
            random,
            tickets: AtomicU64::new(0),
            leader_state: Mutex::new(None),
            waits: Mutex::default(),
            resources: Mutex::default(),
            lock_queue: granting::LockQueue::default(),
            extending: tokio::sync::Mutex::new(()),
            tending: Arc::default(),
            timestamps: OnceLock::new(),
            proxy: OnceLock::new(),
        });
        let weak = Arc::downgrade(&service);
        service.timestamps.get_or_init(|| {
            Batcher::new(
                TIMESTAMP_BATCHES,
                || Duration::ZERO,
                move |counts| {
                    let weak = weak.clone();
                    async move { upgrade(&weak)?.timestamp_batch(&counts).await }.boxed()
                },
            )
        });
        service
    }

    /// The service takes requests for timestamps as a proxy, too, and has them answered by a client of the same process.
    pub fn serve_as_proxy(&self, proxy: Proxy) {
        // Set once, when the node starts.
        let _ = self.proxy.set(proxy);
    }

    /// Answers a request of a node with this program, within a bound.
    pub async fn handle(&self, request: Request) -> Response {
        self.handle_from(version::CURRENT, request).await
    }

    /// Answers a request of a node whose program speaks versions up to one, within a bound.
    pub async fn handle_from(&self, speaks: ClusterVersion, request: Request) -> Response {
        let sender = request.sender();
        if let Some(Err(error)) = sender.map(|node| self.check_sender(node, speaks)) {
            return Response::Failed(error);
        }
        let answer = self.answer(request).await.unwrap_or_else(Response::Failed);
        let answer = match answer {
            Response::Catalog(Some(mut catalog)) if speaks >= version::FOREIGN_KEYS => {
                let groups = std::mem::take(&mut catalog.resources);
                let keys = std::mem::take(&mut catalog.foreign_keys);
                Response::CatalogWithKeys(catalog, Box::new((groups, keys)))
            }
            Response::Catalog(Some(mut catalog)) if speaks >= version::RESOURCE_GROUPS => {
                let groups = Box::new(std::mem::take(&mut catalog.resources));
                Response::CatalogWithGroups(catalog, groups)
            }
            answer => answer,
        };
        if let (Some(node), Response::Done | Response::Orders { .. }) = (sender, &answer) {
            self.note_version(node, speaks);
        }
        answer
    }

    async fn answer(&self, request: Request) -> Result<Response> {
        if request == Request::Leader {
            let PeerStatus { leader, term, .. } = self.peer()?;
            return Ok(Response::Leader { leader: leader.map(|peer| peer.node), term });
        }
        if let Request::TimestampsByProxy { count } = request {
            let (first, catalog, term) = self.timestamps_by_proxy(count).await?;
            return Ok(Response::Timestamps { first, catalog, term });
        }
        if !matches!(request, Request::Status | Request::Versions | Request::Heartbeat { .. }) {
            self.check_sound(self.lead()?)?;
        }
        match request {
            Request::Timestamps { count } => {
                let (first, catalog, term) = self.timestamps(count).await?;
                Ok(Response::Timestamps { first, catalog, term })
            }
            Request::Ids { count } => {
                check_count(count, MAX_IDS, "numbers")?;
                self.first(Command::TakeIds { count }).await.map(Response::Ids)
            }
            Request::Register { node, session } => self.register(node, session).await,
            Request::Heartbeat { node, report, peers } => self.heartbeat(node, report, peers).await,
            Request::Catalog { known } => {
                self.confirm(self.lead()?).await?;
                let catalog = &self.view.read().catalog;
                let newer = (catalog.version != known).then(|| Box::new(catalog.clone()));
                Ok(Response::Catalog(newer))
            }
            Request::Change(change) => self.change(change).await,
            Request::Locate { key } => self.locate(&key).await,
            Request::Regions { kind } => self.regions(kind).await,
            Request::DroppedRegions { kind } => self.dropped_regions(kind).await,
            Request::Status => self.status().await,
            Request::Versions => self.versions().await,
            Request::AutoIncrement { table, count, above } => {
                let command = Command::AutoIncrement { table, count, above };
                self.first(command).await.map(Response::AutoIncrement)
            }
            Request::SigningKey => self.signing_key().await.map(Response::SigningKey),
            // Switched off, waits end by time alone.
            Request::Wait { .. } if !self.view.read().catalog.detects_deadlocks() => {
                Ok(Response::Circle(Vec::new()))
            }
            Request::Wait { waiter, holder, key } => self.with_waits(|waits, now| {
                Response::Circle(waits.wait(now, waiter, holder, &key).unwrap_or_default())
            }),
            Request::WaitEnded { waiter, key } => self.with_waits(|waits, _| {
                waits.ended(waiter, &key);
                Response::Done
            }),
            Request::Asked { node, regions } => {
                let now = self.clock.now();
                self.leader_state(self.lead()?)?.affinity.note(node, regions, now);
                Ok(Response::Done)
            }
            Request::Shares { node, uses } => self.share(node, uses).map(Response::Shares),
            Request::UnitsUsed => self.units_used().map(Response::UnitsUsed),
            Request::Processors { node, processors } => {
                self.note_processors(node, processors).map(|()| Response::Done)
            }
            Request::Calibrate(by) => self.calibrate(by).map(Response::Quota),
            Request::NoteSettings { node, settings } => {
                self.note_settings(node, settings).map(|()| Response::Done)
            }
            Request::NodeSettings => self.node_settings().map(Response::NodeSettings),
            runaways @ (Request::Watches(_)
            | Request::Watch(_)
            | Request::Unwatch(_)
            | Request::NoteRunaways(_)
            | Request::Runaways) => self.runaways_request(runaways).await,
            Request::SetLife(life_ms) => {
                safe_point::check_life(life_ms)?;
                self.propose(Command::SetLife(life_ms)).await?;
                Ok(Response::Done)
            }
            Request::Advisory(request) => self.lock_request(request).await.map(Response::Advisory),
            leases => self.lease_request(leases).await,
        }
    }

    /// What was reported of waits to this leader in its term. Not confirmed by a quorum: a circle of old
    /// waits costs one transaction, and no wait is believed in for long.
    fn with_waits(
        &self,
        look: impl FnOnce(&mut WaitGraph, env::Instant) -> Response,
    ) -> Result<Response> {
        let term = self.lead()?;
        let mut waits = self.waits.lock();
        if waits.0 != term {
            *waits = (term, WaitGraph::default());
        }
        Ok(look(&mut waits.1, self.clock.now()))
    }

    // ---- leadership -------------------------------------------------------------------------

    pub(crate) fn peer(&self) -> Result<PeerStatus> {
        self.groups
            .status(PLACEMENT_REGION)
            .ok_or(Error::NotLeader { region: PLACEMENT_REGION, leader: None })
    }

    /// The term in which this node leads placement and may decide.
    pub(crate) fn lead(&self) -> Result<u64> {
        let status = self.peer()?;
        if status.decides {
            return Ok(status.term);
        }
        let leader = status.leader.map(|peer| peer.node);
        Err(Error::NotLeader { region: PLACEMENT_REGION, leader })
    }

    /// Confirms by a quorum, after this call, that `term` is still led from here. What was
    /// allocated before the call is then older than anything a successor can allocate.
    pub(crate) async fn confirm(&self, term: u64) -> Result<()> {
        self.groups.read_index(PLACEMENT_REGION).await?;
        // A deposed leader's read index is answered by its successor: that confirms nothing here.
        self.still_leads(term)
    }

    fn still_leads(&self, term: u64) -> Result<()> {
        match self.lead()? {
            now if now == term => Ok(()),
            _ => Err(Error::NotLeader { region: PLACEMENT_REGION, leader: None }),
        }
    }

    /// This leader's volatile state; a new one for a new term.
    pub(crate) fn leader_state(&self, term: u64) -> Result<MappedMutexGuard<'_, LeaderState>> {
        let mut leader = self.leader_state.lock();
        match leader.as_ref().map(|leader| leader.oracle.term()) {
            Some(known) if known == term => {}
            Some(known) if known > term => {
                return Err(Error::NotLeader { region: PLACEMENT_REGION, leader: None });
            }
            // `decides` held in `term`, so the mark holds what every earlier leader persisted.
            _ => {
                let high_water_ms = self.view.read().high_water_ms;
                *leader = Some(LeaderState::new(term, high_water_ms, self.clock.now()));
            }
        }
        MutexGuard::try_map(leader, Option::as_mut)
            .map_err(|_| Error::NotLeader { region: PLACEMENT_REGION, leader: None })
    }

    // ---- the log ----------------------------------------------------------------------------

    async fn propose(&self, command: Command) -> Result<Outcome> {
        self.propose_in(self.lead()?, command).await
    }

    pub(crate) async fn propose_in(&self, term: u64, command: Command) -> Result<Outcome> {
        let ticket = (self.run, self.tickets.fetch_add(1, Ordering::Relaxed));
        let data = postcard::to_stdvec(&Proposal { ticket, command })?;
        let waiter = Waiter::new(&self.view, ticket);
        let proposed = self.groups.propose(PLACEMENT_REGION, term, data).await;
        match (waiter.collect(), proposed) {
            (Some(outcome), _) => outcome,
            (None, Err(error)) => Err(error),
            // Applied as part of a snapshot: it took effect, its outcome is not known.
            (None, Ok(_)) => Err(Error::Timeout {
                what: "the outcome of a change of placement, which may have taken effect".into(),
                millis: 0,
            }),
        }
    }

    async fn first(&self, command: Command) -> Result<u64> {
        match self.propose(command).await? {
            Outcome::First(first) => Ok(first),
            other => Err(Error::Corrupt(format!("placement answered {other:?} for a number"))),
        }
    }

    /// What the clocks say, with the leader's state that holds them.
    pub(crate) fn clocks(&self, term: u64) -> Result<(MappedMutexGuard<'_, LeaderState>, Reading)> {
        let voters = self.voters()?;
        let leader = self.leader_state(term)?;
        let now = leader.reading(&voters, self.own_clock(), self.clock.now());
        Ok((leader, now))
    }

    /// Nodes whose clocks count.
    fn voters(&self) -> Result<Vec<NodeId>> {
        Ok(self.peer()?.region.voters().map(|peer| peer.node).collect())
    }

    fn own_clock(&self) -> (NodeId, u64) {
        (self.node, self.clock.unix_millis())
    }

    /// Refuses everything once this leader's log is known to have gone back.
    pub(crate) fn check_sound(&self, term: u64) -> Result<()> {
        match &self.leader_state(term)?.damage {
            None => Ok(()),
            Some(damage) => Err(Error::Corrupt(damage.clone())),
        }
    }

    /// Stops this leader where a node has seen a timestamp that cannot be: its log is not the one by
    /// which earlier leaders gave timestamps, numbers and names.
    async fn check_report(
        &self,
        term: u64,
        node: NodeId,
        report: &NodeReport,
        peers: &[PeerReport],
    ) -> Result<()> {
        if self.leader_state(term)?.contradiction(report, peers).is_none() {
            return Ok(());
        }
        // It may be deposed, and the timestamp its successor's.
        self.confirm(term).await?;
        let mut leader = self.leader_state(term)?;
        let Some(seen) = leader.contradiction(report, peers).filter(|_| leader.damage.is_none())
        else {
            return Ok(());
        };
        let damage = format!(
            "placement's log on node {} has gone back: node {node} has seen timestamp {seen}, and \
             the leader of term {term} began at {}, below it. Placement does nothing until that is \
             mended: bring back a row node that still has the log",
            self.node,
            Timestamp::pack(leader.oracle.begun_ms(), 0)
        );
        tracing::error!(%damage, "placement has stopped");
        leader.damage = Some(damage);
        Ok(())
    }

    // ---- nodes and regions ------------------------------------------------------------------

    async fn heartbeat(
        &self,
        node: NodeId,
        report: NodeReport,
        peers: Vec<PeerReport>,
    ) -> Result<Response> {
        let term = self.lead()?;
        // A process ends by this refusal, so it must not come from a leader that was deposed and has not
        // applied its registration.
        if self.view.read().check_session(node, report.session).is_err() {
            self.confirm(term).await?;
        }
        {
            let state = self.view.read();
            state.check_session(node, report.session)?;
            if !state.nodes.contains_key(&node) {
                return Err(Error::not_found("node", node.to_string()));
            }
        }
        self.check_report(term, node, &report, &peers).await?;
        self.note_mark(term, node, &report).await?;
        let mut changes = self.view.subscribe();
        let (regions, created) = {
            let mut leader = self.leader_state(term)?;
            if leader.record_heartbeat(node, report, peers, self.clock.now()) {
                self.view.announce();
            }
            leader.news(&self.view.read(), node)
        };
        if (!regions.is_empty() || !created.is_empty()) && self.check_sound(term).is_ok() {
            let now = self.allocate(term, 1).await?;
            self.propose_in(term, Command::Report { regions, created, now }).await?;
        }
        let orders: Result<Vec<Order>> = timeout(HOLD, async {
            loop {
                changes.mark_unchanged();
                let orders = self.orders(term, node)?;
                if !orders.is_empty() || changes.changed().await.is_err() {
                    return Ok(orders);
                }
            }
        })
        .await
        .unwrap_or_else(|_| Ok(Vec::new()));
        let orders = orders?;
        if !orders.is_empty() {
            // An order may destroy data: it must not come from a leader that was deposed.
            self.confirm(term).await?;
        }
        let state = self.view.read();
        let nodes = state.nodes.values().cloned().collect();
        let (catalog, safe_point) = (state.catalog.version, state.safe_point);
        Ok(Response::Orders { orders, catalog, nodes, safe_point })
    }

    fn orders(&self, term: u64, node: NodeId) -> Result<Vec<Order>> {
        let mut leader = self.leader_state(term)?;
        if leader.damage.is_some() {
            return Ok(Vec::new());
        }
        let state = self.view.read();
        leader.settle(&state, self.clock.now());
        Ok(leader.orders(&state, node))
    }

    // ---- catalog ----------------------------------------------------------------------------

    async fn change(&self, change: CatalogChange) -> Result<Response> {
        let term = self.lead()?;
        // Members with older programs could not read it in the log.
        crate::catalog::check_known(&change, self.view.read().version)?;
        let group = self.peer()?.region;
        let now = self.allocate(term, 1).await?;
        let nodes = self.leader_state(term)?.eligible(&self.view.read(), &group, self.clock.now());
        let command = Command::Change { change, eligible: EligibleNodes(nodes), now };
        let outcome = self.propose_in(term, command).await?;
        let Outcome::Changed { catalog, table, created } = outcome else {
            return Err(Error::Corrupt(format!("placement answered {outcome:?} for a change")));
        };
        self.await_leaders(term, created).await;
        Ok(Response::Changed { catalog, table })
    }

    /// Waits until new regions are led, so that the next statement can use them. The change stands
    /// whether or not they come up in time.
    async fn await_leaders(&self, term: u64, regions: Vec<RegionId>) {
        let mut changes = self.view.subscribe();
        let led = async {
            loop {
                changes.mark_unchanged();
                let Ok(all) = self
                    .leader_state(term)
                    .map(|leader| regions.iter().all(|region| leader.leader(*region).is_some()))
                else {
                    return;
                };
                if all || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        if timeout(LEADERS_TIMEOUT, led).await.is_err() {
            tracing::warn!(?regions, "new regions have no leader yet");
        }
    }

    pub(crate) async fn signing_key(&self) -> Result<Vec<u8>> {
        let term = self.lead()?;
        self.confirm(term).await?;
        let stored = self.view.read().signing_key.clone();
        if !stored.is_empty() {
            return Ok(stored);
        }
        let mut key = vec![0; KEY_BYTES];
        self.random.fill(&mut key);
        self.propose_in(term, Command::SetSigningKey(key)).await?;
        Ok(self.view.read().signing_key.clone())
    }
}

fn upgrade(service: &Weak<PlacementService>) -> Result<Arc<PlacementService>> {
    service.upgrade().ok_or_else(|| Error::Unavailable("placement is shutting down".into()))
}

fn check_count(count: u32, most: u32, what: &str) -> Result<()> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(Error::Invalid(format!("one request takes 1 to {most} {what}, not {count}")))
}

/// A proposer's place in the view; given up when its wait ends, however it ends.
struct Waiter<'a> {
    view: &'a View,
    ticket: Ticket,
}

impl<'a> Waiter<'a> {
    fn new(view: &'a View, ticket: Ticket) -> Self {
        view.expect(ticket);
        Waiter { view, ticket }
    }

    fn collect(self) -> Option<Result<Outcome>> {
        self.view.collect(self.ticket)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.view.collect(self.ticket);
    }
}
