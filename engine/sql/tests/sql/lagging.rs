//! Two nodes over one store in memory: one changes the catalog, and the other is always one version
//! behind it, as a node is whose catalog is not fresh. It never repairs what a write gets wrong.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use env::SimClock;
use parking_lot::Mutex;
use placement::ClusterStatus;
use placement::api::{Catalog, CatalogChange, Lease};
use placement::api::{LockAnswer, LockRequest};
use sql::engine::Engine;
use storage::memory::MemoryStorage;
use storage::{Snapshot, Storage, Transaction};
use tokio::sync::Semaphore;
use types::{LeaseId, Result, Table, TableId, Timestamp};

/// Stops a definition after each version that it publishes, until it is let on.
pub struct Steps {
    arrived: Semaphore,
    onward: Semaphore,
}

impl Steps {
    /// No step taken yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Steps { arrived: Semaphore::new(0), onward: Semaphore::new(0) })
    }

    /// Waits for the next published version, a bounded time.
    pub async fn arrive(&self) {
        let arrived = tokio::time::timeout(Duration::from_secs(20), self.arrived.acquire()).await;
        arrived.unwrap().unwrap().forget();
    }

    /// Lets the definition go on by so many versions.
    pub fn go_on(&self, versions: usize) {
        self.onward.add_permits(versions);
    }
}

struct Node {
    store: Arc<MemoryStorage>,
    catalogs: Arc<Mutex<Vec<Arc<Catalog>>>>,
    steps: Option<Arc<Steps>>,
    behind: usize,
}

/// One store, and every catalog that it has had; one clock.
pub struct Cluster {
    store: Arc<MemoryStorage>,
    catalogs: Arc<Mutex<Vec<Arc<Catalog>>>>,
    clock: SimClock,
}

impl Cluster {
    /// Without tables.
    pub fn new() -> Self {
        let clock = SimClock::new(1_700_000_000_000_000);
        Cluster { store: Arc::new(MemoryStorage::new()), catalogs: Arc::default(), clock }
    }

    /// A node that is so many versions behind, and stops at steps if given.
    pub fn node(&self, steps: Option<Arc<Steps>>, behind: usize) -> Engine {
        let (store, catalogs) = (self.store.clone(), self.catalogs.clone());
        let node = Node { store, catalogs, steps, behind };
        Engine::new(Arc::new(node), Arc::new(self.clock.clone()))
    }

    /// Lets some minutes pass while something is done.
    pub async fn minutes_pass<T>(&self, meanwhile: impl Future<Output = T>) -> T {
        let passing = async {
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                self.clock.advance(Duration::from_secs(31));
            }
            std::future::pending().await
        };
        tokio::select! {
            done = meanwhile => done,
            never = passing => never,
        }
    }
}

/// The node that defines, stopping at `steps` if given, and the one that lags behind it.
pub fn two_nodes(steps: Option<Arc<Steps>>) -> (Engine, Engine) {
    let cluster = Cluster::new();
    (cluster.node(steps, 0), cluster.node(None, 1))
}

#[async_trait]
impl Storage for Node {
    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        self.store.begin().await
    }

    fn snapshot(&self, ts: Timestamp) -> Arc<dyn Snapshot> {
        self.store.snapshot(ts)
    }

    async fn timestamp(&self) -> Result<Timestamp> {
        self.store.timestamp().await
    }

    async fn catalog(&self) -> Result<Arc<Catalog>> {
        let known = self.catalogs.lock().iter().rev().nth(self.behind).cloned();
        match known {
            Some(catalog) => Ok(catalog),
            None => self.store.catalog().await,
        }
    }

    async fn change(&self, change: CatalogChange) -> Result<Option<Table>> {
        let changed = self.store.change(change).await?;
        let newest = self.store.catalog().await?;
        self.catalogs.lock().push(newest);
        Ok(changed)
    }

    async fn publish_schema(&self, table: &Table) -> Result<()> {
        if let Some(steps) = &self.steps {
            steps.arrived.add_permits(1);
            steps.onward.acquire().await.unwrap().forget();
        }
        self.store.publish_schema(table).await
    }

    async fn auto_increment(&self, table: TableId, count: u64) -> Result<u64> {
        self.store.auto_increment(table, count).await
    }

    async fn raise_auto_increment(&self, table: TableId, value: u64) -> Result<()> {
        self.store.raise_auto_increment(table, value).await
    }

    async fn next_auto_increment(&self, table: TableId) -> Result<u64> {
        self.store.next_auto_increment(table).await
    }

    async fn split_table(&self, table: &Table, regions: u32) -> Result<usize> {
        self.store.split_table(table, regions).await
    }

    async fn take_lease(&self, ts: Option<Timestamp>, ttl: Duration, owner: &str) -> Result<Lease> {
        self.store.take_lease(ts, ttl, owner).await
    }

    async fn renew_lease(&self, lease: LeaseId, ttl: Duration) -> Result<Lease> {
        self.store.renew_lease(lease, ttl).await
    }

    async fn release_lease(&self, lease: LeaseId) -> Result<()> {
        self.store.release_lease(lease).await
    }

    async fn leases(&self) -> Result<Vec<Lease>> {
        self.store.leases().await
    }

    async fn advisory_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        self.store.advisory_lock(request).await
    }

    async fn set_life(&self, life: Duration) -> Result<()> {
        self.store.set_life(life).await
    }

    async fn signing_key(&self) -> Result<Arc<[u8]>> {
        self.store.signing_key().await
    }

    async fn status(&self) -> Result<ClusterStatus> {
        self.store.status().await
    }
}
