//! TPC-H's rows as Parquet, by the types that `examples/tpch/schema.sql` gives their columns.
//!
//! Every reader that is compared reads these files: nothing in them may favour one of them.

use std::fmt::{Display, Write as _};
use std::fs::File;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow::array::{
    ArrayRef, Date32Builder, Decimal128Builder, Int32Builder, Int64Builder, RecordBatch,
    StringBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

/// The tables' definitions, one column a line.
const SCHEMA: &str = include_str!("../../../examples/tpch/schema.sql");
/// Rows of a batch on its way to the file.
const BATCH: u64 = 8_192;
/// Rows of a row group: several in each large table, so that readers can work side by side.
const ROW_GROUP: usize = 131_072;
/// Days from the first day of the common era to that of Unix.
const EPOCH: i32 = 719_163;

/// Writes rows, as the generator prints them, and gives the file and their number back.
pub fn write(
    file: File,
    table: &str,
    rows: impl Iterator<Item = impl Display>,
) -> Result<(File, u64)> {
    let schema = schema(table)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .build();
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties))?;
    let mut columns = builders(&schema)?;
    let (mut line, mut count) = (String::new(), 0);
    for row in rows {
        line.clear();
        write!(line, "{row}")?;
        add(&mut columns, &line).with_context(|| format!("row {count} of {table}: {line}"))?;
        count += 1;
        if count % BATCH == 0 {
            writer.write(&batch(&schema, &mut columns)?)?;
        }
    }
    writer.write(&batch(&schema, &mut columns)?)?;
    Ok((writer.into_inner()?, count))
}

enum Column {
    Int(Int32Builder),
    Long(Int64Builder),
    Money(Decimal128Builder),
    Day(Date32Builder),
    Text(StringBuilder),
}

fn builders(schema: &Schema) -> Result<Vec<Column>> {
    let builder = |field: &Arc<Field>| match field.data_type() {
        DataType::Int32 => Ok(Column::Int(Int32Builder::new())),
        DataType::Int64 => Ok(Column::Long(Int64Builder::new())),
        DataType::Date32 => Ok(Column::Day(Date32Builder::new())),
        DataType::Utf8 => Ok(Column::Text(StringBuilder::new())),
        ty => Ok(Column::Money(Decimal128Builder::new().with_data_type(ty.clone()))),
    };
    schema.fields().iter().map(builder).collect()
}

/// Adds a row, whose fields all end in `|`.
fn add(columns: &mut [Column], line: &str) -> Result<()> {
    let mut fields = line.split('|');
    for column in columns.iter_mut() {
        let field = fields.next().context("it has too few fields")?;
        match column {
            Column::Int(column) => column.append_value(field.parse()?),
            Column::Long(column) => column.append_value(field.parse()?),
            Column::Money(column) => column.append_value(cents(field)?),
            Column::Day(column) => column.append_value(days(field)?),
            Column::Text(column) => column.append_value(field),
        }
    }
    match (fields.next(), fields.next()) {
        (Some("") | None, None) => Ok(()),
        _ => bail!("it has too many fields"),
    }
}

/// An amount with two digits after its point.
fn cents(field: &str) -> Result<i128> {
    let (whole, part) = field.split_once('.').unwrap_or((field, "00"));
    if part.len() != 2 {
        bail!("{field} has not two digits after its point");
    }
    Ok(format!("{whole}{part}").parse()?)
}

fn days(field: &str) -> Result<i32> {
    use chrono::Datelike as _;
    let day: chrono::NaiveDate = field.parse().with_context(|| format!("{field} is no date"))?;
    Ok(day.num_days_from_ce() - EPOCH)
}

fn batch(schema: &SchemaRef, columns: &mut [Column]) -> Result<RecordBatch> {
    let finish = |column: &mut Column| -> ArrayRef {
        match column {
            Column::Int(column) => Arc::new(column.finish()),
            Column::Long(column) => Arc::new(column.finish()),
            Column::Money(column) => Arc::new(column.finish()),
            Column::Day(column) => Arc::new(column.finish()),
            Column::Text(column) => Arc::new(column.finish()),
        }
    };
    let columns = columns.iter_mut().map(finish).collect();
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// A table's columns, from its definition.
fn schema(table: &str) -> Result<SchemaRef> {
    let head = format!("CREATE TABLE {table} (");
    let lines = SCHEMA.lines().skip_while(|line| *line != head).skip(1);
    let mut fields = Vec::new();
    for line in lines.take_while(|line| *line != ");") {
        let mut words = line.split_whitespace();
        let (Some(name), Some(ty)) = (words.next(), words.next()) else { continue };
        if name == "PRIMARY" {
            continue;
        }
        let ty = match ty.trim_end_matches(',') {
            "INT" => DataType::Int32,
            "BIGINT" => DataType::Int64,
            "DATE" => DataType::Date32,
            "DECIMAL(15,2)" => DataType::Decimal128(15, 2),
            text if text.starts_with("CHAR") || text.starts_with("VARCHAR") => DataType::Utf8,
            other => bail!("column {name} has type {other}, which TPC-H's tables do not have"),
        };
        fields.push(Field::new(name, ty, false));
    }
    if fields.is_empty() {
        bail!("table {table} is not in TPC-H's definitions");
    }
    Ok(Arc::new(Schema::new(fields)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_are_printed() {
        assert_eq!((cents("-12.05").unwrap(), cents("0.99").unwrap()), (-1205, 99));
        assert_eq!((days("1970-01-02").unwrap(), days("1992-02-29").unwrap()), (1, 8094));
        assert!(cents("1.5").is_err() && days("1992-02-30").is_err());
        let schema = schema("orders").unwrap();
        assert_eq!(schema.fields().len(), 9);
        let mut columns = builders(&schema).unwrap();
        let row = "1|7|O|-0.50|1996-01-02|5-LOW|Clerk#1|0|a comment|";
        add(&mut columns, row).unwrap();
        assert!(
            add(&mut columns, "1|7|").is_err() && add(&mut columns, &format!("{row}x|")).is_err()
        );
    }
}
