//! The arithmetic of a failover: for how long nothing was answered, and from when on the offered rate was answered again.
//!
//! Everything counts from the time at which a statement was due: what had to wait because the server stood still is late,
//! however fast it was once it had its turn. Pure; all times are seconds since the fault, before it negative.

/// The length of the window in which the rate is looked at, in seconds.
pub const WINDOW: f64 = 1.0;
/// How long after it was due a statement may be answered to count as answered in time, in seconds.
pub const IN_TIME: f64 = 0.25;
/// The part of the statements that were due, of which the rate is answered.
pub const ENOUGH: f64 = 0.9;
/// What begins later than this is not the fault's doing, in seconds.
const BEGINS_WITHIN: f64 = 5.0;
/// Windows end so many seconds apart.
const STEP: f64 = 0.05;

/// A statement or transaction that was offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it was meant to start.
    pub due: f64,
    /// When it was answered with success; none if it never was.
    pub answered: Option<f64>,
    /// What it met in place of an answer: an error's number, or a word.
    pub error: Option<String>,
}

impl Sample {
    fn in_time(&self) -> bool {
        self.answered.is_some_and(|at| at - self.due <= IN_TIME)
    }
}

/// The longest time without an answer: between two that follow each other, the later one behind the fault, or from the
/// last one to `end`. And whether it ended: an answer after `end`, to what was due before it, ends it too.
pub fn longest_gap(samples: &[Sample], end: f64) -> (f64, bool) {
    let mut answers: Vec<f64> = samples.iter().filter_map(|sample| sample.answered).collect();
    answers.sort_by(f64::total_cmp);
    let first = answers.iter().copied().take_while(|at| *at <= 0.0).last().unwrap_or(0.0);
    let mut last = first;
    let mut longest = 0.0_f64;
    for at in answers.into_iter().filter(|at| *at > 0.0) {
        longest = longest.max(at - last);
        last = at;
    }
    if end - last > longest { (end - last, false) } else { (longest, true) }
}

/// The slowest answer to what was due behind the fault, in seconds from then.
pub fn slowest(samples: &[Sample]) -> f64 {
    let behind = samples.iter().filter(|sample| sample.due >= 0.0);
    let late = behind.filter_map(|sample| Some(sample.answered? - sample.due));
    late.fold(0.0, f64::max)
}

/// How the rate went down and came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The time at which of all that was due in the window before it [`ENOUGH`] was answered in time, once that had ceased
    /// to be so; 0 if it never did, none if it was never so again.
    pub back: Option<f64>,
    /// The smallest part that was answered in time of what was due in any window.
    pub lowest: f64,
}

/// Looks at every window that ends between the fault and `end`.
pub fn rate(samples: &[Sample], end: f64) -> Rate {
    let steps = ((end / STEP).floor().max(0.0)) as usize;
    let shares: Vec<(f64, f64)> = (0..=steps)
        .map(|step| step as f64 * STEP)
        .filter_map(|to| Some((to, share(samples, to - WINDOW, to)?)))
        .collect();
    let lowest = shares.iter().map(|(_, share)| *share).fold(1.0, f64::min);
    let down = shares.iter().find(|(to, share)| *share < ENOUGH && *to <= BEGINS_WITHIN);
    let back = match down {
        None => Some(0.0),
        Some((down, _)) => {
            let again = shares.iter().find(|(to, share)| to > down && *share >= ENOUGH);
            again.map(|(to, _)| *to)
        }
    };
    Rate { back, lowest }
}

/// The part that was answered in time of what was due in a window; none of nothing.
fn share(samples: &[Sample], from: f64, to: f64) -> Option<f64> {
    let due = samples.iter().filter(|sample| from <= sample.due && sample.due < to);
    let (all, good) = due.fold((0_usize, 0_usize), |(all, good), sample| {
        (all + 1, good + usize::from(sample.in_time()))
    });
    (all > 0).then(|| good as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
    }

    /// A hundred statements a second from -5 s to 10 s, each answered after 10 ms; those due in an outage at its end.
    fn outage(from: f64, to: f64, part: usize) -> Vec<Sample> {
        let all = (0..1_500).map(|at| (at, f64::from(at) / 100.0 - 5.0));
        let answer = |(at, due): (i32, f64)| {
            let hit = at as usize % 10 < part && from <= due && due < to;
            let answered = Some(if hit { to } else { due } + 0.01);
            Sample { due, answered, error: None }
        };
        all.map(answer).collect()
    }

    #[test]
    fn without_a_fault_nothing_is_missing() {
        let samples = outage(0.0, 0.0, 10);
        let (gap, ended) = longest_gap(&samples, 10.0);
        near(gap, 0.01);
        assert!(ended);
        assert_eq!(rate(&samples, 10.0), Rate { back: Some(0.0), lowest: 1.0 });
    }

    #[test]
    fn a_gap_reaches_from_the_last_answer_before_to_the_first_one_after() {
        let samples = outage(0.1, 0.8, 10);
        let (gap, ended) = longest_gap(&samples, 10.0);
        near(gap, 0.7);
        assert!(ended);
        near(slowest(&samples), 0.7);
    }

    #[test]
    fn a_gap_may_end_behind_the_last_that_was_due() {
        let (gap, ended) = longest_gap(&outage(9.195, 10.3, 10), 10.0);
        near(gap, 1.11);
        assert!(ended);
    }

    #[test]
    fn a_burst_of_late_answers_is_no_rate() {
        // Due from 0.1 s on and answered at 2.1 s: late until 1.84 s. A window holds nine tenths in time from the moment on
        // at which it holds no more than a tenth of a second of them.
        let Rate { back, lowest } = rate(&outage(0.1, 2.1, 10), 10.0);
        let back = back.unwrap();
        assert!((2.70..=2.85).contains(&back), "{back}");
        near(lowest, 0.0);
        let Rate { back, lowest } = rate(&outage(0.1, 2.1, 3), 10.0);
        let back = back.unwrap();
        assert!((2.45..=2.60).contains(&back), "a third is missing in all: {back}");
        near(lowest, 0.7);
        let below = rate(&outage(0.1, 2.1, 1), 10.0);
        assert_eq!(below.back, Some(0.0), "a tenth may be missing");
    }

    #[test]
    fn what_never_comes_back_has_no_time() {
        let mut samples = outage(0.0, 0.0, 10);
        for sample in samples.iter_mut().filter(|sample| sample.due >= 0.0) {
            *sample = Sample { due: sample.due, answered: None, error: Some("9005".into()) };
        }
        assert_eq!(longest_gap(&samples, 10.0), (10.0, false));
        assert_eq!(rate(&samples, 10.0), Rate { back: None, lowest: 0.0 });
        assert_eq!(longest_gap(&[], 10.0), (10.0, false));
    }

    #[test]
    fn what_happens_much_later_is_not_the_faults_doing() {
        let samples = outage(7.0, 8.0, 10);
        let Rate { back, lowest } = rate(&samples, 10.0);
        assert_eq!(back, Some(0.0));
        assert!(lowest < 0.5, "but it is shown");
    }
}
