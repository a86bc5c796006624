//! A key-value store in memory whose crashes a simulator chooses.
//!
//! It keeps the contract of [`KvEngine`] and no more: a crash may go back to any prefix of the
//! batches at or after the last sync, and may leave a delete or an ingest of a range half done.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::Random;
use parking_lot::Mutex;
use types::{Error, Result};

use crate::engine::{
    Change, Keyspace, KvEngine, KvRead, Pair, PairIter, Room, WriteBatch, check_key, check_value,
};

/// Changes of a non-atomic operation that a crash keeps or loses together.
const STEP: usize = 3;

type Space = BTreeMap<Vec<u8>, Vec<u8>>;
/// One map per keyspace; a snapshot shares them until the next write of that keyspace.
type Spaces = [Arc<Space>; Keyspace::ALL.len()];

/// A store in memory. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryKv {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    current: Spaces,
    /// State of the last sync.
    durable: Spaces,
    /// Batches since, oldest first.
    pending: Vec<WriteBatch>,
    /// How often there is no [`Room`], and who says when.
    busy: Option<(Random, f64)>,
    /// A crash happened; its result lives on in another store.
    dead: bool,
}

struct MemoryRead {
    spaces: Spaces,
}

impl MemoryKv {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that has no [`Room`] as often as `chance` says.
    pub fn often_busy(random: Random, chance: f64) -> Self {
        let state = State { busy: Some((random, chance)), ..State::default() };
        MemoryKv { state: Arc::new(Mutex::new(state)) }
    }

    /// Ends this store, every later call of which fails, and returns what a restart finds: the
    /// last synced state and a prefix, chosen by the seed, of the batches after it.
    pub fn crash(&self, seed: u64) -> MemoryKv {
        let mut state = self.state.lock();
        state.dead = true;
        let mut spaces = state.durable.clone();
        let kept = Random::seeded(seed).below(state.pending.len() as u64 + 1) as usize;
        for batch in state.pending.drain(..).take(kept) {
            apply(&mut spaces, batch);
        }
        let busy = state.busy.take();
        let recovered =
            State { current: spaces.clone(), durable: spaces, busy, ..State::default() };
        MemoryKv { state: Arc::new(Mutex::new(recovered)) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if state.dead {
            return Err(Error::Io("the store in memory has crashed: use the recovered one".into()));
        }
        work(&mut state)
    }

    /// Writes changes in steps, each as durable as a batch of its own.
    fn write_in_steps(&self, changes: Vec<(Keyspace, Vec<u8>, Change)>) -> Result<()> {
        self.with(|state| {
            for step in changes.chunks(STEP) {
                state.write(WriteBatch { changes: step.to_vec() });
            }
            Ok(())
        })
    }
}

impl State {
    fn write(&mut self, batch: WriteBatch) {
        apply(&mut self.current, batch.clone());
        self.pending.push(batch);
    }
}

fn apply(spaces: &mut Spaces, batch: WriteBatch) {
    for (space, key, change) in batch.changes {
        let Some(space) = spaces.get_mut(space.index()) else { continue };
        let space = Arc::make_mut(space);
        match change {
            Change::Put(value) => space.insert(key, value),
            Change::Delete => space.remove(&key),
        };
    }
}

fn range<'a>(
    spaces: &'a Spaces,
    space: Keyspace,
    start: &[u8],
    end: &[u8],
) -> impl DoubleEndedIterator<Item = Result<Pair>> + Send + 'a {
    // `BTreeMap::range` panics on an inverted range.
    let bounds = (start < end).then(|| start.to_vec()..end.to_vec());
    let space = spaces.get(space.index());
    space
        .zip(bounds)
        .into_iter()
        .flat_map(|(space, bounds)| space.range(bounds))
        .map(|(key, value)| Ok((key.clone(), value.clone())))
}

impl KvRead for MemoryRead {
    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.spaces.get(space.index()).and_then(|space| space.get(key).cloned()))
    }

    fn scan(&self, space: Keyspace, start: &[u8], end: &[u8]) -> PairIter<'_> {
        Box::new(range(&self.spaces, space, start, end))
    }

    fn scan_reverse(&self, space: Keyspace, start: &[u8], end: &[u8]) -> PairIter<'_> {
        Box::new(range(&self.spaces, space, start, end).rev())
    }
}

impl KvEngine for MemoryKv {
    fn room(&self) -> Option<Room> {
        let full =
            self.state.lock().busy.as_ref().is_some_and(|(random, chance)| random.chance(*chance));
        (!full).then(|| Box::new(()) as Room)
    }

    fn snapshot(&self) -> Box<dyn KvRead> {
        Box::new(MemoryRead { spaces: self.state.lock().current.clone() })
    }

    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with(|state| {
            Ok(state.current.get(space.index()).and_then(|space| space.get(key).cloned()))
        })
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        batch.check()?;
        self.with(|state| {
            if !batch.is_empty() {
                state.write(batch);
            }
            Ok(())
        })
    }

    fn delete_range(&self, space: Keyspace, start: &[u8], end: &[u8]) -> Result<()> {
        let keys: Vec<Pair> =
            self.snapshot().scan(space, start, end).collect::<Result<Vec<Pair>>>()?;
        self.write_in_steps(keys.into_iter().map(|(key, _)| (space, key, Change::Delete)).collect())
    }

    fn ingest(&self, space: Keyspace, pairs: &mut dyn Iterator<Item = Result<Pair>>) -> Result<()> {
        let mut changes: Vec<(Keyspace, Vec<u8>, Change)> = Vec::new();
        for pair in pairs {
            let (key, value) = pair?;
            check_key(&key)?;
            check_value(&value)?;
            if changes.last().is_some_and(|(_, last, _)| *last >= key) {
                return Err(Error::Invalid("ingested keys do not ascend".into()));
            }
            changes.push((space, key, Change::Put(value)));
        }
        self.write_in_steps(changes)
    }

    fn sync(&self) -> Result<()> {
        self.with(|state| {
            state.durable = state.current.clone();
            state.pending.clear();
            Ok(())
        })
    }

    fn disk_bytes(&self) -> u64 {
        let state = self.state.lock();
        let pairs = state.current.iter().flat_map(|space| space.iter());
        pairs.map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}
