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
use resources::{Account, Ledger};
use storage::Storage;
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

    /// Has a resource group pay for what is asked of the store from now on; its account.
    pub(crate) fn charge_to(&mut self, group: &ResourceGroup) -> Option<Arc<Account>> {
        let account = self.ledger.as_ref()?.account(group);
        self.storage = self.uncharged.charged_to(account.clone())?;
        Some(account)
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
