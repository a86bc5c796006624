//! Received snapshots: spooled to a checksummed, synced file before Raft knows of them.
//!
//! A snapshot that Raft has accepted is the only copy of what the peer acknowledged until the
//! machine has made it durable; so its file goes only then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Disk, Format, FrameReader, FrameWriter};
use protobuf::Message as _;
use raft_rs::eraftpb::{Message, MessageType};
use serde::{Deserialize, Serialize};
use types::{Error, Region, Result};

use crate::machine::{Position, SnapshotChunks};
use crate::storage::PendingSpool;
use crate::transport::Envelope;

const FORMAT: Format = Format::new(*b"ISOSPOOL", 1);

/// A record of a spool file.
#[derive(Serialize, Deserialize)]
enum SpoolRecord {
    /// First: what the snapshot is of.
    Header { region: Region, index: u64, term: u64 },
    /// Then its data.
    Chunk(#[serde(with = "bytes_as_bytes")] Vec<u8>),
    /// Last: how many chunks there are.
    End { chunks: u64 },
}

/// postcard writes bytes at once, and a `Vec<u8>` one by one.
mod bytes_as_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(from).map(<[u8]>::to_vec)
    }
}

/// Where a node keeps received snapshots.
pub(crate) struct SpoolDir {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    boot: u64,
    next: AtomicU64,
}

impl SpoolDir {
    /// Opens the directory and removes files that no peer waits for.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        boot: u64,
        keep: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        disk.create_dir_all(dir)?;
        for file in disk.list(dir)? {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !keep(name) {
                disk.remove(&file)?;
            }
        }
        Ok(SpoolDir { disk, dir: dir.to_owned(), boot, next: AtomicU64::new(0) })
    }

    /// Begins to spool the snapshot that `header` announces.
    pub fn begin(&self, header: Envelope) -> Result<SpoolWriter> {
        let announced = Announced::parse(&header)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{}.spool", header.region, self.boot, number);
        let path = self.dir.join(&name);
        let writer = FrameWriter::create(self.disk.as_ref(), &path, FORMAT)?;
        let mut spool = SpoolWriter {
            writer,
            disk: self.disk.clone(),
            path,
            pending: Some((header, announced.message)),
            spool: PendingSpool {
                file: name,
                at: (announced.at.index, announced.at.term),
                region: announced.region.clone(),
            },
            chunks: 0,
        };
        let Position { index, term } = announced.at;
        spool.append(&SpoolRecord::Header { region: announced.region, index, term })?;
        Ok(spool)
    }

    /// Opens a spooled snapshot and verifies all of it.
    pub fn open_chunks(&self, spool: &PendingSpool) -> Result<SpooledChunks> {
        let mut whole = self.chunks(spool)?;
        while whole.next_chunk()?.is_some() {}
        self.chunks(spool)
    }

    fn chunks(&self, spool: &PendingSpool) -> Result<SpooledChunks> {
        let path = self.dir.join(&spool.file);
        let mut chunks = SpooledChunks {
            reader: FrameReader::open(self.disk.as_ref(), &path, FORMAT)?,
            path,
            seen: 0,
            ended: false,
        };
        match chunks.record()? {
            SpoolRecord::Header { region, index, term }
                if region == spool.region && (index, term) == spool.at =>
            {
                Ok(chunks)
            }
            _ => Err(chunks.damaged("it does not begin with the header that belongs to it")),
        }
    }

    /// Removes a spool file; one that is gone already is no error.
    pub fn remove(&self, file: &str) -> Result<()> {
        let path = self.dir.join(file);
        if self.disk.exists(&path)? {
            self.disk.remove(&path)?;
        }
        Ok(())
    }
}

/// What a snapshot's header announces.
struct Announced {
    message: Message,
    region: Region,
    at: Position,
}

impl Announced {
    fn parse(header: &Envelope) -> Result<Self> {
        let wrong = |why: &str| {
            Error::Corrupt(format!("snapshot header for region {}: {why}", header.region))
        };
        let message = Message::parse_from_bytes(&header.message)
            .map_err(|_| wrong("it is no Raft message"))?;
        if message.get_msg_type() != MessageType::MsgSnapshot {
            return Err(wrong("it announces no snapshot"));
        }
        let snapshot = message.get_snapshot();
        let region: Region = postcard::from_bytes(&snapshot.data)?;
        if region.id != header.region {
            return Err(wrong("it is of another region"));
        }
        let metadata = snapshot.get_metadata();
        let at = Position { index: metadata.index, term: metadata.term };
        Ok(Announced { region, at, message })
    }
}

/// Receives one snapshot. Dropped before [`SpoolWriter::finish`], it leaves nothing behind.
pub struct SpoolWriter {
    writer: FrameWriter,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    pending: Option<(Envelope, Message)>,
    spool: PendingSpool,
    chunks: u64,
}

/// A whole snapshot on disk, to be offered to Raft.
pub struct Spooled {
    pub(crate) header: Envelope,
    pub(crate) message: Message,
    pub(crate) spool: PendingSpool,
}

impl SpoolWriter {
    /// Adds the next chunk.
    pub fn push(&mut self, chunk: Vec<u8>) -> Result<()> {
        self.chunks += 1;
        self.append(&SpoolRecord::Chunk(chunk))
    }

    /// Ends and syncs the file.
    pub fn finish(mut self) -> Result<Spooled> {
        self.append(&SpoolRecord::End { chunks: self.chunks })?;
        self.writer.sync()?;
        let (header, message) = self
            .pending
            .take()
            .ok_or_else(|| Error::Invalid("a snapshot's spool was finished twice".to_owned()))?;
        Ok(Spooled { header, message, spool: self.spool.clone() })
    }

    fn append(&mut self, record: &SpoolRecord) -> Result<()> {
        self.writer.append(&postcard::to_stdvec(record)?)?;
        Ok(())
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        if self.pending.is_some()
            && let Err(error) = self.disk.remove(&self.path)
        {
            tracing::warn!(%error, "an unfinished snapshot spool stays until the next start");
        }
    }
}

/// The chunks of a spooled snapshot, each verified by its checksum.
pub(crate) struct SpooledChunks {
    reader: FrameReader,
    path: PathBuf,
    seen: u64,
    ended: bool,
}

impl SpooledChunks {
    fn record(&mut self) -> Result<SpoolRecord> {
        match self.reader.next_record()? {
            Some(record) => Ok(postcard::from_bytes(&record.payload)?),
            None => Err(self.damaged("it ends early")),
        }
    }

    fn damaged(&self, why: &str) -> Error {
        Error::Corrupt(format!("snapshot spool {}: {why}", self.path.display()))
    }
}

impl SnapshotChunks for SpooledChunks {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        if self.ended {
            return Ok(None);
        }
        match self.record()? {
            SpoolRecord::Chunk(chunk) => {
                self.seen += 1;
                Ok(Some(chunk))
            }
            SpoolRecord::End { chunks } if chunks == self.seen => {
                self.ended = true;
                Ok(None)
            }
            _ => Err(self.damaged("chunks are missing or doubled")),
        }
    }
}
