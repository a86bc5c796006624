//! The contract of an ordered key-value store under the row machine.
//!
//! What is recovered after a crash is a *prefix of the batches, across keyspaces*: never a batch
//! without those before it, never half a batch. Nothing is durable before [`KvEngine::sync`]; the
//! Raft log above is the write-ahead log.

use types::{Error, Result};

/// A separate key range within one store; batches are atomic across all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keyspace {
    /// Newest committed version of each key.
    Data,
    /// Older versions: key, then the commit timestamp inverted.
    Hist,
    /// Fates of transactions: key, then the start timestamp.
    Fate,
    /// Locks of unfinished transactions.
    Lock,
    /// Region descriptors, applied positions, node state.
    Meta,
}

impl Keyspace {
    /// Position in [`Keyspace::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Every keyspace.
    pub const ALL: [Keyspace; 5] =
        [Keyspace::Data, Keyspace::Hist, Keyspace::Fate, Keyspace::Lock, Keyspace::Meta];

    /// Name on disk.
    pub const fn name(self) -> &'static str {
        match self {
            Keyspace::Data => "data",
            Keyspace::Hist => "hist",
            Keyspace::Fate => "fate",
            Keyspace::Lock => "lock",
            Keyspace::Meta => "meta",
        }
    }
}

/// Longest key, in bytes; the shortest is one byte.
pub const MAX_KEY: usize = u16::MAX as usize;
/// Longest value, in bytes.
pub const MAX_VALUE: usize = 1 << 30;

/// Refuses a key that an engine cannot hold.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if (1..=MAX_KEY).contains(&key.len()) {
        return Ok(());
    }
    Err(Error::Invalid(format!("key of {} bytes: 1 to {MAX_KEY} can be stored", key.len())))
}

/// Refuses a value that an engine cannot hold.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= MAX_VALUE {
        return Ok(());
    }
    Err(Error::Invalid(format!("value of {} bytes: {MAX_VALUE} can be stored", value.len())))
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the value.
    Put(Vec<u8>),
    /// Removes the key.
    Delete,
}

/// Changes that become visible and durable together, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// The changes; a later one of the same key wins.
    pub changes: Vec<(Keyspace, Vec<u8>, Change)>,
}

impl WriteBatch {
    /// Sets a value.
    pub fn put(&mut self, space: Keyspace, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.changes.push((space, key.into(), Change::Put(value.into())));
    }

    /// Removes a key.
    pub fn delete(&mut self, space: Keyspace, key: impl Into<Vec<u8>>) {
        self.changes.push((space, key.into(), Change::Delete));
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Refuses keys and values that an engine cannot hold.
    pub(crate) fn check(&self) -> Result<()> {
        for (_, key, change) in &self.changes {
            check_key(key)?;
            if let Change::Put(value) = change {
                check_value(value)?;
            }
        }
        Ok(())
    }
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);
/// Pairs in key order.
pub type PairIter<'a> = Box<dyn Iterator<Item = Result<Pair>> + Send + 'a>;

/// Reads of one unchanging state.
pub trait KvRead: Send {
    /// Value of a key.
    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Pairs with `start ≤ key < end`, ascending.
    fn scan(&self, space: Keyspace, start: &[u8], end: &[u8]) -> PairIter<'_>;
    /// Pairs with `start ≤ key < end`, descending.
    fn scan_reverse(&self, space: Keyspace, start: &[u8], end: &[u8]) -> PairIter<'_>;
}

/// While it is held, writes do not wait for the disk, see [`KvEngine::room`].
pub type Room = Box<dyn Send>;

/// An ordered key-value store with keyspaces and atomic batches.
pub trait KvEngine: Send + Sync + 'static {
    /// For threads that must not wait for the disk: while what is returned is held, writes do not. None while they would:
    /// then they are to be made on another thread. It keeps others from syncing, so it is held for one write or a few, and
    /// nothing is synced by whoever holds it.
    fn room(&self) -> Option<Room>;

    /// A view of everything written so far that later writes do not change.
    fn snapshot(&self) -> Box<dyn KvRead>;

    /// Value of a key now.
    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Writes a batch; visible on return, durable after the next [`KvEngine::sync`].
    fn write(&self, batch: WriteBatch) -> Result<()>;

    /// Removes `start ≤ key < end`. Not atomic: after a crash some of them may be left, so callers
    /// repeat it until they have recorded its end.
    fn delete_range(&self, space: Keyspace, start: &[u8], end: &[u8]) -> Result<()>;

    /// Adds ascending pairs of a range that holds no key. Not atomic, as `delete_range`.
    fn ingest(&self, space: Keyspace, pairs: &mut dyn Iterator<Item = Result<Pair>>) -> Result<()>;

    /// Makes every batch written before the call durable.
    fn sync(&self) -> Result<()>;

    /// Bytes on disk, about.
    fn disk_bytes(&self) -> u64;
}
