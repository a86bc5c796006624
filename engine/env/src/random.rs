//! Randomness: seeded by the operating system in production, by a number in a simulation.
//!
//! One generator serves both, so a simulated history differs from a real one in its seed only.

use std::sync::Arc;

use parking_lot::Mutex;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// A shared random generator (ChaCha20, so it is also fit for salts and keys when OS-seeded).
///
/// Clones draw from one stream; [`Random::fork`] starts an independent one. It implements
/// [`rand::RngCore`], so the whole of `rand` works on it.
#[derive(Clone, Debug)]
pub struct Random {
    generator: Arc<Mutex<ChaCha20Rng>>,
}

impl Random {
    /// A generator seeded by the operating system.
    #[allow(clippy::disallowed_methods)] // the one place that may ask the machine for entropy
    pub fn from_os() -> Self {
        Self::from_generator(ChaCha20Rng::from_os_rng())
    }

    /// A generator that draws the same stream for the same seed, on every machine.
    pub fn seeded(seed: u64) -> Self {
        Self::from_generator(ChaCha20Rng::seed_from_u64(seed))
    }

    fn from_generator(generator: ChaCha20Rng) -> Self {
        Random { generator: Arc::new(Mutex::new(generator)) }
    }

    /// An independent generator, seeded from this one.
    pub fn fork(&self) -> Random {
        let mut seed = [0; 32];
        self.fill(&mut seed);
        Self::from_generator(ChaCha20Rng::from_seed(seed))
    }

    /// A uniform 64-bit number.
    pub fn u64(&self) -> u64 {
        self.generator.lock().next_u64()
    }

    /// A uniform number below `bound`; zero if `bound` is zero.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.generator.lock().random_range(0..bound) }
    }

    /// True with the given probability, which is clamped to 0..=1.
    pub fn chance(&self, probability: f64) -> bool {
        self.generator.lock().random_bool(probability.clamp(0.0, 1.0))
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&self, buffer: &mut [u8]) {
        self.generator.lock().fill_bytes(buffer);
    }
}

impl RngCore for Random {
    fn next_u32(&mut self) -> u32 {
        self.generator.lock().next_u32()
    }

    fn next_u64(&mut self) -> u64 {
        self.u64()
    }

    fn fill_bytes(&mut self, buffer: &mut [u8]) {
        self.fill(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_stream() {
        let draw = |seed| {
            let random = Random::seeded(seed);
            (0..8).map(|_| random.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // Pinned: a changed stream would silently change what every stored seed replays.
        assert_eq!(draw(7), PINNED);
    }

    const PINNED: [u64; 8] = [23, 534, 951, 283, 185, 409, 490, 824];

    #[test]
    fn forks_and_entropy_differ() {
        let random = Random::seeded(1);
        assert_ne!(random.fork().u64(), random.fork().u64());
        assert_ne!(Random::from_os().u64(), Random::from_os().u64());
        assert_eq!(random.below(0), 0);
        assert!(random.chance(9.0));
        assert!(!random.chance(-1.0));
    }
}
