//! Who pays for what a query reads on this node: the account of the resource group that its ticket names, until the group's
//! QUERY_LIMIT has another group pay for the rest, or has that go behind all other work. What is ended is ended by who asks.
//!
//! Everything that a query computes here is paid for, and scans pay for the bytes that they read. They wait while their
//! group is in debt: so does the query above them, which never waits holding what others wait for.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use placement::client::PlacementClient;
use resources::{Account, Ledger, Scheduled, Units};
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use types::ResourceGroup;
use types::resource_group::{Action, DEFAULT_GROUP};

use crate::error::MppError;

/// Names a query's group to workers.
const GROUP_HEADER: &str = "isobar-resource-group";
/// Has the catalog's version that the group is known from.
const CATALOG_HEADER: &str = "isobar-catalog-version";

/// Who pays for a query, or for a task of one, on this node.
#[derive(Clone)]
pub(crate) struct Payer(Arc<Paying>);

/// A group that pays.
pub(crate) struct Paying {
    account: Arc<Account>,
    /// The catalog's version that the group is known from.
    catalog: u64,
    payer: Arc<resources::Payer>,
    work: Arc<Scheduled>,
}

impl Paying {
    /// A group as of now; `named` finds others.
    fn begin<'a>(
        ledger: &Ledger,
        (group, catalog): (&ResourceGroup, u64),
        named: impl Fn(&str) -> Option<&'a ResourceGroup>,
    ) -> Self {
        let account = ledger.account(group);
        let payer = resources::Payer::new(account.clone());
        let work = ledger.scheduled();
        work.set_priority(group.priority);
        work.charge_to(Some(payer.clone()));
        if let Some(limit) = &group.query_limit
            && let Some(elapsed) = limit.exec_elapsed
        {
            let at = Instant::now() + elapsed;
            match &limit.action {
                Action::Cooldown => work.turn_at(at, None),
                Action::Switch(name) => {
                    if let Some(other) = named(name) {
                        work.turn_at(at, Some((other.priority, ledger.account(other))));
                    }
                }
                Action::DryRun | Action::Kill => {}
            }
        }
        Paying { account, catalog, payer, work }
    }
}

impl Payer {
    /// Who pays for what a session reads; nobody for what the system reads.
    pub fn of(config: &SessionConfig) -> Option<Arc<Paying>> {
        config.get_extension::<Payer>().map(|payer| payer.0.clone())
    }

    /// The work that it pays for, which goes by its group's priority.
    pub fn work(&self) -> &Arc<Scheduled> {
        &self.0.work
    }

    /// Names its group to the workers of a query. A name that no header can hold stays here: the default group pays there.
    pub fn name_in(&self, headers: &mut HeaderMap) {
        if let Ok(name) = HeaderValue::from_bytes(self.0.account.group().as_bytes()) {
            headers.insert(HeaderName::from_static(GROUP_HEADER), name);
            headers.insert(HeaderName::from_static(CATALOG_HEADER), self.0.catalog.into());
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

    /// Who pays for a group, as it is since a version of the catalog; the default group for one that is not there.
    pub async fn of_group(&self, name: Option<&str>, since: u64) -> Payer {
        // Without placement it is the group as it was known last.
        let _ = self.placement.catch_up(since).await;
        let catalog = self.placement.catalog().await.ok();
        let named = |name: &str| catalog.as_ref()?.effective_group(name);
        let everybodys = ResourceGroup::everybodys();
        let group = name.and_then(named).or_else(|| named(DEFAULT_GROUP)).unwrap_or(&everybodys);
        let version = catalog.as_ref().map_or(0, |catalog| catalog.version);
        let paying = Paying::begin(&self.ledger, (group, version), named);
        if catalog.as_ref().is_some_and(|catalog| !catalog.controls_resources()) {
            paying.work.charge_to(None);
        }
        Payer(Arc::new(paying))
    }

    /// Who pays for a task that a coordinator sends.
    pub async fn of_headers(&self, headers: &HeaderMap) -> Payer {
        let text = |name| std::str::from_utf8(headers.get(name)?.as_bytes()).ok();
        let since = text(CATALOG_HEADER).and_then(|version| version.parse().ok());
        self.of_group(text(GROUP_HEADER), since.unwrap_or(0)).await
    }
}

/// Reads the next batch of a scan, which is paid for. Runs on a thread that may wait.
pub(crate) fn read<E>(
    batches: &mut impl Iterator<Item = std::result::Result<RecordBatch, E>>,
    payer: Option<&Paying>,
) -> Option<std::result::Result<RecordBatch, E>> {
    let Some(payer) = payer else { return batches.next() };
    let batch = payer.work.compute(|| batches.next());
    if let Some(Ok(batch)) = &batch {
        payer.work.charge(Units::of_bytes(bytes_of(batch)));
    }
    batch
}

/// Bytes of a batch's own rows: its arrays may be parts of larger ones.
fn bytes_of(batch: &RecordBatch) -> usize {
    let own = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
    batch.columns().iter().map(own).sum()
}

/// Batches that are asked for only while their payer owes nothing.
pub(crate) fn while_paid(
    batches: SendableRecordBatchStream,
    payer: Option<Arc<Paying>>,
) -> SendableRecordBatchStream {
    let Some(payer) = payer else { return batches };
    let schema = batches.schema();
    let paid = futures::stream::unfold((batches, payer), |(mut batches, payer)| async move {
        let next: Option<Result<RecordBatch>> = match payer.payer.admit().await {
            Ok(()) => batches.next().await,
            Err(error) => Some(Err(MppError::from(error).into())),
        };
        next.map(|batch| (batch, (batches, payer)))
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
        let paying = Paying::begin(&ledger, (&ResourceGroup::everybodys(), 0), |_| None);
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
            let paying = Paying::begin(&ledger, (&group, 0), named);
            let before = ledger.account(&other).used();
            std::thread::sleep(Duration::from_millis(1));
            paying.work.charge(Units::whole(1));
            let paid = ledger.account(&other).used().0 - before.0;
            assert_eq!(paid, Units::whole(paid_by_other).0, "{group}");
        }
    }
}
