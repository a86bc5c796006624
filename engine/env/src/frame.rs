//! Append-only files of checksummed records.
//!
//! The reader distinguishes a torn tail (bytes that were never synced; reading stops there) from damage
//! inside (bytes that were synced, then changed; an error). Each record says up to which offset the
//! file had been synced when it was appended: a bad record below any later one's mark is damage. It
//! must never return a record whose checksum does not match, nor skip one silently.
//!
//! Layout, little-endian: header = magic 8, version 4, crc32c 4 of the two. Record = length 4,
//! synced offset 8, crc32c 4 of the payload, crc32c 4 of (these 16 bytes, the record's own offset),
//! payload. A record's offset being part of its checksum, a stale or nested record is never taken
//! for one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use types::{Error, Result};

use crate::disk::{Access, Disk, DiskFile, parent_of};

/// Bytes before the first record.
pub const FILE_HEADER: u64 = 16;
/// Bytes of a record before its payload.
pub const RECORD_HEADER: u64 = 20;
/// Payloads are shorter than this; a longer one is refused.
pub const MAX_PAYLOAD: usize = 1 << 30;

/// How much is read from the disk at a time.
const READ_AHEAD: usize = 256 << 10;

/// What a file holds: the first bytes of each file name its kind and the version of its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Eight bytes that no other kind of file begins with.
    pub magic: [u8; 8],
    /// Version of the layout inside; a reader refuses any other.
    pub version: u32,
}

impl Format {
    /// The format of a kind of file.
    pub const fn new(magic: [u8; 8], version: u32) -> Self {
        Format { magic, version }
    }

    pub(crate) fn prefix(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        let (magic, version) = bytes.split_at_mut(8);
        magic.copy_from_slice(&self.magic);
        version.copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// Compares the first twelve bytes of a file, whose own checksum is right, with this format.
    pub(crate) fn check(&self, prefix: &[u8], path: &Path) -> Result<()> {
        let found = prefix.get(..8).unwrap_or_default();
        if found != self.magic {
            return Err(Error::Corrupt(format!(
                "{} is not a {} file: it begins with {}; it was put there by something else",
                path.display(),
                self.magic.escape_ascii(),
                found.escape_ascii(),
            )));
        }
        let version = read_u32(prefix, 8);
        if version != self.version {
            return Err(Error::Invalid(format!(
                "{} has layout version {version}, this build reads version {}: use the build that \
                 wrote it, or remove the file's directory and let the node fetch its data again",
                path.display(),
                self.version,
            )));
        }
        Ok(())
    }
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where the record begins in its file; [`read_record`] finds it again by this.
    pub offset: u64,
    /// Its content.
    pub payload: Vec<u8>,
}

/// A record's header that passed its checksum.
struct Header {
    length: u64,
    synced: u64,
    crc: u32,
}

impl Header {
    fn new(payload: &[u8], synced: u64) -> Self {
        Header { length: payload.len() as u64, synced, crc: crc32c::crc32c(payload) }
    }

    fn encode(&self, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((RECORD_HEADER + self.length) as usize);
        bytes.extend_from_slice(&(self.length as u32).to_le_bytes());
        bytes.extend_from_slice(&self.synced.to_le_bytes());
        bytes.extend_from_slice(&self.crc.to_le_bytes());
        bytes.extend_from_slice(&header_crc(&bytes, offset).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], offset: u64) -> Option<Self> {
        let fields = bytes.get(..16)?;
        let stored = bytes.get(16..20)?;
        (header_crc(fields, offset).to_le_bytes() == stored).then(|| Header {
            length: u64::from(read_u32(fields, 0)),
            synced: read_u64(fields, 4),
            crc: read_u32(fields, 12),
        })
    }
}

fn header_crc(fields: &[u8], offset: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(fields), &offset.to_le_bytes())
}

/// Appends records. After a failed sync every call fails: what the disk holds is then unknown
/// until the file is opened again.
pub struct FrameWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    end: u64,
    synced: u64,
    broken: bool,
}

impl FrameWriter {
    /// Creates (or empties) a file and makes its name and header durable.
    pub fn create(disk: &dyn Disk, path: &Path, format: Format) -> Result<Self> {
        let file = disk.create(path)?;
        write_header(file.as_ref(), format)?;
        disk.sync_dir(parent_of(path))?;
        Ok(FrameWriter {
            file,
            path: path.to_path_buf(),
            end: FILE_HEADER,
            synced: FILE_HEADER,
            broken: false,
        })
    }

    /// Opens an existing file to append to it: hands every record to `visit`, cuts a torn tail and
    /// makes the rest durable (it was read, so it may have been acted upon).
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        format: Format,
        mut visit: impl FnMut(Record) -> Result<()>,
    ) -> Result<Self> {
        let file = disk.open(path, Access::Write)?;
        let mut reader = FrameReader::new(file.clone(), path, format)?;
        while let Some(record) = reader.next_record()? {
            visit(record)?;
        }
        let mut end = reader.offset();
        if end < FILE_HEADER {
            // The crash hit its creation.
            file.truncate(0)?;
            write_header(file.as_ref(), format)?;
            end = FILE_HEADER;
        } else if reader.torn_at().is_some() {
            file.truncate(end)?;
        }
        file.sync()?;
        disk.sync_dir(parent_of(path))?;
        Ok(FrameWriter { file, path: path.to_path_buf(), end, synced: end, broken: false })
    }

    /// Appends a record and returns where it begins. Not durable before [`FrameWriter::sync`].
    /// After a failure (a full disk, say) the next append begins at the same place again.
    pub fn append(&mut self, payload: &[u8]) -> Result<u64> {
        self.usable()?;
        if payload.len() >= MAX_PAYLOAD {
            return Err(Error::Invalid(format!(
                "record of {} bytes for {} is over the limit of {MAX_PAYLOAD}",
                payload.len(),
                self.path.display()
            )));
        }
        let mut bytes = Header::new(payload, self.synced).encode(self.end);
        bytes.extend_from_slice(payload);
        self.file.write_at(&bytes, self.end)?;
        let offset = self.end;
        self.end += bytes.len() as u64;
        Ok(offset)
    }

    /// Makes every appended record durable.
    pub fn sync(&mut self) -> Result<()> {
        self.usable()?;
        if self.synced < self.end {
            self.file.sync().inspect_err(|_| self.broken = true)?;
            self.synced = self.end;
        }
        Ok(())
    }

    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.end == FILE_HEADER
    }

    /// The file, to read records from by their offset.
    pub fn file(&self) -> Arc<dyn DiskFile> {
        self.file.clone()
    }

    fn usable(&self) -> Result<()> {
        if self.broken {
            return Err(Error::Io(format!(
                "{} failed to sync earlier, so its tail is unknown: open it again",
                self.path.display()
            )));
        }
        Ok(())
    }
}

fn write_header(file: &dyn DiskFile, format: Format) -> Result<()> {
    let prefix = format.prefix();
    let mut header = prefix.to_vec();
    header.extend_from_slice(&crc32c::crc32c(&prefix).to_le_bytes());
    file.write_at(&header, 0)?;
    file.sync()?;
    Ok(())
}

/// Reads the record that begins at `offset`; an error if it is damaged or absent.
pub fn read_record(file: &dyn DiskFile, offset: u64) -> Result<Vec<u8>> {
    let damaged = |what: &str| Error::Corrupt(format!("record at offset {offset}: {what}"));
    let mut header = [0; RECORD_HEADER as usize];
    file.read_exact_at(&mut header, offset)?;
    let header = Header::decode(&header, offset).ok_or_else(|| damaged("bad header"))?;
    let length = usize::try_from(header.length).unwrap_or(usize::MAX);
    if length >= MAX_PAYLOAD {
        return Err(damaged("impossible length"));
    }
    let mut payload = vec![0; length];
    file.read_exact_at(&mut payload, offset + RECORD_HEADER)?;
    if crc32c::crc32c(&payload) == header.crc { Ok(payload) } else { Err(damaged("bad payload")) }
}

/// Reads records in order up to the end, or to a torn tail.
pub struct FrameReader {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    length: u64,
    offset: u64,
    torn: bool,
    buffer: Vec<u8>,
    /// File offset of the buffer's first byte.
    buffered_at: u64,
}

impl FrameReader {
    /// Opens a file and checks its header.
    pub fn open(disk: &dyn Disk, path: &Path, format: Format) -> Result<Self> {
        Self::new(disk.open(path, Access::Read)?, path, format)
    }

    fn new(file: Arc<dyn DiskFile>, path: &Path, format: Format) -> Result<Self> {
        let length = file.len()?;
        let mut reader = FrameReader {
            file,
            path: path.to_path_buf(),
            length,
            offset: FILE_HEADER,
            torn: false,
            buffer: Vec::new(),
            buffered_at: 0,
        };
        let header = reader.bytes(0, FILE_HEADER as usize)?.to_vec();
        let stored = header.get(12..16).unwrap_or_default();
        if header.len() == FILE_HEADER as usize
            && crc32c::crc32c(header.get(..12).unwrap_or_default()).to_le_bytes() == stored
        {
            format.check(&header, path)?;
        } else if length <= FILE_HEADER {
            // The header is durable before the first append, so this file was never used.
            reader.offset = 0;
            reader.torn = true;
        } else {
            return Err(Error::Corrupt(format!("{}: bad file header", path.display())));
        }
        Ok(reader)
    }

    /// The next record; none at the end of the file or at a torn tail.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        if self.torn || self.offset >= self.length {
            return Ok(None);
        }
        let offset = self.offset;
        if let Some(payload) = self.try_record(offset)? {
            self.offset += RECORD_HEADER + payload.len() as u64;
            return Ok(Some(Record { offset, payload }));
        }
        if let Some(witness) = self.find_synced_beyond(offset)? {
            return Err(Error::Corrupt(format!(
                "{}: damaged record at offset {offset}, which was synced before the record at \
                 {witness} was written",
                self.path.display()
            )));
        }
        self.torn = true;
        Ok(None)
    }

    /// Where the next record would begin.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where reading stopped before the end of the file, if it did.
    pub fn torn_at(&self) -> Option<u64> {
        self.torn.then_some(self.offset)
    }

    fn try_record(&mut self, offset: u64) -> Result<Option<Vec<u8>>> {
        let header = Header::decode(self.bytes(offset, RECORD_HEADER as usize)?, offset);
        let Some(header) = header else { return Ok(None) };
        if offset + RECORD_HEADER + header.length > self.length {
            return Ok(None);
        }
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let payload = self.bytes(offset + RECORD_HEADER, length)?;
        Ok((crc32c::crc32c(payload) == header.crc).then(|| payload.to_vec()))
    }

    /// Looks, byte by byte, for a later record that was written after `offset` had been synced.
    fn find_synced_beyond(&mut self, offset: u64) -> Result<Option<u64>> {
        for at in offset + 1..self.length.saturating_sub(RECORD_HEADER - 1) {
            let header = Header::decode(self.bytes(at, RECORD_HEADER as usize)?, at);
            if header.is_some_and(|header| header.synced > offset && header.synced <= at) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Bytes at an offset, fewer at the end of the file, through a read-ahead buffer.
    fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let buffered = self.buffered_at..=self.buffered_at + self.buffer.len() as u64;
        let end = (offset + length as u64).min(self.length);
        if !buffered.contains(&offset) || !buffered.contains(&end) {
            self.buffer.resize(length.max(READ_AHEAD), 0);
            let read = self.file.read_at(&mut self.buffer, offset)?;
            self.buffer.truncate(read);
            self.buffered_at = offset;
        }
        let start = (offset - self.buffered_at) as usize;
        let end = (start + length).min(self.buffer.len());
        Ok(self.buffer.get(start..end).unwrap_or_default())
    }
}
