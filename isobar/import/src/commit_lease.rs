//! The commit timestamp of an import's rows, held by a lease while they are written.
//!
//! Without it, garbage collection could pass the timestamp, and what is deleted from the table once it is
//! open could be brought back by a late repetition; regions therefore refuse to write below their
//! floor. An import ends when its lease is lost; the next one takes another timestamp.

use std::time::Duration;

use anyhow::{Context, Result};
use placement::PlacementClient;
use types::{Error, LeaseId, Timestamp};

use crate::print;

/// How long the lease lasts without being renewed.
const TTL: Duration = Duration::from_secs(60);
/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(15);
/// How often a current timestamp is asked for, should it be too old when it is leased.
const ATTEMPTS: usize = 3;
/// How long its release may take; the lease expires by itself.
const RELEASE: Duration = Duration::from_secs(5);

/// A commit timestamp, and the lease that holds it.
pub struct CommitLease {
    placement: PlacementClient,
    owner: String,
    lease: parking_lot::Mutex<LeaseId>,
    /// When the rows become visible.
    pub ts: Timestamp,
}

impl CommitLease {
    /// Leases the current timestamp.
    ///
    /// # Errors
    ///
    /// Placement that does not answer.
    pub async fn now(placement: &PlacementClient, owner: String) -> Result<CommitLease, Error> {
        for _ in 1..ATTEMPTS {
            // A timestamp that nobody else has: by it, every lease that an attempt has taken is found again.
            let (ts, _) = placement.timestamp().await?;
            match Self::take(placement, ts, owner.clone()).await {
                // This process was stopped in between.
                Err(Error::SnapshotTooOld { .. }) => {}
                taken => return taken,
            }
        }
        Self::take(placement, placement.timestamp().await?.0, owner).await
    }

    /// Leases an earlier timestamp; none if it is too old.
    ///
    /// # Errors
    ///
    /// Placement that does not answer.
    pub async fn again(
        placement: &PlacementClient,
        ts: Timestamp,
        owner: String,
    ) -> Result<Option<CommitLease>, Error> {
        match Self::take(placement, ts, owner).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Error::SnapshotTooOld { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn take(
        placement: &PlacementClient,
        ts: Timestamp,
        owner: String,
    ) -> Result<CommitLease, Error> {
        let lease = placement.take_lease(Some(ts), TTL, owner.clone()).await?;
        let (id, ts) = (parking_lot::Mutex::new(lease.id), lease.ts);
        Ok(CommitLease { placement: placement.clone(), owner, lease: id, ts })
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
                    return match lost.context("the lease of the import's commit timestamp is lost")
                    {
                        Ok(()) => {
                            anyhow::anyhow!("the lease of the import's commit timestamp is lost")
                        }
                        Err(error) => error,
                    };
                }
            }
        }
    }

    /// Renews the lease, or takes another at the same timestamp where it has ended.
    async fn renew(&self) -> Result<(), Error> {
        let id = *self.lease.lock();
        match self.placement.renew_lease(id, TTL).await {
            // Ended while placement could not be reached, or renewed for as long as a lease can be.
            Err(Error::LeaseLost(_) | Error::Invalid(_)) => {
                let owner = self.owner.clone();
                let lease = self.placement.take_lease(Some(self.ts), TTL, owner).await?;
                *self.lease.lock() = lease.id;
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Ends it, and what an attempt to take it has left whose answer was lost.
    async fn release_all(&self) -> Result<(), Error> {
        let id = *self.lease.lock();
        self.placement.release_lease(id).await?;
        let left = self.placement.leases().await?;
        for lease in left.iter().filter(|lease| lease.owner == self.owner && lease.ts == self.ts) {
            self.placement.release_lease(lease.id).await?;
        }
        Ok(())
    }

    /// Gives it up; where that fails, says so: until it ends by itself, collection waits for it.
    pub async fn release(self) {
        let why = match tokio::time::timeout(RELEASE, self.release_all()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("placement did not answer within {} s", RELEASE.as_secs()),
        };
        print(&format!(
            "the lease of {} could not be released ({why}): it ends by itself within {} s",
            self.owner,
            TTL.as_secs()
        ));
    }
}
