//! Which seeds a randomised test runs, the same for every crate, and how to see a failure again.
//!
//! `ISOBAR_SEED=n` runs that seed alone. `ISOBAR_SOAK=n` runs n times as many as usual, and
//! `ISOBAR_FIRST_SEED=n` begins at another one, so that a long run meets seeds that none has met.
//! For tests only: production code takes its seed from [`crate::Random::from_os`].

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The seeds of this run of a test that usually runs `usual` of them.
///
/// # Panics
/// If a variable is set to what is not a number: a run must not be shorter than was asked for.
pub fn range(usual: u64) -> Range<u64> {
    if let Some(seed) = number("ISOBAR_SEED") {
        return seed..seed.saturating_add(1);
    }
    let first = number("ISOBAR_FIRST_SEED").unwrap_or(0);
    let count = usual.max(1).saturating_mul(number("ISOBAR_SOAK").unwrap_or(1));
    first..first.saturating_add(count)
}

/// Runs a test for its seeds; one that fails says what to type to see it again. `test` is the
/// arguments of `cargo test` that choose it, such as `-p isobar-raft --test simulation`.
pub fn each(test: &str, usual: u64, mut run: impl FnMut(u64)) {
    for seed in range(usual) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed} failed; again: ISOBAR_SEED={seed} cargo test {test}");
            resume_unwind(panic);
        }
    }
}

#[allow(clippy::panic, reason = "a test whose seeds cannot be read must not pass")]
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text}: a whole number is wanted"),
    }
}
