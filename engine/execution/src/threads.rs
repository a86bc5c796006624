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
