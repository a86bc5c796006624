//! Scripts of one leader's timestamps.

use env::Instant;
use types::Timestamp;

use super::scripts::{Args, Script, run_all};
use crate::oracle::{Oracle, Reading, median_ms};

#[test]
fn oracle_scripts() {
    run_all::<OracleScript>("oracle");
}

#[derive(Default)]
struct OracleScript {
    oracle: Option<Oracle>,
    at_ms: u64,
}

impl OracleScript {
    /// `at` is monotonic time, `clock` that of a majority, none if left out; `now` is both. `own` is the
    /// leader's clock. Monotonic time never goes back.
    fn reading(&mut self, args: &Args) -> Reading {
        let number = |name| args.named(name).map(|text| text.parse().unwrap());
        let now = number("now");
        self.at_ms = self.at_ms.max(number("at").or(now).unwrap_or(0));
        let at = Instant::from_micros(1_000 * self.at_ms);
        let clock_ms = number("clock").or(now);
        let own_ms = number("own").or(clock_ms).unwrap_or(0);
        Reading { at, clock_ms, latest_ms: clock_ms.unwrap_or(own_ms), own_ms }
    }
}

fn show(ts: Timestamp) -> String {
    format!("{}+{}", ts.physical_ms(), ts.logical())
}

impl Script for OracleScript {
    fn line(&mut self, name: &str, args: &Args) -> String {
        let now = self.reading(args);
        match name {
            "begin" => {
                let (term, mark) = (args.named_number("term", 1), args.named_number("mark", 0));
                self.oracle = Some(Oracle::begin(term, mark, now.at));
                return String::new();
            }
            "median" => {
                let clocks = args.plain.iter().map(|text| text.parse().unwrap()).collect();
                let median = median_ms(clocks, args.named_number("voters", 3) as usize);
                return median.map_or("unknown".into(), |median| median.to_string());
            }
            _ => {}
        }
        let oracle = self.oracle.as_mut().expect("begin first");
        match name {
            "allocate" => match oracle.allocate(now, args.named_number("count", 1) as u32) {
                Some(first) => show(first),
                None => "window too short".into(),
            },
            "wanted" => oracle.wanted(now).map_or("none".into(), |until| until.to_string()),
            "in-use" => oracle.in_use(now).to_string(),
            "waits" => oracle.waits_for_clocks(now).to_string(),
            "ahead" => oracle.ahead_ms(now).map_or("unknown".into(), |ahead| ahead.to_string()),
            "contradicted" => {
                let given_in = args.named("in").map(|text| text.parse().unwrap());
                let seen = Timestamp::pack(args.number(0), args.named_number("logical", 0));
                oracle.is_contradicted_by(seen, given_in).to_string()
            }
            "extended" => {
                oracle.extended(args.number(0));
                String::new()
            }
            _ => panic!("unknown command {name}"),
        }
    }
}
