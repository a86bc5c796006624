//! Which seeds a test runs, and what to type to see a failure again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Seeds of a normal run.
const SEEDS: u64 = 200;

/// Runs a test for its seeds: one in `share` of [`SEEDS`] or `ISOBAR_SEEDS`, for tests whose seeds
/// take that much longer, or the one that `ISOBAR_SEED` says.
pub fn each(test: &str, share: u64, mut run: impl FnMut(u64)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("ISOBAR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ISOBAR_SEEDS").unwrap_or(SEEDS).div_ceil(share),
    };
    let count = seeds.end - seeds.start;
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!(
                "seed {seed} failed; again: ISOBAR_SEED={seed} cargo test -p isobar-equivalence \
                 {test}"
            );
            resume_unwind(panic);
        }
    }
    eprintln!("{test}: {count} seeds");
}
