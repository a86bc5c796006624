//! The peers (DuckDB, DataFusion, Spark), as a helper process that is asked by lines of JSON.
//!
//! A peer that is not here is an answer, not a failure. It must not outlive this process.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long one request may take: at a large scale, loading is the longest.
const LIMIT: Duration = Duration::from_secs(1_800);
/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// The helper.
pub struct Peers {
    child: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What became of opening a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is there; its name and version.
    Here(String),
    /// It is not, and why.
    Absent(String),
}

/// A query that a peer has answered.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Answered {
    /// How long it took, with fetching its rows.
    pub seconds: f64,
    /// Whose answer it was compared with, if with any.
    #[serde(default)]
    pub against: Option<String>,
    /// How it differs.
    #[serde(default)]
    pub differences: Vec<String>,
    /// What a scan has seen: rows, sums, and largest values.
    #[serde(default)]
    pub seen: Vec<String>,
}

impl Peers {
    /// Starts the helper by its command line.
    pub fn start(command_line: &str) -> Result<Self> {
        let mut words = command_line.split_whitespace();
        let program = words.next().context("the command of the peers is empty")?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let input = child.stdin.take().context("the peers' helper has no standard input")?;
        let output = child.stdout.take().context("the peers' helper has no standard output")?;
        Ok(Peers { child, input, answers: BufReader::new(output).lines() })
    }

    /// Opens a reader; `more` is what its kind needs to know.
    pub async fn open(&mut self, reader: &str, kind: &str, more: &Value) -> Result<Opened> {
        let mut request = more.clone();
        for (name, value) in [("do", "open"), ("reader", reader), ("kind", kind)] {
            if let Some(fields) = request.as_object_mut() {
                fields.insert(name.to_owned(), value.into());
            }
        }
        let answer = self.send(&request).await?;
        let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        match (text("absent"), text("error"), text("version")) {
            (Some(absent), ..) => Ok(Opened::Absent(absent)),
            (_, Some(error), _) => Ok(Opened::Absent(format!("it could not be opened: {error}"))),
            (.., Some(version)) => Ok(Opened::Here(version)),
            _ => bail!("the peers' helper gave no answer to opening {reader}"),
        }
    }

    /// Runs a query of TPC-H.
    pub async fn query(
        &mut self,
        reader: &str,
        (number, scale): (usize, f64),
        check: bool,
    ) -> Result<Answered> {
        let request = json!({"do": "query", "reader": reader, "number": number, "scale": scale, "check": check});
        self.answer(reader, &request).await
    }

    /// Has an answer of ours compared; `types` say how its texts are read.
    pub async fn check(
        &mut self,
        reader: &str,
        number: usize,
        types: &[&str],
        rows: &[Vec<Option<String>>],
    ) -> Result<Answered> {
        let request = json!({"do": "check", "reader": reader, "number": number, "types": types, "rows": rows});
        self.answer(reader, &request).await
    }

    /// Has a reader read the whole of `lineitem`.
    pub async fn scan(&mut self, reader: &str) -> Result<Answered> {
        self.answer(reader, &json!({"do": "scan", "reader": reader})).await
    }

    async fn answer(&mut self, reader: &str, request: &Value) -> Result<Answered> {
        let answer = self.send(request).await?;
        if let Some(error) = answer.get("error").and_then(Value::as_str) {
            bail!("{reader} failed: {error}");
        }
        serde_json::from_value(answer).with_context(|| format!("an answer about {reader}"))
    }

    async fn send(&mut self, request: &Value) -> Result<Value> {
        let exchange = async {
            self.input.write_all(format!("{request}\n").as_bytes()).await?;
            self.input.flush().await?;
            self.answers.next_line().await
        };
        let line = match tokio::time::timeout(LIMIT, exchange).await {
            Ok(line) => line.context("the peers' helper is gone")?,
            Err(_) => bail!("a peer did not answer within {} s", LIMIT.as_secs()),
        };
        match line {
            Some(line) => serde_json::from_str(&line).context("the peers' helper said no JSON"),
            None => bail!("the peers' helper has ended: {}", self.child.wait().await?),
        }
    }

    /// Ends it.
    pub async fn stop(mut self) {
        drop(self.input);
        if tokio::time::timeout(STOP, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A helper that gives this answer to everything.
    async fn answered(answer: &str) -> Result<Answered> {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("helper.sh");
        std::fs::write(&script, format!("while read line; do echo '{answer}'; done")).unwrap();
        let mut peers = Peers::start(&format!("sh {}", script.display())).unwrap();
        let answered = peers.query("duckdb", (1, 0.01), true).await;
        peers.stop().await;
        answered
    }

    #[tokio::test]
    async fn answers_differences_and_failures_are_distinguished() {
        let fine =
            answered(r#"{"seconds": 0.5, "against": "duckdb", "differences": ["1, not 2"]}"#);
        let fine = fine.await.unwrap();
        assert_eq!((fine.seconds, fine.differences.len()), (0.5, 1));
        let failed = answered(r#"{"error": "no such table"}"#).await.unwrap_err();
        assert!(failed.to_string().contains("no such table"), "{failed:#}");
        assert!(answered("noise").await.is_err());
        let mut gone = Peers::start("true").unwrap();
        assert!(gone.scan("duckdb").await.is_err());
    }

    #[tokio::test]
    async fn a_peer_that_is_not_here_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("helper.sh");
        std::fs::write(&script, r#"while read line; do echo '{"absent": "pip install it"}'; done"#)
            .unwrap();
        let mut peers = Peers::start(&format!("sh {}", script.display())).unwrap();
        let opened = peers.open("duckdb", "duckdb", &json!({"threads": 2})).await.unwrap();
        assert_eq!(opened, Opened::Absent("pip install it".into()));
        peers.stop().await;
    }
}
