//! MySQL's functions and operators, for DataFusion's evaluator.
//!
//! Each is one [`Function`]: a name, what it returns, what it computes over whole columns. They
//! keep no state (but RAND(n) does) and read no clock, so a plan may evaluate them on any node.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use values::error::{SqlResult, external};

use crate::warnings::ExprWarnings;

pub mod addresses;
pub mod arithmetic;
mod bytes;
pub mod cast;
pub mod clock;
pub mod control;
pub mod convert;
mod decimal;
pub mod digest;
#[cfg(test)]
mod edges;
pub mod encoding;
mod extract;
pub mod json;
mod json_changes;
pub mod kinds;
pub mod labels;
pub mod lists;
pub mod math;
mod operators;
pub mod random;
pub mod regexp;
pub mod spelling;
pub mod str_to_date;
pub mod string;
pub mod texts;
pub mod time;
pub mod trees;
pub mod value;
pub mod warnings;
pub mod wide;

/// What a function returns, from its arguments' types and its literal arguments.
pub type Returns = fn(&[DataType], &[Option<&ScalarValue>]) -> Result<DataType>;
/// What a function computes: arguments as columns of one length, type to return.
pub type Eval = fn(&[ArrayRef], &DataType) -> SqlResult<ArrayRef>;

/// One function.
pub struct Function {
    /// Name, in lower case.
    pub name: &'static str,
    /// Fewest arguments.
    pub min: usize,
    /// Most arguments.
    pub max: usize,
    /// Type.
    pub returns: Returns,
    /// Values.
    pub eval: Eval,
    /// Whether equal arguments may give different values.
    pub volatile: bool,
}

impl Function {
    /// A function of its arguments alone.
    pub const fn new(
        name: &'static str,
        arguments: std::ops::RangeInclusive<usize>,
        returns: Returns,
        eval: Eval,
    ) -> Self {
        Function {
            name,
            min: *arguments.start(),
            max: *arguments.end(),
            returns,
            eval,
            volatile: false,
        }
    }
}

#[derive(Clone)]
struct Udf {
    function: &'static Function,
    signature: Signature,
    /// Where its warnings go.
    warnings: Option<Arc<ExprWarnings>>,
}

impl std::fmt::Debug for Udf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.function.name)
    }
}

impl Udf {
    fn returned(&self, arguments: &[DataType], of_text: DataType) -> DataType {
        if bytes::applies(self.function.name, arguments.iter()) {
            bytes::returned(self.function.name, of_text)
        } else {
            of_text
        }
    }
}

impl PartialEq for Udf {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name
    }
}

impl Eq for Udf {}

impl Hash for Udf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl ScalarUDFImpl for Udf {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let ty = (self.function.returns)(arguments, &vec![None; arguments.len()])?;
        Ok(self.returned(arguments, ty))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let ty = self.returned(&types, (self.function.returns)(&types, args.scalar_arguments)?);
        Ok(Arc::new(Field::new(self.name(), ty, true)))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if arguments.len() < self.function.min || arguments.len() > self.function.max {
            return plan_err!(
                "Incorrect parameter count in the call to function '{}'",
                self.name()
            );
        }
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        // A volatile function is evaluated row by row even without columns.
        let spread = !scalar || self.function.volatile;
        let rows = if spread { args.number_rows } else { 1 };
        if rows == 0 {
            // What a literal says, such as a unit, cannot be read from a column of no rows.
            let none = arrow::array::new_empty_array(args.return_field.data_type());
            return Ok(ColumnarValue::Array(none));
        }
        let arrays = args
            .args
            .iter()
            .map(|arg| match arg {
                ColumnarValue::Array(array) => Ok(array.clone()),
                ColumnarValue::Scalar(value) => value.to_array_of_size(rows),
            })
            .collect::<Result<Vec<_>>>()?;
        let arrays = if arrays.is_empty() {
            vec![arrow::array::new_null_array(&DataType::Null, rows)]
        } else {
            arrays
        };
        let ty = args.return_field.data_type();
        let of_bytes = bytes::applies(self.function.name, arrays.iter().map(|a| a.data_type()));
        let compute = || match of_bytes {
            true => bytes::eval(self.function, &arrays, ty),
            false => (self.function.eval)(&arrays, ty),
        };
        let computed = match &self.warnings {
            // A constant is computed even for no rows; then it gives no warning.
            Some(warnings) if args.number_rows > 0 => warnings::evaluate(warnings, compute),
            _ => compute(),
        };
        let result = computed.map_err(external)?;
        if spread {
            return Ok(ColumnarValue::Array(result));
        }
        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?))
    }
}

/// Every function, for a session's registry.
pub fn all() -> Vec<Arc<ScalarUDF>> {
    let lists: [&'static [Function]; 17] = [
        arithmetic::FUNCTIONS,
        cast::FUNCTIONS,
        clock::FUNCTIONS,
        control::FUNCTIONS,
        digest::FUNCTIONS,
        addresses::FUNCTIONS,
        encoding::FUNCTIONS,
        json::FUNCTIONS,
        json_changes::FUNCTIONS,
        labels::FUNCTIONS,
        lists::FUNCTIONS,
        math::FUNCTIONS,
        regexp::FUNCTIONS,
        spelling::FUNCTIONS,
        str_to_date::FUNCTIONS,
        string::FUNCTIONS,
        time::FUNCTIONS,
    ];
    let ours = lists.into_iter().flatten().map(udf);
    ours.chain(labels::all()).chain([random::seeded()]).collect()
}

fn udf(function: &'static Function) -> Arc<ScalarUDF> {
    let volatility = if function.volatile { Volatility::Volatile } else { Volatility::Immutable };
    let signature = Signature::user_defined(volatility);
    Arc::new(ScalarUDF::new_from_impl(Udf { function, signature, warnings: None }))
}

/// The function of a name, for expressions that the planner writes itself.
pub fn named(name: &str) -> Option<Arc<ScalarUDF>> {
    static ALL: std::sync::OnceLock<std::collections::HashMap<String, Arc<ScalarUDF>>> =
        std::sync::OnceLock::new();
    ALL.get_or_init(|| all().into_iter().map(|f| (f.name().to_owned(), f)).collect())
        .get(name)
        .cloned()
}

/// Returns: text.
pub fn text(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Utf8)
}

/// Returns: bytes.
pub fn binary(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Binary)
}

/// Returns: a whole number.
pub fn whole(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Int64)
}

/// Returns: a double.
pub fn double(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Float64)
}

/// Returns: a date.
pub fn day(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Date32)
}

/// Returns: a date with a time.
pub fn datetime(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(kinds::DATETIME)
}

/// Returns: a TIME.
pub fn span(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Duration(arrow::datatypes::TimeUnit::Microsecond))
}

/// Returns: a truth value.
pub fn truth(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Boolean)
}

/// The value of a literal integer argument.
pub fn literal_int(arguments: &[Option<&ScalarValue>], at: usize) -> Option<i64> {
    match arguments.get(at).copied().flatten()? {
        ScalarValue::Int64(n) => *n,
        ScalarValue::UInt64(n) => n.and_then(|n| i64::try_from(n).ok()),
        ScalarValue::Int32(n) => n.map(i64::from),
        _ => None,
    }
}
