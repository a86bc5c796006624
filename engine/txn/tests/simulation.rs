//! Bank transfers under faults: the sum is the same at every timestamp, a snapshot never changes,
//! what was acknowledged is there and what was refused is not, and replaying a region's log gives
//! the same state. Messages get lost and repeated, coordinators crash, leaders change, regions
//! split. Seeds are chosen by `env::seeds`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use env::Random;
use futures::stream::{self, StreamExt};
use kv::{MemoryKv, Pair};
use parking_lot::Mutex;
use raft::{Command, Effect, Machine, Machines};
use support::{Faults, TABLE, World, name, record, table};
use txn::{RowMachines, RowStore, SnapshotItem, TxnClient, decode_chunk};
use types::{Error, Region, Result, Timestamp};

const ACCOUNTS: u64 = 12;
const START: i64 = 100;
const CLIENTS: u64 = 4;
const TRANSFERS: u64 = 20;

/// The outcome of a transfer, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Committed(Timestamp),
    Refused,
    Unknown,
}

struct Bank {
    seed: u64,
    world: Arc<World>,
    random: Random,
    markers: Mutex<BTreeMap<String, Outcome>>,
    reads: Mutex<Vec<(Timestamp, Vec<Pair>)>>,
    over: AtomicBool,
    crashes: AtomicUsize,
    splits: AtomicUsize,
}

fn account(number: u64) -> Vec<u8> {
    record(&format!("a{number:02}"))
}

fn amount(row: &[u8]) -> i64 {
    i64::from_be_bytes(row.try_into().unwrap())
}

fn whole_table() -> (Vec<u8>, Vec<u8>) {
    (types::key::records_start(TABLE), types::key::records_end(TABLE))
}

impl Bank {
    async fn open(seed: u64) -> Arc<Self> {
        let calm = Faults::default();
        // Transactions of one region commit in one entry: all of them, until it is split.
        let cuts: &[&str] = if seed.is_multiple_of(2) { &["a04", "a08", "m"] } else { &[] };
        let world = World::new(seed, 3, cuts, calm);
        world.one_entry.store(true, Ordering::Relaxed);
        world.async_commits.store(seed % 3 != 1, Ordering::Relaxed);
        world.speed.store(30, Ordering::Relaxed);
        let client = world.client();
        let mut transaction = client.begin().await.unwrap();
        for number in 0..ACCOUNTS {
            transaction.put(&table(1), account(number), START.to_be_bytes().to_vec()).unwrap();
        }
        transaction.commit().await.unwrap();
        let faults = Faults {
            delay_ms: 3,
            lose_request: 0.03,
            lose_answer: 0.04,
            repeat: 0.05,
            drop: 0.03,
            unknown: 0.04,
            deposed: 0.0,
        };
        *world.faults.lock() = faults;
        world.nodes.values().for_each(|node| node.groups.plague(faults));
        Arc::new(Bank {
            seed,
            random: Random::seeded(seed ^ 0x5EED),
            world,
            markers: Mutex::default(),
            reads: Mutex::default(),
            over: AtomicBool::new(false),
            crashes: AtomicUsize::new(0),
            splits: AtomicUsize::new(0),
        })
    }

    async fn transfer(&self, client: &TxnClient, marker: &str) -> Result<Timestamp> {
        let mut transaction = client.begin().await?;
        let from = self.random.below(ACCOUNTS);
        let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let pairs = transaction.batch_get(vec![account(from), account(to)]).await?;
        let balances: BTreeMap<_, _> = pairs.into_iter().collect();
        let sum = self.random.below(20) as i64;
        let put = |key: Vec<u8>, change: i64| {
            let balance = amount(&balances[&key]) + change;
            (key, balance.to_be_bytes().to_vec())
        };
        for (key, row) in [put(account(from), -sum), put(account(to), sum)] {
            transaction.put(&table(1), key, row)?;
        }
        transaction.insert(&table(1), record(marker), vec![1])?;
        transaction.commit().await
    }

    async fn client(self: Arc<Self>, number: u64) {
        let mut link = self.world.link();
        let mut client = self.world.client_over(link.clone());
        for transfer in 0..TRANSFERS {
            let marker = format!("m{number}-{transfer:02}");
            let crash = self.random.chance(0.15);
            if crash {
                link.die_after(self.random.below(9));
            }
            let work = async {
                tokio::select! {
                    outcome = self.transfer(&client, &marker) => Some(outcome),
                    () = link.died() => None,
                }
            };
            let outcome = match tokio::time::timeout(Duration::from_secs(30), work).await {
                Ok(None) => Outcome::Unknown,
                Ok(Some(Ok(ts))) => Outcome::Committed(ts),
                Ok(Some(Err(Error::OutcomeUnknown { .. }))) => Outcome::Unknown,
                Ok(Some(Err(error))) => {
                    let known = error.is_conflict() || error.is_retryable();
                    let timeout = matches!(error, Error::Timeout { .. });
                    assert!(known || timeout, "seed {}: {error}", self.seed);
                    Outcome::Refused
                }
                Err(_) => panic!("seed {}: a transfer took too long", self.seed),
            };
            self.markers.lock().insert(marker, outcome);
            if crash {
                self.crashes.fetch_add(1, Ordering::Relaxed);
                link = self.world.link();
                client = self.world.client_over(link.clone());
            }
        }
    }

    async fn look(&self, client: &TxnClient, ts: Timestamp) -> Result<Vec<Pair>> {
        let (start, end) = whole_table();
        let reverse = self.random.chance(0.5);
        let pages = 1 + self.random.below(7) as u32;
        let scan = client.snapshot(ts).scan(start, end, reverse).page_pairs(pages);
        let mut pairs = scan.collect().await?;
        if reverse {
            pairs.reverse();
        }
        assert!(pairs.is_sorted(), "seed {}: a scan is out of order", self.seed);
        let accounts = pairs.iter().filter(|(key, _)| name(key).starts_with('a'));
        let sum: i64 = accounts.map(|(_, row)| amount(row)).sum();
        assert_eq!(sum, START * ACCOUNTS as i64, "seed {}: the sum at {ts}", self.seed);
        Ok(pairs)
    }

    async fn reader(self: Arc<Self>) {
        let client = self.world.client();
        while !self.over.load(Ordering::Relaxed) {
            let Ok(ts) = client.timestamp().await else { continue };
            if let Ok(pairs) = self.look(&client, ts).await {
                self.reads.lock().push((ts, pairs));
            }
        }
    }

    /// Changes leaders and cuts regions.
    async fn nemesis(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(self.random.below(40))).await;
            let key = match self.random.below(2) {
                0 => account(self.random.below(ACCOUNTS)),
                _ => record(&format!(
                    "m{}-{:02}",
                    self.random.below(CLIENTS),
                    self.random.below(TRANSFERS)
                )),
            };
            if self.random.chance(0.6) {
                let (node, region) = self.world.home(&key);
                node.groups.elect(region.id);
            } else if self.random.chance(0.15) && self.world.split(&key).await.is_ok() {
                self.splits.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Resolves when a machine has stopped.
    async fn fault(&self) -> Error {
        loop {
            let fault = self.world.nodes.values().find_map(|node| node.groups.fault());
            match fault {
                Some(fault) => return fault,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn check(&self) {
        self.world.heal();
        let client = self.world.client();
        let now = client.timestamp().await.unwrap();
        let last: BTreeMap<_, _> = self.look(&client, now).await.unwrap().into_iter().collect();
        let markers = self.markers.lock().clone();
        for (marker, outcome) in markers {
            let key = record(&marker);
            match outcome {
                Outcome::Committed(ts) => {
                    let seed = self.seed;
                    let at = |ts| {
                        let (client, key) = (client.clone(), key.clone());
                        async move { client.snapshot(ts).get(&key).await.unwrap() }
                    };
                    assert!(at(ts).await.is_some(), "seed {seed}: {marker} was lost");
                    assert!(at(ts.prev()).await.is_none(), "seed {seed}: {marker} came early");
                }
                Outcome::Refused => {
                    assert!(!last.contains_key(&key), "seed {}: {marker} was refused", self.seed);
                }
                Outcome::Unknown => {}
            }
        }
        let reads = self.reads.lock().clone();
        for (ts, before) in reads {
            let again = self.look(&client, ts).await.unwrap();
            assert_eq!(before, again, "seed {}: the snapshot at {ts} changed", self.seed);
        }
        for node in self.world.nodes.values() {
            let (start, end) = whole_table();
            assert_eq!(node.store.locks().summary(&start, &end).0, 0, "seed {}", self.seed);
        }
        self.replay();
    }

    /// Every log, applied again in other batches to an empty store, gives the same regions.
    fn replay(&self) {
        for node in self.world.nodes.values() {
            let store = RowStore::open(Arc::new(MemoryKv::new())).unwrap();
            let machines = RowMachines::new(store);
            let mut waiting: Vec<Box<dyn Machine>> = Vec::new();
            for region in node.groups.regions() {
                if region < 1_000 {
                    let found = node.groups.initial_region(region);
                    waiting.push(machines.create(&found, true).unwrap());
                }
            }
            let mut seen = 0;
            while let Some(mut machine) = waiting.pop() {
                let region = machine.region().id;
                for (at, data) in node.groups.log(region) {
                    let command = data.as_deref().map_or(Command::Empty, Command::Data);
                    if let Effect::Split(children) = machine.apply(at, command).unwrap() {
                        machine.finish_batch().unwrap();
                        waiting.extend(children);
                    }
                    if self.random.chance(0.4) {
                        machine.finish_batch().unwrap();
                    }
                }
                machine.finish_batch().unwrap();
                let original = node.groups.with_machine(region, |machine| items(machine));
                assert_eq!(items(machine.as_mut()), original, "seed {}: replay", self.seed);
                seen += 1;
            }
            assert_eq!(seen, node.groups.regions().len(), "seed {}", self.seed);
        }
    }
}

/// A machine's whole state, in its snapshot's order.
fn items(machine: &mut dyn Machine) -> (Region, Vec<SnapshotItem>) {
    let mut source = machine.snapshot().unwrap();
    let mut items = Vec::new();
    while let Some(chunk) = source.next_chunk().unwrap() {
        items.extend(decode_chunk(&chunk).unwrap());
    }
    (machine.region().clone(), items)
}

async fn history(seed: u64) -> (usize, usize, usize, usize) {
    let bank = Bank::open(seed).await;
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(bank.clone().client(number))).collect();
    let others = [
        tokio::spawn(bank.clone().reader()),
        tokio::spawn(bank.clone().reader()),
        tokio::spawn(bank.clone().nemesis()),
    ];
    tokio::select! {
        done = futures::future::try_join_all(clients) => drop(done.unwrap()),
        fault = bank.fault() => panic!("seed {seed}: {fault}"),
    }
    bank.over.store(true, Ordering::Relaxed);
    for other in others {
        other.await.unwrap();
    }
    // Repeated messages are still on their way.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    tokio::select! {
        () = bank.check() => {}
        fault = bank.fault() => panic!("seed {seed}: {fault}"),
    }
    let markers = bank.markers.lock();
    let committed =
        markers.values().filter(|outcome| matches!(outcome, Outcome::Committed(_))).count();
    let reads = bank.reads.lock().len();
    (committed, reads, bank.crashes.load(Ordering::Relaxed), bank.splits.load(Ordering::Relaxed))
}

#[test]
fn transfers_conserve_the_sum_at_every_timestamp() {
    let seeds = env::seeds::range(24);
    let count = seeds.end - seeds.start;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let all = runtime.block_on(async {
        stream::iter(seeds)
            .map(|seed| async move { tokio::spawn(history(seed)).await.unwrap() })
            .buffer_unordered(12)
            .collect::<Vec<_>>()
            .await
    });
    let sum =
        |pick: fn(&(usize, usize, usize, usize)) -> usize| all.iter().map(pick).sum::<usize>();
    let (committed, reads) = (sum(|one| one.0), sum(|one| one.1));
    let (crashes, splits) = (sum(|one| one.2), sum(|one| one.3));
    println!(
        "{count} histories: {committed} commits, {reads} reads, {crashes} crashes, {splits} splits"
    );
    // A history in which nothing happens proves nothing.
    assert!(committed as u64 > count * CLIENTS * TRANSFERS / 8, "{committed} commits");
    assert!(reads as u64 > count * 3 && crashes > 0 && splits > 0);
}
