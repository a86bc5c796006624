//! Values of expressions without columns. It asks no table.

use datafusion::physical_expr::PhysicalExpr;
use functions::value::value_at;
use types::Value;
use values::error::SqlResult;

/// The value of an expression without columns.
pub(in crate::session) fn value_of(compiled: &dyn PhysicalExpr) -> SqlResult<Value> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
    let empty = std::sync::Arc::new(arrow::datatypes::Schema::empty());
    let row = arrow::record_batch::RecordBatch::try_new_with_options(empty, vec![], &options)?;
    let value = compiled.evaluate(&row)?.into_array(1)?;
    value_at(&value, 0)
}
