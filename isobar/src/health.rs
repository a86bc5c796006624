//! Whether a cluster is up: every expected node sends heartbeats, and placement has a leader.

use std::time::Duration;

use anyhow::{Result, bail};
use node::config::Member;
use placement::api::NodeRole;
use placement::client::{ClusterStatus, PlacementClient};
use rpc::{AddressBook, Channels, RpcClient};
use tokio::time::Instant;

/// A node whose last heartbeat is this old counts as down, in milliseconds.
pub const DOWN_MS: u64 = 3_000;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// How many nodes of each role must be up before the cluster is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Row nodes.
    pub row: usize,
    /// SQL nodes.
    pub sql: usize,
    /// Columnar nodes.
    pub columnar: usize,
}

/// A client of the placement group of these members.
pub fn placement_client(members: &[Member]) -> PlacementClient {
    let addresses = members.iter().map(|member| (member.id, member.address.to_string()));
    let rpc = RpcClient::new(AddressBook::default(), Channels::default());
    PlacementClient::new(std::sync::Arc::new(rpc), addresses)
}

/// Waits until the cluster shows what is expected; `report` gets what is still missing.
pub async fn wait(
    members: &[Member],
    expected: &Expected,
    limit: Duration,
    mut report: impl FnMut(String),
) -> Result<()> {
    let placement = placement_client(members);
    let end = Instant::now() + limit;
    loop {
        let missing = match tokio::time::timeout_at(end, placement.status()).await {
            Ok(Ok(status)) => missing(&status, expected),
            Ok(Err(error)) => Some(format!("placement: {error}")),
            Err(_) => Some("placement does not answer".to_owned()),
        };
        let Some(missing) = missing else { return Ok(()) };
        if Instant::now() >= end {
            bail!("after {} s the cluster is not healthy: {missing}", limit.as_secs());
        }
        report(format!("waiting for {missing}"));
        tokio::time::sleep(PAUSE).await;
    }
}

fn missing(status: &ClusterStatus, expected: &Expected) -> Option<String> {
    let alive = |role: NodeRole| {
        let nodes = status.nodes.iter().filter(|node| node.node.role == role);
        nodes.filter(|node| node.silent_ms.is_some_and(|silent| silent < DOWN_MS)).count()
    };
    let wanted = [
        (NodeRole::Row, expected.row, "row nodes"),
        (NodeRole::Columnar, expected.columnar, "columnar nodes"),
        (NodeRole::Sql, expected.sql, "SQL nodes"),
    ];
    wanted
        .into_iter()
        .map(|(role, count, name)| (alive(role), count, name))
        .find(|(found, count, _)| found < count)
        .map(|(found, count, name)| format!("{name} ({found} of {count} are up)"))
}
