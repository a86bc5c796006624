//! The driver over a pretended server: stalls, conflicts, lost connections, a server that is too slow.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::schedule::Schedule;
use super::*;
use crate::random::stream;

/// Answers after `service`, and stands still between two points in time.
struct Server {
    service: Duration,
    stall: Option<(Instant, Instant)>,
    attempts: AtomicU64,
    /// Every n-th attempt fails so.
    fails: Option<(u64, Failure)>,
    refuses: bool,
}

impl Server {
    fn new(service: Duration) -> Self {
        Server { service, stall: None, attempts: AtomicU64::new(0), fails: None, refuses: false }
    }
}

impl Work for Server {
    type Session = ();
    type Plan = ();

    async fn open(&self) -> Result<(), Failure> {
        match self.refuses {
            true => Err(Failure::Lost("connection refused".into())),
            false => Ok(()),
        }
    }

    fn draw(&self, _: &mut Random) {}

    fn kind(&self, (): &()) -> &'static str {
        "query"
    }

    async fn run(&self, (): &mut (), (): &()) -> Result<Ending, Failure> {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::time::sleep(self.service).await;
        if let Some((from, to)) = self.stall
            && (from..to).contains(&Instant::now())
        {
            tokio::time::sleep_until(to.into()).await;
        }
        match &self.fails {
            Some((every, failure)) if number.is_multiple_of(*every) => Err(failure.clone()),
            _ => Ok(Ending::Done),
        }
    }

    async fn undo(&self, (): &mut ()) -> Result<(), Failure> {
        Ok(())
    }

    fn pauses(&self, (): &(), _: &mut Random) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }
}

fn open(rate: f64, behind: u64) -> Settings {
    Settings {
        pace: Pace::Open {
            rate,
            arrivals: Arrivals::Fixed,
            most_behind: Duration::from_secs(behind),
        },
        connections: 4,
        warmup: Duration::from_millis(200),
        time: Duration::from_secs(2),
        arrivals_seed: 1,
        seed: 1,
        transaction_timeout: Duration::from_secs(5),
        meter: None,
    }
}

async fn drive_it(server: Server, settings: &Settings) -> Result<Phase, DriveError> {
    drive(Arc::new(server), settings, &CancellationToken::new(), |_| {}).await
}

/// A stall of 500 ms in 2 s touches a quarter of the schedule. Measured from the actual start it would
/// show in four transactions of a thousand, one for each connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_stall_is_charged_to_everything_that_it_delays() {
    let mut server = Server::new(Duration::from_millis(1));
    let begin = Instant::now() + Duration::from_millis(900);
    server.stall = Some((begin, begin + Duration::from_millis(500)));
    let phase = drive_it(server, &open(500.0, 10)).await.unwrap();
    assert!(phase.latency_ms.p95 > 300.0, "{:?}", phase.latency_ms);
    assert!(phase.latency_ms.p99 > 400.0, "{:?}", phase.latency_ms);
    assert_eq!(phase.overrun, None);
    // Nothing that was due is missing: the schedule has 500 a second for 2 s.
    let seen: u64 = phase.kinds.values().map(|kind| kind.transactions).sum();
    assert!((995..=1001).contains(&seen), "{seen}");
}

#[test]
fn what_met_a_hiccup_of_the_machine_is_told_apart() {
    let start = Instant::now() - Duration::from_secs(3);
    let at = |ms| start + Duration::from_millis(ms);
    let run = Run {
        recorder: Mutex::default(),
        spans: Some(Mutex::new(vec![
            [at(0), at(7)],
            [at(70), at(75)],
            [at(95), at(205)],
            [at(340), at(400)],
            [at(360), at(363)],
            [at(900), at(1_300)],
        ])),
        begin: at(0),
        end: at(1_000),
    };
    let meter = Meter::that_saw(vec![[at(100), at(350)], [at(1_200), at(1_250)]]);
    let mut steady = run.steady(&meter);
    let found = steady.finish(Duration::from_secs(1));
    assert_eq!((found.left_out, found.slow), (2, 0.25), "however long they took");
    assert!((found.latency_ms.max - 400.0).abs() < 1.0, "{found:?}");
    steady.join(&run.steady(&meter));
    let both = steady.finish(Duration::from_secs(2));
    assert_eq!((both.left_out, both.slow), (2, 0.25), "its transactions were taken once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_too_slow_ends_the_schedule_and_says_so() {
    // Four connections of 20 ms serve 200 a second.
    let phase = drive_it(Server::new(Duration::from_millis(20)), &open(1_000.0, 1)).await.unwrap();
    let text = phase.overrun.expect("it fell behind");
    assert!(text.contains("did not keep up"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_loop_waits_for_its_answers() {
    let settings = Settings { pace: Pace::Closed, ..open(1.0, 1) };
    let phase = drive_it(Server::new(Duration::from_millis(10)), &settings).await.unwrap();
    // Four connections, 10 ms and a timer's slack: under 400 a second, and fewer where others compute.
    assert!((20.0..=401.0).contains(&phase.tps), "{}", phase.tps);
    assert!(phase.latency_from.contains("not corrected"));
}

/// Transactions that are longer than the measured part start before it or end after it, and are throughput all the same.
#[tokio::test(flavor = "multi_thread")]
async fn long_transactions_are_counted_where_they_end() {
    let settings = Settings {
        pace: Pace::Closed,
        warmup: Duration::from_millis(500),
        time: Duration::from_secs(1),
        ..open(1.0, 1)
    };
    let phase = drive_it(Server::new(Duration::from_millis(1_200)), &settings).await.unwrap();
    assert_eq!(phase.transactions, 4, "each of four connections ends one within the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_repeated_and_counted_and_errors_are_reported_by_number() {
    let mut server = Server::new(Duration::from_millis(1));
    server.fails = Some((4, Failure::Retry("1213".into())));
    let phase = drive_it(server, &open(200.0, 10)).await.unwrap();
    assert_eq!(phase.error_count(), 0);
    assert!((100..=160).contains(&phase.retries["1213"]), "{:?}", phase.retries);

    for failure in [Failure::Error("1062".into()), Failure::Lost("1062".into())] {
        let mut server = Server::new(Duration::from_millis(1));
        server.fails = Some((10, failure));
        let phase = drive_it(server, &open(200.0, 10)).await.unwrap();
        assert!((30..=50).contains(&phase.errors["1062"]), "{:?}", phase.errors);
        assert_eq!(phase.retry_count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hangs_is_an_error_after_its_timeout() {
    let server = Server::new(Duration::from_secs(60));
    let settings = Settings { transaction_timeout: Duration::from_millis(300), ..open(50.0, 60) };
    let phase = drive_it(server, &settings).await.unwrap();
    assert!(phase.errors["timeout"] > 10, "{:?}", phase.errors);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_reported() {
    let mut server = Server::new(Duration::ZERO);
    server.refuses = true;
    let error = drive_it(server, &open(50.0, 60)).await.unwrap_err();
    assert!(matches!(&error, DriveError::Gone(text) if text.contains("refused")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_a_phase_soon() {
    let stop = CancellationToken::new();
    let settings = Settings { time: Duration::from_secs(600), ..open(50.0, 60) };
    let started = Instant::now();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            stop.cancel();
        }
    });
    let outcome =
        drive(Arc::new(Server::new(Duration::from_millis(1))), &settings, &stop, |_| {}).await;
    assert!(matches!(outcome, Err(DriveError::Interrupted)));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn arrivals_have_their_rate_and_shape() {
    let start = Instant::now();
    for (arrivals, spread) in [(Arrivals::Poisson, 0.9..1.1), (Arrivals::Fixed, 0.0..0.001)] {
        let times: Vec<Instant> =
            Schedule::new(start, 1_000.0, arrivals, stream(3, 0)).take(20_000).collect();
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1_000.0).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation =
            (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((0.97..1.03).contains(&mean), "{arrivals:?}: mean {mean}");
        assert!(spread.contains(&deviation), "{arrivals:?}: deviation {deviation}");
    }
    let distinct: BTreeSet<Instant> =
        Schedule::new(start, 1e6, Arrivals::Poisson, stream(3, 0)).take(1_000).collect();
    assert_eq!(distinct.len(), 1_000);
}
