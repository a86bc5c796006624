//! Rows into Arrow columns, in the one mapping that rows, columns and the Flight server share.
//!
//! Nothing else decides what an SQL type is in Arrow.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BinaryBuilder, Date32Builder, Decimal128Builder, Decimal256Builder,
    DurationMicrosecondBuilder, Float32Builder, Float64Builder, Int8Builder, Int16Builder,
    Int32Builder, Int64Builder, LargeStringBuilder, RecordBatch, RecordBatchOptions, StringBuilder,
    TimestampMicrosecondBuilder, UInt8Builder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};
use crate::schema::{Column, ColumnType, IntWidth, Table};
use crate::value::Value;

/// The Arrow type of a column.
pub fn arrow_type(ty: ColumnType) -> DataType {
    match ty {
        ColumnType::Int { width, unsigned } => match (width, unsigned) {
            (IntWidth::Tiny | IntWidth::Bool, false) => DataType::Int8,
            (IntWidth::Tiny | IntWidth::Bool, true) => DataType::UInt8,
            (IntWidth::Small, false) => DataType::Int16,
            (IntWidth::Small, true) => DataType::UInt16,
            (IntWidth::Medium | IntWidth::Int, false) => DataType::Int32,
            (IntWidth::Medium | IntWidth::Int, true) => DataType::UInt32,
            (IntWidth::Big, false) => DataType::Int64,
            (IntWidth::Big, true) => DataType::UInt64,
        },
        ColumnType::Double => DataType::Float64,
        ColumnType::Decimal { precision, scale } if ty.is_wide() => {
            DataType::Decimal256(precision, scale as i8)
        }
        ColumnType::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
        ColumnType::Char(_)
        | ColumnType::Varchar(_)
        | ColumnType::Text(_)
        | ColumnType::Enum(_)
        | ColumnType::Set(_) => DataType::Utf8,
        // A type of its own, by which plans distinguish a document from a text.
        ColumnType::Json => DataType::LargeUtf8,
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => DataType::Binary,
        ColumnType::Float => DataType::Float32,
        ColumnType::Year => DataType::UInt16,
        ColumnType::Bit(_) => DataType::UInt64,
        // Not Time64, which ends at midnight: MySQL's TIME is a span of up to 838 hours.
        ColumnType::Time(_) => DataType::Duration(TimeUnit::Microsecond),
        ColumnType::Date => DataType::Date32,
        ColumnType::DateTime(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
        ColumnType::Timestamp(_) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
        }
    }
}

/// The Arrow field of a column.
pub fn arrow_field(column: &Column) -> Field {
    Field::new(&column.name, arrow_type(column.ty), column.nullable)
}

/// Key of a field's metadata that names its MySQL type, as SHOW COLUMNS prints it. It is no extension type of Arrow's:
/// libraries such as Polars refuse to compute with columns of an extension that they do not know.
pub const MYSQL_TYPE: &str = "isobar.type";

/// Key of the metadata of a field without NULLs. The field itself may be nullable: Arrow refuses a batch by that, and what a
/// planner knows of a column is no reason to refuse an answer.
pub const NOT_NULL: &str = "isobar.not_null";

/// The field of a column as clients see it, with its MySQL type; one of JSON says so by the name that Arrow has for it,
/// too.
pub fn client_field(name: &str, ty: Option<ColumnType>, nullable: bool) -> Field {
    let field = Field::new(name, ty.map_or(DataType::Null, arrow_type), nullable);
    let Some(ty) = ty else { return field };
    let mut says = vec![(MYSQL_TYPE, ty.to_string())];
    if ty == ColumnType::Json {
        says.push(("ARROW:extension:name", "arrow.json".to_owned()));
        says.push(("ARROW:extension:metadata", String::new()));
    }
    field.with_metadata(says.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Collects rows of a table, or some of their columns, into record batches.
pub struct ColumnsBuilder {
    schema: SchemaRef,
    positions: Vec<usize>,
    builders: Vec<ColumnBuilder>,
    rows: usize,
}

impl ColumnsBuilder {
    /// A builder for the columns at `positions` of the table, in that order.
    pub fn new(table: &Table, positions: &[usize]) -> Result<Self> {
        let mut fields = Vec::with_capacity(positions.len());
        let mut builders = Vec::with_capacity(positions.len());
        for at in positions {
            let column = table.columns.get(*at).ok_or_else(|| {
                Error::Invalid(format!("table {} has no column at position {at}", table.name))
            })?;
            fields.push(arrow_field(column));
            builders.push(ColumnBuilder::new(column.ty));
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(ColumnsBuilder { schema, positions: positions.to_vec(), builders, rows: 0 })
    }

    /// Schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Rows collected since the last batch.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row was collected since the last batch.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds one whole row, in the order of [`Table::columns`].
    pub fn push(&mut self, row: &[Value]) -> Result<()> {
        for (builder, at) in self.builders.iter_mut().zip(&self.positions) {
            let value = row.get(*at).ok_or_else(|| Error::Corrupt("row is too short".into()))?;
            builder.push(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Takes what was collected as one batch and starts anew.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let arrays = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| Error::Corrupt(format!("rows do not fit their columns: {error}")))
    }
}

/// Collects values of one column.
pub enum ColumnBuilder {
    /// TINYINT.
    I8(Int8Builder),
    /// SMALLINT.
    I16(Int16Builder),
    /// MEDIUMINT, INT.
    I32(Int32Builder),
    /// BIGINT.
    I64(Int64Builder),
    /// TINYINT UNSIGNED.
    U8(UInt8Builder),
    /// SMALLINT UNSIGNED, YEAR.
    U16(UInt16Builder),
    /// MEDIUMINT UNSIGNED, INT UNSIGNED.
    U32(UInt32Builder),
    /// BIGINT UNSIGNED, BIT.
    U64(UInt64Builder),
    /// DOUBLE.
    F64(Float64Builder),
    /// DECIMAL, with its scale.
    Decimal(Decimal128Builder, u8),
    /// DECIMAL of more than 38 digits, with its scale.
    Wide(Decimal256Builder, u8),
    /// CHAR, VARCHAR, TEXT, ENUM, SET.
    String(StringBuilder),
    /// JSON.
    Json(LargeStringBuilder),
    /// DATE.
    Date(Date32Builder),
    /// DATETIME and TIMESTAMP.
    Micros(TimestampMicrosecondBuilder),
    /// BINARY, VARBINARY, BLOB.
    Bytes(BinaryBuilder),
    /// FLOAT.
    F32(Float32Builder),
    /// TIME.
    Span(DurationMicrosecondBuilder),
}

impl ColumnBuilder {
    /// An empty column of a type.
    pub fn new(ty: ColumnType) -> Self {
        match ty {
            ColumnType::Int { width, unsigned } => match (width, unsigned) {
                (IntWidth::Tiny | IntWidth::Bool, false) => Self::I8(Int8Builder::new()),
                (IntWidth::Tiny | IntWidth::Bool, true) => Self::U8(UInt8Builder::new()),
                (IntWidth::Small, false) => Self::I16(Int16Builder::new()),
                (IntWidth::Small, true) => Self::U16(UInt16Builder::new()),
                (IntWidth::Medium | IntWidth::Int, false) => Self::I32(Int32Builder::new()),
                (IntWidth::Medium | IntWidth::Int, true) => Self::U32(UInt32Builder::new()),
                (IntWidth::Big, false) => Self::I64(Int64Builder::new()),
                (IntWidth::Big, true) => Self::U64(UInt64Builder::new()),
            },
            ColumnType::Double => Self::F64(Float64Builder::new()),
            ColumnType::Decimal { scale, .. } if ty.is_wide() => {
                Self::Wide(Decimal256Builder::new().with_data_type(arrow_type(ty)), scale)
            }
            ColumnType::Decimal { scale, .. } => {
                Self::Decimal(Decimal128Builder::new().with_data_type(arrow_type(ty)), scale)
            }
            ColumnType::Char(_)
            | ColumnType::Varchar(_)
            | ColumnType::Text(_)
            | ColumnType::Enum(_)
            | ColumnType::Set(_) => Self::String(StringBuilder::new()),
            ColumnType::Json => Self::Json(LargeStringBuilder::new()),
            ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
                Self::Bytes(BinaryBuilder::new())
            }
            ColumnType::Float => Self::F32(Float32Builder::new()),
            ColumnType::Year => Self::U16(UInt16Builder::new()),
            ColumnType::Bit(_) => Self::U64(UInt64Builder::new()),
            ColumnType::Time(_) => Self::Span(DurationMicrosecondBuilder::new()),
            ColumnType::Date => Self::Date(Date32Builder::new()),
            ColumnType::DateTime(_) | ColumnType::Timestamp(_) => {
                Self::Micros(TimestampMicrosecondBuilder::new().with_data_type(arrow_type(ty)))
            }
        }
    }

    /// Adds one value; an error if it is not of the column's type.
    pub fn push(&mut self, value: &Value) -> Result<()> {
        macro_rules! int {
            ($builder:expr, $n:expr) => {
                $builder.append_value((*$n).try_into().map_err(|_| mismatch(value))?)
            };
        }
        match (self, value) {
            (builder, Value::Null) => builder.push_null(),
            (Self::I8(b), Value::Int(n)) => int!(b, n),
            (Self::I16(b), Value::Int(n)) => int!(b, n),
            (Self::I32(b), Value::Int(n)) => int!(b, n),
            (Self::I64(b), Value::Int(n)) => b.append_value(*n),
            (Self::U8(b), Value::UInt(n)) => int!(b, n),
            (Self::U16(b), Value::UInt(n)) => int!(b, n),
            (Self::U32(b), Value::UInt(n)) => int!(b, n),
            (Self::U64(b), Value::UInt(n)) => b.append_value(*n),
            (Self::F64(b), Value::Double(n)) => b.append_value(*n),
            (Self::Decimal(b, scale), Value::Decimal(n)) => {
                b.append_value(n.rescale(*scale).ok_or_else(|| mismatch(value))?.unscaled);
            }
            (Self::Wide(b, scale), Value::Wide(n)) => {
                b.append_value(n.rescale(*scale).ok_or_else(|| mismatch(value))?.unscaled);
            }
            (Self::String(b), Value::String(s)) => b.append_value(s),
            (Self::Json(b), Value::String(s)) => b.append_value(s),
            (Self::Date(b), Value::Date(n)) => b.append_value(*n),
            (Self::Micros(b), Value::DateTime(n) | Value::Timestamp(n)) => b.append_value(*n),
            (Self::Bytes(b), Value::Bytes(bytes)) => b.append_value(bytes),
            (Self::F32(b), Value::Float(n)) => b.append_value(*n),
            (Self::Span(b), Value::Time(n)) => b.append_value(*n),
            _ => return Err(mismatch(value)),
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Self::I8(b) => b.append_null(),
            Self::I16(b) => b.append_null(),
            Self::I32(b) => b.append_null(),
            Self::I64(b) => b.append_null(),
            Self::U8(b) => b.append_null(),
            Self::U16(b) => b.append_null(),
            Self::U32(b) => b.append_null(),
            Self::U64(b) => b.append_null(),
            Self::F64(b) => b.append_null(),
            Self::Decimal(b, _) => b.append_null(),
            Self::Wide(b, _) => b.append_null(),
            Self::String(b) => b.append_null(),
            Self::Json(b) => b.append_null(),
            Self::Date(b) => b.append_null(),
            Self::Micros(b) => b.append_null(),
            Self::Bytes(b) => b.append_null(),
            Self::F32(b) => b.append_null(),
            Self::Span(b) => b.append_null(),
        }
    }

    /// Takes the column and starts anew.
    pub fn finish(&mut self) -> ArrayRef {
        match self {
            Self::I8(b) => ArrayBuilder::finish(b),
            Self::I16(b) => ArrayBuilder::finish(b),
            Self::I32(b) => ArrayBuilder::finish(b),
            Self::I64(b) => ArrayBuilder::finish(b),
            Self::U8(b) => ArrayBuilder::finish(b),
            Self::U16(b) => ArrayBuilder::finish(b),
            Self::U32(b) => ArrayBuilder::finish(b),
            Self::U64(b) => ArrayBuilder::finish(b),
            Self::F64(b) => ArrayBuilder::finish(b),
            Self::Decimal(b, _) => ArrayBuilder::finish(b),
            Self::Wide(b, _) => ArrayBuilder::finish(b),
            Self::String(b) => ArrayBuilder::finish(b),
            Self::Json(b) => ArrayBuilder::finish(b),
            Self::Date(b) => ArrayBuilder::finish(b),
            Self::Micros(b) => ArrayBuilder::finish(b),
            Self::Bytes(b) => ArrayBuilder::finish(b),
            Self::F32(b) => ArrayBuilder::finish(b),
            Self::Span(b) => ArrayBuilder::finish(b),
        }
    }
}

fn mismatch(value: &Value) -> Error {
    let kind = match value {
        Value::Null => "NULL",
        Value::Int(_) => "integer",
        Value::UInt(_) => "unsigned integer",
        Value::Double(_) => "double",
        Value::Decimal(_) | Value::Wide(_) => "decimal",
        Value::String(_) => "string",
        Value::Date(_) => "date",
        Value::DateTime(_) => "datetime",
        Value::Timestamp(_) => "timestamp",
        Value::Bytes(_) => "binary string",
        Value::Float(_) => "float",
        Value::Time(_) => "time",
    };
    Error::Corrupt(format!("a stored {kind} does not fit its column"))
}
