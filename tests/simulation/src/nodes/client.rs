//! What stands for a SQL node: transactions over the network, and a heartbeat with the oldest of them.

use std::sync::Arc;
use std::time::Duration;

use placement::PlacementClient;
use placement::api::{NodeReport, NodeRole};
use tokio::time::sleep;
use txn::TxnClient;
use types::{Error, Result};

use super::Machine;
use crate::network::Caller;
use crate::process::Process;

/// Pause after a heartbeat that failed.
const RETRY: Duration = Duration::from_millis(200);

/// How a client reaches the cluster.
#[derive(Clone)]
pub(crate) struct Ways {
    pub txn: TxnClient,
    pub caller: Arc<Caller>,
}

impl Ways {
    pub(crate) fn new(
        machine: &Machine,
        process: &Arc<Process>,
        placement: &PlacementClient,
    ) -> Self {
        let caller = machine.caller(process);
        let txn = TxnClient::new(caller.clone(), Arc::new(placement.clone()));
        let txn = txn.with_one_entry(|| true).with_async_commits(|| true);
        Ways { txn: txn.with_shared_locks(|| true), caller }
    }
}

/// Registers, and says what its transactions read at.
pub(crate) async fn run(
    machine: Machine,
    process: Arc<Process>,
    placement: PlacementClient,
    txn: TxnClient,
) -> Result<()> {
    let member = machine.establish(NodeRole::Sql, &process, &placement).await?;
    member.entry.register(&member.me, member.described(machine.host)).await?;
    loop {
        let report = NodeReport { oldest_start: txn.oldest_start(), ..NodeReport::default() };
        match placement.heartbeat(member.me.node, report, Vec::new()).await {
            Ok(_) => {}
            Err(error @ Error::Revoked(_)) => return Err(error),
            Err(_) => sleep(RETRY).await,
        }
    }
}
