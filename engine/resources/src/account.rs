//! What one resource group uses in a process.
//!
//! An account notes what is used, and has work wait while its group is in debt, first come first served. It decides no rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use env::Clock;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use types::{Error, Result};

use crate::bucket::Bucket;
use crate::shares::Use;
use crate::units::Units;

/// How long work waits for its group's debt.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long it waits before it looks again, whatever the debt: rates change.
const LOOK: Duration = Duration::from_millis(100);
/// Portions that a group's rate is used in, in a second.
const PORTIONS: u64 = 50;

/// What a group uses in a process.
pub struct Account {
    group: String,
    clock: Arc<dyn Clock>,
    used: AtomicU64,
    /// Whether there is a bucket, for whoever need not look into it.
    limited: AtomicBool,
    paced: Mutex<Option<Paced>>,
    /// Whoever waits, in order.
    turn: tokio::sync::Mutex<()>,
    waited: AtomicBool,
}

struct Paced {
    /// The group's rate.
    limit: Units,
    bucket: Bucket,
}

impl Account {
    pub(crate) fn new(group: String, clock: Arc<dyn Clock>) -> Self {
        Account {
            group,
            clock,
            used: AtomicU64::new(0),
            limited: AtomicBool::new(false),
            paced: Mutex::new(None),
            turn: tokio::sync::Mutex::default(),
            waited: AtomicBool::new(false),
        }
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// What it has used in this process.
    pub fn used(&self) -> Units {
        Units(self.used.load(Ordering::Relaxed))
    }

    /// Notes what work has cost. Nobody waits.
    pub fn charge(&self, units: Units) {
        self.used.fetch_add(units.0, Ordering::Relaxed);
        if self.limited.load(Ordering::Acquire)
            && let Some(paced) = &mut *self.paced.lock()
        {
            paced.bucket.take(units, self.clock.now());
        }
    }

    /// Returns once the group owes nothing.
    ///
    /// # Errors
    ///
    /// `Throttled` after half a minute.
    pub async fn admit(&self) -> Result<()> {
        if !self.limited.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Ok(_turn) = self.turn.try_lock()
            && self.owes_for().is_none()
        {
            return Ok(());
        }
        self.waited.store(true, Ordering::Relaxed);
        let paid = async {
            let _turn = self.turn.lock().await;
            while let Some(wait) = self.owes_for() {
                sleep(wait.min(LOOK)).await;
            }
        };
        let paid = timeout(LONGEST_WAIT, paid).await;
        paid.map_err(|_| Error::Throttled(self.group.clone()))
    }

    /// Units that come in in a moment, if the group is held to a rate: what takes its work in parts takes no larger ones,
    /// or the work of others feels each.
    pub fn portion(&self) -> Option<Units> {
        if !self.limited.load(Ordering::Acquire) {
            return None;
        }
        let rate = self.paced.lock().as_ref()?.bucket.rate();
        Some(Units(rate.0 / PORTIONS))
    }

    fn owes_for(&self) -> Option<Duration> {
        self.paced.lock().as_mut()?.bucket.owes_for(self.clock.now())
    }

    /// Holds it to a group's rate; whether that is another one than before.
    pub(crate) fn hold_to(&self, limit: Option<Units>) -> bool {
        let now = self.clock.now();
        let mut paced = self.paced.lock();
        let known = paced.as_ref().map(|paced| paced.limit);
        if known == limit {
            return false;
        }
        match (&mut *paced, limit) {
            (Some(paced), Some(limit)) => {
                // Its share of the new rate is what it had of the old one, until placement says otherwise.
                let share = u128::from(paced.bucket.rate().0) * u128::from(limit.0);
                let share = share.checked_div(u128::from(paced.limit.0)).unwrap_or(0);
                let share = u64::try_from(share).unwrap_or(u64::MAX).min(limit.0);
                paced.bucket.set_rate(Units(share), now);
                paced.limit = limit;
            }
            (paced, limit) => {
                *paced = limit.map(|limit| Paced { limit, bucket: Bucket::new(limit, now) });
            }
        }
        self.limited.store(limit.is_some(), Ordering::Release);
        true
    }

    pub(crate) fn grant(&self, rate: Units) {
        let now = self.clock.now();
        if let Some(paced) = &mut *self.paced.lock() {
            paced.bucket.set_rate(rate.min(paced.limit), now);
        }
    }

    pub(crate) fn to_report(&self) -> Use {
        let used = self.used.load(Ordering::Relaxed);
        let held = self.paced.lock().as_ref().map_or(0, |paced| paced.bucket.rate().0);
        let waited = self.waited.swap(false, Ordering::Relaxed);
        Use { group: self.group.clone(), used, waited, held }
    }
}
