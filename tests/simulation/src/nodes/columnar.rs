//! A columnar node: learners of data regions, and the reader that answers from their columns.

use std::path::Path;
use std::sync::Arc;

use ::columnar::{ColumnarMachines, ColumnarStore, Config};
use placement::PlacementClient;
use placement::api::NodeRole;
use raft::Groups;
use tokio::task::JoinSet;
use txn::TxnClient;
use types::Result;

use super::heartbeat::{Heartbeat, Holds};
use super::orders::Orders;
use super::{COLUMNS, DATA, Machine, upkeep};
use crate::columns::ColumnReader;
use crate::process::{Handlers, Process};

/// Budgets under which deltas are flushed and segments merged all the time.
fn small() -> Config {
    Config {
        column_cache_bytes: 64 << 10,
        key_cache_bytes: 16 << 10,
        open_segments: 4,
        delta_rows: 16,
        delta_bytes: 64 << 10,
        deltas_bytes: 256 << 10,
        log_entries: 40,
    }
}

pub(crate) async fn run(
    machine: Machine,
    process: Arc<Process>,
    placement: PlacementClient,
) -> Result<()> {
    let member = machine.establish(NodeRole::Columnar, &process, &placement).await?;
    let clock = machine.steady();
    let disk = Arc::new(machine.disk.clone());
    let path = Path::new(DATA).join(COLUMNS);
    let columns = ColumnarStore::open(disk, clock.clone(), &path, small())?;
    let machines = Box::new(ColumnarMachines::new(&columns));
    let raft = machine.raft_node(&process, &member.me, machines)?;
    let groups: Arc<dyn Groups> = Arc::new(raft.clone());
    let caller = machine.caller(&process);
    let client = TxnClient::new(caller.clone(), Arc::new(placement.clone()));
    let client =
        client.with_one_entry(|| true).with_async_commits(|| true).with_shared_locks(|| true);
    let reader = Arc::new(ColumnReader::new(columns.clone(), groups.clone(), client));
    process.serve(Handlers {
        participant: Some(member.participant.clone()),
        tablets: Some(columns.clone()),
        raft: Some(raft.clone()),
        columns: Some(reader),
        ..Handlers::default()
    });
    let mut tasks = JoinSet::new();
    let disk = machine.disk.clone();
    tasks.spawn(raft.clone().drive(process.clone(), disk, machine.random.fork()));
    tasks.spawn(upkeep::maintain(columns.clone(), placement.clone(), process.clone()));
    let orders = Orders {
        groups: groups.clone(),
        txn: None,
        placement: placement.clone(),
        rows: caller,
        busy: Arc::default(),
    };
    let heartbeat = Heartbeat {
        node: member.me.node,
        identity: member.me.identity.clone(),
        placement,
        groups,
        holds: Holds::Columns(columns),
        disk: machine.disk.clone(),
        clock,
        orders,
    };
    let participate = |participation| raft.participate(participation);
    let described = member.described(machine.host);
    member.entry.take_part(&member.me, described, participate, false).await?;
    heartbeat.run().await
}
