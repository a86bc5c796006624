//! What stands for a SQL node: transactions over the network, and a heartbeat with the oldest of them.

use std::sync::Arc;
use std::time::Duration;

use placement::api::{Node, NodeReport, NodeRole};
use tokio::task::JoinSet;
use tokio::time::sleep;
use txn::TxnClient;
use types::NodeId;

use super::beat::register;
use super::{Life, Machine};
use crate::network::Caller;
use crate::process::Process;

/// Pause after a heartbeat that failed.
const RETRY: Duration = Duration::from_millis(200);

/// A life of a client.
pub(crate) struct Started {
    pub life: Life,
    pub txn: TxnClient,
    pub caller: Arc<Caller>,
}

/// `node` is its number, under which it registers and says what its transactions read at.
pub(crate) fn start(machine: &Machine, node: Option<NodeId>) -> Started {
    let process = Process::new(machine.host);
    let placement = machine.placement_client(&process);
    let caller = machine.caller(&process);
    let txn = TxnClient::new(caller.clone(), Arc::new(placement.clone()));
    let mut tasks = JoinSet::new();
    let Some(node) = node else {
        let life = Life { process, raft: None, placement, tasks };
        return Started { life, txn, caller };
    };
    machine.network.attach(process.clone(), node);
    let address = machine.host.to_string();
    let me = Node {
        id: node,
        role: NodeRole::Sql,
        rpc_address: address.clone(),
        client_address: address,
    };
    tasks.spawn({
        let (placement, txn) = (placement.clone(), txn.clone());
        async move {
            register(&placement, me).await;
            loop {
                let oldest_start = txn.oldest_start();
                let report = NodeReport { oldest_start, ..NodeReport::default() };
                if placement.heartbeat(node, report, Vec::new()).await.is_err() {
                    sleep(RETRY).await;
                }
            }
        }
    });
    Started { life: Life { process, raft: None, placement, tasks }, txn, caller }
}
