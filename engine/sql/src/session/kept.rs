//! `LAST_INSERT_ID(expr)`: gives the expression's value and keeps it as what LAST_INSERT_ID() gives
//! afterwards. A function of the session's own: no other session and no worker has it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::{Result, plan_err};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::Session;

/// Its name within plans.
pub(crate) const NAME: &str = "mysql_keep_insert_id";

/// The value kept by the last statement that kept one.
#[derive(Debug, Default)]
pub(super) struct Kept {
    value: AtomicU64,
    /// How many values were kept; tells a statement that kept one from one that did not.
    count: AtomicU64,
}

impl Kept {
    /// How many values were kept so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The value kept last.
    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    fn keep(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct Keep {
    kept: Arc<Kept>,
    signature: Signature,
}

impl PartialEq for Keep {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kept, &other.kept)
    }
}

impl Eq for Keep {}

impl Hash for Keep {
    fn hash<H: Hasher>(&self, state: &mut H) {
        NAME.hash(state);
    }
}

impl ScalarUDFImpl for Keep {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(argument) = args.args.first() else {
            return plan_err!("Incorrect parameter count in the call to function 'last_insert_id'");
        };
        let array = argument.to_array(args.number_rows)?;
        let numbers = array.as_primitive::<UInt64Type>();
        if let Some(last) = numbers.len().checked_sub(1) {
            self.kept.keep(if numbers.is_null(last) { 0 } else { numbers.value(last) });
        }
        Ok(ColumnarValue::Array(array))
    }
}

impl Session {
    /// Makes the session's plans know the function.
    pub(super) fn know_keeping(&mut self) {
        if self.engine.state.scalar_functions().contains_key(NAME) {
            return;
        }
        let signature = Signature::exact(vec![DataType::UInt64], Volatility::Volatile);
        let keep = Keep { kept: self.kept.clone(), signature };
        let mut state = (*self.engine.state).clone();
        if state.register_udf(Arc::new(ScalarUDF::new_from_impl(keep))).is_ok() {
            self.engine.state = Arc::new(state);
        }
    }

    /// What statements kept becomes what LAST_INSERT_ID() gives; the value, if one was kept since.
    pub(super) fn adopt_kept(&mut self) -> Option<u64> {
        let count = self.kept.count();
        if count == self.adopted {
            return None;
        }
        self.adopted = count;
        self.last_insert_id = self.kept.value();
        Some(self.last_insert_id)
    }
}
