//! What all sessions of a process share, and what they ask of the process around them.

use std::sync::Arc;

use access::Rights;
use binder::{session_state_builder, short};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionConfig;
use env::Clock;
use execution::analytic::Analytic;
use execution::bound_queries::BoundQueries;
use execution::host::Host;
use information_schema::Source;
use placement::api::Catalog;
use resources::{Account, Ledger, Payer, Scheduled};
use storage::Storage;
use types::query_watch::{QueryWatch, Runaway};
use types::{NodeId, ResourceGroup};

/// Bytes that all queries of a process may hold for sorts, joins and groups.
const QUERY_MEMORY: usize = 1 << 30;

/// What sessions share. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    /// The store, as the session's resource group pays for it.
    pub(crate) storage: Arc<dyn Storage>,
    uncharged: Arc<dyn Storage>,
    /// Who pays for what is done here; nobody without.
    ledger: Option<Arc<Ledger>>,
    pub(crate) analytic: Option<Arc<dyn Analytic>>,
    pub(crate) host: Option<Arc<dyn Host>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<SessionState>,
    /// Plans short reads; see [`short`].
    pub(crate) short: Arc<SessionState>,
    /// What queries are bound to.
    pub(crate) bound_queries: Arc<BoundQueries>,
    /// Number of this node, to distinguish its connections from those of others.
    pub(crate) node: NodeId,
}

impl Engine {
    /// An engine over a store.
    pub fn new(storage: Arc<dyn Storage>, clock: Arc<dyn Clock>) -> Self {
        let state = state(QUERY_MEMORY);
        let short = Arc::new(short::short_state(&state));
        let bound_queries = Arc::default();
        let uncharged = storage.clone();
        let ledger = None;
        Engine {
            storage,
            uncharged,
            ledger,
            analytic: None,
            host: None,
            clock,
            state,
            short,
            bound_queries,
            node: 0,
        }
    }

    /// With another bound on the bytes that all its queries may hold.
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.state = state(bytes);
        self.short = Arc::new(short::short_state(&self.state));
        self
    }

    /// With columns to route queries to.
    pub fn with_analytic(mut self, analytic: Arc<dyn Analytic>) -> Self {
        self.analytic = Some(analytic);
        self
    }

    /// With accounts for resource groups.
    pub fn with_ledger(mut self, ledger: Arc<Ledger>) -> Self {
        self.ledger = Some(ledger);
        self
    }

    /// The account of a resource group.
    pub(crate) fn account(&self, group: &ResourceGroup) -> Option<Arc<Account>> {
        Some(self.ledger.as_ref()?.account(group))
    }

    /// Has a resource group pay for what is asked of the store from now on; who pays.
    pub(crate) fn charge_to(&mut self, group: &ResourceGroup) -> Option<Arc<Payer>> {
        let payer = Payer::new(self.account(group)?);
        self.storage = self.uncharged.charged_to(payer.clone())?;
        Some(payer)
    }

    /// Has nobody pay for what is asked of the store from now on.
    pub(crate) fn charge_nobody(&mut self) -> Option<Arc<Payer>> {
        self.storage = self.uncharged.clone();
        None
    }

    /// Whether statements of a group may be runaways.
    pub(crate) fn may_run_away(&self, group: &ResourceGroup) -> bool {
        let is_watched =
            |watches: Arc<Vec<QueryWatch>>| watches.iter().any(|watch| watch.group == group.name);
        group.query_limit.is_some() || self.watches().is_some_and(is_watched)
    }

    /// Watched queries, if there are any.
    pub(crate) fn watches(&self) -> Option<Arc<Vec<QueryWatch>>> {
        let all = self.ledger.as_ref()?.watches().all();
        (!all.is_empty()).then_some(all)
    }

    /// Counts a watch from now on, here: elsewhere it does once that is known.
    pub(crate) fn add_watch(&self, watch: QueryWatch) {
        if let Some(ledger) = &self.ledger {
            ledger.watches().add(watch);
        }
    }

    /// Has a runaway reported, and what is like it watched.
    pub(crate) fn note_runaway(&self, runaway: Runaway, watch: Option<QueryWatch>) {
        if let Some(ledger) = &self.ledger {
            ledger.watches().note(runaway, watch);
        }
    }

    /// The text of the statement that a connection runs.
    pub(crate) fn statement_of(&self, connection: u64) -> Option<String> {
        self.host.as_ref()?.statement(connection)
    }

    /// Somebody whose work is scheduled among that of this process.
    pub(crate) fn scheduled(&self) -> Arc<Scheduled> {
        match &self.ledger {
            Some(ledger) => ledger.scheduled(),
            None => Scheduled::new(Arc::default()),
        }
    }

    /// As one of several nodes, by its number.
    pub fn with_node(mut self, node: NodeId) -> Self {
        self.node = node;
        self
    }

    /// With a server around it.
    pub fn with_host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Some(host);
        self
    }

    /// Where listings of the catalog come from, for who may see this of it.
    pub fn source<'a>(&'a self, catalog: &'a Arc<Catalog>, rights: &'a Rights) -> Source<'a> {
        let (storage, clock) = (&*self.storage, &*self.clock);
        Source { storage, clock, host: self.host.as_deref(), catalog, rights }
    }

    /// The store.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }
}

/// What plans queries; those that hold more bytes fail with an error, not with the process.
fn state(bytes: usize) -> Arc<SessionState> {
    let parallel = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    let config = SessionConfig::new().with_target_partitions(parallel);
    let mut builder = session_state_builder(config);
    let memory = Arc::new(FairSpillPool::new(bytes));
    if let Ok(runtime) = RuntimeEnvBuilder::new().with_memory_pool(memory).build_arc() {
        builder = builder.with_runtime_env(runtime);
    }
    Arc::new(builder.build())
}
