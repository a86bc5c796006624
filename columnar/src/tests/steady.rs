//! Steady updates: files and stored rows stay few for as long as it goes on.

use env::Random;

use super::harness::{REGION, World, small};
use crate::shared::Config;
use types::Timestamp;

const ROWS: i64 = 3_000;
const ROUNDS: u64 = 400;
const UPDATES: u64 = 100;
/// Rounds whose versions readers may still ask for.
const KEPT: u64 = 5;

/// Rows that the tablet's files hold, dead ones included.
fn stored(world: &World) -> u64 {
    let tablet = world.store.tablets.get(REGION).unwrap();
    let state = tablet.lock();
    state.parts.iter().map(|part| u64::from(part.to - part.from)).sum()
}

#[test]
fn steady_updates_leave_few_files_and_few_dead_rows() {
    let config = Config { delta_rows: 500, delta_bytes: 1 << 20, ..small() };
    let (mut world, random) = (World::new(config), Random::seeded(7));
    let write = |world: &mut World, id: i64, ts: u64| {
        let row = world.encode(id, ts as i64, Some("steady"), 0);
        let fact = world.import(id, ts, Some(row));
        world.append(REGION, vec![fact]);
    };
    (0..ROWS).for_each(|id| write(&mut world, id, 20));
    let (mut most_files, mut most_stored) = (0, 0);
    for round in 1..=ROUNDS {
        let ts = 100 + round;
        let mut chosen: Vec<i64> = (0..UPDATES).map(|_| random.below(ROWS as u64) as i64).collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen.into_iter().for_each(|id| write(&mut world, id, ts));
        world.catch_up().unwrap();
        let safe = Timestamp(ts.saturating_sub(KEPT));
        while world.store.maintain(safe).unwrap() {}
        most_files = most_files.max(world.files().len());
        most_stored = most_stored.max(stored(&world));
        if round.is_multiple_of(50) {
            world.check_at(ts, safe.0);
        }
    }
    let written = ROWS as u64 + ROUNDS * UPDATES;
    eprintln!("{written} rows written: at most {most_files} files and {most_stored} stored rows");
    // A merge is due once a quarter of a file's rows may go, and four small files are one.
    assert!(most_files <= 2 * 10, "{most_files} files");
    assert!(most_stored <= 2 * ROWS as u64, "{most_stored} stored rows for {ROWS} live ones");
}
