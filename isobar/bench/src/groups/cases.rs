//! The cases of the evaluation: what the groups are given, and what is claimed of what they then do.

use clap::ValueEnum;
use serde::Serialize;

use super::GROUPS;

/// The larger rate, as a part of the capacity, and the smaller one.
const HALF: f64 = 0.5;
const QUARTER: f64 = 0.25;
/// Of the case that the one with BURSTABLE is compared with: it must leave enough.
const EIGHTH: f64 = 0.125;

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// rg1 has half of what rg2 has
    Rates,
    /// Both have the same
    Equal,
    /// As `rates`, with less for both
    Limited,
    /// The same, and rg1 is BURSTABLE
    Burstable,
    /// Both are BURSTABLE
    BothBurstable,
    /// No limits; rg1 has PRIORITY HIGH, rg2 MEDIUM
    Priority,
}

/// What the two groups are given: a rate, whether they are held to it, and a priority.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits([(Option<u64>, bool, &'static str); 2]);

impl Limits {
    /// No limits at all.
    pub const NONE: Self = Limits([(None, false, "MEDIUM"); 2]);

    /// The statements that set them.
    pub fn statements(&self) -> Vec<String> {
        let of = |(group, (rate, burstable, priority)): (&str, (Option<u64>, bool, &str))| {
            let rate = rate.map_or_else(|| "UNLIMITED".to_owned(), |rate| rate.to_string());
            let burstable = if burstable { "TRUE" } else { "FALSE" };
            format!(
                "ALTER RESOURCE GROUP {group} RU_PER_SEC = {rate} PRIORITY = {priority} BURSTABLE = {burstable}"
            )
        };
        GROUPS.into_iter().zip(self.0).map(of).collect()
    }

    /// What a group is held to.
    pub fn rate(&self, group: usize) -> Option<u64> {
        self.0.get(group).and_then(|(rate, burstable, _)| rate.filter(|_| !burstable))
    }
}

/// What is claimed of a number, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Of what.
    pub what: String,
    /// It is at least this,
    pub from: f64,
    /// and at most this.
    pub to: Option<f64>,
    /// What was found: the mean over rounds.
    pub found: f64,
}

impl Claim {
    /// Whether it holds.
    pub fn holds(&self) -> bool {
        self.found >= self.from && self.to.is_none_or(|to| self.found <= to)
    }
}

impl Case {
    /// All, in the order in which they are run.
    pub const ALL: [Case; 6] = [
        Case::Rates,
        Case::Equal,
        Case::Limited,
        Case::Burstable,
        Case::BothBurstable,
        Case::Priority,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Case::Rates => "rates",
            Case::Equal => "equal",
            Case::Limited => "limited",
            Case::Burstable => "burstable",
            Case::BothBurstable => "both-burstable",
            Case::Priority => "priority",
        }
    }

    /// What the groups are given of a capacity in units a second.
    pub fn limits(self, capacity: f64) -> Limits {
        let of = |part: f64| Some((capacity * part).round().max(1.0) as u64);
        match self {
            Case::Rates => Limits([(of(QUARTER), false, "MEDIUM"), (of(HALF), false, "MEDIUM")]),
            Case::Equal => Limits([(of(QUARTER), false, "MEDIUM"); 2]),
            Case::Limited => {
                Limits([(of(EIGHTH), false, "MEDIUM"), (of(QUARTER), false, "MEDIUM")])
            }
            Case::Burstable => {
                Limits([(of(EIGHTH), true, "MEDIUM"), (of(QUARTER), false, "MEDIUM")])
            }
            Case::BothBurstable => Limits([(of(QUARTER), true, "MEDIUM"); 2]),
            Case::Priority => Limits([(None, false, "HIGH"), (None, false, "MEDIUM")]),
        }
    }

    /// What is claimed of the tpmC that the groups reached in it, and of those of `limited`.
    pub fn claims(self, [first, second]: [f64; 2], limited: Option<[f64; 2]>) -> Vec<Claim> {
        let claim = |what: &str, found: f64, from: f64, to: Option<f64>| Claim {
            what: format!("{}: {what}", self.name()),
            from,
            to,
            found,
        };
        let ratio = |from, to| claim("tpmC of rg1 / rg2", first / second, from, to);
        match (self, limited) {
            (Case::Rates | Case::Limited, _) => vec![ratio(0.475, Some(0.525))],
            (Case::Equal, _) => vec![ratio(0.95, Some(1.05))],
            (Case::BothBurstable, _) => vec![ratio(0.85, Some(1.15))],
            (Case::Priority, _) => vec![ratio(1.05, None)],
            (Case::Burstable, Some([alone, other])) => vec![
                claim("tpmC of rg1 / its limited one", first / alone, 3.0, None),
                claim("tpmC of rg2 / the same without", second / other, 0.95, Some(1.05)),
            ],
            // There is nothing to compare it with.
            (Case::Burstable, None) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parts_of_the_capacity() {
        let rates = Case::Rates.limits(1_000.0);
        assert_eq!((rates.rate(0), rates.rate(1)), (Some(250), Some(500)));
        let statements = Case::Burstable.limits(1_000.0).statements();
        assert_eq!(
            statements[0],
            "ALTER RESOURCE GROUP rg1 RU_PER_SEC = 125 PRIORITY = MEDIUM BURSTABLE = TRUE"
        );
        assert_eq!(Case::Burstable.limits(1_000.0).rate(0), None, "it is held to nothing");
        assert!(Limits::NONE.statements()[1].contains("rg2 RU_PER_SEC = UNLIMITED"));
    }

    #[test]
    fn claims_hold_within_their_bounds_only() {
        let holds = |case: Case, sides, limited| {
            case.claims(sides, limited).iter().map(Claim::holds).collect::<Vec<_>>()
        };
        assert_eq!(holds(Case::Rates, [50.0, 100.0], None), [true]);
        assert_eq!(holds(Case::Rates, [53.0, 100.0], None), [false]);
        assert_eq!(holds(Case::Priority, [104.0, 100.0], None), [false]);
        assert_eq!(holds(Case::Priority, [300.0, 100.0], None), [true]);
        let limited = Some([10.0, 100.0]);
        assert_eq!(holds(Case::Burstable, [31.0, 97.0], limited), [true, true]);
        assert_eq!(holds(Case::Burstable, [29.0, 94.0], limited), [false, false]);
        assert_eq!(holds(Case::Burstable, [31.0, 97.0], None), [false; 0]);
    }
}
