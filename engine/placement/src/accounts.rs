//! Reports to placement what resource groups use in this process, and takes in what they may use from now on.
//!
//! Whatever placement does, accounts go on with what they were granted last. SQL nodes ask for watched queries likewise; row
//! nodes and SQL nodes report what they do with their processors.

use std::sync::Arc;
use std::time::Duration;

use resources::shares::PERIOD;
use resources::{Ledger, Processors};
use tokio::time::{sleep, timeout};
use types::query_watch::{QueryWatch, Runaway};
use types::{ClusterVersion, NodeId, Result, version};

use crate::client::PlacementClient;

/// How long placement has for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Asks placement again and again, and at once when a group's rate has changed. `node` tells processes apart.
pub async fn keep(
    ledger: Arc<Ledger>,
    placement: PlacementClient,
    node: NodeId,
    cluster: impl Fn() -> ClusterVersion,
) {
    let mut pause = PERIOD;
    loop {
        tokio::select! {
            () = ledger.due() => {}
            () = sleep(pause) => {}
        }
        pause = PERIOD;
        if let Ok(Ok(catalog)) = timeout(ANSWER, placement.catalog()).await {
            ledger.follow(|name| catalog.effective_group(name));
        }
        let uses = ledger.uses();
        // An older leader of placement would not know what it is asked.
        if uses.is_empty() || cluster() < version::RESOURCE_GROUPS {
            continue;
        }
        match timeout(ANSWER, placement.shares(node, uses.clone())).await {
            Ok(Ok(grants)) => {
                pause = ledger.take(&uses, grants).map_or(PERIOD, Duration::from_millis);
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "placement grants no shares of resource groups")
            }
            Err(_) => tracing::debug!("placement has not answered what resource groups may use"),
        }
    }
}

/// Reports again and again what this process has of processors and uses of them.
pub async fn report_processors(
    placement: PlacementClient,
    node: NodeId,
    cluster: impl Fn() -> ClusterVersion,
) {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get());
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let speed = tokio::task::spawn_blocking(resources::speed::measure).await.unwrap_or(1_000);
    loop {
        // An older leader of placement would not know such a report.
        if cluster() >= version::QUERY_WATCHES {
            let used = env::processor::process_time().as_micros();
            let used_micros = u64::try_from(used).unwrap_or(u64::MAX);
            let machine = env::processor::machine();
            let processors = Processors { count, speed, used_micros, machine };
            let reported = timeout(ANSWER, placement.note_processors(node, processors)).await;
            if !matches!(reported, Ok(Ok(()))) {
                tracing::debug!("placement has not taken what this process uses of its processors");
            }
        }
        sleep(PERIOD).await;
    }
}

async fn report(
    placement: &PlacementClient,
    met: Vec<Runaway>,
    watches: Vec<QueryWatch>,
) -> Result<()> {
    if !met.is_empty() {
        placement.note_runaways(met).await?;
    }
    for watch in watches {
        // One that is refused, as too long a text is, keeps none of the others from being watched.
        if let Err(error) = placement.watch(watch).await {
            tracing::warn!(%error, "what is like a runaway query is watched by this node alone");
        }
    }
    Ok(())
}

/// Reports runaways, and takes in which queries are watched, again and again.
pub async fn watch(
    ledger: Arc<Ledger>,
    placement: PlacementClient,
    cluster: impl Fn() -> ClusterVersion,
) {
    loop {
        sleep(PERIOD).await;
        // An older leader of placement would not know what it is asked.
        if cluster() < version::QUERY_WATCHES {
            continue;
        }
        let (met, watches) = ledger.watches().take_met();
        let reported = timeout(ANSWER, report(&placement, met, watches)).await;
        if !matches!(reported, Ok(Ok(()))) {
            tracing::warn!("placement does not know of some runaway queries: they are in this log");
        }
        match timeout(ANSWER, placement.watches(ledger.watches().version())).await {
            Ok(Ok(Some((version, watches)))) => ledger.watches().take(version, watches),
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(%error, "placement does not say what is watched"),
        }
    }
}
