//! What DataFusion and Arrow say in words alone, and what becomes of it.
//!
//! Each of these errors is provoked through the library itself, without our binder before it: an upgrade that words one
//! otherwise fails here, and not before clients as error 1105.

use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use datafusion::common::Spans;
use datafusion::error::Result;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_window::expr_fn::ntile;
use datafusion::logical_expr::{ExprFunctionExt as _, LogicalPlan, Subquery};
use datafusion::prelude::{DataFrame, SessionContext, cast, col, lit, scalar_subquery};
use values::error::SqlError;

/// A table of two columns and two rows.
fn table() -> DataFrame {
    let values = |values: [i64; 2]| Arc::new(Int64Array::from_iter_values(values)) as _;
    let columns = [("a", values([1, 3])), ("b", values([2, 4]))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    SessionContext::new().read_batch(batch).unwrap()
}

async fn error_of(query: Result<DataFrame>) -> SqlError {
    let answer = async { query?.collect().await };
    SqlError::from(answer.await.unwrap_err())
}

#[tokio::test]
async fn a_second_row_of_a_scalar_subquery() {
    let values = table().select_columns(&["a"]).unwrap().into_unoptimized_plan();
    let error = error_of(table().select([scalar_subquery(Arc::new(values))])).await;
    assert_eq!((error.code, &*error.message), (1242, "Subquery returns more than 1 row"));
}

#[tokio::test]
async fn ntile_of_none() {
    let groups = ntile(lit(0)).order_by(vec![col("a").sort(true, true)]).build();
    let error = error_of(table().select([groups.unwrap()])).await;
    assert_eq!((error.code, &*error.message), (1210, "Incorrect arguments to ntile"));
}

#[tokio::test]
async fn distinct_values_in_the_order_of_others() {
    let list = array_agg_udaf().call(vec![col("a")]).distinct();
    let list = list.order_by(vec![col("b").sort(true, true)]).build();
    let error = error_of(table().aggregate(vec![], vec![list.unwrap()])).await;
    let begins = "This version of Isobar doesn't yet support 'GROUP_CONCAT(DISTINCT";
    assert!(error.code == 1235 && error.message.starts_with(begins), "{error}");
}

#[tokio::test]
async fn more_digits_than_a_type_has() {
    let product = cast(col("a") * lit(1_000_000), DataType::Decimal128(4, 2));
    let error = error_of(table().select([product])).await;
    let message = "DECIMAL value is out of range in 'the statement'";
    assert_eq!((error.code, &*error.message), (1690, message));
}

#[tokio::test]
async fn a_subquery_that_stays_in_a_plan() {
    let inner = table().select_columns(&["a"]).unwrap().into_unoptimized_plan();
    let plan = LogicalPlan::Subquery(Subquery {
        subquery: Arc::new(inner),
        outer_ref_columns: Vec::new(),
        spans: Spans::new(),
    });
    let state = SessionContext::new().state();
    let planned = state.query_planner().create_physical_plan(&plan, &state).await;
    let error = SqlError::from(planned.unwrap_err());
    let message = "This version of Isobar doesn't yet support 'a subquery of this form'";
    assert_eq!((error.code, &*error.message), (1235, message));
}
