//! Who pays for what a query reads on this node: the account of the resource group that its ticket names.
//!
//! Scans pay for the bytes that they read and for the processor time that takes them, and wait while their group is in
//! debt: so does the query above them. What joins, groups and sends rows is not counted here.

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
use resources::{Account, Ledger, Units};
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use types::ResourceGroup;
use types::resource_group::DEFAULT_GROUP;

use crate::error::MppError;

/// Names a query's group to workers.
const GROUP_HEADER: &str = "isobar-resource-group";

/// Who pays for a query on this node.
#[derive(Clone)]
pub(crate) struct Payer(pub Arc<Account>);

impl Payer {
    /// Who pays for what a session reads; nobody for what the system reads.
    pub fn of(config: &SessionConfig) -> Option<Arc<Account>> {
        config.get_extension::<Payer>().map(|payer| payer.0.clone())
    }

    /// Names its group to the workers of a query. A name that no header can hold stays here: the default group pays there.
    pub fn name_in(&self, headers: &mut HeaderMap) {
        if let Ok(name) = HeaderValue::from_bytes(self.0.group().as_bytes()) {
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
        let named = |name: &str| catalog.as_ref()?.resources.named(name).cloned();
        let group = name.and_then(named).or_else(|| named(DEFAULT_GROUP));
        Payer(self.ledger.account(&group.unwrap_or_else(ResourceGroup::everybodys)))
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
    payer: Option<&Account>,
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
    payer: Option<Arc<Account>>,
) -> SendableRecordBatchStream {
    let Some(payer) = payer else { return batches };
    let schema = batches.schema();
    let by = payer.scheduled();
    let paid =
        futures::stream::unfold((batches, payer, by), |(mut batches, payer, by)| async move {
            let next: Option<Result<RecordBatch>> = match payer.admit().await {
                Ok(()) => by.run(batches.next()).await,
                Err(error) => Some(Err(MppError::from(error).into())),
            };
            next.map(|batch| (batch, (batches, payer, by)))
        });
    Box::pin(RecordBatchStreamAdapter::new(schema, paid))
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;
    use env::SimClock;

    use super::*;

    #[test]
    fn a_batch_that_is_a_part_of_a_larger_one_costs_its_part() {
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..1_000).map(|_| "x".repeat(640))));
        let whole = RecordBatch::try_from_iter([("a", texts)]).unwrap();
        let account = Ledger::new(Arc::new(SimClock::new(0))).account(&ResourceGroup::everybodys());
        let used = |batch: RecordBatch| {
            let before = account.used().as_f64();
            let mut batches = std::iter::once(Ok::<_, ()>(batch));
            read(&mut batches, Some(&account)).unwrap().unwrap();
            account.used().as_f64() - before
        };
        // A millisecond of a processor would be a third of one.
        let (part, all) = (used(whole.slice(500, 100)), used(whole));
        assert!((0.9..1.5).contains(&part) && (9.5..11.0).contains(&all), "{part} and {all}");
    }
}
