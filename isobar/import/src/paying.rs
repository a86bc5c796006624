//! Who pays for what an import writes: a resource group, to whose rate and priority it keeps.
//!
//! An import has time: it waits for as long as its group owes something, where a statement would end with an error.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use placement::{PlacementClient, accounts};
use resources::{Ledger, Payer, Scheduled};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use types::{Error, NodeId, Priority, ResourceGroup, version};

/// What an import is among the kinds of background work.
const TASK: &str = "import";
/// How long placement has for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// A group that pays for an import.
pub struct Paying {
    /// Pays for requests.
    pub payer: Arc<Payer>,
    /// By whose priority they are made.
    pub scheduled: Arc<Scheduled>,
    ledger: Arc<Ledger>,
    placement: PlacementClient,
    number: NodeId,
    accounting: JoinHandle<()>,
}

impl Paying {
    /// Has a group pay from now on.
    ///
    /// # Errors
    ///
    /// A group that is not there, or no answer of placement.
    pub async fn begin(placement: PlacementClient, group: &str) -> Result<Self> {
        let catalog = placement.catalog().await?;
        let everybodys = ResourceGroup::everybodys();
        let group = match catalog.controls_resources() {
            true => catalog.resources.named(group).context("its resource group was dropped")?,
            false => &everybodys,
        };
        let ledger = Arc::new(Ledger::new(Arc::new(env::RealClock::new())));
        let (payer, scheduled) = (Payer::new(ledger.account(group)), ledger.scheduled());
        let gives_way = group.background.iter().any(|task| task == TASK);
        scheduled.set_priority(if gives_way { Priority::Low } else { group.priority });
        // No node has such a number.
        let number = env::Random::from_os().u64() | 1 << 63;
        // What this process knows of the cluster's version is none; a leader that cannot read what it is asked says so.
        let keeping =
            accounts::keep(ledger.clone(), placement.clone(), number, || version::CURRENT);
        let accounting = tokio::spawn(keeping);
        Ok(Paying { payer, scheduled, ledger, placement, number, accounting })
    }

    /// Has placement know of the last of what was used; an import that has written everything does not fail by that.
    pub async fn end(self) {
        let reported = self.placement.shares(self.number, self.ledger.uses());
        if !matches!(timeout(ANSWER, reported).await, Ok(Ok(_))) {
            tracing::warn!("placement does not know all that the import has used");
        }
    }

    /// Returns once the group owes nothing.
    ///
    /// # Errors
    ///
    /// None that waiting is an answer to.
    pub async fn admit(&self) -> types::Result<()> {
        loop {
            match self.payer.admit().await {
                Err(Error::Throttled(_)) => {}
                admitted => return admitted,
            }
        }
    }
}

impl Drop for Paying {
    fn drop(&mut self) {
        self.accounting.abort();
    }
}
