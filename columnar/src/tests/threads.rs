//! One thread applies, one maintains, two read: money moves between accounts, and no snapshot may
//! show another sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use types::{Timestamp, Value};

use super::harness::{REGION, World, small};
use super::scans::dump;
use crate::shared::Config;
use crate::store::ColumnarStore;

const ACCOUNTS: i64 = 30;
/// Transfers go on until both other sides have done something, but not longer than this.
const TRANSFERS: u64 = 200_000;
const READS: u64 = 60;
const STEPS: u64 = 20;

#[test]
#[allow(clippy::disallowed_methods)]
fn the_sum_of_all_accounts_never_changes() {
    let config = Config { delta_rows: 200, ..small() };
    let mut world = World::new(config);
    let facts = (0..ACCOUNTS)
        .map(|id| {
            let row = world.encode(id, 100, None, 0);
            world.import(id, 10, Some(row))
        })
        .collect();
    world.append(REGION, facts);
    world.catch_up().unwrap();
    let seen = Arc::new(AtomicU64::new(10));
    let done = Arc::new(AtomicBool::new(false));
    let (reads, steps) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let store = world.store.clone();
    let maintainer = {
        let (store, done, steps) = (store.clone(), done.clone(), steps.clone());
        thread::spawn(move || {
            while !done.load(Ordering::Acquire) {
                // The safe point follows far enough behind that no reader is refused.
                let worked = store.maintain(Timestamp(10)).unwrap();
                steps.fetch_add(u64::from(worked), Ordering::Relaxed);
                thread::yield_now();
            }
        })
    };
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (store, seen, done) = (store.clone(), seen.clone(), done.clone());
            let reads = reads.clone();
            thread::spawn(move || read(&store, &seen, &done, &reads))
        })
        .collect();
    let mut balances = vec![100; ACCOUNTS as usize];
    let enough = || {
        let (reads, steps) = (reads.load(Ordering::Relaxed), steps.load(Ordering::Relaxed));
        reads >= READS && steps >= STEPS
    };
    let mut last = 20;
    for n in (0..TRANSFERS).take_while(|n| *n < 3_000 || !enough()) {
        let (from, to) = ((n % 29) as usize, ((n * 7 + 1) % 30) as usize);
        if from != to {
            balances[from] -= 1;
            balances[to] += 1;
            let ts = 20 + n;
            last = ts;
            let facts = [from, to].map(|id| {
                let row = world.encode(id as i64, balances[id], None, 0);
                world.import(id as i64, ts, Some(row))
            });
            world.append(REGION, facts.to_vec());
            assert!(world.apply_one(REGION).unwrap());
            world.finish().unwrap();
            seen.store(ts, Ordering::Release);
        }
        if n % 500 == 0 {
            world.persist(REGION).unwrap();
        }
    }
    done.store(true, Ordering::Release);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    maintainer.join().unwrap();
    eprintln!("{last} transfers, {reads:?} reads, {steps:?} steps of maintenance");
    assert!(enough(), "{reads:?} reads, {steps:?} steps");
    world.check_at(last, 0);
    world.check_at(last / 2, 0);
}

fn read(store: &ColumnarStore, seen: &AtomicU64, done: &AtomicBool, reads: &AtomicU64) {
    let handle = store.tablet(REGION).unwrap();
    while !done.load(Ordering::Acquire) {
        let newest = seen.load(Ordering::Acquire);
        for ts in [newest, newest / 2, 10] {
            let ts = Timestamp(ts.max(10));
            let snapshot = handle.snapshot_at(ts, handle.region().epoch).unwrap();
            let rows = dump(&snapshot);
            let sum: i64 = rows
                .iter()
                .map(|row| match row[1] {
                    Value::Int(n) => n,
                    _ => panic!("no balance"),
                })
                .sum();
            assert_eq!((rows.len() as i64, sum), (ACCOUNTS, ACCOUNTS * 100), "at {ts}");
            reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}
