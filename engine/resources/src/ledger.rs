//! Who pays in a process: an account for each resource group that does work in it.
//!
//! An account notes what is used, and has work wait while its group is in debt, first come first served. It decides no
//! rate: that is its group's, as far as it was granted to this process. Before anything was granted, and while placement
//! cannot be asked, it goes by what it knows: never by no limit, and never by none.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use types::ResourceGroup;

use crate::account::Account;
use crate::priority::{ReadyWork, Scheduled};
use crate::shares::{Grant, Use};
use crate::units::Units;
use crate::watches::Watches;

/// The accounts of a process.
pub struct Ledger {
    clock: Arc<dyn Clock>,
    accounts: Mutex<BTreeMap<String, Arc<Account>>>,
    ready: Arc<ReadyWork>,
    watches: Watches,
    due: Notify,
}

impl Ledger {
    /// A ledger without accounts.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::beside(clock, Arc::default())
    }

    /// The same, of a process that has more work than what is paid for here.
    pub fn beside(clock: Arc<dyn Clock>, ready: Arc<ReadyWork>) -> Self {
        let (accounts, watches) = (Mutex::default(), Watches::default());
        Ledger { clock, accounts, ready, watches, due: Notify::new() }
    }

    /// The account of a group, held to what that is now.
    pub fn account(&self, group: &ResourceGroup) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        let account = accounts
            .entry(group.name.clone())
            .or_insert_with(|| Arc::new(Account::new(group.name.clone(), self.clock.clone())));
        if account.hold_to(group.limit().map(Units::whole)) {
            self.due.notify_one();
        }
        account.clone()
    }

    /// Queries that are watched.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Work of the process that waits for a thread.
    pub fn ready(&self) -> Arc<ReadyWork> {
        self.ready.clone()
    }

    /// Somebody whose work is scheduled among that of the process.
    pub fn scheduled(&self) -> Arc<Scheduled> {
        Scheduled::new(self.ready.clone())
    }

    /// Holds each account to what its group is now: work that waits may have reason to go on, and nobody else looks.
    pub fn follow<'a>(&self, group: impl Fn(&str) -> Option<&'a ResourceGroup>) {
        for account in self.accounts.lock().values() {
            let limit = group(account.group()).and_then(ResourceGroup::limit);
            if account.hold_to(limit.map(Units::whole)) {
                self.due.notify_one();
            }
        }
    }

    /// Returns once a group's rate has changed, which placement should be asked about at once.
    pub async fn due(&self) {
        self.due.notified().await;
    }

    /// What placement is to know. Groups that have used nothing lately are in it: who has used what before counts by that.
    pub fn uses(&self) -> Vec<Use> {
        let accounts = self.accounts.lock();
        accounts.values().map(|account| account.to_report()).collect()
    }

    /// Takes in what placement has granted for what was reported; after how many milliseconds to ask again.
    pub fn take(&self, reported: &[Use], grants: Vec<Grant>) -> Option<u64> {
        let mut accounts = self.accounts.lock();
        for of in reported {
            // A group that placement knows nothing of is gone.
            if !grants.iter().any(|grant| grant.group == of.group) {
                accounts.remove(&of.group);
            }
        }
        let again = grants.iter().map(|grant| grant.again_ms).min();
        for Grant { group, rate, .. } in grants {
            if let (Some(account), Some(rate)) = (accounts.get(&group), rate) {
                account.grant(Units(rate));
            }
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use env::SimClock;
    use futures::FutureExt;

    use super::*;

    fn group(rate: Option<u64>) -> ResourceGroup {
        ResourceGroup { ru_per_sec: rate, ..ResourceGroup::new("g").unwrap() }
    }

    #[test]
    fn a_group_without_a_limit_is_counted_alone() {
        let ledger = Ledger::new(Arc::new(SimClock::new(0)));
        let account = ledger.account(&group(None));
        account.charge(Units::whole(1_000_000));
        assert!(account.admit().now_or_never().is_some());
        let uses = ledger.uses();
        assert_eq!(uses[0].used, Units::whole(1_000_000).0);
        let known = Grant { group: "g".into(), rate: None, again_ms: 1_000 };
        assert_eq!(ledger.take(&uses, vec![known]), Some(1_000));
        let burstable = ResourceGroup { burstable: true, ..group(Some(1)) };
        let burstable = ledger.account(&burstable);
        assert!(burstable.admit().now_or_never().is_some());
        assert_eq!(burstable.portion(), None);
    }

    #[test]
    fn debt_is_waited_for_until_it_is_paid_or_the_limit_is_gone() {
        let clock = SimClock::new(0);
        let ledger = Ledger::new(Arc::new(clock.clone()));
        let account = ledger.account(&group(Some(100)));
        assert!(ledger.due().now_or_never().is_some(), "placement is asked at once");
        assert!(account.admit().now_or_never().is_some());
        assert_eq!(account.portion(), Some(Units::whole(2)));
        account.charge(Units::whole(50));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        assert!(account.admit().now_or_never().is_none());
        clock.advance(Duration::from_millis(400));
        assert!(account.admit().now_or_never().is_none());
        clock.advance(Duration::from_millis(101));
        assert!(account.admit().now_or_never().is_some());
        account.charge(Units::whole(50));
        assert!(account.admit().now_or_never().is_none());
        let unlimited = group(None);
        ledger.follow(|name| (name == "g").then_some(&unlimited));
        assert!(account.admit().now_or_never().is_some());
    }

    #[test]
    fn a_share_follows_the_groups_rate_before_placement_answers() {
        let ledger = Ledger::new(Arc::new(SimClock::new(0)));
        ledger.account(&group(Some(1_000)));
        let uses = ledger.uses();
        assert_eq!((uses[0].held, uses[0].waited), (Units::whole(1_000).0, false));
        let half = Grant { group: "g".into(), rate: Some(Units::whole(500).0), again_ms: 200 };
        assert_eq!(ledger.take(&uses, vec![half]), Some(200));
        ledger.account(&group(Some(2_000)));
        assert_eq!(ledger.uses()[0].held, Units::whole(1_000).0);
        let more = Grant { group: "g".into(), rate: Some(Units::whole(9_000).0), again_ms: 200 };
        ledger.take(&[], vec![more]);
        let uses = ledger.uses();
        assert_eq!(uses[0].held, Units::whole(2_000).0, "never more than the group's");
        ledger.take(&uses, Vec::new());
        assert_eq!(ledger.uses(), [], "the group is gone");
    }
}
