//! `isobar bench batch`: scans and aggregates, one after the other, on rows or on columns.
//!
//! It prints each query as a line of JSON, the same lines that a Spark job prints for the proof of isolation.

use std::io::Write as _;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::cpus::Cpus;
use crate::online::seconds;
use crate::target::Target;

/// How long one query may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(600);
/// Failures in a row after which there is no point.
const MOST_FAILURES: u32 = 20;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The server's choice.
    Any,
    /// The row store.
    Rows,
    /// Columnar replicas.
    Columns,
}

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rows are streamed to the client and counted.
    Scan,
    /// Few rows come back; the last column of each counts the rows it was made of.
    Aggregate,
}

impl Kind {
    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Scan => "scan",
            Kind::Aggregate => "aggregate",
        }
    }
}

/// A query of the batch.
#[derive(Clone, Debug)]
pub struct Query {
    /// What it is for.
    pub kind: Kind,
    /// Its text.
    pub text: String,
}

impl FromStr for Query {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, query) = text.split_once(':').unwrap_or_default();
        let kind = match kind.trim() {
            "scan" => Kind::Scan,
            "aggregate" => Kind::Aggregate,
            _ => {
                return Err(format!(
                    "{text:?} is no query: write scan:SELECT … or aggregate:SELECT …, COUNT(*)"
                ));
            }
        };
        Ok(Query { kind, text: query.trim().to_owned() })
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.text)
    }
}

/// A line that a batch job prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// It is warm.
    Ready,
    /// A query has ended.
    Query {
        /// `scan` or `aggregate`.
        kind: String,
        /// Rows read.
        rows: u64,
        /// Bytes of their values, where they came to the client.
        #[serde(default)]
        bytes: u64,
        /// How long it took.
        seconds: f64,
        /// When it ended, in milliseconds since 1970.
        end_ms: u64,
    },
    /// A query has failed.
    Error {
        /// Why.
        text: String,
    },
}

/// Scans and aggregates, one after the other, on rows or on columns.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The server and database
    #[arg(long, default_value = "mysql://root@127.0.0.1:4000/bench", value_name = "URL")]
    target: String,
    /// Who must answer
    #[arg(long, value_enum, default_value = "any")]
    engine: Engine,
    /// scan:SELECT …, or aggregate:SELECT …, COUNT(*); may be given several times
    #[arg(long = "query", required = true, value_name = "KIND:SQL")]
    queries: Vec<Query>,
    /// Seconds to go on
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    time: f64,
    /// Run on these processors only
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_eof: bool,
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    if let Some(cpus) = &args.cpus {
        cpus.pin(std::process::id())?;
    }
    let stop = crate::interrupt::token()?;
    if args.until_eof {
        stop_at_eof(stop.clone());
    }
    let target = Target::parse(&args.target)?;
    let end = Instant::now() + seconds("--time", args.time)?;
    tokio::select! {
        outcome = queries(&target, args.engine, &args.queries, end) => outcome?,
        () = stop.cancelled() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Cancels when standard input ends: whoever started this process is gone, or wants it to stop.
pub fn stop_at_eof(stop: CancellationToken) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.cancel();
    });
}

/// Prints an event; where nobody listens any more, that is for standard input to notice.
pub fn emit(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}");
        let _ = out.flush();
    }
}

async fn queries(target: &Target, engine: Engine, queries: &[Query], end: Instant) -> Result<()> {
    let mut conn = connect(target, engine).await?;
    let (mut failures, mut ready) = (0, false);
    for query in queries.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        let started = Instant::now();
        let outcome = tokio::time::timeout(QUERY_TIMEOUT, run_query(&mut conn, query)).await;
        let error = match outcome {
            Ok(Ok((rows, bytes))) => {
                failures = 0;
                if !ready {
                    ready = true;
                    emit(&Event::Ready);
                }
                let end_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                emit(&Event::Query {
                    kind: query.kind.name().to_owned(),
                    rows,
                    bytes,
                    seconds: started.elapsed().as_secs_f64(),
                    end_ms: u64::try_from(end_ms.as_millis()).unwrap_or(0),
                });
                continue;
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "the query took longer than ten minutes".to_owned(),
        };
        emit(&Event::Error { text: error.clone() });
        failures += 1;
        if failures >= MOST_FAILURES {
            bail!("{MOST_FAILURES} queries in a row have failed, the last with: {error}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        if let Ok(again) = connect(target, engine).await {
            conn = again;
        }
    }
    Ok(())
}

/// A connection whose queries only this engine answers.
pub async fn connect(target: &Target, engine: Engine) -> Result<Conn> {
    let mut conn =
        target.connect().await.with_context(|| format!("cannot connect to {}", target.shown))?;
    let engine = match engine {
        Engine::Any => return Ok(conn),
        Engine::Rows => "tikv",
        Engine::Columns => "tiflash",
    };
    conn.query_drop(format!("SET tidb_isolation_read_engines = '{engine}'"))
        .await
        .context("the server does not let a session choose rows or columns: use --engine any")?;
    Ok(conn)
}

/// Rows read, and bytes that came.
async fn run_query(conn: &mut Conn, query: &Query) -> Result<(u64, u64)> {
    let mut answer = conn.query_iter(query.text.as_str()).await?;
    let (mut rows, mut bytes) = (0, 0);
    while let Some(row) = answer.next().await? {
        match query.kind {
            Kind::Scan => {
                rows += 1;
                bytes += width(&row);
            }
            Kind::Aggregate => {
                let last = row.len().saturating_sub(1);
                let count = row.get_opt::<u64, _>(last).and_then(Result::ok);
                rows += count.context("the last column of an aggregate must be COUNT(*)")?;
            }
        }
    }
    Ok((rows, bytes))
}

fn width(row: &Row) -> u64 {
    let cells = (0..row.len()).map(|at| match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => bytes.len() as u64,
        _ => 8,
    });
    cells.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_events_are_read_or_refused() {
        let query: Query = "aggregate: SELECT a, COUNT(*) FROM t".parse().unwrap();
        assert_eq!(
            (query.kind, query.text.as_str()),
            (Kind::Aggregate, "SELECT a, COUNT(*) FROM t")
        );
        assert_eq!(query.to_string().parse::<Query>().unwrap().text, query.text);
        assert!("SELECT 1".parse::<Query>().is_err() && "sum:SELECT 1".parse::<Query>().is_err());
        // As the Spark script prints it.
        let line = r#"{"event": "query", "kind": "scan", "rows": 7, "seconds": 0.5, "end_ms": 12}"#;
        let event: Event = serde_json::from_str(line).unwrap();
        assert!(matches!(event, Event::Query { rows: 7, bytes: 0, .. }));
        assert_eq!(serde_json::from_str::<Event>(r#"{"event":"ready"}"#).unwrap(), Event::Ready);
    }
}
