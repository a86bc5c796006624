//! Scripts of one leader's timestamps.

use types::Timestamp;

use super::scripts::{Args, Script, run_all};
use crate::oracle::Oracle;

#[test]
fn oracle_scripts() {
    run_all::<OracleScript>("oracle");
}

#[derive(Default)]
struct OracleScript {
    oracle: Option<Oracle>,
}

fn show(ts: Timestamp) -> String {
    format!("{}+{}", ts.physical_ms(), ts.logical())
}

impl Script for OracleScript {
    fn line(&mut self, name: &str, args: &Args) -> String {
        if name == "begin" {
            self.oracle =
                Some(Oracle::begin(args.named_number("term", 1), args.named_number("mark", 0)));
            return String::new();
        }
        let oracle = self.oracle.as_mut().expect("begin first");
        let now = args.named_number("now", 0);
        match name {
            "allocate" => match oracle.allocate(now, args.named_number("count", 1) as u32) {
                Some(first) => show(first),
                None => "window too short".into(),
            },
            "wanted" => oracle.wanted(now).map_or("none".into(), |until| until.to_string()),
            "in-use" => oracle.in_use(now).to_string(),
            "extended" => {
                oracle.extended(args.number(0));
                String::new()
            }
            _ => panic!("unknown command {name}"),
        }
    }
}
