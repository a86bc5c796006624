//! Files of an import: which columns they have, and their rows in batches, each row with its place.
//!
//! It never skips what it cannot read: a broken file is an error that names the place.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, TimeUnit};
use functions::value::value_at;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use syntax::delimited::{Format, Records};
use types::Value;

use crate::sort::Origin;

/// Rows of a batch.
const BATCH: usize = 4_096;
/// Bytes that are read of a CSV file at a time; a record may be longer.
const PIECE: usize = 4 << 20;
/// Longest record of a CSV file.
const LONGEST: usize = 64 << 20;
/// Most rows of a row group, as places are numbered.
const GROUP: u64 = 1 << 40;

/// How CSV files are written.
#[derive(Clone, Debug)]
pub struct Csv {
    /// Between fields.
    pub delimiter: String,
    /// Behind lines; none finds out whether it is `\n` or `\r\n`.
    pub line_end: Option<String>,
    /// Around fields.
    pub quote: Option<u8>,
    /// What stands for NULL.
    pub null: String,
    /// Whether the first line names the columns.
    pub header: bool,
}

/// What a file is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Lines of fields, in this manner.
    Csv(Csv),
    /// Parquet.
    Parquet(ArrowReaderMetadata),
}

/// A file to import.
#[derive(Clone, Debug)]
pub struct Input {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub kind: Kind,
    /// Size.
    pub bytes: u64,
}

/// A part of a file that is read by one worker.
pub enum Part {
    /// Records of a CSV file.
    Records(Lines),
    /// A row group of a Parquet file.
    Group(usize),
}

/// Records of a CSV file.
#[derive(Default)]
pub struct Lines {
    /// Line that each begins on.
    lines: Vec<u64>,
    /// Fields.
    records: Vec<Vec<Option<String>>>,
    /// Bytes of the file.
    bytes: u64,
}

/// Rows of one file.
pub struct Batch {
    /// Place of each.
    pub places: Vec<u64>,
    /// Values, in the order of the file's columns.
    pub values: Vec<Vec<Option<Value>>>,
}

/// Distinguishes a CSV file of this manner from a Parquet file.
pub fn open(path: &Path, format: Option<&str>, csv: &Csv) -> Result<Input> {
    let shown = path.display();
    let mut file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let bytes = file.metadata().with_context(|| format!("cannot look at {shown}"))?.len();
    let named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"));
    let kind = match format {
        Some("parquet") => true,
        Some(_) => false,
        None => named,
    };
    if !kind {
        let mut csv = csv.clone();
        if csv.line_end.is_none() {
            csv.line_end =
                Some(line_end(&mut file).with_context(|| format!("cannot read {shown}"))?);
        }
        return Ok(Input { path: path.to_owned(), kind: Kind::Csv(csv), bytes });
    }
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
        .with_context(|| format!("{shown} is not a whole Parquet file"))?;
    Ok(Input { path: path.to_owned(), kind: Kind::Parquet(metadata), bytes })
}

fn line_end(file: &mut File) -> std::io::Result<String> {
    let mut start = Vec::new();
    file.take(1 << 16).read_to_end(&mut start)?;
    let first = start.iter().position(|byte| *byte == b'\n');
    let carriage = first.and_then(|at| start.get(at.checked_sub(1)?)) == Some(&b'\r');
    Ok(if carriage { "\r\n" } else { "\n" }.to_owned())
}

impl Input {
    /// Names of the columns, if the file says them.
    pub fn columns(&self) -> Result<Option<Vec<String>>> {
        match &self.kind {
            Kind::Csv(csv) if csv.header => {
                let mut first = None;
                self.records(csv, |lines| {
                    first = lines.records.into_iter().next();
                    Ok(false)
                })?;
                let Some(first) = first else {
                    bail!("{} has no header line", self.path.display())
                };
                Ok(Some(first.into_iter().map(Option::unwrap_or_default).collect()))
            }
            Kind::Csv(_) => Ok(None),
            Kind::Parquet(metadata) => {
                let fields = metadata.schema().fields();
                Ok(Some(fields.iter().map(|field| field.name().clone()).collect()))
            }
        }
    }

    /// Where a place is, for people.
    pub fn describe(&self, origin: Origin) -> String {
        let (path, place) = (self.path.display(), origin.place);
        match self.kind {
            Kind::Csv(_) => format!("{path} line {place}"),
            Kind::Parquet(_) => format!("{path} row group {} row {}", place / GROUP, place % GROUP),
        }
    }

    /// The file's parts, in order; `take` says whether it wants more.
    pub fn parts(&self, mut take: impl FnMut(Part) -> Result<bool>) -> Result<()> {
        match &self.kind {
            Kind::Csv(csv) => {
                let mut skip = csv.header;
                self.records(csv, |mut lines| {
                    if std::mem::take(&mut skip) {
                        lines.lines.drain(..1);
                        lines.records.drain(..1);
                    }
                    take(Part::Records(lines))
                })
            }
            Kind::Parquet(metadata) => {
                for group in 0..metadata.metadata().num_row_groups() {
                    if !take(Part::Group(group))? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Cuts the file into records, in batches of at least one.
    fn records(&self, csv: &Csv, mut take: impl FnMut(Lines) -> Result<bool>) -> Result<()> {
        let shown = self.path.display();
        let line_end = csv.line_end.as_deref().unwrap_or("\n");
        let format = Format {
            separator: csv.delimiter.as_bytes(),
            line_end: line_end.as_bytes(),
            quote: csv.quote,
            escape: None,
        };
        let mut file = File::open(&self.path).with_context(|| format!("cannot open {shown}"))?;
        let mut piece: Vec<u8> = Vec::new();
        // Lines before the piece.
        let mut before = 0;
        loop {
            let held = piece.len();
            let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece);
            let end = read.with_context(|| format!("cannot read {shown}"))? == 0;
            let mut records = Records::new(&piece, format);
            let mut batch = Lines::default();
            let mut done = 0;
            while let Some(record) = records.next() {
                // What reaches the end of the piece may go on behind it.
                if records.rest().is_empty() && !end {
                    break;
                }
                let line = before + record.line as u64;
                let record = record.fields.map_err(|field| {
                    anyhow::anyhow!("{shown} line {line}: field {field} is not UTF-8")
                })?;
                let now = piece.len() - records.rest().len();
                batch.bytes += (now - std::mem::replace(&mut done, now)) as u64;
                let null = |field: Option<String>| field.filter(|text| *text != csv.null);
                batch.lines.push(line);
                batch.records.push(record.into_iter().map(null).collect());
                if batch.lines.len() >= BATCH && !take(std::mem::take(&mut batch))? {
                    return Ok(());
                }
            }
            if !batch.lines.is_empty() && !take(batch)? {
                return Ok(());
            }
            if end {
                return Ok(());
            }
            before += piece.iter().take(done).filter(|byte| **byte == b'\n').count() as u64;
            piece.drain(..done);
            if piece.len() >= LONGEST && held > 0 {
                bail!(
                    "{shown} line {}: a record of more than {} MiB; is a quote never closed?",
                    before + 1,
                    LONGEST >> 20
                );
            }
        }
    }

    /// Bytes of the file that a part takes, about.
    pub fn weight(&self, part: &Part) -> u64 {
        match (part, &self.kind) {
            (Part::Records(lines), _) => lines.bytes,
            (Part::Group(group), Kind::Parquet(metadata)) => {
                let group = metadata.metadata().row_groups().get(*group);
                group.map_or(0, |group| u64::try_from(group.compressed_size()).unwrap_or(0))
            }
            (Part::Group(_), Kind::Csv(_)) => 0,
        }
    }

    /// The rows of a part, in batches.
    pub fn rows(&self, part: Part, mut take: impl FnMut(Batch) -> Result<()>) -> Result<()> {
        match (part, &self.kind) {
            (Part::Records(Lines { lines, records, .. }), _) => {
                let text = |field: Option<String>| Some(field.map_or(Value::Null, Value::String));
                let values = records.into_iter().map(|row| row.into_iter().map(text).collect());
                take(Batch { places: lines, values: values.collect() })
            }
            (Part::Group(group), Kind::Parquet(metadata)) => self
                .group(group, metadata, &mut take)
                .with_context(|| format!("{} row group {group}", self.path.display())),
            (Part::Group(_), Kind::Csv(_)) => bail!("a CSV file has no row groups"),
        }
    }

    fn group(
        &self,
        group: usize,
        metadata: &ArrowReaderMetadata,
        take: &mut impl FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        let file = File::open(&self.path)?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
            .with_row_groups(vec![group])
            .with_batch_size(BATCH)
            .build()?;
        let mut first = group as u64 * GROUP;
        for batch in reader {
            let batch = batch?;
            let mut columns = Vec::with_capacity(batch.num_columns());
            for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
                let typed = of_mysql(column);
                columns.push(typed.with_context(|| format!("column {}", field.name()))?);
            }
            let rows = batch.num_rows();
            let row = |at: usize| columns.iter().map(|c| Ok(Some(value_at(c, at)?))).collect();
            let values: Result<Vec<_>> = (0..rows).map(row).collect();
            take(Batch { places: (first..).take(rows).collect(), values: values? })?;
            first += rows as u64;
        }
        Ok(())
    }
}

/// A column in one of the types that values come in; what does not fit is an error, not a NULL.
fn of_mysql(column: &ArrayRef) -> Result<ArrayRef> {
    let target = match column.data_type() {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Duration(_) => DataType::Duration(TimeUnit::Microsecond),
        DataType::Time32(_) | DataType::Time64(_) => return time_of_day(column),
        DataType::Dictionary(_, values) => (**values).clone(),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => decimal(*precision, *scale),
        _ => return Ok(column.clone()),
    };
    if target == *column.data_type() {
        return Ok(column.clone());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(column, &target, &strict)?;
    match column.data_type() {
        DataType::Dictionary(..) => of_mysql(&cast),
        _ => Ok(cast),
    }
}

/// A decimal without digits before the point left out; in 128 bits if they hold it.
fn decimal(precision: u8, scale: i8) -> DataType {
    let left_out = if scale < 0 { scale.unsigned_abs() } else { 0 };
    let precision = precision.saturating_add(left_out).min(DECIMAL256_MAX_PRECISION);
    match precision <= DECIMAL128_MAX_PRECISION {
        true => DataType::Decimal128(precision, scale.max(0)),
        false => DataType::Decimal256(precision, scale.max(0)),
    }
}

/// A time of day as a TIME, which is a span.
fn time_of_day(column: &ArrayRef) -> Result<ArrayRef> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let mut array = column.clone();
    for step in [
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Int64,
        DataType::Duration(TimeUnit::Microsecond),
    ] {
        array = cast_with_options(&array, &step, &strict)?;
    }
    Ok(array)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, BinaryViewArray, Decimal128Array, Decimal256Array, DurationSecondArray,
        FixedSizeBinaryArray, LargeBinaryArray, Time32MillisecondArray, Time64NanosecondArray,
    };

    use arrow::datatypes::i256;

    use super::*;

    fn first(array: ArrayRef) -> Value {
        value_at(&of_mysql(&array).unwrap(), 0).unwrap()
    }

    #[test]
    fn decimals_keep_every_digit() {
        let nines = i256::from_string(&"9".repeat(65)).unwrap();
        let wide = |n, precision, scale| {
            let array = Decimal256Array::from(vec![n]);
            first(Arc::new(array.with_precision_and_scale(precision, scale).unwrap())).to_string()
        };
        let expected = format!("{}.{}", "9".repeat(35), "9".repeat(30));
        assert_eq!(wide(nines, 65, 30), expected);
        assert_eq!(wide(i256::from_i128(-5), 20, 2), "-0.05");
        // Digits before the point that are left out are zeros.
        assert_eq!(wide(i256::from_i128(7), 70, -6), "7000000");
        let narrow = Decimal128Array::from(vec![12]).with_precision_and_scale(37, -3).unwrap();
        assert_eq!(first(Arc::new(narrow)).to_string(), "12000");
    }

    #[test]
    fn bytes_stay_bytes_and_times_become_spans() {
        let bytes = [&b"\xffa"[..]];
        let fixed = FixedSizeBinaryArray::try_from_iter(bytes.iter()).unwrap();
        let all: [ArrayRef; 4] = [
            Arc::new(BinaryArray::from_iter_values(bytes)),
            Arc::new(LargeBinaryArray::from_iter_values(bytes)),
            Arc::new(BinaryViewArray::from_iter_values(bytes)),
            Arc::new(fixed),
        ];
        for array in all {
            assert_eq!(first(array), Value::Bytes(b"\xffa".to_vec()));
        }
        assert_eq!(first(Arc::new(DurationSecondArray::from(vec![-2]))), Value::Time(-2_000_000));
        assert_eq!(
            first(Arc::new(Time32MillisecondArray::from(vec![1_500]))),
            Value::Time(1_500_000)
        );
        assert_eq!(first(Arc::new(Time64NanosecondArray::from(vec![2_500]))), Value::Time(2));
    }
}
