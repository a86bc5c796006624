//! A panic of a statement, turned into its error: it ends neither the connection nor the node.
//!
//! A panic is a fault of ours and never passed over in silence: the hook writes where it happened, and from
//! where, to the node's log. Its text stays there, for it may show values of rows.

use std::any::Any;
use std::backtrace::Backtrace;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use futures::{FutureExt, Stream, StreamExt};
use values::error::{SqlError, SqlResult, fault};

/// The error for what was caught; what it says is in the log already.
fn of_panic(_: Box<dyn Any + Send>) -> SqlError {
    fault()
}

/// Computes something; a panic in it is its error.
///
/// # Errors
///
/// What `compute` returns, or [`fault`].
pub fn caught<T>(compute: impl FnOnce() -> SqlResult<T>) -> SqlResult<T> {
    catch_unwind(AssertUnwindSafe(compute)).unwrap_or_else(|panic| Err(of_panic(panic)))
}

/// Awaits something; a panic in it is its error.
///
/// # Errors
///
/// What `work` returns, or [`fault`].
pub async fn guarded<T, E: From<SqlError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.unwrap_or_else(|panic| Err(of_panic(panic).into()))
}

/// A stream that ends with an error where it would panic.
pub fn guarded_stream<T, E: From<SqlError>>(
    items: impl Stream<Item = Result<T, E>>,
) -> impl Stream<Item = Result<T, E>> {
    let caught = AssertUnwindSafe(items).catch_unwind();
    caught.map(|item| item.unwrap_or_else(|panic| Err(of_panic(panic).into())))
}

/// Writes every panic of the process to its log, with a backtrace. It takes the place of the standard hook,
/// which fails on a standard error that cannot be written to.
pub fn log_all() {
    std::panic::set_hook(Box::new(log));
}

fn log(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let what = panic.payload_as_str().unwrap_or("a value that is no text");
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let backtrace = Backtrace::force_capture();
    tracing::error!(%place, %thread, "a thread panicked: {what}\n{backtrace}");
}
