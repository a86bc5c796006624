//! Transfers that lock what they read, over regions: while nothing fails, nobody who holds its rows
//! fails at commit; and whatever fails, no update is lost. Seeds are chosen by `env::seeds`.
//! And rows are free once their holder knows that it is over. What is shared is in [`family`].
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "row_locks/family.rs"]
mod family;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use env::Random;
use futures::stream::{self, StreamExt};
use support::{Faults, TABLE, World, record, table};
use txn::api::{Expect, Mode, Taking, Waiting};
use txn::{Acquired, TxnClient};
use types::{Error, Result, Timestamp};

const ACCOUNTS: u64 = 6;
const START: i64 = 1_000;
const CLIENTS: u64 = 5;
const TRANSFERS: usize = 20;

/// What may happen in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Rows are locked in one order, and nothing fails: every transfer commits.
    Ordered,
    /// Rows are locked in any order: only deadlocks end a transfer.
    Calm,
    /// Messages are lost, leaders change, clients die.
    Storm,
}

#[derive(Default)]
struct Counts {
    commits: AtomicUsize,
    deadlocks: AtomicUsize,
    refused: AtomicUsize,
    reads: AtomicUsize,
    optimists: AtomicUsize,
    audits: AtomicUsize,
}

struct Bank {
    seed: u64,
    weather: Weather,
    world: Arc<World>,
    random: Random,
    over: AtomicBool,
    counts: Counts,
}

fn account(number: u64) -> Vec<u8> {
    record(&format!("a{number:02}"))
}

fn amount(row: &[u8]) -> i64 {
    i64::from_be_bytes(row.try_into().unwrap())
}

impl Bank {
    async fn open(seed: u64, weather: Weather) -> Arc<Self> {
        let cuts: &[&str] = if seed.is_multiple_of(2) { &["a02", "a04"] } else { &[] };
        let world = World::new(seed, 3, cuts, Faults::default());
        world.one_entry.store(true, Ordering::Relaxed);
        world.async_commits.store(seed % 3 != 1, Ordering::Relaxed);
        world.speed.store(1, Ordering::Relaxed);
        let mut transaction = world.client().begin().await.unwrap();
        for number in 0..ACCOUNTS {
            transaction.put(&table(1), account(number), START.to_be_bytes().to_vec()).unwrap();
        }
        transaction.commit().await.unwrap();
        let calm = Faults { delay_ms: 2, ..Faults::default() };
        let faults = match weather {
            Weather::Ordered | Weather::Calm => calm,
            Weather::Storm => Faults {
                lose_request: 0.02,
                lose_answer: 0.03,
                repeat: 0.03,
                drop: 0.02,
                unknown: 0.02,
                deposed: 0.1,
                ..calm
            },
        };
        *world.faults.lock() = faults;
        world.nodes.values().for_each(|node| node.groups.plague(faults));
        let (random, over) = (Random::seeded(seed ^ 0x10C5), AtomicBool::new(false));
        Arc::new(Bank { seed, weather, world, random, over, counts: Counts::default() })
    }

    /// Reads two balances under locks, and writes them back changed.
    async fn transfer(&self, client: &TxnClient) -> Result<Timestamp> {
        let mut transaction = client.begin().await?;
        let from = self.random.below(ACCOUNTS);
        let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let mut order = [account(from), account(to)];
        if self.weather == Weather::Ordered {
            order.sort();
        }
        let mut balances = BTreeMap::new();
        let together = self.weather == Weather::Ordered && self.random.chance(0.3);
        let groups: Vec<Vec<Vec<u8>>> =
            if together { vec![order.to_vec()] } else { order.map(|key| vec![key]).to_vec() };
        for keys in groups {
            // Most take the leader at its word, as statements that write do.
            let expect = if self.random.chance(0.8) { Expect::Rows } else { Expect::Nothing };
            // Some read at a timestamp first, as a scan does, and read again if that was too old.
            if self.random.chance(0.3) {
                loop {
                    let at = client.timestamp().await?;
                    let pairs = transaction.batch_get_at(keys.clone(), at).await?;
                    let (read, at) = (keys.clone(), Some(at));
                    let acquired = transaction.acquire(&table(1), read, alone(expect), at).await?;
                    if acquired.newer.is_none() {
                        balances.extend(pairs.into_iter().map(|(key, row)| (key, amount(&row))));
                        break;
                    }
                }
            } else {
                let Acquired { rows, .. } =
                    transaction.acquire(&table(1), keys, alone(expect), None).await?;
                let rows = rows.into_iter().map(|one| (one.key, amount(&one.row.unwrap())));
                balances.extend(rows);
            }
        }
        let sum = self.random.below(20) as i64;
        for (key, change) in [(account(from), -sum), (account(to), sum)] {
            let row = (balances[&key] + change).to_be_bytes().to_vec();
            transaction.put(&table(1), key, row)?;
        }
        transaction.commit().await
    }

    async fn client(self: Arc<Self>) {
        let mut link = self.world.link();
        let mut client = self.world.client_over(link.clone());
        for _ in 0..TRANSFERS {
            let dies = self.weather == Weather::Storm && self.random.chance(0.05);
            if dies {
                link.die_after(self.random.below(6));
            }
            let work = async {
                tokio::select! {
                    outcome = self.transfer(&client) => Some(outcome),
                    () = link.died() => None,
                }
            };
            let outcome = tokio::time::timeout(Duration::from_secs(60), work).await;
            let counts = &self.counts;
            match outcome.unwrap_or_else(|_| panic!("seed {}: a transfer hangs", self.seed)) {
                None => {}
                Some(Ok(_)) => _ = counts.commits.fetch_add(1, Ordering::Relaxed),
                Some(Err(Error::Deadlock(_))) if self.weather != Weather::Ordered => {
                    counts.deadlocks.fetch_add(1, Ordering::Relaxed);
                }
                Some(Err(error)) => {
                    let expected = error.is_conflict()
                        || error.is_retryable()
                        || matches!(
                            error,
                            Error::Timeout { .. }
                                | Error::OutcomeUnknown { .. }
                                | Error::LockWait { .. }
                        );
                    let storm = self.weather == Weather::Storm;
                    assert!(storm && expected, "seed {}, {:?}: {error}", self.seed, self.weather);
                    counts.refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            if dies {
                link = self.world.link();
                client = self.world.client_over(link.clone());
            }
        }
    }

    /// Changes a row without a lock now and then: it may lose, and makes nobody else lose.
    async fn optimist(self: Arc<Self>) {
        let client = self.world.client();
        while !self.over.load(Ordering::Relaxed) {
            let work = async {
                let mut transaction = client.begin().await?;
                transaction.wait_for_rows(Duration::from_millis(self.random.below(3) * 20));
                let key = account(self.random.below(ACCOUNTS));
                let row = transaction.get(&key).await?.unwrap();
                transaction.put(&table(1), key, row)?;
                transaction.commit().await
            };
            let outcome: Result<Timestamp> = work.await;
            if outcome.is_ok() {
                self.counts.optimists.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(10))).await;
        }
    }

    /// Locks every account, one after the other, and writes nothing. If its commit
    /// succeeds, it has seen one state of the bank.
    async fn audit(&self, client: &TxnClient) -> Result<()> {
        let mut transaction = client.begin().await?;
        // Those that share the rows do so beside each other.
        let mode = if self.random.chance(0.6) { Mode::Shared } else { Mode::Exclusive };
        let mut sum = 0;
        for number in 0..ACCOUNTS {
            let expect = if self.random.chance(0.5) { Expect::Rows } else { Expect::Nothing };
            let taking = Taking { mode, ..alone(expect) };
            let acquired =
                transaction.acquire(&table(1), vec![account(number)], taking, None).await?;
            sum += acquired.rows.iter().map(|one| amount(one.row.as_ref().unwrap())).sum::<i64>();
        }
        transaction.commit().await?;
        assert_eq!(sum, START * ACCOUNTS as i64, "seed {}: the sum under locks", self.seed);
        self.counts.audits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn auditor(self: Arc<Self>) {
        let client = self.world.client();
        while !self.over.load(Ordering::Relaxed) {
            _ = self.audit(&client).await;
            tokio::time::sleep(Duration::from_millis(self.random.below(100))).await;
        }
    }

    async fn look(&self, client: &TxnClient) -> Result<()> {
        let ts = client.timestamp().await?;
        let (start, end) = (types::key::records_start(TABLE), types::key::records_end(TABLE));
        let pairs = client.snapshot(ts).scan(start, end, false).collect().await?;
        let sum: i64 = pairs.iter().map(|(_, row)| amount(row)).sum();
        assert_eq!(sum, START * ACCOUNTS as i64, "seed {}: the sum at {ts}", self.seed);
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn reader(self: Arc<Self>) {
        let client = self.world.client();
        while !self.over.load(Ordering::Relaxed) {
            _ = self.look(&client).await;
        }
    }

    async fn nemesis(self: Arc<Self>) {
        while self.weather == Weather::Storm && !self.over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(self.random.below(150))).await;
            // Half of them hand over, as when leaders are spread.
            let handed_over = self.random.chance(0.5);
            self.world.elect(&account(self.random.below(ACCOUNTS)), handed_over).await;
        }
    }
}

fn alone(expect: Expect) -> Taking {
    Taking::alone(Waiting::For(20_000), expect)
}

async fn history(seed: u64, weather: Weather) -> Arc<Bank> {
    let bank = Bank::open(seed, weather).await;
    let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(bank.clone().client())).collect();
    let others = [
        tokio::spawn(bank.clone().reader()),
        tokio::spawn(bank.clone().optimist()),
        tokio::spawn(bank.clone().auditor()),
        tokio::spawn(bank.clone().nemesis()),
    ];
    for client in clients {
        client.await.unwrap();
    }
    bank.over.store(true, Ordering::Relaxed);
    for other in others {
        other.await.unwrap();
    }
    bank.world.heal();
    bank.look(&bank.world.client()).await.unwrap();
    // Whatever was held is free: at once, or when a dead client's time is over.
    let client = bank.world.client();
    let keys: Vec<_> = (0..ACCOUNTS).map(account).collect();
    let all = async || {
        let mut open = client.begin().await?;
        open.acquire(&table(1), keys.clone(), alone(Expect::Nothing), None).await
    };
    // A wait of a dead client may still be believed in, and cost one transaction.
    match all().await {
        Err(Error::Deadlock(_)) => all().await.unwrap(),
        others => others.unwrap(),
    };
    bank
}

#[tokio::test]
async fn rows_are_free_once_their_holder_knows_that_it_is_over() {
    let slow = Faults { delay_ms: 5, ..Faults::default() };
    let world = World::new(3, 3, &["a02", "a04"], slow);
    world.speed.store(1, Ordering::Relaxed);
    let (one, two) = (world.client(), world.client());
    let keys: Vec<_> = (0..ACCOUNTS).map(account).collect();
    let held = async |client: &TxnClient| {
        let mut open = client.begin().await?;
        let taking = Taking::alone(Waiting::No, Expect::Nothing);
        open.acquire(&table(1), keys.clone(), taking, None).await?;
        Ok::<_, Error>(open)
    };
    for round in 0..20 {
        let holder = held(&one).await.unwrap();
        if round % 2 == 0 {
            holder.commit().await.unwrap();
        } else {
            holder.rollback().await;
        }
        let next = held(&two).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        next.rollback().await;
    }
}

#[test]
fn who_holds_its_rows_commits_and_no_update_is_lost() {
    let seeds = env::seeds::range(12);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    for weather in [Weather::Ordered, Weather::Calm, Weather::Storm] {
        let banks = runtime.block_on(async {
            stream::iter(seeds.clone())
                .map(|seed| async move { tokio::spawn(history(seed, weather)).await.unwrap() })
                .buffer_unordered(12)
                .collect::<Vec<_>>()
                .await
        });
        let sum = |pick: fn(&Counts) -> &AtomicUsize| {
            banks.iter().map(|bank| pick(&bank.counts).load(Ordering::Relaxed)).sum::<usize>()
        };
        let (commits, deadlocks) = (sum(|one| &one.commits), sum(|one| &one.deadlocks));
        let (refused, reads) = (sum(|one| &one.refused), sum(|one| &one.reads));
        let optimists = sum(|one| &one.optimists);
        let audits = sum(|one| &one.audits);
        println!(
            "{weather:?}: {commits} commits, {deadlocks} deadlocks, {refused} refused, \
             {reads} reads, {optimists} writes without locks, {audits} audits under locks"
        );
        let all = banks.len() * CLIENTS as usize * TRANSFERS;
        match weather {
            Weather::Ordered => assert_eq!((commits, deadlocks), (all, 0)),
            Weather::Calm => assert!(commits + deadlocks == all && deadlocks > 0),
            Weather::Storm => assert!(commits > all / 4, "{commits} of {all}"),
        }
        assert!(reads > banks.len() && optimists > banks.len() && audits > banks.len());
    }
}
