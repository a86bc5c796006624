//! What number a value of ENUM or SET is: the label's place in the list, the bits of the labels.
//!
//! The list comes as a literal, printed as a type, and is never spread over the rows.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, StringArray, StringViewArray, UInt64Array,
};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use types::ColumnType;
use values::coerce::labels::number;
use values::error::{external, unknown};

use super::Function;

/// The number as a DOUBLE, which texts are among numbers.
pub const NUMBER: &str = "isobar_label_number";
/// The text behind its number, by which texts sort as their numbers do. Of a type that nothing else
/// has, so that whoever shows the text knows to cut it ([`unranked`]).
pub const RANKED: &str = "isobar_label_ranked";
/// Digits of the number before a ranked text.
const DIGITS: usize = 20;
/// Where a column of numbers is written: a column of ENUM or SET as its number, else what it is.
pub const AS_NUMBER: &str = "isobar_as_number";
/// The number as an integer, where bits or a place in an order are asked for.
pub const BITS: &str = "isobar_label_bits";

/// The functions that the planner writes into a query's text.
pub const FUNCTIONS: &[Function] = &[Function::new(
    AS_NUMBER,
    1..=1,
    |types, _| Ok(types.first().cloned().unwrap_or(DataType::Null)),
    |args, _| Ok(args[0].clone()),
)];

#[derive(Debug, PartialEq, Eq, Hash)]
struct LabelNumber {
    name: &'static str,
    signature: Signature,
}

/// The functions that the planner writes into a plan.
pub fn all() -> [Arc<ScalarUDF>; 3] {
    [NUMBER, BITS, RANKED].map(|name| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(LabelNumber { name, signature }))
    })
}

/// A text without the number before it, if its type says that there is one.
pub fn unranked<'a>(text: &'a str, ty: &DataType) -> &'a str {
    match ty {
        DataType::Utf8View => text.get(DIGITS..).unwrap_or_default(),
        _ => text,
    }
}

impl ScalarUDFImpl for LabelNumber {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.name {
            NUMBER => DataType::Float64,
            RANKED => DataType::Utf8View,
            _ => DataType::UInt64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let wrong = || external(unknown(format!("{} takes a text and a type", self.name)));
        let [values, ColumnarValue::Scalar(ScalarValue::Utf8(Some(ty)))] = &args.args[..] else {
            return Err(wrong());
        };
        let ty = ColumnType::labelled(ty).ok_or_else(wrong)?;
        let (array, scalar) = match values {
            ColumnarValue::Array(array) => (array.clone(), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        let none = StringArray::new_null(array.len());
        let texts = match array.data_type() {
            DataType::Null => &none,
            _ => array.as_string_opt::<i32>().ok_or_else(wrong)?,
        };
        let numbers = texts.iter().map(|text| text.map(|text| number(ty, text)));
        let numbers: ArrayRef = match self.name {
            NUMBER => Arc::new(numbers.map(|n| n.map(|n| n as f64)).collect::<Float64Array>()),
            RANKED => {
                let ranked = texts
                    .iter()
                    .zip(numbers)
                    .map(|(text, number)| Some(format!("{:0DIGITS$}{}", number?, text?)));
                Arc::new(ranked.collect::<StringViewArray>())
            }
            _ => Arc::new(numbers.collect::<UInt64Array>()),
        };
        if scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?));
        }
        Ok(ColumnarValue::Array(numbers))
    }
}
