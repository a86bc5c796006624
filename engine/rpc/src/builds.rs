//! Who pays for what columnar replicas are built from: the resource group that does such work in the background.
//!
//! The receiver of a snapshot takes the next part once the group owes nothing, and the sender waits with it. It must never
//! keep a snapshot so long that the sender gives it up.

use std::sync::Arc;
use std::time::Duration;

use placement::PlacementClient;
use resources::{Ledger, Payer, Units};
use tokio::time::{Instant, timeout_at};

use crate::transport::SNAPSHOT_TIMEOUT;

/// What a build is among the kinds of background work.
const TASK: &str = "replica";
/// How long the parts of a snapshot wait for units, all in all; the rest of its time is for the rest of its work.
const LONGEST_WAIT: Duration = SNAPSHOT_TIMEOUT.saturating_sub(Duration::from_secs(100));

/// Has a group pay for snapshots that arrive.
#[derive(Clone)]
pub struct Builds {
    /// The accounts of groups on this node.
    pub ledger: Arc<Ledger>,
    /// Knows the groups.
    pub placement: PlacementClient,
}

impl Builds {
    /// A snapshot arrives. Nobody pays if no group does such work in the background.
    pub(crate) async fn begin(&self) -> Build {
        let catalog = self.placement.catalog().await.ok();
        let catalog = catalog.as_ref().filter(|catalog| catalog.controls_resources());
        let group = catalog.and_then(|catalog| catalog.resources.in_background(TASK));
        let payer = group.map(|group| Payer::new(self.ledger.account(group)));
        Build { payer, until: Instant::now() + LONGEST_WAIT }
    }
}

/// A snapshot that arrives.
pub(crate) struct Build {
    payer: Option<Arc<Payer>>,
    until: Instant,
}

impl Build {
    /// A part of so many bytes is there: returns once the next may come.
    pub(crate) async fn part(&self, bytes: usize) {
        let Some(payer) = &self.payer else { return };
        payer.charge(Units::of_read(bytes));
        let paid = async { while payer.admit().await.is_err() {} };
        // What has waited long enough goes on in debt, which others of the group wait for.
        _ = timeout_at(self.until, paid).await;
    }
}

#[cfg(test)]
mod tests {
    use types::ResourceGroup;

    use super::*;

    #[tokio::test]
    async fn parts_wait_for_units_but_not_beyond_what_the_sender_bears() {
        let ledger = Ledger::new(Arc::new(env::RealClock::new()));
        let group = ResourceGroup { ru_per_sec: Some(100), ..ResourceGroup::new("g").unwrap() };
        let payer = Some(Payer::new(ledger.account(&group)));
        let began = Instant::now();
        let build = Build { payer: payer.clone(), until: began + LONGEST_WAIT };
        build.part(1 << 20).await;
        assert!(began.elapsed() >= Duration::from_millis(160), "{:?}", began.elapsed());
        let began = Instant::now();
        let build = Build { payer, until: began + Duration::from_millis(50) };
        build.part(64 << 20).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        Build { payer: None, until: began }.part(64 << 20).await;
    }
}
