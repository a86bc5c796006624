//! Draws: which row a transaction touches, and text to fill rows with.
//!
//! Everything comes from a seeded generator, so that a run can be repeated.

mod zipf;

use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use zipf::Zipf;

/// The generator that everything here draws from.
pub type Random = ChaCha8Rng;

/// One of many independent generators of a seed.
pub fn stream(seed: u64, number: u64) -> Random {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(number);
    random
}

/// How draws of rows are spread over a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// Every row alike.
    Uniform,
    /// The n-th most wanted row is wanted in proportion to n^-θ.
    Zipf(f64),
    /// A fifth of the rows gets four fifths of the draws, and so on within that fifth.
    Pareto,
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uniform" => return Ok(Skew::Uniform),
            "pareto" => return Ok(Skew::Pareto),
            _ => {}
        }
        let theta = text.strip_prefix("zipf:").and_then(|theta| theta.parse::<f64>().ok());
        match theta {
            Some(theta) if theta > 0.0 && theta <= 10.0 => Ok(Skew::Zipf(theta)),
            _ => Err(format!(
                "{text:?} is no skew: write uniform, pareto, or zipf:θ with 0 < θ ≤ 10"
            )),
        }
    }
}

impl std::fmt::Display for Skew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Skew::Uniform => f.write_str("uniform"),
            Skew::Zipf(theta) => write!(f, "zipf:{theta}"),
            Skew::Pareto => f.write_str("pareto"),
        }
    }
}

/// Draws numbers from 1 to a bound.
#[derive(Clone, Debug)]
pub struct Draw {
    most: u64,
    shape: Shape,
    /// Turns ranks into rows, so that the wanted rows are not neighbours in one region.
    stride: u64,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    Zipf(Zipf),
    Pareto,
}

impl Draw {
    /// Numbers from 1 to `most` (at least 1).
    pub fn new(most: u64, skew: Skew) -> Self {
        let most = most.max(1);
        let shape = match skew {
            Skew::Uniform => Shape::Uniform,
            Skew::Zipf(theta) => Shape::Zipf(Zipf::new(most, theta)),
            Skew::Pareto => Shape::Pareto,
        };
        Draw { most, shape, stride: coprime(most) }
    }

    /// The next number.
    pub fn next(&self, random: &mut Random) -> u64 {
        let rank = match &self.shape {
            Shape::Uniform => return random.random_range(1..=self.most),
            Shape::Zipf(zipf) => zipf.next(random) - 1,
            Shape::Pareto => {
                // ln 0.2 / ln 0.8: of the first fifth's draws, again a fifth gets four fifths.
                let exponent = 0.2_f64.ln() / 0.8_f64.ln();
                ((self.most as f64 * random.random::<f64>().powf(exponent)) as u64)
                    .min(self.most - 1)
            }
        };
        ((u128::from(rank) * u128::from(self.stride)) % u128::from(self.most)) as u64 + 1
    }
}

/// A multiplier near the golden section of `most` that shares no factor with it.
fn coprime(most: u64) -> u64 {
    let mut stride = (most as f64 * 0.618_033_988_75) as u64 | 1;
    while gcd(stride, most) != 1 {
        stride += 1;
    }
    stride
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Groups of eleven digits, joined by dashes.
pub fn digits(random: &mut Random, groups: usize) -> String {
    let mut text = String::with_capacity(groups * 12);
    for group in 0..groups {
        if group > 0 {
            text.push('-');
        }
        text.push_str(&format!("{:011}", random.random_range(0..100_000_000_000_u64)));
    }
    text
}

/// Letters and digits, from `least` to `most` of them.
pub fn letters(random: &mut Random, least: usize, most: usize) -> String {
    const FROM: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let length = random.random_range(least..=most);
    (0..length).map(|_| char::from(FROM[random.random_range(0..FROM.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(draw: &Draw, most: usize, draws: usize) -> Vec<usize> {
        let mut random = stream(7, 1);
        let mut counts = vec![0; most + 1];
        for _ in 0..draws {
            counts[draw.next(&mut random) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        counts
    }

    #[test]
    fn uniform_draws_reach_every_row_alike() {
        let counts = counts(&Draw::new(50, Skew::Uniform), 50, 100_000);
        assert!(counts[1..].iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_fifth_of_the_rows_gets_four_fifths_of_paretos_draws() {
        let mut counts = counts(&Draw::new(1_000, Skew::Pareto), 1_000, 200_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = counts[..200].iter().sum::<usize>() as f64 / 200_000.0;
        assert!((0.79..0.81).contains(&share), "{share}");
    }

    #[test]
    fn skewed_rows_are_spread_over_the_table_and_all_of_them_are_reached() {
        let counts = counts(&Draw::new(97, Skew::Zipf(0.5)), 97, 200_000);
        assert!(counts[1..].iter().all(|count| *count > 0));
        let mut order: Vec<usize> = (1..=97).collect();
        order.sort_unstable_by_key(|row| std::cmp::Reverse(counts[*row]));
        assert!(
            order[..5].windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1),
            "{:?}",
            &order[..5]
        );
    }

    #[test]
    fn a_skew_is_read_or_refused() {
        assert_eq!("zipf:0.9".parse(), Ok(Skew::Zipf(0.9)));
        assert_eq!("pareto".parse(), Ok(Skew::Pareto));
        for wrong in ["zipf", "zipf:0", "zipf:-1", "zipf:nan", "zipf:inf", "Uniform", ""] {
            assert!(wrong.parse::<Skew>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_has_its_shape() {
        let mut random = stream(1, 1);
        assert_eq!(digits(&mut random, 10).len(), 119);
        assert_eq!(digits(&mut random, 5).len(), 59);
        assert!((3..=9).contains(&letters(&mut random, 3, 9).len()));
    }
}
