//! Workloads over the MySQL protocol: sysbench-like mixes, TPC-C, and a user's own statements.
//!
//! A transaction is drawn with all its parameters before it runs, so that a retry repeats the same.

pub mod load;
pub mod oltp;
pub mod own;
pub mod tpcc;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Value};

use crate::driver::{Failure, Work};
use crate::latency::Ending;
use crate::random::Random;
use crate::target::Target;

/// The workload that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A sysbench-like mix.
    Mix(oltp::Mix),
    /// TPC-C.
    Tpcc,
    /// Statements from a file.
    File(PathBuf),
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(mix) = oltp::Mix::ALL.iter().find(|mix| mix.name() == text) {
            return Ok(Name::Mix(*mix));
        }
        match text {
            "tpcc" => Ok(Name::Tpcc),
            _ if text.ends_with(".toml") => Ok(Name::File(text.into())),
            _ => Err(format!(
                "{text:?} is no workload: write point-select, single-row, read-only, write-only, read-write, tpcc, \
                 or the name of a .toml file"
            )),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Mix(mix) => f.write_str(mix.name()),
            Name::Tpcc => f.write_str("tpcc"),
            Name::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A statement with its parameters.
pub type Statement = (Arc<str>, Vec<Value>);

/// A transaction with everything drawn.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Statements that do not depend on each other's answers.
    List {
        /// What to count it as.
        kind: &'static str,
        /// Whether BEGIN and COMMIT go around.
        wrapped: bool,
        /// In order.
        statements: Vec<Statement>,
    },
    /// One of TPC-C's.
    Tpcc(tpcc::Plan),
}

/// A workload, ready to draw from.
#[derive(Debug)]
pub enum Workload {
    /// A sysbench-like mix.
    Oltp(oltp::Oltp),
    /// TPC-C.
    Tpcc(tpcc::Tpcc),
    /// A user's own.
    Own(own::Own),
}

/// A workload at a server.
#[derive(Debug)]
pub struct SqlWork {
    /// Where.
    pub target: Target,
    /// What.
    pub workload: Workload,
}

impl Work for SqlWork {
    type Session = Conn;
    type Plan = Plan;

    async fn open(&self) -> Result<Conn, Failure> {
        self.target.connect().await.map_err(|error| match sort(&error) {
            Failure::Retry(text) | Failure::Error(text) | Failure::Lost(text) => {
                Failure::Lost(format!("{}: {text} ({error})", self.target.shown))
            }
        })
    }

    fn draw(&self, random: &mut Random) -> Plan {
        match &self.workload {
            Workload::Oltp(oltp) => oltp.draw(random),
            Workload::Own(own) => own.draw(random),
            Workload::Tpcc(tpcc) => Plan::Tpcc(tpcc.draw(random)),
        }
    }

    fn kind(&self, plan: &Plan) -> &'static str {
        match plan {
            Plan::List { kind, .. } => kind,
            Plan::Tpcc(plan) => plan.kind(),
        }
    }

    async fn run(&self, conn: &mut Conn, plan: &Plan) -> Result<Ending, Failure> {
        let outcome = match (plan, &self.workload) {
            (Plan::List { wrapped, statements, .. }, _) => {
                run_list(conn, *wrapped, statements).await
            }
            (Plan::Tpcc(plan), Workload::Tpcc(tpcc)) => tpcc.run(conn, plan).await,
            (Plan::Tpcc(_), _) => return Err(Failure::Error("not a TPC-C workload".into())),
        };
        outcome.map_err(|error| sort(&error))
    }

    async fn undo(&self, conn: &mut Conn) -> Result<(), Failure> {
        conn.query_drop("ROLLBACK").await.map_err(|error| sort(&error))
    }

    fn pauses(&self, plan: &Plan, random: &mut Random) -> (Duration, Duration) {
        match (plan, &self.workload) {
            (Plan::Tpcc(plan), Workload::Tpcc(tpcc)) => tpcc.pauses(plan, random),
            _ => (Duration::ZERO, Duration::ZERO),
        }
    }
}

async fn run_list(
    conn: &mut Conn,
    wrapped: bool,
    statements: &[Statement],
) -> Result<Ending, Error> {
    if wrapped {
        conn.query_drop("BEGIN").await?;
    }
    for (text, parameters) in statements {
        conn.exec_drop(text.as_ref(), parameters.clone()).await?;
    }
    if wrapped {
        conn.query_drop("COMMIT").await?;
    }
    Ok(Ending::Done)
}

/// What an error means for the attempt.
pub fn sort(error: &Error) -> Failure {
    match error {
        Error::Server(server) => {
            let code = server.code.to_string();
            match server.code {
                // Deadlock or conflict; lock wait timeout.
                1213 | 1205 => Failure::Retry(code),
                _ if server.state == "40001" => Failure::Retry(code),
                // The server closes the connection after these.
                1053 | 1152 | 1158..=1161 | 1184 => Failure::Lost(code),
                _ => Failure::Error(code),
            }
        }
        Error::Other(error) => Failure::Error(format!("unexpected answer: {error}")),
        _ => Failure::Lost("connection".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_read_or_refused() {
        assert_eq!("read-write".parse(), Ok(Name::Mix(oltp::Mix::ReadWrite)));
        assert_eq!("tpcc".parse(), Ok(Name::Tpcc));
        assert_eq!("own.toml".parse(), Ok(Name::File("own.toml".into())));
        for wrong in ["", "tpch", "readwrite", "file"] {
            assert!(wrong.parse::<Name>().unwrap_err().contains("read-write"), "{wrong}");
        }
    }

    #[test]
    fn conflicts_are_worth_another_try_and_other_errors_are_not() {
        let server = |code: u16, state: &str| {
            sort(&Error::Server(mysql_async::ServerError {
                code,
                message: String::new(),
                state: state.to_owned(),
            }))
        };
        assert_eq!(server(1213, "40001"), Failure::Retry("1213".into()));
        assert_eq!(server(1205, "HY000"), Failure::Retry("1205".into()));
        assert_eq!(server(9999, "40001"), Failure::Retry("9999".into()));
        assert_eq!(server(1062, "23000"), Failure::Error("1062".into()));
        assert_eq!(server(1053, "08S01"), Failure::Lost("1053".into()));
    }
}
