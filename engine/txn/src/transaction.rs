//! Transactions and snapshots as their users see them: reads at the start timestamp, writes
//! buffered until commit, own writes visible; rows locked before they are written, on request.
//!
//! The buffer is in memory only; nothing of a transaction exists elsewhere before its commit but
//! its row locks, in the memory of leaders.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use kv::Pair;
use tokio::time::Instant;
use types::{Error, RegionKind, Result, Table, TableId, Timestamp, key};

use crate::api::{Current, Expect, Mode, Mutation, Op, Taking, Waiting};
use crate::client::TxnClient;
use crate::coordinator::Commit;
use crate::fetch::Pages;
use crate::hold::{Held, Look};
use crate::living::Alive;
use crate::locked::Locked;
use crate::replicas::ReplicaReads;
use crate::share::{share_key, shared_key};

/// Most bytes of keys and rows that a transaction may write.
pub const MAX_TRANSACTION_BYTES: usize = 100 << 20;

/// How long the first phase waits for rows that other transactions hold, by default.
const ROW_WAIT: Duration = Duration::from_secs(1);

impl TxnClient {
    /// Begins a transaction now.
    pub async fn begin(&self) -> Result<Transaction> {
        Ok(self.begin_at(self.timestamp().await?))
    }

    /// Begins a transaction at a timestamp that was just taken for it alone.
    pub fn begin_at(&self, start_ts: Timestamp) -> Transaction {
        Transaction::new(self.clone(), start_ts)
    }

    /// Reads at a timestamp that somebody else keeps readable: a lease, or a transaction.
    pub fn snapshot(&self, ts: Timestamp) -> Snapshot {
        Snapshot::new(self.clone(), ts, None)
    }

    /// Reads the present. It stays readable for as long as the snapshot is held.
    pub async fn present(&self) -> Result<Snapshot> {
        let ts = self.timestamp().await?;
        Ok(Snapshot::new(self.clone(), ts, Some(self.living.enter(ts))))
    }
}

impl TxnClient {
    /// Reads at a timestamp of the past. Once this process has sent its next heartbeat, it stays readable for as long as
    /// the snapshot is held; until then, it is up to the caller.
    pub fn past(&self, ts: Timestamp) -> Snapshot {
        Snapshot::new(self.clone(), ts, Some(self.living.enter(ts)))
    }
}

/// Reads at one timestamp.
#[derive(Clone)]
pub struct Snapshot {
    client: TxnClient,
    ts: Timestamp,
    /// Keeps it readable; none where somebody else does.
    alive: Option<Arc<Alive>>,
    /// Which replicas answer; none for leaders alone.
    reads: Option<Arc<ReplicaReads>>,
}

impl Snapshot {
    pub(crate) fn new(client: TxnClient, ts: Timestamp, alive: Option<Arc<Alive>>) -> Self {
        Snapshot { client, ts, alive, reads: None }
    }

    /// The same snapshot, read from replicas.
    #[must_use]
    pub fn of_replicas(&self, reads: Arc<ReplicaReads>) -> Self {
        Snapshot { reads: Some(reads), ..self.clone() }
    }

    /// When it reads.
    pub fn ts(&self) -> Timestamp {
        self.ts
    }

    /// The row of a key.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.batch_get(vec![key.to_vec()]).await?.pop().map(|(_, row)| row))
    }

    /// Pairs of those keys that have a row, ascending.
    pub async fn batch_get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Pair>> {
        self.client.fetch(keys, self.ts, self.reads.as_deref()).await
    }

    /// The rows with `start ≤ key < end`; descending if `reverse`.
    pub fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool) -> Scan {
        self.scan_over(start, end, reverse, BTreeMap::new())
    }

    fn scan_over(
        &self,
        start: Vec<u8>,
        end: Vec<u8>,
        reverse: bool,
        own: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Scan {
        let pages = Pages::new(self.client.clone(), self.ts, (start, end), reverse);
        let pages = pages.of_replicas(self.reads.clone());
        Scan { pages, reverse, own, _alive: self.alive.clone() }
    }
}

/// A range being read. It stands on its own: the transaction may go on writing.
pub struct Scan {
    pages: Pages,
    reverse: bool,
    /// The transaction's writes to the range as of the scan's begin: a row, or none if deleted.
    own: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    _alive: Option<Arc<Alive>>,
}

impl Scan {
    /// Asks for pages of about so many pairs: for readers that need only a few.
    pub fn page_pairs(mut self, pairs: u32) -> Self {
        self.pages.page_pairs(pairs);
        self
    }

    /// The next pairs in order, or none at the end. May be empty before the end.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Pair>>> {
        let Some(page) = self.pages.next().await? else { return Ok(None) };
        if self.own.is_empty() {
            return Ok(Some(page.pairs));
        }
        let (from, to) = (Bound::Included(page.start), Bound::Excluded(page.end));
        let own: Vec<_> =
            self.own.range((from, to)).map(|(key, row)| (key.clone(), row.clone())).collect();
        if own.is_empty() {
            return Ok(Some(page.pairs));
        }
        let mut merged: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            page.pairs.into_iter().map(|(key, row)| (key, Some(row))).collect();
        merged.extend(own);
        let pairs = merged.into_iter().filter_map(|(key, row)| Some((key, row?)));
        Ok(Some(if self.reverse { pairs.rev().collect() } else { pairs.collect() }))
    }

    /// Everything that is left.
    pub async fn collect(mut self) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        while let Some(page) = self.next_page().await? {
            pairs.extend(page);
        }
        Ok(pairs)
    }
}

/// A place in a transaction to come back to: how many of its changes stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(usize);

/// Rows that a transaction has locked, as they are now, its own writes included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acquired {
    /// The keys, ascending; what it has written itself takes the place of what is stored.
    pub rows: Vec<Current>,
    /// When one of the rows was last written, if that was after the timestamp that they were read
    /// at: read again at this timestamp or later.
    pub newer: Option<Timestamp>,
}

/// A transaction under snapshot isolation. Conflicts show at commit, but not on keys that it has
/// locked: nobody else writes those meanwhile.
pub struct Transaction {
    snapshot: Snapshot,
    began: Instant,
    writes: BTreeMap<Vec<u8>, Op>,
    tables: BTreeMap<TableId, Arc<Table>>,
    bytes: usize,
    /// What each change replaced in `writes`, oldest first.
    undo: Vec<(Vec<u8>, Option<Op>)>,
    /// What it may hold at leaders.
    held: Option<Arc<Held>>,
    locked: Locked,
    row_wait: Duration,
    may_be_async: bool,
}

impl Transaction {
    pub(crate) fn new(client: TxnClient, start_ts: Timestamp) -> Self {
        let alive = client.living.enter(start_ts);
        Transaction {
            snapshot: Snapshot::new(client, start_ts, Some(alive)),
            began: Instant::now(),
            writes: BTreeMap::new(),
            tables: BTreeMap::new(),
            bytes: 0,
            undo: Vec::new(),
            held: None,
            locked: Locked::default(),
            row_wait: ROW_WAIT,
            may_be_async: true,
        }
    }

    /// Sets how long the commit waits for rows that other transactions hold and this one has not
    /// locked.
    pub fn wait_for_rows(&mut self, wait: Duration) {
        self.row_wait = wait;
    }

    /// Sets whether the commit may be answered after its first phase. It may, unless this says otherwise.
    pub fn commits_async(&mut self, may_be_async: bool) {
        self.may_be_async = may_be_async;
    }

    /// When it reads, and its identity.
    pub fn start_ts(&self) -> Timestamp {
        self.snapshot.ts
    }

    /// Bytes of keys and rows buffered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keys buffered.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether it has written rows or index entries of a table.
    pub fn has_written(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
    }

    /// Its view without its own writes.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The row of a key, its own write included.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.writes.get(key).and_then(own_row) {
            Some(row) => Ok(row),
            None => self.snapshot.get(key).await,
        }
    }

    /// Pairs of those keys that have a row, own writes included, ascending.
    pub async fn batch_get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Pair>> {
        self.batch_get_at(keys, self.snapshot.ts).await
    }

    /// As [`Transaction::batch_get`], of another snapshot.
    pub async fn batch_get_at(&self, keys: Vec<Vec<u8>>, ts: Timestamp) -> Result<Vec<Pair>> {
        let mut own = BTreeMap::new();
        let mut others = Vec::new();
        for key in keys {
            match self.writes.get(&key).and_then(own_row) {
                Some(row) => {
                    own.insert(key, row);
                }
                None => others.push(key),
            }
        }
        let mut pairs =
            if others.is_empty() { vec![] } else { self.at(ts).batch_get(others).await? };
        if !own.is_empty() {
            pairs.extend(own.into_iter().filter_map(|(key, row)| Some((key, row?))));
            pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        Ok(pairs)
    }

    /// What it shows at a timestamp, whatever it writes later. The copy is for reading: it holds no
    /// rows, and what it has copied is the transaction's to commit.
    pub fn frozen(&self, ts: Timestamp) -> Transaction {
        Transaction {
            snapshot: self.at(ts),
            began: self.began,
            writes: self.writes.clone(),
            tables: self.tables.clone(),
            bytes: self.bytes,
            undo: Vec::new(),
            held: None,
            locked: Locked::default(),
            row_wait: self.row_wait,
            may_be_async: true,
        }
    }

    fn at(&self, ts: Timestamp) -> Snapshot {
        Snapshot::new(self.snapshot.client.clone(), ts, self.snapshot.alive.clone())
    }

    /// The rows with `start ≤ key < end`, own writes up to now included; descending if `reverse`.
    pub fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool) -> Scan {
        self.scan_at(start, end, reverse, self.snapshot.ts)
    }

    /// As [`Transaction::scan`], of another snapshot.
    pub fn scan_at(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool, ts: Timestamp) -> Scan {
        let own = if start < end {
            let range = self.writes.range::<Vec<u8>, _>(&start..&end);
            range.filter_map(|(key, op)| Some((key.clone(), own_row(op)?))).collect()
        } else {
            BTreeMap::new()
        };
        self.at(ts).scan_over(start, end, reverse, own)
    }

    /// Locks keys until the transaction ends, and gives their rows as they are now.
    ///
    /// `read_at` says that the rows were read at that timestamp: what was written after it is returned
    /// as `newer`, and counts as locked only when it has been read again. What is as expected is
    /// certain only once the transaction has committed.
    pub async fn acquire(
        &mut self,
        table: &Arc<Table>,
        keys: Vec<Vec<u8>>,
        taking: Taking,
        read_at: Option<Timestamp>,
    ) -> Result<Acquired> {
        self.pin(table)?;
        let weight: usize = keys.iter().map(Vec::len).sum();
        if self.bytes + self.locked.bytes() + weight > MAX_TRANSACTION_BYTES {
            return Err(Error::Invalid(format!(
                "the transaction writes and locks more than {MAX_TRANSACTION_BYTES} bytes; commit \
                 more often"
            )));
        }
        let (client, start_ts) = (self.snapshot.client.clone(), self.snapshot.ts);
        let fresh = || Held::new(client.clone(), start_ts);
        let held = self.held.get_or_insert_with(fresh).clone();
        let mut acquired = Acquired::default();
        let rows = read_at.is_none();
        let expect = if self.locked.is_full() { Expect::Nothing } else { taking.expect };
        let mode = if client.shares_locks() { taking.mode } else { Mode::Exclusive };
        let mut unknown = Vec::with_capacity(keys.len());
        for key in keys {
            let own = self.writes.get(&key).and_then(own_row);
            match self.locked.recall(&key, own.as_ref(), (mode, expect)) {
                Some(known) => acquired.rows.push(known),
                None => unknown.push(key),
            }
        }
        if !unknown.is_empty() {
            let look = Look { rows, taking: Taking { mode, expect, ..taking } };
            let found = client.acquire(&held, unknown, look).await?;
            self.confirm_shared(&held, &found, mode).await?;
            for row in found {
                let newer = self.locked.note(start_ts, &row, read_at, (mode, expect))?;
                acquired.newer = acquired.newer.max(newer);
                acquired.rows.push(row);
            }
        }
        acquired.rows.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        acquired.rows.dedup_by(|a, b| a.key == b.key);
        for row in &mut acquired.rows {
            if let Some(own) = self.writes.get(&row.key).and_then(own_row) {
                row.live = own.is_some();
                row.row = own;
            }
        }
        Ok(acquired)
    }

    /// Sets a row, whatever was there.
    pub fn put(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()> {
        let op = match self.writes.get(&key) {
            Some(Op::Insert(_)) => Op::Insert(row),
            _ => Op::Put(row),
        };
        self.change(table, key, op)
    }

    /// Sets a row that must not be there yet: one of this transaction is an error at once, a stored
    /// one at commit.
    pub fn insert(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()> {
        let op = match self.writes.get(&key) {
            Some(Op::Put(_) | Op::Insert(_)) => {
                return Err(Error::Duplicate { index: index_name(table, &key), key });
            }
            // Its own deletion has made room, whatever is stored.
            Some(Op::Delete) => Op::Put(row),
            Some(Op::Lock | Op::Share) | None => Op::Insert(row),
        };
        self.change(table, key, op)
    }

    /// Ends a row.
    pub fn delete(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()> {
        self.change(table, key, Op::Delete)
    }

    /// Holds a key: others that write it meanwhile conflict.
    pub fn lock(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()> {
        if self.writes.contains_key(&key) { Ok(()) } else { self.change(table, key, Op::Lock) }
    }

    /// A place to come back to when a statement fails.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.undo.len())
    }

    /// Forgets the changes since a savepoint.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        while self.undo.len() > savepoint.0 {
            let Some((key, before)) = self.undo.pop() else { break };
            let now = match before {
                Some(op) => {
                    self.bytes += weigh(&key, &op);
                    self.writes.insert(key.clone(), op)
                }
                None => self.writes.remove(&key),
            };
            if let Some(now) = now {
                self.bytes = self.bytes.saturating_sub(weigh(&key, &now));
            }
        }
    }

    /// Commits, and says when: the changes are visible to every read at that timestamp or later.
    ///
    /// [`Error::OutcomeUnknown`] means that the outcome could not be learned. Every other error means
    /// that nothing was committed; after [`Error::is_conflict`] a new attempt may succeed.
    pub async fn commit(mut self) -> Result<Timestamp> {
        if self.writes.is_empty() {
            let confirmed = self.confirm_locks().await;
            if let Some(held) = self.held.take() {
                held.give_back().await;
            }
            return confirmed;
        }
        let mutations = self.mutations();
        let keys: Vec<_> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
        let Snapshot { client, ts, alive, .. } = self.snapshot;
        let times = (ts, self.began, self.row_wait);
        let commit = Commit::new(client, times, self.tables, mutations, self.may_be_async);
        let committed = commit.run().await;
        drop(alive);
        let committed = committed?;
        if let Some(held) = self.held {
            held.forget(&keys);
        }
        Ok(committed)
    }

    /// The end of a transaction that writes nothing. Its locks lie in the memory of leaders, so each
    /// of them is confirmed: it is still this transaction's, and a quorum stands behind the leader
    /// that says so and that nobody has changed the row. All locks were taken before the first is
    /// confirmed, so at that timestamp everything that was read under them was true at once.
    async fn confirm_locks(&self) -> Result<Timestamp> {
        let start_ts = self.snapshot.ts;
        let Some(held) = &self.held else { return Ok(start_ts) };
        for mode in [Mode::Exclusive, Mode::Shared] {
            let keys = self.locked.keys().filter(|(_, locked)| *locked == mode);
            self.confirm(held, keys.map(|(key, _)| key.clone()).collect(), mode).await?;
        }
        Ok(start_ts)
    }

    /// Confirms that keys which were shared until now and are locked alone by now have not changed before: what others have
    /// only shared meanwhile has not.
    async fn confirm_shared(&self, held: &Arc<Held>, now: &[Current], mode: Mode) -> Result<()> {
        let shared = |one: &&Current| self.locked.mode(&one.key).is_some_and(|was| was < mode);
        let keys = now.iter().filter(shared).map(|one| one.key.clone()).collect();
        self.confirm(held, keys, Mode::Shared).await
    }

    /// Confirms that keys which are locked are as they were seen.
    async fn confirm(&self, held: &Arc<Held>, keys: Vec<Vec<u8>>, mode: Mode) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let start_ts = self.snapshot.ts;
        let taking = Taking { mode, waiting: Waiting::No, expect: Expect::Nothing };
        let look = Look { rows: false, taking };
        let found = self.snapshot.client.acquire(held, keys, look).await;
        let found = found.map_err(|error| match error {
            // It was lost with its leader, and is another transaction's by now.
            Error::LockBusy(holder) => Error::Held { start: start_ts, holder },
            error => error,
        })?;
        found.iter().try_for_each(|now| self.locked.confirm(start_ts, now))
    }

    /// Everything that the commit writes or holds, ascending.
    fn mutations(&mut self) -> Vec<Mutation> {
        let (mut ops, mut held) = (std::mem::take(&mut self.writes), BTreeMap::new());
        // A key that was locked and not written is held once more: should its lock have been lost
        // and the row be another by now, what was written because of it must not be.
        let start_ts = self.snapshot.ts;
        for (key, mode) in self.locked.keys().filter(|(key, _)| !ops.contains_key(*key)) {
            match mode {
                Mode::Exclusive => held.insert(key.clone(), Op::Lock),
                Mode::Shared => held.insert(share_key(key, start_ts), Op::Share),
            };
        }
        ops.append(&mut held);
        // An entry of an index that is not unique is never locked: its row is, and every version
        // of the entry came with one of the row.
        let newest = self.locked.newest_seen().map(|newest| newest.max(self.snapshot.ts));
        let seen = |key: &[u8]| match (self.locked.seen(key), key::region_kind(key)) {
            (Some(seen), _) => Some(seen),
            (None, Some(RegionKind::Index(..))) => newest,
            (None, _) => None,
        };
        let mutation = |(key, op): (Vec<u8>, Op)| {
            let shared = shared_key(&key, start_ts).filter(|_| op == Op::Share);
            Mutation { for_update_ts: seen(shared.unwrap_or(&key)), key, op }
        };
        ops.into_iter().map(mutation).collect()
    }

    /// Gives up. Nothing was written; row locks are given back before this returns. Merely dropped,
    /// a transaction gives them back behind its owner's back.
    pub async fn rollback(mut self) {
        if let Some(held) = self.held.take() {
            held.give_back().await;
        }
    }

    fn change(&mut self, table: &Arc<Table>, key: Vec<u8>, op: Op) -> Result<()> {
        let bytes = self.bytes + weigh(&key, &op);
        if bytes > MAX_TRANSACTION_BYTES {
            return Err(Error::Invalid(format!(
                "the transaction is larger than {MAX_TRANSACTION_BYTES} bytes; commit more often"
            )));
        }
        self.pin(table)?;
        self.bytes = bytes;
        let before = self.writes.insert(key.clone(), op);
        if let Some(before) = &before {
            self.bytes = self.bytes.saturating_sub(weigh(&key, before));
        }
        self.undo.push((key, before));
        Ok(())
    }

    /// A transaction knows each table by one description.
    fn pin(&mut self, table: &Arc<Table>) -> Result<()> {
        match self.tables.get(&table.id) {
            Some(known) if known.version != table.version => {
                return Err(Error::SchemaChanged {
                    table: table.id,
                    sent: known.version,
                    known: Some(table.version),
                });
            }
            Some(_) => {}
            None => {
                self.tables.insert(table.id, table.clone());
            }
        }
        Ok(())
    }
}

/// What a write makes of its key for the transaction's own reads, if anything.
fn own_row(op: &Op) -> Option<Option<Vec<u8>>> {
    match op {
        Op::Put(row) | Op::Insert(row) => Some(Some(row.clone())),
        Op::Delete => Some(None),
        Op::Lock | Op::Share => None,
    }
}

fn weigh(key: &[u8], op: &Op) -> usize {
    key.len()
        + match op {
            Op::Put(row) | Op::Insert(row) => row.len(),
            Op::Delete | Op::Lock | Op::Share => 0,
        }
}

fn index_name(table: &Table, key: &[u8]) -> String {
    match key::region_kind(key) {
        Some(RegionKind::Index(_, id)) => {
            let index = table.indexes.iter().find(|index| index.id == id);
            index.map_or_else(|| format!("index {id}"), |index| index.name.clone())
        }
        _ => "PRIMARY".into(),
    }
}
