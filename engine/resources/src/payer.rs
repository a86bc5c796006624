//! Who pays for the statements of a session: the account of their group, and of another group once a statement is switched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::Result;

use crate::account::Account;
use crate::units::Units;

/// Pays by the account that it has at the time.
pub struct Payer {
    account: RwLock<Arc<Account>>,
    used: AtomicU64,
}

impl Payer {
    /// One that pays by an account.
    pub fn new(account: Arc<Account>) -> Arc<Self> {
        Arc::new(Payer { account: RwLock::new(account), used: AtomicU64::new(0) })
    }

    /// Pays by another account from now on.
    pub fn switch_to(&self, account: Arc<Account>) {
        *self.account.write() = account;
    }

    /// What it has paid for, whoever's account that was.
    pub fn used(&self) -> Units {
        Units(self.used.load(Ordering::Relaxed))
    }

    /// Notes what work has cost. Nobody waits.
    pub fn charge(&self, units: Units) {
        self.used.fetch_add(units.0, Ordering::Relaxed);
        self.account.read().charge(units);
    }

    /// See [`Account::portion`].
    pub fn portion(&self) -> Option<Units> {
        self.account.read().portion()
    }

    /// Returns once its account owes nothing.
    ///
    /// # Errors
    ///
    /// `Throttled` after half a minute.
    pub async fn admit(&self) -> Result<()> {
        let account = self.account.read().clone();
        account.admit().await
    }
}

#[cfg(test)]
mod tests {
    use env::SimClock;
    use types::ResourceGroup;

    use super::*;
    use crate::ledger::Ledger;

    #[test]
    fn what_follows_a_switch_is_paid_for_by_the_other_group() {
        let ledger = Ledger::new(Arc::new(SimClock::new(0)));
        let [one, other] =
            ["one", "other"].map(|name| ledger.account(&ResourceGroup::new(name).unwrap()));
        let payer = Payer::new(one.clone());
        payer.charge(Units::whole(2));
        payer.switch_to(other.clone());
        payer.charge(Units::whole(3));
        assert_eq!((one.used(), other.used()), (Units::whole(2), Units::whole(3)));
        assert_eq!(payer.used(), Units::whole(5));
    }
}
