//! `LAST_INSERT_ID(expr)`: returns the expression's value, which LAST_INSERT_ID() returns afterwards.
//! A function of the session's own: no other session and no worker has it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, UInt64Type};
use binder::KEEP_INSERT_ID;
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use values::error::{external, wrong_argument_count};

use crate::session::Session;

/// The value that a statement last assigned.
#[derive(Debug, Default)]
pub(in crate::session) struct AssignedId {
    value: AtomicU64,
    /// How many values were assigned; distinguishes a statement that assigned one from one that did not.
    count: AtomicU64,
}

impl AssignedId {
    /// How many values were assigned so far.
    pub(in crate::session) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The value assigned last.
    pub(in crate::session) fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    fn assign(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct AssignLastInsertId {
    assigned_id: Arc<AssignedId>,
    signature: Signature,
}

impl PartialEq for AssignLastInsertId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.assigned_id, &other.assigned_id)
    }
}

impl Eq for AssignLastInsertId {}

impl Hash for AssignLastInsertId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KEEP_INSERT_ID.hash(state);
    }
}

impl ScalarUDFImpl for AssignLastInsertId {
    fn name(&self) -> &str {
        KEEP_INSERT_ID
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(argument) = args.args.first() else {
            return Err(external(wrong_argument_count("last_insert_id")));
        };
        let array = argument.to_array(args.number_rows)?;
        let numbers = array.as_primitive::<UInt64Type>();
        if let Some(last) = numbers.len().checked_sub(1) {
            self.assigned_id.assign(if numbers.is_null(last) { 0 } else { numbers.value(last) });
        }
        Ok(ColumnarValue::Array(array))
    }
}

impl Session {
    /// Makes the session's plans know the function.
    pub(super) fn register_last_insert_id(&mut self) {
        if self.engine.state.scalar_functions().contains_key(KEEP_INSERT_ID) {
            return;
        }
        let signature = Signature::exact(vec![DataType::UInt64], Volatility::Volatile);
        let function =
            AssignLastInsertId { assigned_id: self.diagnostics.assigned_id().clone(), signature };
        let mut state = (*self.engine.state).clone();
        if state.register_udf(Arc::new(ScalarUDF::new_from_impl(function))).is_ok() {
            self.engine.state = Arc::new(state);
        }
    }
}
