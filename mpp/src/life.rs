//! How long a worker's tasks may run: as long as the coordinator's channel stands that brought their
//! plan.
//!
//! A task that groups or sorts says nothing until its end, so it would not notice that nobody listens
//! to it, and who keeps its plan lets go of it much later. So what feeds it, scans and joins, looks
//! whether the query is still wanted, and fails if not. An answer is never cut short in silence.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coop::{CooperativeExec, make_cooperative};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_distributed::{WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse};
use functions::trees::Tree;
use futures::StreamExt;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::body::Body;

tokio::task_local! {
    /// The life of what the call that runs brings.
    static CALL: Life;
}

/// Whether a query is still wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life(CancellationToken);

impl Life {
    /// A request's body that ends this life when it ends or breaks.
    pub fn tied_to(&self, body: Body) -> Body {
        Body::new(Tied { body, _end: self.0.clone().drop_guard() })
    }

    /// Runs a call that brings plans.
    pub fn scope<F: Future>(self, call: F) -> impl Future<Output = F::Output> {
        CALL.scope(self, call)
    }

    /// The life of the call that runs; endless outside of one.
    pub fn of_call() -> Life {
        CALL.try_with(Life::clone).unwrap_or_default()
    }
}

/// A body whose end is noticed.
struct Tied {
    body: Body,
    _end: DropGuard,
}

impl HttpBody for Tied {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Batches of a task, as long as its query is wanted.
pub(crate) fn while_wanted(
    batches: SendableRecordBatchStream,
    context: &TaskContext,
) -> SendableRecordBatchStream {
    let Some(life) = context.session_config().get_extension::<Life>() else { return batches };
    let schema = batches.schema();
    let wanted = batches.map(move |batch| match life.0.is_cancelled() {
        true => Err(exec_datafusion_err!("the query has ended, nobody waits for this task")),
        false => batch,
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, wanted))
}

/// Has a worker's joins look whether their query is wanted, where they give way.
pub(crate) fn watch_joins(
    event: WorkerPlanRewriteEvent<'_>,
) -> Result<WorkerPlanRewriteEventResponse> {
    let plan = event.plan.map_up(&mut |node| {
        let input = node.downcast_ref::<CooperativeExec>().map(|join| join.input().clone());
        Ok(match input {
            Some(input) => {
                let properties = node.properties().clone();
                Transformed::yes(Arc::new(WantedExec { input, properties }) as _)
            }
            None => Transformed::no(node),
        })
    });
    plan.data().map(WorkerPlanRewriteEventResponse::new)
}

/// Stands in a worker's plan for [`CooperativeExec`], and does the same besides.
#[derive(Debug)]
struct WantedExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for WantedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("WantedExec")
    }
}

impl ExecutionPlan for WantedExec {
    fn name(&self) -> &str {
        "WantedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| self.input.clone());
        let properties = CooperativeExec::new(input.clone()).properties().clone();
        Ok(Arc::new(WantedExec { input, properties }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batches = self.input.execute(partition, context.clone())?;
        Ok(make_cooperative(while_wanted(batches, &context)))
    }
}
