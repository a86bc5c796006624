//! One life of a process: whether it runs, who it is, and what it answers.
//!
//! What a dead process still has on its way must reach nobody: everything that leaves or enters goes past this.

use std::sync::{Arc, OnceLock};

use columnar::ColumnarStore;
use parking_lot::Mutex;
use placement::PlacementService;
use placement::participant::Participant;
use tokio::sync::Notify;
use txn::{RowStore, TxnService};
use types::NodeId;

use crate::columns::ColumnReader;
use crate::network::Host;
use crate::store::RaftNode;

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Runs,
    Paused,
    Dead,
}

/// What a process answers, and what it holds for whoever compares replicas.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    pub participant: Option<Arc<Participant>>,
    pub rows: Option<Arc<RowStore>>,
    pub tablets: Option<ColumnarStore>,
    pub raft: Option<RaftNode>,
    pub txn: Option<Arc<TxnService>>,
    pub placement: Option<Arc<PlacementService>>,
    pub columns: Option<Arc<ColumnReader>>,
}

/// One life of a process.
pub(crate) struct Process {
    pub host: Host,
    /// The node's number, once it is known.
    pub node: OnceLock<NodeId>,
    standing: Mutex<Standing>,
    /// Wakes in the order in which tasks began to wait.
    changed: Notify,
    handlers: Mutex<Handlers>,
}

impl Process {
    pub(crate) fn new(host: Host) -> Arc<Self> {
        let (standing, changed) = (Mutex::new(Standing::Runs), Notify::new());
        let (node, handlers) = (OnceLock::new(), Mutex::default());
        Arc::new(Process { host, node, standing, changed, handlers })
    }

    pub(crate) fn serve(&self, handlers: Handlers) {
        *self.handlers.lock() = handlers;
    }

    pub(crate) fn handlers(&self) -> Handlers {
        self.handlers.lock().clone()
    }

    fn standing(&self) -> Standing {
        *self.standing.lock()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.standing() != Standing::Dead
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.standing() == Standing::Paused
    }

    /// Stops it, or lets it go on. A dead one stays dead.
    pub(crate) fn pause(&self, paused: bool) {
        let next = if paused { Standing::Paused } else { Standing::Runs };
        {
            let mut standing = self.standing.lock();
            if *standing != Standing::Dead {
                *standing = next;
            }
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn kill(&self) {
        *self.standing.lock() = Standing::Dead;
        self.changed.notify_waiters();
        *self.handlers.lock() = Handlers::default();
    }

    async fn wait_for(&self, wanted: impl Fn(Standing) -> bool) -> Standing {
        loop {
            let next = self.changed.notified();
            tokio::pin!(next);
            next.as_mut().enable();
            let standing = self.standing();
            if wanted(standing) {
                return standing;
            }
            next.await;
        }
    }

    /// Waits until it is not paused; whether it is alive.
    pub(crate) async fn running(&self) -> bool {
        self.wait_for(|standing| standing != Standing::Paused).await == Standing::Runs
    }

    /// Resolves when it is dead.
    pub(crate) async fn died(&self) {
        self.wait_for(|standing| standing == Standing::Dead).await;
    }
}
