//! Means over rounds with their confidence, and limits that intervals meet, miss, or leave open.

use serde::{Deserialize, Serialize};

/// A mean over rounds with its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Arithmetic mean of the rounds.
    pub mean: f64,
    /// Half the interval's width; none with fewer than two rounds.
    pub half_width: Option<f64>,
    /// Rounds.
    pub rounds: usize,
}

impl Estimate {
    /// Of one value a round.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        if n == 0 {
            return Estimate::default();
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let half_width = (n > 1).then(|| {
            let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            t975(n - 1) * (square / (n - 1) as f64 / n as f64).sqrt()
        });
        Estimate { mean, half_width, rounds: n }
    }
}

/// How much larger `values` are than `base` of the same rounds, in per cent of base: the geometric mean of the rounds'
/// ratios, with the interval of their logarithms, of which the wider side is given. What makes a whole round slower is in
/// both of its values, and in no ratio. Rounds without a value above 0 on both sides are left out.
pub fn excess(values: &[f64], base: &[f64]) -> Estimate {
    let logarithms: Vec<f64> = values
        .iter()
        .zip(base)
        .filter(|(value, base)| **value > 0.0 && **base > 0.0)
        .map(|(value, base)| (value / base).ln())
        .collect();
    let Estimate { mean, half_width, rounds } = Estimate::of(&logarithms);
    if rounds == 0 {
        return Estimate::default();
    }
    let ratio = mean.exp();
    let half_width = half_width.map(|half| (ratio * half.exp() - ratio) * 100.0);
    Estimate { mean: (ratio - 1.0) * 100.0, half_width, rounds }
}

/// What an interval says of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is within it.
    Met,
    /// The whole interval is beyond it.
    NotMet,
    /// The interval reaches over it, or there is none.
    #[serde(rename = "could-not-tell")]
    Inconclusive,
}

/// Whether a value is at most `limit`.
pub fn judge(value: &Estimate, limit: f64) -> Verdict {
    match value.half_width {
        Some(half) if value.mean + half <= limit => Verdict::Met,
        Some(half) if value.mean - half > limit => Verdict::NotMet,
        _ => Verdict::Inconclusive,
    }
}

/// Student's t at 97.5 %.
fn t975(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    // Beyond the table the first terms of its expansion are right to three digits.
    let n = freedom.max(1);
    TABLE.get(n - 1).copied().unwrap_or(1.959_96 + 2.372_3 / n as f64 + 2.822_5 / (n * n) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 1e-3 * expected.abs().max(1.0),
            "{found} for {expected}"
        );
    }

    #[test]
    fn intervals_are_those_of_a_text_book() {
        // Mean 5, sample variance 32/7: half-width t(7) √(32/56) = 2.3646 · 0.7559.
        let estimate = Estimate::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        near(estimate.mean, 5.0);
        near(estimate.half_width.unwrap(), 1.7875);
        assert_eq!(Estimate::of(&[3.0]).half_width, None);
        assert_eq!(Estimate::of(&[]).rounds, 0);
        near(t975(1), 12.706);
        near(t975(40), 2.0211);
        near(t975(120), 1.9799);
    }

    #[test]
    fn what_makes_a_round_slower_is_in_no_ratio() {
        let base = [100.0, 150.0, 200.0, 800.0];
        let values: Vec<f64> = base.iter().map(|value| value * 1.04).collect();
        let same = excess(&values, &base);
        near(same.mean, 4.0);
        near(same.half_width.unwrap() + 1.0, 1.0);
        // Of ratios 2 and 1/2 the mean is 1, and not 1.25.
        near(excess(&[2.0, 1.0], &[1.0, 2.0]).mean + 1.0, 1.0);
        // Logarithms 0 and 2 ln 1.1: their mean and its error are both ln 1.1, and t(1) is 12.706.
        let two = excess(&[1.0, 1.21], &[1.0, 1.0]);
        near(two.mean, 10.0);
        near(two.half_width.unwrap(), 110.0 * ((12.706 * 1.1f64.ln()).exp() - 1.0));
        assert_eq!(excess(&[1.0, 0.0], &[1.0, 1.0]).rounds, 1, "nothing was completed");
    }

    #[test]
    fn a_limit_is_met_missed_or_open() {
        let at = |mean, half| Estimate { mean, half_width: half, rounds: 5 };
        assert_eq!(judge(&at(2.0, Some(1.0)), 5.0), Verdict::Met);
        assert_eq!(judge(&at(9.0, Some(1.0)), 5.0), Verdict::NotMet);
        assert_eq!(judge(&at(4.5, Some(1.0)), 5.0), Verdict::Inconclusive);
        assert_eq!(judge(&at(2.0, None), 5.0), Verdict::Inconclusive);
    }
}
