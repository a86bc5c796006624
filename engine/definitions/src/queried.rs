//! Columns that CREATE TABLE … SELECT takes from its query.
//!
//! By what is known of the query's columns alone; no row is looked at.

use types::wide::WIDE_MAX_PRECISION;
use types::{Column, ColumnId, ColumnType, Default, Table, Value};
use values::coerce::{self, Place};
use values::column::ResultColumn;
use values::error::{SqlResult, duplicate_column, name_too_long, wrong_column_name};
use values::temporal::Zone;

/// Longest name of a column, in characters.
const LONGEST_NAME: usize = 64;
/// Longest VARCHAR, in characters.
const LONGEST_TEXT: u32 = 16_383;
/// Most digits behind the point.
const MOST_SCALE: u8 = 30;

/// What a query's column becomes in a new table: as the stored column that it shows, if it is no more than
/// that. `length` is that of a text whose length the query says.
pub fn column(
    shown: &ResultColumn,
    source: Option<&Column>,
    length: Option<u32>,
) -> SqlResult<Column> {
    let name = shown.name.clone();
    if name.is_empty() || name.ends_with(' ') {
        return Err(wrong_column_name(name));
    }
    if name.chars().count() > LONGEST_NAME {
        return Err(name_too_long(name));
    }
    let mut column = Column {
        id: 0,
        name,
        ty: column_type(shown, source, length),
        nullable: shown.nullable,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: source.map(|source| source.comment.clone()).unwrap_or_default(),
    };
    column.default = default_of(&column, source);
    Ok(column)
}

fn column_type(shown: &ResultColumn, source: Option<&Column>, length: Option<u32>) -> ColumnType {
    if let Some(source) = source {
        return source.ty;
    }
    match shown.ty {
        None => ColumnType::Varbinary(0),
        // How long a computed text may become is not known.
        Some(ColumnType::Varchar(_)) => match length.filter(|length| *length <= LONGEST_TEXT) {
            Some(length) => ColumnType::Varchar(length),
            None => ColumnType::Text(u32::MAX),
        },
        Some(ColumnType::Varbinary(_)) => ColumnType::Blob(u32::MAX),
        // What is computed may have more digits than a column.
        Some(ColumnType::Decimal { precision, scale }) => ColumnType::Decimal {
            precision: precision.min(WIDE_MAX_PRECISION),
            scale: scale.min(MOST_SCALE),
        },
        Some(ty) => ty,
    }
}

/// The stored column's default. What is computed, or was given a number, and never NULL has zero or the
/// empty text, as in MySQL.
fn default_of(column: &Column, source: Option<&Column>) -> Option<Default> {
    let kept = source.and_then(|source| source.default.clone()).filter(|default| match default {
        Default::CurrentTimestamp => true,
        Default::Constant(value) => !value.is_null(),
        Default::Generated { .. } | Default::Converted { .. } => false,
    });
    if kept.is_some() {
        return kept;
    }
    if column.nullable {
        return Some(Default::Constant(Value::Null));
    }
    if source.is_some_and(|source| !source.auto_increment) {
        return None;
    }
    let zero = match column.ty {
        ColumnType::Varchar(_) => Value::String(String::new()),
        ty if ty.is_number() => Value::Int(0),
        _ => return None,
    };
    let zero = coerce::to_column(zero, Place { column, row: 1, zone: Zone::UTC });
    zero.ok().map(Default::Constant)
}

/// Adds a query's columns behind those that are defined. One that is defined, too, is as it is defined, and
/// stands where the query has it.
pub fn add(queried: Vec<Column>, table: &mut Table) -> SqlResult<()> {
    let mut last = table.columns.len() as ColumnId;
    let mut behind: Vec<Column> = Vec::with_capacity(queried.len());
    for mut column in queried {
        let same = |other: &Column| other.name.eq_ignore_ascii_case(&column.name);
        if behind.iter().any(same) {
            return Err(duplicate_column(&column.name));
        }
        match table.columns.iter().position(same) {
            Some(defined) => behind.push(table.columns.remove(defined)),
            None => {
                last += 1;
                column.id = last;
                behind.push(column);
            }
        }
    }
    table.columns.extend(behind);
    Ok(())
}
