//! Children that are added under a shared lock on their parent, and parents that go while they have none: no child is ever
//! seen without its parent, whatever fails. Foreign keys stand on this.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use env::Random;
use futures::stream::{self, StreamExt};
use txn::TxnClient;
use txn::api::{Expect, Mode, Taking, Waiting};
use types::{Error, Result};

use crate::support::{Faults, World, record, table};

const PARENTS: u64 = 3;
const CHILDREN: u64 = 4;
const CLIENTS: u64 = 6;
const STEPS: usize = 30;

#[derive(Default)]
struct Counts {
    added: AtomicUsize,
    gone: AtomicUsize,
    kept: AtomicUsize,
    looks: AtomicUsize,
}

struct Family {
    seed: u64,
    world: Arc<World>,
    random: Random,
    over: AtomicBool,
    counts: Counts,
}

fn parent(number: u64) -> Vec<u8> {
    record(&format!("p{number}"))
}

/// Children lie in another region than their parents, or in the same.
fn child(parent: u64, number: u64) -> Vec<u8> {
    record(&format!("c{parent}{number}"))
}

fn children(parent: u64) -> Vec<Vec<u8>> {
    (0..CHILDREN).map(|number| child(parent, number)).collect()
}

fn taking(mode: Mode, expect: Expect) -> Taking {
    Taking { mode, waiting: Waiting::For(2_000), expect }
}

impl Family {
    fn open(seed: u64) -> Arc<Self> {
        let cuts: &[&str] = if seed.is_multiple_of(3) { &[] } else { &["d"] };
        let world = World::new(seed, 3, cuts, Faults::default());
        world.one_entry.store(true, Ordering::Relaxed);
        world.async_commits.store(seed % 4 != 1, Ordering::Relaxed);
        world.speed.store(1, Ordering::Relaxed);
        let faults = Faults {
            delay_ms: 2,
            lose_request: 0.01,
            lose_answer: 0.02,
            repeat: 0.03,
            drop: 0.02,
            unknown: 0.02,
            deposed: 0.05,
        };
        *world.faults.lock() = faults;
        world.nodes.values().for_each(|node| node.groups.plague(faults));
        let (random, over) = (Random::seeded(seed ^ 0xFA41), AtomicBool::new(false));
        Arc::new(Family { seed, world, random, over, counts: Counts::default() })
    }

    /// Adds a child, if its parent is there.
    async fn add(&self, client: &TxnClient) -> Result<()> {
        let (of, number) = (self.random.below(PARENTS), self.random.below(CHILDREN));
        let mut open = client.begin().await?;
        // Most take the leader at its word: the commit finds out.
        let expect = if self.random.chance(0.8) { Expect::Rows } else { Expect::Nothing };
        let shared = taking(Mode::Shared, expect);
        let found = open.acquire(&table(1), vec![parent(of)], shared, None).await?.rows;
        if !found.iter().all(|one| one.live) {
            open.rollback().await;
            return Ok(());
        }
        let alone = taking(Mode::Exclusive, Expect::Nothing);
        open.acquire(&table(1), vec![child(of, number)], alone, None).await?;
        open.put(&table(1), child(of, number), b"child".to_vec())?;
        open.commit().await?;
        self.counts.added.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a parent that has no children, or brings it back.
    async fn end(&self, client: &TxnClient) -> Result<()> {
        let of = self.random.below(PARENTS);
        let mut open = client.begin().await?;
        // Some share the row first.
        if self.random.chance(0.3) {
            let shared = taking(Mode::Shared, Expect::Nothing);
            open.acquire(&table(1), vec![parent(of)], shared, None).await?;
        }
        let locks = self.random.chance(0.7);
        let (live, at) = match locks {
            true => {
                let alone = taking(Mode::Exclusive, Expect::Nothing);
                let found = open.acquire(&table(1), vec![parent(of)], alone, None).await?.rows;
                (found.iter().any(|one| one.live), client.timestamp().await?)
            }
            // Others believe what they read at the start: the commit is to find out.
            false => (open.get(&parent(of)).await?.is_some(), open.start_ts()),
        };
        if !live {
            open.put(&table(1), parent(of), b"parent".to_vec())?;
            return open.commit().await.map(|_| ());
        }
        if !open.batch_get_at(children(of), at).await?.is_empty() {
            self.counts.kept.fetch_add(1, Ordering::Relaxed);
            open.rollback().await;
            return Ok(());
        }
        open.delete(&table(1), parent(of))?;
        open.commit().await?;
        self.counts.gone.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a child.
    async fn remove(&self, client: &TxnClient) -> Result<()> {
        let keys = children(self.random.below(PARENTS));
        let mut open = client.begin().await?;
        let alone = taking(Mode::Exclusive, Expect::Nothing);
        for one in open.acquire(&table(1), keys, alone, None).await?.rows {
            if one.live {
                open.delete(&table(1), one.key)?;
            }
        }
        open.commit().await.map(|_| ())
    }

    async fn client(self: Arc<Self>) {
        let mut link = self.world.link();
        let mut client = self.world.client_over(link.clone());
        for _ in 0..STEPS {
            let dies = self.random.chance(0.05);
            if dies {
                link.die_after(self.random.below(6));
            }
            let work = async {
                match self.random.below(10) {
                    0..=4 => self.add(&client).await,
                    5..=7 => self.end(&client).await,
                    _ => self.remove(&client).await,
                }
            };
            let work = async {
                tokio::select! {
                    outcome = work => Some(outcome),
                    () = link.died() => None,
                }
            };
            let outcome = tokio::time::timeout(Duration::from_secs(60), work).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("seed {}: it hangs", self.seed));
            if let Some(Err(error)) = outcome {
                let expected = error.is_conflict()
                    || error.is_retryable()
                    || matches!(
                        error,
                        Error::Timeout { .. }
                            | Error::OutcomeUnknown { .. }
                            | Error::LockWait { .. }
                            | Error::Deadlock(_)
                    );
                assert!(expected, "seed {}: {error}", self.seed);
            }
            if dies {
                link = self.world.link();
                client = self.world.client_over(link.clone());
            }
        }
    }

    /// At whatever time, every child has its parent.
    async fn look(&self, client: &TxnClient) -> Result<()> {
        let ts = client.timestamp().await?;
        let snapshot = client.snapshot(ts);
        for of in 0..PARENTS {
            let left = snapshot.batch_get(children(of)).await?.len();
            let there = snapshot.get(&parent(of)).await?.is_some();
            assert!(there || left == 0, "seed {}: {left} children without {of} at {ts}", self.seed);
        }
        self.counts.looks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn reader(self: Arc<Self>) {
        let client = self.world.client();
        while !self.over.load(Ordering::Relaxed) {
            _ = self.look(&client).await;
        }
    }

    async fn nemesis(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(self.random.below(100))).await;
            self.world.elect(&parent(0), self.random.chance(0.5)).await;
        }
    }
}

async fn history(seed: u64) -> Arc<Family> {
    let family = Family::open(seed);
    let clients: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(family.clone().client())).collect();
    let others = [tokio::spawn(family.clone().reader()), tokio::spawn(family.clone().nemesis())];
    for client in clients {
        client.await.unwrap();
    }
    family.over.store(true, Ordering::Relaxed);
    for other in others {
        other.await.unwrap();
    }
    family.world.heal();
    family.look(&family.world.client()).await.unwrap();
    family
}

#[test]
fn no_child_is_left_without_its_parent() {
    let seeds = env::seeds::range(24);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let families = runtime.block_on(async {
        stream::iter(seeds)
            .map(|seed| async move { tokio::spawn(history(seed)).await.unwrap() })
            .buffer_unordered(12)
            .collect::<Vec<_>>()
            .await
    });
    let sum = |pick: fn(&Counts) -> &AtomicUsize| {
        families.iter().map(|one| pick(&one.counts).load(Ordering::Relaxed)).sum::<usize>()
    };
    let (added, gone) = (sum(|one| &one.added), sum(|one| &one.gone));
    let (kept, looks) = (sum(|one| &one.kept), sum(|one| &one.looks));
    println!(
        "{added} children added, {gone} parents ended, {kept} kept for children, {looks} looks"
    );
    let least = families.len();
    assert!(added > 2 * least && gone > least && kept > least && looks > least);
}
