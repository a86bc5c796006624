//! The labels of an ENUM or SET as a definition lists them, and a default among them.
//!
//! A list is checked here once and for all: what stands in a description is a list that values can
//! be identified by.

use std::collections::HashSet;

use sqlparser::ast::{DataType, EnumMember};
use types::{ColumnType, Labels, Value};
use values::coerce;
use values::error::{
    SqlResult, duplicate_label, illegal_set_label, label_too_long, syntax, too_many_enum_labels,
    too_many_set_labels, unsupported,
};

/// Most labels of an ENUM (MySQL's limit).
const MOST_OF_ENUM: usize = 65_535;
/// Most labels of a SET: its values have 64 bits.
const MOST_OF_SET: usize = 64;
/// Most characters of a label (MySQL's limit).
const LONGEST: usize = 255;

/// The ENUM or SET that a type is; `None` if it is another.
pub fn column_type(ty: &DataType, column: &str) -> SqlResult<Option<ColumnType>> {
    Ok(match ty {
        DataType::Enum(members, None) => {
            let label = |member: &EnumMember| match member {
                EnumMember::Name(label) => Ok(label.clone()),
                EnumMember::NamedValue(label, _) => Err(syntax(format!("ENUM('{label}' = …)"))),
            };
            let labels = members.iter().map(label).collect::<SqlResult<Vec<_>>>()?;
            if labels.len() > MOST_OF_ENUM {
                return Err(too_many_enum_labels(column));
            }
            Some(ColumnType::Enum(listed(labels, column, "ENUM")?))
        }
        DataType::Set(labels) => {
            if labels.len() > MOST_OF_SET {
                return Err(too_many_set_labels(column));
            }
            if let Some(label) = labels.iter().find(|label| label.contains(',')) {
                return Err(illegal_set_label(label));
            }
            // The text of no label and of that one would be the same.
            if labels.iter().any(|label| label.trim_end_matches(' ').is_empty()) {
                return Err(unsupported("SET with an empty label"));
            }
            Some(ColumnType::Set(listed(labels.clone(), column, "SET")?))
        }
        _ => None,
    })
}

/// The list of labels, their trailing blanks cut.
fn listed(labels: Vec<String>, column: &str, kind: &str) -> SqlResult<Labels> {
    let labels: Vec<String> =
        labels.iter().map(|label| label.trim_end_matches(' ').to_owned()).collect();
    let mut met = HashSet::new();
    for label in &labels {
        if label.chars().count() > LONGEST {
            return Err(label_too_long(column));
        }
        if !met.insert(label) {
            return Err(duplicate_label(column, label, kind));
        }
    }
    if labels.is_empty() {
        return Err(syntax(format!("{kind} without labels")));
    }
    Ok(Labels::new(&labels))
}

/// A default, which is identified by its labels alone; `None` if they are not in the list.
pub fn default_value(ty: ColumnType, value: Value) -> Option<Value> {
    let text = coerce::text(value);
    let text = text.trim_end_matches(' ');
    match ty {
        ColumnType::Enum(labels) => labels.number(text).map(|_| Value::String(text.to_owned())),
        ColumnType::Set(labels) => match labels.bits(text) {
            (bits, true) => Some(Value::String(labels.of_bits(bits))),
            _ => None,
        },
        _ => None,
    }
}
