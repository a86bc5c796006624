//! Zipf's distribution by rejection-inversion (Hörmann and Derflinger, 1996): exact for every θ > 0, no tables.

use rand::Rng;

use super::Random;

/// Draws ranks 1 to n, rank r in proportion to r^-θ.
#[derive(Clone, Debug)]
pub struct Zipf {
    theta: f64,
    most: f64,
    /// The integral of the hat function at both ends.
    first: f64,
    last: f64,
    /// Ranks nearer to their inverse than this need no second look.
    sure: f64,
}

impl Zipf {
    /// Ranks from 1 to `most`.
    pub fn new(most: u64, theta: f64) -> Self {
        let most = most.max(1) as f64;
        let mut zipf = Zipf { theta, most, first: 0.0, last: 0.0, sure: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(most + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// The next rank.
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.last + random.random::<f64>() * (self.first - self.last);
            let x = self.inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.most);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// ∫ x^-θ, without losing digits where θ is near 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        near_one(log * (1.0 - self.theta), f64::exp_m1) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0);
        (near_one(t, f64::ln_1p) * area).exp()
    }
}

/// f(t) / t, which tends to 1 where t tends to 0.
fn near_one(t: f64, f: fn(f64) -> f64) -> f64 {
    if t.abs() > 1e-12 { f(t) / t } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    /// Chi-square of the first ranks and of the rest, against the definition.
    fn distance(most: u64, theta: f64, assumed: f64) -> f64 {
        const DRAWS: usize = 400_000;
        let zipf = Zipf::new(most, theta);
        let mut random = stream(11, 0);
        let mut counts = vec![0_u32; most as usize + 1];
        for _ in 0..DRAWS {
            counts[zipf.next(&mut random) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        let weight = |rank: u64| (rank as f64).powf(-assumed);
        let all: f64 = (1..=most).map(weight).sum();
        let cells = 20.min(most);
        let mut square = 0.0;
        let mut rest = (DRAWS as f64, DRAWS as f64);
        for rank in 1..=cells {
            let expected = weight(rank) / all * DRAWS as f64;
            let found = f64::from(counts[rank as usize]);
            square += (found - expected).powi(2) / expected;
            rest = (rest.0 - found, rest.1 - expected);
        }
        if rest.1 > 1.0 { square + (rest.0 - rest.1).powi(2) / rest.1 } else { square }
    }

    #[test]
    fn frequencies_are_zipfs() {
        // 21 cells, 20 degrees of freedom: beyond 45.3 one time in a thousand.
        for (most, theta) in [(1_000, 0.5), (1_000, 0.99), (100_000, 1.0), (1_000, 1.5), (30, 3.0)]
        {
            let square = distance(most, theta, theta);
            assert!(square < 45.3, "n {most}, θ {theta}: χ² {square}");
        }
    }

    #[test]
    fn another_theta_would_be_noticed() {
        assert!(distance(1_000, 0.9, 0.95) > 45.3);
    }

    #[test]
    fn one_row_is_always_the_first() {
        let zipf = Zipf::new(1, 0.9);
        assert_eq!(zipf.next(&mut stream(1, 1)), 1);
    }
}
