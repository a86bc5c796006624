//! Segments on disk: an immutable Parquet file and its key index, written once, read through
//! checksums.
//!
//! `<id>.parquet` is plain Parquet (data columns, then `_begin_ts`) that any tool can open.
//! `<id>.keys` is the key index; its footer also holds an xxh3 of each 64 KiB block of the Parquet
//! file, and the manifest holds the footer's own. So every byte of both files is covered, and no
//! read returns bytes that were not checked.
//!
//! ```text
//! keys    "ISOBARCK" version(4) | key blocks … | footer (postcard) | footer offset(8) "ISOBARCE"
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use env::Disk;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};
use types::{Error, Result, Table, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::index::{BlockRef, KeyIndexBuilder};
use crate::record::{FileId, SegmentRecord};

/// Rows of a row group: the unit of zone maps and of the cache of decoded columns.
pub const GROUP_ROWS: usize = 65_536;
/// Rows of a page at most: the unit of the page index.
const PAGE_ROWS: usize = 8_192;
/// Bytes of a Parquet file under one checksum.
pub const BLOCK_BYTES: u64 = 64 << 10;
/// Name of the column that says when a row became visible.
pub const BEGIN_COLUMN: &str = "_begin_ts";
/// First bytes of a key index file, with the layout's version.
pub const KEYS_HEADER: [u8; 12] = *b"ISOBARCK\x01\0\0\0";
/// Last bytes of a key index file.
pub const KEYS_END: [u8; 8] = *b"ISOBARCE";
/// Footer offset and end mark.
pub const KEYS_TAIL: u64 = 16;

/// What the footer of a key index file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// Segment that both files belong to.
    pub segment: FileId,
    /// Key blocks.
    pub blocks: Vec<BlockRef>,
    /// xxh3 of each [`BLOCK_BYTES`] of the Parquet file.
    pub data_sums: Vec<u64>,
    /// Row groups.
    pub groups: Vec<Group>,
}

/// A row group, for visibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Position of its first row.
    pub first: u32,
    /// Number of rows.
    pub rows: u32,
    /// Earliest begin.
    pub min_begin: Timestamp,
    /// Latest begin.
    pub max_begin: Timestamp,
}

/// Path of a segment's Parquet file.
pub fn data_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id:016x}.parquet"))
}

/// Path of a segment's key index file.
pub fn keys_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id:016x}.keys"))
}

/// The segment number in a file name, for either file.
pub fn id_of(path: &Path) -> Option<FileId> {
    let known = path.extension().is_some_and(|end| end == "parquet" || end == "keys");
    let stem = path.file_stem()?.to_str()?;
    if known && stem.len() == 16 { FileId::from_str_radix(stem, 16).ok() } else { None }
}

/// Writes a segment and makes it durable. Rows come in the order of (key, begin); `columns` is in
/// the stored layout of `table`.
pub fn write<'a>(
    disk: &dyn Disk,
    dir: &Path,
    id: FileId,
    table: &Table,
    columns: &RecordBatch,
    keys: impl Iterator<Item = (&'a [u8], Timestamp)>,
) -> Result<SegmentRecord> {
    let mut index = KeyIndexBuilder::new(&KEYS_HEADER);
    let mut begins = Vec::with_capacity(columns.num_rows());
    let mut first_key = None;
    for (key, begin) in keys {
        first_key.get_or_insert_with(|| key.to_vec());
        index.push(key, begin);
        begins.push(begin.0);
    }
    if begins.len() != columns.num_rows() || begins.is_empty() {
        return Err(Error::Corrupt(format!(
            "a segment of {} rows was given {} keys",
            columns.num_rows(),
            begins.len()
        )));
    }
    let groups = groups(&begins);
    let data = parquet_bytes(table, columns, &begins)?;
    let last_key = index.last_key().to_vec();
    let (mut keys, blocks) = index.finish();
    let data_sums = data.chunks(BLOCK_BYTES as usize).map(xxh3_64).collect();
    let footer = Footer { segment: id, blocks, data_sums, groups: groups.clone() };
    let footer = postcard::to_extend(&footer, Vec::new())
        .map_err(|error| Error::Invalid(format!("a footer cannot be encoded: {error}")))?;
    let footer_at = keys.len() as u64;
    keys.extend_from_slice(&footer);
    keys.extend_from_slice(&footer_at.to_le_bytes());
    keys.extend_from_slice(&KEYS_END);
    put_files(disk, dir, id, &data, &keys).inspect_err(|_| {
        // A full disk should not stay full of what is of no use; what cannot be removed now is
        // removed at the next start.
        for path in [data_path(dir, id), keys_path(dir, id)] {
            disk.remove(&path).ok();
        }
    })?;
    Ok(SegmentRecord {
        id,
        rows: begins.len() as u32,
        schema: table.version,
        columns: table.columns.iter().map(|column| column.id).collect(),
        min_begin: groups.iter().map(|group| group.min_begin).min().unwrap_or_default(),
        max_begin: groups.iter().map(|group| group.max_begin).max().unwrap_or_default(),
        first_key: first_key.unwrap_or_default(),
        last_key,
        data_len: data.len() as u64,
        keys_len: keys.len() as u64,
        footer_sum: xxh3_64(&footer),
    })
}

fn put_files(disk: &dyn Disk, dir: &Path, id: FileId, data: &[u8], keys: &[u8]) -> Result<()> {
    for (path, bytes) in [(data_path(dir, id), data), (keys_path(dir, id), keys)] {
        let file = disk.create(&path)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
    }
    disk.sync_dir(dir)?;
    Ok(())
}

fn groups(begins: &[u64]) -> Vec<Group> {
    let mut first = 0;
    begins
        .chunks(GROUP_ROWS)
        .map(|begins| {
            let group = Group {
                first,
                rows: begins.len() as u32,
                min_begin: Timestamp(begins.iter().copied().min().unwrap_or_default()),
                max_begin: Timestamp(begins.iter().copied().max().unwrap_or_default()),
            };
            first += group.rows;
            group
        })
        .collect()
}

fn parquet_bytes(table: &Table, columns: &RecordBatch, begins: &[u64]) -> Result<Vec<u8>> {
    let mut fields: Vec<Field> = Vec::with_capacity(table.columns.len() + 1);
    for (field, column) in columns.schema().fields().iter().zip(&table.columns) {
        let id = ("PARQUET:field_id".to_owned(), column.id.to_string());
        fields.push(field.as_ref().clone().with_metadata([id].into()));
    }
    fields.push(Field::new(BEGIN_COLUMN, DataType::UInt64, false));
    let schema = Arc::new(Schema::new(fields));
    let begin: ArrayRef = Arc::new(UInt64Array::from(begins.to_vec()));
    let mut arrays = columns.columns().to_vec();
    arrays.push(begin);
    let batch =
        RecordBatch::try_new(schema.clone(), arrays).map_err(crate::schemas::arrow_error)?;
    let mut writer =
        ArrowWriter::try_new(Vec::new(), schema, Some(properties(table))).map_err(unwritable)?;
    writer.write(&batch).map_err(unwritable)?;
    writer.into_inner().map_err(unwritable)
}

fn properties(table: &Table) -> WriterProperties {
    let about = |key: &str, value: String| KeyValue::new(format!("isobar.{key}"), value);
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("isobar ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_key_value_metadata(Some(vec![
            about("table", table.id.to_string()),
            about("schema_version", table.version.to_string()),
        ]));
    // Equality on the key is what zone maps of a key-ordered file answer badly when begins mix.
    for column in table.primary_key.iter().filter_map(|id| table.column(*id)) {
        let path = ColumnPath::from(column.name.as_str());
        properties = properties.set_column_bloom_filter_enabled(path, true);
    }
    properties.build()
}

fn unwritable(error: parquet::errors::ParquetError) -> Error {
    Error::Invalid(format!("a segment cannot be encoded as Parquet: {error}"))
}
