//! A panic is an error of what it happened in, and of nothing else.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use datafusion::logical_expr::{Volatility, col, create_udf};
use datafusion::prelude::SessionContext;
use execution::panics::{caught, guarded, guarded_stream};
use execution::threads;
use futures::{StreamExt, TryStreamExt};
use values::error::{SqlError, SqlResult, is_fault, unknown};

#[tokio::test]
async fn a_panic_is_the_error_of_what_it_happened_in() {
    let error = caught(|| -> SqlResult<()> { panic!("a value") }).unwrap_err();
    assert!(is_fault(&error) && !error.message.contains("a value"), "{error}");
    let awaited = async {
        tokio::task::yield_now().await;
        panic!("a value")
    };
    let error = guarded::<(), SqlError>(awaited).await.unwrap_err();
    assert!(is_fault(&error));
    assert_eq!(guarded(async { Ok::<_, SqlError>(1) }).await, Ok(1));
    assert_eq!(caught(|| Err::<(), _>(unknown("other"))), Err(unknown("other")));
}

#[tokio::test]
async fn a_stream_gives_what_came_before_its_panic() {
    let items = futures::stream::iter([1, 2, 0, 4]).map(|n| match 4i32.checked_div(n) {
        Some(n) => Ok::<_, SqlError>(n),
        None => panic!("a value"),
    });
    let mut items = Box::pin(guarded_stream(items));
    assert_eq!(items.try_next().await, Ok(Some(4)));
    assert_eq!(items.try_next().await, Ok(Some(2)));
    assert!(is_fault(&items.try_next().await.unwrap_err()));
    assert_eq!(items.try_next().await, Ok(None));
}

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
        let stream = threads::run(plan.clone(), context.task_ctx()).unwrap();
        let error = stream.try_collect::<Vec<_>>().await.unwrap_err();
        assert!(is_fault(&SqlError::from(error)));
    }
}
