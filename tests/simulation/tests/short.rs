//! A short share of the simulation: some seeds, and one of them twice.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use simulation::{Options, note_panics, run};

/// Simulated seconds under faults of each seed here.
const SECONDS: u64 = 20;

#[test]
fn what_clients_see_is_what_the_model_says() {
    note_panics();
    let mut committed = 0;
    let test = "-p isobar-simulation --features clock --test short";
    env::seeds::each(test, 12, |seed| {
        let report = run(Options::new(seed, SECONDS));
        assert_eq!(report.failures, Vec::<String>::new(), "seed {seed}");
        committed += report.totals.committed;
        eprintln!("seed {seed}: {:?}, {} events", report.totals, report.events);
    });
    assert!(committed > 0, "nothing was ever committed");
}

#[test]
fn one_seed_is_one_history() {
    note_panics();
    let both = [(); 2].map(|()| run(Options::new(7, SECONDS)));
    let [one, other] = both.map(|report| (report.hash, report.events));
    assert_eq!(one, other);
}
