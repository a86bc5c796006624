//! TPC-C's own draws: NURand, customers' last names, zip codes, the ten per cent of "original" data.

use rand::Rng;

use crate::random::{Random, letters, stream};

/// The constants C of NURand (clause 2.1.6), one set for a load and its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    last_load: u32,
    last_run: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// Of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = stream(seed, u64::MAX - 1);
        let last_load = random.random_range(0..=255);
        // Clause 2.1.6.1: the two differ by 65 to 119, but not by 96 or 112.
        let last_run = loop {
            let other: u32 = random.random_range(0..=255);
            let apart = other.abs_diff(last_load);
            if (65..=119).contains(&apart) && apart != 96 && apart != 112 {
                break other;
            }
        };
        Constants {
            last_load,
            last_run,
            customer: random.random_range(0..=1023),
            item: random.random_range(0..=8191),
        }
    }

    /// A last name's number as the tables are filled.
    pub fn last_name_loaded(&self, most: u32, random: &mut Random) -> u32 {
        nurand(255, self.last_load, 0, most, random)
    }

    /// A last name's number as customers are looked up.
    pub fn last_name(&self, most: u32, random: &mut Random) -> u32 {
        nurand(255, self.last_run, 0, most, random)
    }

    /// A customer.
    pub fn customer(&self, customers: u32, random: &mut Random) -> u32 {
        nurand(1023, self.customer, 1, customers, random)
    }

    /// An item.
    pub fn item(&self, items: u32, random: &mut Random) -> u32 {
        nurand(8191, self.item, 1, items, random)
    }
}

/// A non-uniform number from x to y.
pub fn nurand(a: u32, c: u32, x: u32, y: u32, random: &mut Random) -> u32 {
    let mixed = random.random_range(0..=a) | random.random_range(x..=y);
    (mixed + c) % (y - x + 1) + x
}

/// The largest number of a last name where a district has so many customers.
pub fn most_names(customers: u32) -> u32 {
    customers.min(1_000) - 1
}

/// Number 0 to 999 as a last name of three syllables.
pub fn last_name(number: u32) -> String {
    const SYLLABLES: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    let at = |digit: u32| SYLLABLES[(digit % 10) as usize];
    [at(number / 100), at(number / 10), at(number)].concat()
}

/// Four digits and five ones.
pub fn zip(random: &mut Random) -> String {
    format!("{:04}11111", random.random_range(0..10_000))
}

/// 26 to 50 letters; one time in ten, ORIGINAL is among them.
pub fn data(random: &mut Random) -> String {
    let mut text = letters(random, 26, 50);
    if random.random_range(0..10) == 0 {
        let at = random.random_range(0..=text.len() - 8);
        text.replace_range(at..at + 8, "ORIGINAL");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distribution by its definition: every pair of the two draws, counted.
    fn expected(a: u32, c: u32, x: u32, y: u32) -> Vec<f64> {
        let mut counts = vec![0.0; (y - x + 1) as usize];
        for first in 0..=a {
            for second in x..=y {
                counts[((((first | second) + c) % (y - x + 1)) + x - x) as usize] += 1.0;
            }
        }
        let all: f64 = counts.iter().sum();
        counts.iter().map(|count| count / all).collect()
    }

    fn distance(a: u32, c: u32, x: u32, y: u32, of: &[f64]) -> f64 {
        let draws = 300_000;
        let mut random = stream(4, 4);
        let mut counts = vec![0.0; of.len()];
        for _ in 0..draws {
            counts[(nurand(a, c, x, y, &mut random) - x) as usize] += 1.0;
        }
        let cells = counts.iter().zip(of).filter(|(_, p)| **p > 0.0);
        cells.map(|(n, p)| (n - p * f64::from(draws)).powi(2) / (p * f64::from(draws))).sum()
    }

    #[test]
    fn nurand_has_the_standards_frequencies() {
        // 1,000 cells: χ² has mean 999 and deviation 45.
        let of = expected(255, 123, 0, 999);
        let square = distance(255, 123, 0, 999, &of);
        assert!(square < 1_200.0, "χ² {square}");
        assert!(distance(255, 124, 0, 999, &of) > 5_000.0, "another constant would be noticed");
        let of = expected(1023, 259, 1, 3000);
        let square = distance(1023, 259, 1, 3000, &of);
        assert!(square < 3_300.0, "χ² {square}");
    }

    #[test]
    fn run_constants_are_as_far_apart_as_they_must_be() {
        for seed in 0..200 {
            let constants = Constants::new(seed);
            let apart = constants.last_run.abs_diff(constants.last_load);
            assert!((65..=119).contains(&apart) && apart != 96 && apart != 112, "{apart}");
        }
    }

    #[test]
    fn last_names_are_three_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }
}
