//! How far back a columnar node keeps what was replaced: everything of the last minutes, and
//! everything that a lease protects.
//!
//! It only ever moves forward, and stays where it is while placement cannot be asked. Reading
//! below it is a typed error, never a wrong answer: tablets know what they have dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use placement::api::Lease;
use placement::client::PlacementClient;
use types::{Result, Timestamp};

/// How long a replaced version stays readable without a lease; transactions are shorter.
const RETENTION: Duration = Duration::from_secs(600);
/// Pause between questions to placement.
const PAUSE: Duration = Duration::from_secs(10);

/// The oldest timestamp that readers may still ask for. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct SafePoint(Arc<AtomicU64>);

impl SafePoint {
    pub fn get(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Acquire))
    }

    /// Follows time and leases for as long as it is polled.
    pub async fn follow(self, placement: PlacementClient) {
        loop {
            match ask(&placement).await {
                Ok(point) => _ = self.0.fetch_max(point.0, Ordering::AcqRel),
                Err(error) => tracing::info!(%error, "what may be dropped is not known"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn ask(placement: &PlacementClient) -> Result<Timestamp> {
    // Time first: a lease that is taken after the list was made is younger than that.
    let (now, _) = placement.timestamp().await?;
    Ok(oldest(now, &placement.leases().await?))
}

fn oldest(now: Timestamp, leases: &[Lease]) -> Timestamp {
    let kept = now.physical_ms().saturating_sub(RETENTION.as_millis() as u64);
    leases.iter().map(|lease| lease.ts).fold(Timestamp::pack(kept, 0), Timestamp::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_young_or_leased_is_kept() {
        let hour = 3_600_000;
        let lease =
            |ts| Lease { id: 1, ts, owner: "a job".into(), taken_ms: 0, expires_ms: 2 * hour };
        let now = Timestamp::pack(hour, 7);
        assert_eq!(oldest(now, &[]), Timestamp::pack(hour - 600_000, 0));
        let (old, young) = (Timestamp::pack(5, 3), Timestamp::pack(hour - 1, 0));
        assert_eq!(oldest(now, &[lease(young), lease(old)]), old);
        assert_eq!(oldest(now, &[lease(young)]), Timestamp::pack(hour - 600_000, 0));
        assert_eq!(oldest(Timestamp::pack(1, 0), &[]), Timestamp::ZERO);
    }
}
