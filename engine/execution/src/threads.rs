//! Threads that run query plans, apart from those that serve connections and heartbeats.
//!
//! A plan computes for as long as it likes between two awaits. On a server's own threads that
//! would hold up every other session, and a node that is busy would look dead. Nothing that waits
//! for a client's socket may run here. A plan that panics fails, and takes nothing else with it.

use std::sync::{Arc, OnceLock};

use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use tokio::runtime::{Builder, Handle, Runtime};
use types::{Error, Result};

use crate::panics::guarded;

/// Batches that wait for a reader before a plan is held back.
const READY_BATCHES: usize = 2;

/// The process's query threads, one for each processor.
///
/// # Errors
///
/// `Unavailable` if they could not be started.
pub fn handle() -> Result<Handle> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let stack = syntax::parser::chains::STACK;
        let mut builder = Builder::new_multi_thread();
        builder.thread_name("query").thread_stack_size(stack).enable_all().build()
    });
    match runtime {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(error) => Err(Error::Unavailable(format!("no threads for queries: {error}"))),
    }
}

/// Runs a plan on the query threads. It ends when the stream is dropped.
///
/// # Errors
///
/// `Unavailable` if there are no query threads; failures of the plan come through the stream.
pub fn run(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let handle = handle()?;
    let mut builder = RecordBatchReceiverStream::builder(plan.schema(), READY_BATCHES);
    let ready = builder.tx();
    let work = async move {
        let mut batches = execute_stream(plan, context)?;
        while let Some(batch) = batches.next().await {
            // Nobody listens any more: the stream was dropped.
            if ready.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    // A panic would go on where the stream is read, on a thread that serves clients.
    builder.spawn_on(guarded(work), &handle);
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::DataType;
    use arrow::record_batch::RecordBatch;
    use datafusion::logical_expr::{Volatility, col, create_udf};
    use datafusion::prelude::SessionContext;
    use futures::TryStreamExt;

    use super::*;
    use values::error::SqlError;
    use values::error::is_fault;

    #[tokio::test]
    async fn a_plan_that_panics_fails() {
        let types = (vec![DataType::Int64], DataType::Int64);
        let panics = create_udf(
            "panics",
            types.0,
            types.1,
            Volatility::Volatile,
            Arc::new(|_| panic!("a value")),
        );
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("a", rows)]).unwrap();
        let context = SessionContext::new();
        let frame = context.read_batch(batch).unwrap();
        let frame = frame.select(vec![panics.call(vec![col("a")])]).unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        for _ in 0..2 {
            let stream = run(plan.clone(), context.task_ctx()).unwrap();
            let error = stream.try_collect::<Vec<_>>().await.unwrap_err();
            assert!(is_fault(&SqlError::from(error)));
        }
    }
}
