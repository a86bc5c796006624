//! Reading a segment: keys by rank, columns by row group.
//!
//! Every byte that leaves this file was checked against its checksum. A mismatch, a missing or a
//! short file is [`Error::Corrupt`]; a disk that fails is [`Error::Io`].

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::UInt64Type;
use arrow::error::ArrowError;
use bytes::Bytes;
use env::{Access, Disk, DiskFile};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::reader::{ChunkReader, Length};
use types::{ColumnId, Error, Result, SchemaVersion, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::Cache;
use crate::index::{KeyBlock, block_of_key, block_of_row};
use crate::record::{FileId, SegmentRecord};
use crate::segment::{
    BLOCK_BYTES, Footer, Group, KEYS_END, KEYS_HEADER, KEYS_TAIL, data_path, keys_path,
};

/// Where segments live and what they share in memory.
pub struct Files {
    /// Disk.
    pub disk: Arc<dyn Disk>,
    /// Directory.
    pub dir: PathBuf,
    /// Decoded columns by (segment, row group, position of the column), in bytes.
    pub columns: Cache<(FileId, u32, u32), ArrayRef>,
    /// Decoded key blocks by (segment, block), in bytes.
    pub keys: Cache<(FileId, u32), Arc<KeyBlock>>,
    /// Open segments, counted.
    pub opened: Cache<FileId, Arc<Opened>>,
}

/// An open segment: handles, checksums, zone maps.
pub struct Opened {
    data: VerifiedFile,
    keys: Arc<dyn DiskFile>,
    footer: Footer,
    metadata: ArrowReaderMetadata,
}

/// A segment that tablets and readers share. Its files live as long as anyone holds it.
pub struct Segment {
    record: SegmentRecord,
    files: Arc<Files>,
}

impl Segment {
    /// A segment that the manifest names; nothing is read yet.
    pub fn new(record: SegmentRecord, files: Arc<Files>) -> Arc<Self> {
        Arc::new(Segment { record, files })
    }

    /// What the manifest says of it.
    pub fn record(&self) -> &SegmentRecord {
        &self.record
    }

    /// Position of a column in the file, if the file has it.
    pub fn position(&self, column: ColumnId) -> Option<usize> {
        self.record.columns.iter().position(|id| *id == column)
    }

    /// Whether its rows were stored with a column that `last` had as the last version, or before
    /// it was added: then they read as its default.
    pub fn still_has(&self, column: ColumnId, last: SchemaVersion) -> bool {
        self.record.schema <= last || self.position(column).is_some()
    }

    /// Opens the files, if they are not, and checks what is needed to read them.
    pub fn open(&self) -> Result<Arc<Opened>> {
        if let Some(opened) = self.files.opened.get(&self.record.id) {
            return Ok(opened);
        }
        let opened = Arc::new(Opened::new(&self.record, &self.files)?);
        self.files.opened.put(self.record.id, opened.clone(), 1);
        Ok(opened)
    }

    /// Row groups.
    pub fn groups(&self) -> Result<Vec<Group>> {
        Ok(self.open()?.footer.groups.clone())
    }

    /// Position of the version of a key that became visible at `begin`.
    pub fn find(&self, key: &[u8], begin: Timestamp) -> Result<Option<u32>> {
        let record = &self.record;
        if begin < record.min_begin
            || begin > record.max_begin
            || key < record.first_key.as_slice()
            || key > record.last_key.as_slice()
        {
            return Ok(None);
        }
        let row = self.lower_bound(key, begin)?;
        if row >= record.rows {
            return Ok(None);
        }
        let block = self.key_block(row)?;
        Ok(block.row(row).filter(|found| *found == (key, begin)).map(|_| row))
    }

    /// First position whose (key, begin) is not before the given.
    pub fn lower_bound(&self, key: &[u8], begin: Timestamp) -> Result<u32> {
        let opened = self.open()?;
        // Versions of one key may span blocks, so several blocks may begin with it.
        let mut at = block_of_key(&opened.footer.blocks, key);
        loop {
            let block = self.block(&opened, at)?;
            let row = block.lower_bound(key, begin);
            let next = opened.footer.blocks.get(at + 1);
            match next {
                Some(next) if row >= next.first_row => at += 1,
                _ => return Ok(row),
            }
        }
    }

    /// The key block that holds a position.
    pub fn key_block(&self, row: u32) -> Result<Arc<KeyBlock>> {
        let opened = self.open()?;
        let at = block_of_row(&opened.footer.blocks, row);
        self.block(&opened, at)
    }

    fn block(&self, opened: &Opened, at: usize) -> Result<Arc<KeyBlock>> {
        let cached = (self.record.id, at as u32);
        if let Some(block) = self.files.keys.get(&cached) {
            return Ok(block);
        }
        let reference =
            opened.footer.blocks.get(at).ok_or_else(|| self.corrupt("no such block"))?;
        let mut bytes = vec![0; reference.len as usize];
        read_exact(opened.keys.as_ref(), &mut bytes, reference.offset)
            .map_err(|error| self.name(error))?;
        let block = KeyBlock::decode(reference, &bytes).map_err(|error| self.name(error))?;
        self.files.keys.put(cached, block.clone(), block.bytes());
        Ok(block)
    }

    /// A whole column of a row group, from the cache if it is there; kept there if `keep`.
    pub fn column(&self, group: usize, at: usize, keep: bool) -> Result<ArrayRef> {
        if let Some(array) = self.cached(group, at) {
            return Ok(array);
        }
        let array = self.decode(group, at, None)?;
        if keep {
            let size = array.get_array_memory_size();
            self.files.columns.put(self.slot(group, at), array.clone(), size);
        }
        Ok(array)
    }

    /// A column of a row group, if it is decoded already.
    pub fn cached(&self, group: usize, at: usize) -> Option<ArrayRef> {
        self.files.columns.get(&self.slot(group, at))
    }

    /// The selected rows of a column of a row group, without keeping them. Pages that hold none
    /// of them are not read.
    pub fn column_at(&self, group: usize, at: usize, rows: RowSelection) -> Result<ArrayRef> {
        self.decode(group, at, Some(rows))
    }

    /// When each row of a row group became visible.
    pub fn begins(&self, group: usize) -> Result<UInt64Array> {
        let array = self.column(group, self.record.columns.len(), true)?;
        let begins = array.as_primitive_opt::<UInt64Type>();
        begins.cloned().ok_or_else(|| self.corrupt("the begin column is of another type"))
    }

    /// The Bloom filter of a column of a row group.
    pub fn bloom_filter(&self, group: usize, at: usize) -> Result<Option<Sbbf>> {
        let opened = self.open()?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            opened.data.clone(),
            opened.metadata.clone(),
        );
        builder.get_row_group_column_bloom_filter(group, at).map_err(|error| self.parquet(error))
    }

    /// Reads and checks every byte of both files; how many there are.
    pub fn verify(&self) -> Result<u64> {
        let opened = Opened::new(&self.record, &self.files)?;
        for at in 0..opened.data.sums.len() as u64 {
            opened.data.block(at).map_err(|error| self.name(error))?;
        }
        for reference in &opened.footer.blocks {
            let mut bytes = vec![0; reference.len as usize];
            read_exact(opened.keys.as_ref(), &mut bytes, reference.offset)
                .map_err(|error| self.name(error))?;
            KeyBlock::decode(reference, &bytes).map_err(|error| self.name(error))?;
        }
        Ok(opened.data.len + opened.keys.len()?)
    }

    fn decode(&self, group: usize, at: usize, rows: Option<RowSelection>) -> Result<ArrayRef> {
        let opened = self.open()?;
        let metadata = opened.metadata.clone();
        let descriptor = metadata.metadata().file_metadata().schema_descr();
        let mask = ProjectionMask::roots(descriptor, [at]);
        let in_group = opened.footer.groups.get(group).map_or(0, |group| group.rows as usize);
        let wanted = rows.as_ref().map_or(in_group, RowSelection::row_count);
        let data = opened.data.watched();
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(data.clone(), metadata)
                .with_row_groups(vec![group])
                .with_projection(mask)
                .with_batch_size(in_group.max(1));
        if let Some(rows) = rows {
            builder = builder.with_row_selection(rows);
        }
        let mut arrays = Vec::new();
        for batch in builder.build().map_err(|error| self.parquet(error))? {
            // Parquet's reader passes on the text of what failed: whether that was damage is asked here.
            let batch = batch.map_err(|error| match data.failed.get() {
                Some(failed) => self.name(failed.clone()),
                None => self.arrow(error),
            })?;
            arrays.extend(batch.columns().first().cloned());
        }
        let array = match arrays.as_slice() {
            [one] => one.clone(),
            many => {
                let many: Vec<&dyn Array> = many.iter().map(AsRef::as_ref).collect();
                arrow::compute::concat(&many).map_err(|error| self.arrow(error))?
            }
        };
        if array.len() == wanted {
            Ok(array)
        } else {
            Err(self.corrupt("a column holds another number of rows than its row group"))
        }
    }

    fn slot(&self, group: usize, at: usize) -> (FileId, u32, u32) {
        (self.record.id, group as u32, at as u32)
    }

    fn arrow(&self, error: ArrowError) -> Error {
        self.name(from_arrow(error))
    }

    fn parquet(&self, error: ParquetError) -> Error {
        self.name(from_parquet(error))
    }

    fn corrupt(&self, what: &str) -> Error {
        self.name(Error::Corrupt(what.to_owned()))
    }

    fn name(&self, error: Error) -> Error {
        named(error, &data_path(&self.files.dir, self.record.id))
    }
}

impl Opened {
    fn new(record: &SegmentRecord, files: &Files) -> Result<Self> {
        let path = keys_path(&files.dir, record.id);
        let keys = open_file(files.disk.as_ref(), &path, record.keys_len)?;
        let footer = read_footer(record, keys.as_ref()).map_err(|error| named(error, &path))?;
        let path = data_path(&files.dir, record.id);
        let file = open_file(files.disk.as_ref(), &path, record.data_len)?;
        let sums: Arc<[u64]> = footer.data_sums.clone().into();
        let data = VerifiedFile { file, sums, len: record.data_len, failed: Arc::default() };
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = ArrowReaderMetadata::load(&data, options)
            .map_err(|error| named(from_parquet(error), &path))?;
        let columns = metadata.schema().fields().len();
        if columns != record.columns.len() + 1
            || metadata.metadata().num_row_groups() != footer.groups.len()
        {
            return Err(named(
                Error::Corrupt("another shape than the manifest says".into()),
                &path,
            ));
        }
        Ok(Opened { data, keys, footer, metadata })
    }

    /// Zone maps and layout of the Parquet file.
    pub fn metadata(&self) -> &ArrowReaderMetadata {
        &self.metadata
    }
}

fn open_file(disk: &dyn Disk, path: &Path, len: u64) -> Result<Arc<dyn DiskFile>> {
    let file = match disk.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(named(Error::Corrupt("the file is missing".into()), path));
        }
        Err(error) => return Err(error.into()),
    };
    let found = file.len()?;
    if found == len {
        Ok(file)
    } else {
        let what = format!("{found} bytes long, but the manifest says {len}");
        Err(named(Error::Corrupt(what), path))
    }
}

fn read_footer(record: &SegmentRecord, file: &dyn DiskFile) -> Result<Footer> {
    let bad = |what: &str| Error::Corrupt(what.to_owned());
    let mut header = [0; KEYS_HEADER.len()];
    read_exact(file, &mut header, 0)?;
    if header != KEYS_HEADER {
        return Err(bad("not a key index of this version"));
    }
    let tail_at = record.keys_len.checked_sub(KEYS_TAIL).ok_or_else(|| bad("too short"))?;
    let mut tail = [0; KEYS_TAIL as usize];
    read_exact(file, &mut tail, tail_at)?;
    let (offset, end) = tail.split_at(8);
    if end != KEYS_END {
        return Err(bad("the end mark is damaged"));
    }
    let footer_at = offset.try_into().map_or(u64::MAX, u64::from_le_bytes);
    let len = tail_at.checked_sub(footer_at).ok_or_else(|| bad("the footer is out of place"))?;
    let mut bytes = vec![0; len as usize];
    read_exact(file, &mut bytes, footer_at)?;
    if xxh3_64(&bytes) != record.footer_sum {
        return Err(bad("the footer does not match its checksum"));
    }
    let footer: Footer = postcard::from_bytes(&bytes)?;
    if footer.segment == record.id { Ok(footer) } else { Err(bad("the footer of another segment")) }
}

fn read_exact(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(buffer, offset).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Error::Corrupt("the file is too short".into()),
        _ => error.into(),
    })
}

fn named(error: Error, path: &Path) -> Error {
    match error {
        Error::Corrupt(what) => Error::Corrupt(format!("{}: {what}", path.display())),
        other => other,
    }
}

/// A file whose blocks are compared with known checksums whenever they are read.
#[derive(Clone)]
pub(crate) struct VerifiedFile {
    file: Arc<dyn DiskFile>,
    sums: Arc<[u64]>,
    len: u64,
    /// The first read that failed of this clone and its own.
    failed: Arc<OnceLock<Error>>,
}

impl VerifiedFile {
    /// The same file, with no failure yet.
    fn watched(&self) -> Self {
        VerifiedFile { failed: Arc::default(), ..self.clone() }
    }

    fn block(&self, at: u64) -> Result<Bytes> {
        self.range(at * BLOCK_BYTES, ((at + 1) * BLOCK_BYTES).min(self.len))
    }

    /// Bytes from `start`, the beginning of a block, to `end`, the end of one or of the file.
    fn range(&self, start: u64, end: u64) -> Result<Bytes> {
        self.read(start, end).inspect_err(|error| _ = self.failed.set(error.clone()))
    }

    fn read(&self, start: u64, end: u64) -> Result<Bytes> {
        let mut bytes = vec![0; end.saturating_sub(start) as usize];
        read_exact(self.file.as_ref(), &mut bytes, start)?;
        let first = (start / BLOCK_BYTES) as usize;
        for (at, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            if self.sums.get(first + at) != Some(&xxh3_64(block)) {
                return Err(Error::Corrupt(format!(
                    "the block at offset {} does not match its checksum",
                    start + at as u64 * BLOCK_BYTES
                )));
            }
        }
        Ok(bytes.into())
    }

    fn checked(&self, start: u64, length: u64) -> Result<Bytes> {
        let end = start.saturating_add(length);
        if end > self.len {
            return Err(Error::Corrupt("a read beyond the end of the file".into()));
        }
        let from = start / BLOCK_BYTES * BLOCK_BYTES;
        let to = end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).min(self.len);
        let bytes = self.range(from, to)?;
        Ok(bytes.slice((start - from) as usize..(end - from) as usize))
    }
}

impl Length for VerifiedFile {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for VerifiedFile {
    type T = VerifiedRead;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(VerifiedRead { file: self.clone(), at: start, rest: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.checked(start, length as u64).map_err(|error| ParquetError::External(error.into()))
    }
}

/// Reads on from a place in a file, one checked block after another.
pub(crate) struct VerifiedRead {
    file: VerifiedFile,
    at: u64,
    rest: Bytes,
}

impl Read for VerifiedRead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() && self.at < self.file.len {
            let block = self.file.block(self.at / BLOCK_BYTES).map_err(std::io::Error::other)?;
            self.rest = block.slice((self.at % BLOCK_BYTES) as usize..);
        }
        let read = self.rest.len().min(buffer.len());
        let head = self.rest.split_to(read);
        if let Some(target) = buffer.get_mut(..read) {
            target.copy_from_slice(&head);
        }
        self.at += read as u64;
        Ok(read)
    }
}

/// The failure of ours that another library wrapped, or its own as corruption.
fn unwrapped(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    match error.downcast::<ParquetError>() {
        Ok(error) => from_parquet(*error),
        Err(error) => match error.downcast::<std::io::Error>() {
            Ok(io) => match io.downcast::<Error>() {
                Ok(error) => error,
                Err(io) => Error::Corrupt(io.to_string()),
            },
            Err(error) => Error::Corrupt(error.to_string()),
        },
    }
}

fn from_parquet(error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => unwrapped(inner),
        other => Error::Corrupt(other.to_string()),
    }
}

fn from_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => unwrapped(inner),
        other => Error::Corrupt(other.to_string()),
    }
}
