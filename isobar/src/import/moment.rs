//! The moment at which an import's rows become visible, held by a lease while they are written.
//!
//! Without it, collection could pass that moment, and what is deleted from the table once it is
//! open could be brought back by a late repetition; regions therefore refuse to write below their
//! floor. A moment that is lost ends the import; the next one takes another.

use std::time::Duration;

use anyhow::{Context, Result};
use placement::PlacementClient;
use types::{Error, LeaseId, Timestamp};

/// How long the moment is held without a sign of life.
const TTL: Duration = Duration::from_secs(60);
/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(15);
/// How long giving it back may take; it ends by itself.
const RELEASE: Duration = Duration::from_secs(5);

/// A moment, and the lease that holds it.
pub struct Moment {
    placement: PlacementClient,
    owner: String,
    lease: parking_lot::Mutex<LeaseId>,
    /// When the rows become visible.
    pub ts: Timestamp,
}

impl Moment {
    /// Holds the present.
    ///
    /// # Errors
    ///
    /// Placement that does not answer.
    pub async fn now(placement: &PlacementClient, owner: String) -> Result<Moment, Error> {
        Self::take(placement, None, owner).await
    }

    /// Holds an earlier moment; none if it is past holding.
    ///
    /// # Errors
    ///
    /// Placement that does not answer.
    pub async fn again(
        placement: &PlacementClient,
        ts: Timestamp,
        owner: String,
    ) -> Result<Option<Moment>, Error> {
        match Self::take(placement, Some(ts), owner).await {
            Ok(moment) => Ok(Some(moment)),
            Err(Error::SnapshotTooOld { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn take(
        placement: &PlacementClient,
        ts: Option<Timestamp>,
        owner: String,
    ) -> Result<Moment, Error> {
        let lease = placement.take_lease(ts, TTL, owner.clone()).await?;
        let (id, ts) = (parking_lot::Mutex::new(lease.id), lease.ts);
        Ok(Moment { placement: placement.clone(), owner, lease: id, ts })
    }

    /// Goes on holding it for as long as it is polled; ends with the reason why it is lost.
    pub async fn keep(&self) -> anyhow::Error {
        loop {
            tokio::time::sleep(RENEW).await;
            match self.renew().await {
                // Placement that cannot be reached may be there again in time; if it is not, the
                // regions refuse what comes too late.
                Ok(()) | Err(Error::Timeout { .. } | Error::Unavailable(_)) => {}
                Err(error @ (Error::NotLeader { .. } | Error::Dropped(_))) => {
                    tracing::debug!(%error, "lease not renewed; tried again");
                }
                Err(error) => {
                    let lost: Result<()> = Err(error.into());
                    return match lost.context("the moment of the import is lost") {
                        Ok(()) => anyhow::anyhow!("the moment of the import is lost"),
                        Err(error) => error,
                    };
                }
            }
        }
    }

    /// Prolongs the lease, or takes another at the same moment where it has ended.
    async fn renew(&self) -> Result<(), Error> {
        let id = *self.lease.lock();
        match self.placement.renew_lease(id, TTL).await {
            // Ended while nobody was heard, or renewed for as long as a lease can be.
            Err(Error::LeaseLost(_) | Error::Invalid(_)) => {
                let owner = self.owner.clone();
                let lease = self.placement.take_lease(Some(self.ts), TTL, owner).await?;
                *self.lease.lock() = lease.id;
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Gives it up.
    pub async fn release(self) {
        let id = *self.lease.lock();
        // Where it cannot be given back, it ends by itself.
        _ = tokio::time::timeout(RELEASE, self.placement.release_lease(id)).await;
    }
}
