//! Several values as one: rows that are counted, and the values of a group as a text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::datatypes::DataType;
use values::error::{SqlResult, unknown};

use super::convert::{to_bytes, to_strings};
use super::labels::unranked;
use super::{Function, text};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("isobar_row", 1..=999, |_, _| Ok(DataType::Binary), row_key),
    Function::new("isobar_join", 3..=3, text, join),
];

/// Bytes that are the same for the same row and for no other; NULL for a row with a NULL.
fn row_key(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let columns = args.iter().map(to_bytes).collect::<SqlResult<Vec<_>>>()?;
    let key = |row: usize| {
        let mut key = Vec::new();
        for column in &columns {
            let bytes = column.is_valid(row).then(|| column.value(row))?;
            // Lengths distinguish ('a', 'bc') from ('ab', 'c').
            key.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
            key.extend_from_slice(bytes);
        }
        Some(key)
    };
    Ok(Arc::new((0..args[0].len()).map(key).collect::<BinaryArray>()))
}

/// The values of each row's list, without its NULLs, as one text; NULL where none is left. The third
/// operand is 1 for those that take them from the list's end.
fn join(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    if *args[0].data_type() == DataType::Null {
        return Ok(Arc::new(StringArray::new_null(args[0].len())));
    }
    let lists = args[0]
        .as_list_opt::<i32>()
        .ok_or_else(|| unknown(format!("a list is due where {} is", args[0].data_type())))?;
    let (texts, separators) = (to_strings(lists.values())?, to_strings(&args[1])?);
    let backwards = to_strings(&args[2])?;
    let joined = |row: usize| {
        if lists.is_null(row) || separators.is_null(row) {
            return None;
        }
        let (from, to) = (lists.value_offsets().get(row)?, lists.value_offsets().get(row + 1)?);
        let (from, to) = (usize::try_from(*from).ok()?, usize::try_from(*to).ok()?);
        let values = (from..to).filter(|at| texts.is_valid(*at));
        let values = values.map(|at| unranked(texts.value(at), lists.values().data_type()));
        let mut values: Vec<&str> = values.collect();
        if backwards.value(row) == "1" {
            values.reverse();
        }
        (!values.is_empty()).then(|| values.join(separators.value(row)))
    };
    Ok(Arc::new((0..lists.len()).map(joined).collect::<StringArray>()))
}
