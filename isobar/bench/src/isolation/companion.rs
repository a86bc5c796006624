//! What runs beside the online load: a batch by SQL, a batch by Spark, or the control, as a process of its own, which can be
//! held and let go on.
//!
//! It reports in lines of JSON, ends when its standard input does, and never outlives this process: the kernel lets one that
//! is held go on, with a hang-up, when this process is gone.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Notify;

use crate::batch::Event;
use crate::report::BatchResult;
use crate::system;

/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(20);
/// Lines of its complaints that are kept.
const COMPLAINTS: usize = 20;

/// A running process.
pub struct Companion {
    child: Child,
    /// Kept apart: waiting for a child closes its standard input.
    input: Option<ChildStdin>,
    pid: u32,
    received: Arc<Received>,
    /// When it was held, in milliseconds since 1970; the last one lasts.
    held: Vec<[u64; 2]>,
}

#[derive(Default)]
struct Received {
    events: Mutex<Vec<Event>>,
    complaints: Mutex<Vec<String>>,
    news: Notify,
}

impl Companion {
    /// Starts a command.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C reaches this program alone, which then stops what it started.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.as_std().get_program()))?;
        let pid = child.id().context("the batch's process ended at once")?;
        let input = child.stdin.take();
        let received = Arc::new(Received::default());
        if let Some(out) = child.stdout.take() {
            let received = received.clone();
            tokio::spawn(async move {
                let mut lines = BufReader::new(out).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    // Other output is none of ours.
                    if let Ok(event) = serde_json::from_str(&line) {
                        received.events.lock().push(event);
                        received.news.notify_one();
                    }
                }
                received.news.notify_one();
            });
        }
        if let Some(complaints) = child.stderr.take() {
            let received = received.clone();
            tokio::spawn(async move {
                let mut lines = BufReader::new(complaints).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let mut kept = received.complaints.lock();
                    kept.push(line);
                    let most = kept.len().saturating_sub(COMPLAINTS);
                    kept.drain(..most);
                }
            });
        }
        Ok(Companion { child, input, pid, received, held: Vec::new() })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Until it is warm.
    pub async fn ready(&mut self, limit: Duration) -> Result<()> {
        let received = self.received.clone();
        let wait = async {
            loop {
                if received.events.lock().contains(&Event::Ready) {
                    return Ok(());
                }
                tokio::select! {
                    () = received.news.notified() => {}
                    status = self.child.wait() => bail!("it ended before it was ready: {}", status?),
                }
            }
        };
        let outcome = match tokio::time::timeout(limit, wait).await {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("it was not ready within {} s", limit.as_secs())),
        };
        outcome.with_context(|| {
            format!("the batch beside the online load failed\n{}", self.complaints())
        })
    }

    /// Stops it where it is.
    pub fn hold(&mut self) {
        system::hold(self.pid, true);
        self.held.push([now_ms(), u64::MAX]);
    }

    /// Lets it go on.
    pub fn go_on(&mut self) {
        if let Some(held) = self.held.last_mut().filter(|held| held[1] == u64::MAX) {
            held[1] = now_ms();
        }
        system::hold(self.pid, false);
    }

    /// What it said on standard error and of failed queries, at the end.
    fn complaints(&self) -> String {
        let mut lines = self.received.complaints.lock().clone();
        let events = self.received.events.lock();
        lines.extend(events.iter().filter_map(|event| match event {
            Event::Error { text } => Some(text.clone()),
            _ => None,
        }));
        lines.join("\n")
    }

    /// Stops it, and returns what it did.
    pub async fn stop(mut self) -> Done {
        self.go_on();
        drop(self.input.take());
        if tokio::time::timeout(STOP, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        summarize(&self.received.events.lock(), &self.held)
    }
}

/// What a process did.
#[derive(Default)]
pub struct Done {
    /// For the report.
    pub result: BatchResult,
    /// The first failure.
    pub first_error: Option<String>,
    /// Bytes of the rows that came to the client, and how many these rows were.
    came: (u64, u64),
    /// Rows that were read in all, and for how long.
    read: (u64, f64),
}

impl Done {
    /// Bytes per second of the rows that were read, if any came to be weighed.
    pub fn traffic(&self) -> Option<f64> {
        let width = (self.came.1 > 0).then(|| self.came.0 as f64 / self.came.1 as f64)?;
        Some(width * self.read.0 as f64 / self.read.1.max(1e-9))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Seconds that a query took, without those in which it was held.
fn spent(seconds: f64, end_ms: u64, held: &[[u64; 2]]) -> f64 {
    let begin_ms = end_ms.saturating_sub((seconds * 1e3) as u64);
    let within = |[from, to]: &[u64; 2]| (*to).min(end_ms).saturating_sub((*from).max(begin_ms));
    let held: u64 = held.iter().map(within).sum();
    (seconds - held as f64 / 1e3).max(0.0)
}

/// Rows per second of each kind, over the time that its queries took and it was not held.
fn summarize(events: &[Event], held: &[[u64; 2]]) -> Done {
    let mut done = Done::default();
    let mut result = BatchResult::default();
    let mut sums = std::collections::BTreeMap::<&str, (u64, f64)>::new();
    for event in events {
        match event {
            Event::Ready => {}
            Event::Error { text } => {
                result.errors += 1;
                result.first_error.get_or_insert_with(|| text.clone());
            }
            Event::Query { kind, rows, seconds, bytes, end_ms } => {
                let seconds = spent(*seconds, *end_ms, held);
                if *bytes > 0 {
                    done.came = (done.came.0 + bytes, done.came.1 + rows);
                }
                done.read = (done.read.0 + rows, done.read.1 + seconds);
                result.queries += 1;
                let sum = sums.entry(kind).or_default();
                *sum = (sum.0 + rows, sum.1 + seconds);
            }
        }
    }
    let spent = done.read.1;
    result.queries_per_second = if spent > 0.0 { result.queries as f64 / spent } else { 0.0 };
    for (kind, (rows, seconds)) in sums {
        result.rows_per_second.insert(kind.to_owned(), rows as f64 / seconds.max(1e-9));
    }
    done.first_error = result.first_error.clone();
    done.result = result;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Companion {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Companion::start(command).unwrap()
    }

    #[tokio::test]
    async fn it_reports_and_ends_with_its_input() {
        let query = r#"{"event":"query","kind":"scan","rows":50,"seconds":0.5,"end_ms":1}"#;
        let script = format!(
            "echo noise; echo '{{\"event\":\"ready\"}}'; echo '{query}'; echo '{query}'; cat"
        );
        let mut companion = shell(&script);
        companion.ready(Duration::from_secs(10)).await.unwrap();
        let pid = companion.pid();
        let result = companion.stop().await.result;
        assert_eq!((result.queries, result.rows_per_second["scan"]), (2, 100.0));
        assert_eq!(result.queries_per_second, 2.0);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it is gone");
    }

    /// The state that the kernel shows: T for one that is held.
    fn state(pid: u32) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().next().map(str::to_owned)
    }

    async fn until(pid: u32, held: bool) {
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while (state(pid).as_deref() == Some("T")) != held {
            assert!(std::time::Instant::now() < end, "held: {held}");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_that_is_held_goes_on_and_ends() {
        let mut companion = shell("echo '{\"event\":\"ready\"}'; while :; do :; done");
        companion.ready(Duration::from_secs(10)).await.unwrap();
        let pid = companion.pid();
        companion.hold();
        until(pid, true).await;
        companion.go_on();
        until(pid, false).await;
        companion.hold();
        until(pid, true).await;
        drop(companion);
        // Without a child: a shell that waits for one to begin is not seen to be held.
        let mut companion = shell("echo '{\"event\":\"ready\"}'; read end");
        companion.ready(Duration::from_secs(10)).await.unwrap();
        let pid = companion.pid();
        companion.hold();
        until(pid, true).await;
        companion.stop().await;
        assert_eq!(state(pid), None, "it has ended though it was held");
    }

    #[test]
    fn queries_are_not_charged_for_being_held() {
        assert_eq!(spent(2.0, 10_000, &[]), 2.0);
        assert_eq!(spent(2.0, 10_000, &[[0, 8_500], [9_000, 9_250], [9_900, u64::MAX]]), 1.15);
        assert_eq!(spent(2.0, 10_000, &[[0, 7_000], [11_000, u64::MAX]]), 2.0);
    }

    #[tokio::test]
    async fn one_that_ends_or_says_nothing_is_reported() {
        let mut companion = shell("echo 'no such table' >&2; exit 3");
        let error = format!("{:#}", companion.ready(Duration::from_secs(10)).await.unwrap_err());
        assert!(error.contains("exit status: 3"), "{error}");
        let mut companion = shell("exec sleep 60");
        let error = format!("{:#}", companion.ready(Duration::from_millis(200)).await.unwrap_err());
        assert!(error.contains("not ready"), "{error}");
    }
}
