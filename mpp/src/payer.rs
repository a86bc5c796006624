//! Who pays for what a query reads on this node: the account of the resource group that its ticket names, until the group's
//! QUERY_LIMIT has another group pay for the rest, or has that go behind all other work. What is ended is ended by who asks.
//!
//! Scans pay for the bytes that they read and for the processor time that takes them, and wait while their group is in
//! debt: so does the query above them. What joins, groups and sends rows is not counted here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow::array::{Array, ArrayRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use placement::client::PlacementClient;
use resources::{Account, Ledger, ReadyWork, Scheduled, Units};
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use types::resource_group::{Action, DEFAULT_GROUP};
use types::{Priority, ResourceGroup};

use crate::error::MppError;

/// Names a query's group to workers.
const GROUP_HEADER: &str = "isobar-resource-group";

/// Who pays for a query, or for a task of one, on this node.
#[derive(Clone)]
pub(crate) struct Payer(Arc<Paying>);

/// A group that pays.
pub(crate) struct Paying {
    account: Arc<Account>,
    priority: Priority,
    ready: Arc<ReadyWork>,
    payer: Arc<resources::Payer>,
    turn: Option<Turn>,
}

/// What becomes of a query that takes long.
struct Turn {
    at: Instant,
    /// Who pays for the rest, and its priority; without, the rest goes behind all others.
    other: Option<(Priority, Arc<Account>)>,
    taken: AtomicBool,
}

impl Paying {
    /// A group as of now; `named` finds others.
    fn begin<'a>(
        ledger: &Ledger,
        group: &ResourceGroup,
        named: impl Fn(&str) -> Option<&'a ResourceGroup>,
    ) -> Self {
        let account = ledger.account(group);
        let turn = group.query_limit.as_ref().and_then(|limit| {
            let other = match &limit.action {
                Action::Cooldown => None,
                Action::Switch(name) => {
                    let other = named(name)?;
                    Some((other.priority, ledger.account(other)))
                }
                Action::DryRun | Action::Kill => return None,
            };
            let at = Instant::now() + limit.exec_elapsed?;
            Some(Turn { at, other, taken: AtomicBool::new(false) })
        });
        let (priority, ready) = (group.priority, ledger.ready());
        let payer = resources::Payer::new(account.clone());
        Paying { account, priority, ready, payer, turn }
    }

    /// Somebody who works for it.
    fn scheduled(&self) -> Arc<Scheduled> {
        let scheduled = Scheduled::new(self.ready.clone());
        scheduled.set_priority(self.priority);
        scheduled
    }

    /// Notes what was read: it is paid for by whoever pays now.
    fn charge(&self, units: Units) {
        self.turn();
        self.payer.charge(units);
    }

    /// Whether it has taken long: from then on another one pays, if one is to.
    fn turn(&self) -> Option<&Turn> {
        let turn = self.turn.as_ref().filter(|turn| turn.at <= Instant::now())?;
        if !turn.taken.swap(true, Ordering::Relaxed)
            && let Some((_, account)) = &turn.other
        {
            self.payer.switch_to(account.clone());
        }
        Some(turn)
    }

    /// Has `by` go by its priority as it is now.
    fn look(&self, by: &Scheduled) {
        if let Some(turn) = self.turn() {
            by.set_priority(turn.other.as_ref().map_or(Priority::Low, |(priority, _)| *priority));
        }
    }
}

impl Payer {
    /// Who pays for what a session reads; nobody for what the system reads.
    pub fn of(config: &SessionConfig) -> Option<Arc<Paying>> {
        config.get_extension::<Payer>().map(|payer| payer.0.clone())
    }

    /// Names its group to the workers of a query. A name that no header can hold stays here: the default group pays there.
    pub fn name_in(&self, headers: &mut HeaderMap) {
        if let Ok(name) = HeaderValue::from_bytes(self.0.account.group().as_bytes()) {
            headers.insert(HeaderName::from_static(GROUP_HEADER), name);
        }
    }
}

/// The accounts of groups on this node.
#[derive(Clone)]
pub(crate) struct Payers {
    ledger: Arc<Ledger>,
    placement: PlacementClient,
}

impl Payers {
    pub fn new(ledger: Arc<Ledger>, placement: PlacementClient) -> Self {
        Payers { ledger, placement }
    }

    /// Who pays for a group; the default group for one that is not there.
    pub async fn of_group(&self, name: Option<&str>) -> Payer {
        let catalog = self.placement.catalog().await.ok();
        let named = |name: &str| catalog.as_ref()?.resources.named(name);
        let everybodys = ResourceGroup::everybodys();
        let group = name.and_then(named).or_else(|| named(DEFAULT_GROUP)).unwrap_or(&everybodys);
        Payer(Arc::new(Paying::begin(&self.ledger, group, named)))
    }

    /// Who pays for a task that a coordinator sends.
    pub async fn of_headers(&self, headers: &HeaderMap) -> Payer {
        let name = headers.get(GROUP_HEADER).map(HeaderValue::as_bytes);
        self.of_group(name.and_then(|name| std::str::from_utf8(name).ok())).await
    }
}

/// Reads the next batch of a scan, which is paid for. Runs on a thread that may wait.
pub(crate) fn read<E>(
    batches: &mut impl Iterator<Item = std::result::Result<RecordBatch, E>>,
    payer: Option<&Paying>,
) -> Option<std::result::Result<RecordBatch, E>> {
    let Some(payer) = payer else { return batches.next() };
    let began = Instant::now();
    let batch = batches.next();
    let mut units = Units::of_processor(began.elapsed());
    if let Some(Ok(batch)) = &batch {
        units += Units::of_bytes(bytes_of(batch));
    }
    payer.charge(units);
    batch
}

/// Bytes of a batch's own rows: its arrays may be parts of larger ones.
fn bytes_of(batch: &RecordBatch) -> usize {
    let own = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
    batch.columns().iter().map(own).sum()
}

/// Batches that are asked for only while their payer owes nothing, and by its priority.
pub(crate) fn while_paid(
    batches: SendableRecordBatchStream,
    payer: Option<Arc<Paying>>,
) -> SendableRecordBatchStream {
    let Some(payer) = payer else { return batches };
    let schema = batches.schema();
    let by = payer.scheduled();
    let paid =
        futures::stream::unfold((batches, payer, by), |(mut batches, payer, by)| async move {
            payer.look(&by);
            let next: Option<Result<RecordBatch>> = match payer.payer.admit().await {
                Ok(()) => by.run(batches.next()).await,
                Err(error) => Some(Err(MppError::from(error).into())),
            };
            next.map(|batch| (batch, (batches, payer, by)))
        });
    Box::pin(RecordBatchStreamAdapter::new(schema, paid))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::StringArray;
    use env::SimClock;
    use types::resource_group::QueryLimit;

    use super::*;

    #[test]
    fn a_batch_that_is_a_part_of_a_larger_one_costs_its_part() {
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..1_000).map(|_| "x".repeat(640))));
        let whole = RecordBatch::try_from_iter([("a", texts)]).unwrap();
        let ledger = Ledger::new(Arc::new(SimClock::new(0)));
        let paying = Paying::begin(&ledger, &ResourceGroup::everybodys(), |_| None);
        let account = paying.account.clone();
        let used = |batch: RecordBatch| {
            let before = account.used().as_f64();
            let mut batches = std::iter::once(Ok::<_, ()>(batch));
            read(&mut batches, Some(&paying)).unwrap().unwrap();
            account.used().as_f64() - before
        };
        // A millisecond of a processor would be a third of one.
        let (part, all) = (used(whole.slice(500, 100)), used(whole));
        assert!((0.9..1.5).contains(&part) && (9.5..11.0).contains(&all), "{part} and {all}");
    }

    #[test]
    fn another_group_pays_for_the_rest_of_what_takes_long() {
        let ledger = Ledger::new(Arc::new(SimClock::new(0)));
        let other = ResourceGroup::new("other").unwrap();
        let named = |name: &str| (name == "other").then_some(&other);
        let with = |after: Duration, action: Action| {
            let limit = QueryLimit { exec_elapsed: Some(after), ru: None, action, watch: None };
            ResourceGroup { query_limit: Some(limit), ..ResourceGroup::new("g").unwrap() }
        };
        let (soon, late) = (Duration::from_nanos(1), Duration::from_secs(3_600));
        for (group, paid_by_other) in [
            (with(soon, Action::Switch("other".into())), 1),
            (with(late, Action::Switch("other".into())), 0),
            (with(soon, Action::Switch("nothing".into())), 0),
            (with(soon, Action::Kill), 0),
            (with(soon, Action::Cooldown), 0),
        ] {
            let paying = Paying::begin(&ledger, &group, named);
            let before = ledger.account(&other).used();
            std::thread::sleep(Duration::from_millis(1));
            paying.look(&paying.scheduled());
            paying.charge(Units::whole(1));
            let paid = ledger.account(&other).used().0 - before.0;
            assert_eq!(paid, Units::whole(paid_by_other).0, "{group}");
        }
    }
}
