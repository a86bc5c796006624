//! Tasks and computations that DataFusion begins for a query: they go by the priority of the work that begins them, and are
//! paid for with it.
//!
//! The library has one place for that in a process, which was made for tracing.

use std::any::Any;

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;
use resources::priority::{inherited, inherited_block};

type Erased = Box<dyn Any + Send>;

struct Inheriting;

impl JoinSetTracer for Inheriting {
    fn trace_future(&self, task: BoxFuture<'static, Erased>) -> BoxFuture<'static, Erased> {
        inherited(task).boxed()
    }

    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Erased + Send>,
    ) -> Box<dyn FnOnce() -> Erased + Send> {
        Box::new(inherited_block(work))
    }
}

/// Has queries' tasks inherit from now on, in all of the process.
pub fn inherit() {
    // Once is enough: whoever comes later finds it so.
    _ = set_join_set_tracer(&Inheriting);
}
