//! Drives a workload: connections, arrivals, retries, and the clock that latency is measured by.
//!
//! In an open loop a transaction's latency counts from the time that it was *meant* to start: a
//! server that stalls is charged for everything that had to wait, and nothing is left out.

mod schedule;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::Rng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use schedule::Arrivals;
use schedule::Queue;

use crate::hiccups::{self, Meter, Span};
use crate::latency::{Ending, Phase, Recorder, Second, SteadyRecorder};
use crate::random::{Random, stream};

/// Attempts of one transaction.
const MOST_ATTEMPTS: u32 = 50;
/// How long a server may be gone before the phase is given up.
const GONE: Duration = Duration::from_secs(15);
/// How long after its end a phase waits for what it has started.
const DRAIN: Duration = Duration::from_secs(30);

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A conflict or a timed-out lock: the same again may succeed.
    Retry(String),
    /// An error that the same transaction would meet again.
    Error(String),
    /// The connection is of no more use.
    Lost(String),
}

/// Something to run again and again over sessions.
pub trait Work: Send + Sync + 'static {
    /// A connection.
    type Session: Send;
    /// A transaction with its parameters.
    type Plan: Send + Sync;

    /// Opens a session.
    fn open(&self) -> impl Future<Output = Result<Self::Session, Failure>> + Send;
    /// Draws a transaction.
    fn draw(&self, random: &mut Random) -> Self::Plan;
    /// What kind it is.
    fn kind(&self, plan: &Self::Plan) -> &'static str;
    /// Runs it once.
    fn run(
        &self,
        session: &mut Self::Session,
        plan: &Self::Plan,
    ) -> impl Future<Output = Result<Ending, Failure>> + Send;
    /// Leaves no transaction open after a failed attempt.
    fn undo(&self, session: &mut Self::Session)
    -> impl Future<Output = Result<(), Failure>> + Send;
    /// Pauses before and after a transaction, where people would think.
    fn pauses(&self, plan: &Self::Plan, random: &mut Random) -> (Duration, Duration);
}

/// When transactions start.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Each connection starts the next when it has the answer.
    Closed,
    /// On a schedule, whatever the server does.
    Open {
        /// Arrivals per second.
        rate: f64,
        /// Their spacing.
        arrivals: Arrivals,
        /// How far the server may fall behind before the phase is given up.
        most_behind: Duration,
    },
}

/// How to drive.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When transactions start.
    pub pace: Pace,
    /// Connections.
    pub connections: usize,
    /// Load before the measured part.
    pub warmup: Duration,
    /// The measured part.
    pub time: Duration,
    /// Of when transactions arrive.
    pub arrivals_seed: u64,
    /// Of what they do. Who drives the same tables twice gives another one: an UPDATE to what is there already writes nothing.
    pub seed: u64,
    /// A transaction that takes longer is an error, and its connection is closed.
    pub transaction_timeout: Duration,
    /// Tells apart what met a hiccup of the machine, if that is watched.
    pub meter: Option<Arc<Meter>>,
}

/// A phase without measurements.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// No session at the start, or none for a while.
    #[error("the server is gone: {0}; start it again, or look into its log")]
    Gone(String),
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// No thread for the schedule.
    #[error("cannot start the schedule's thread: {0}")]
    Thread(std::io::Error),
}

/// A run's clock and what it has seen so far.
pub struct Run {
    recorder: Mutex<Recorder>,
    /// When transactions that ended well were meant to start and did end, where the machine is watched.
    spans: Option<Mutex<Vec<Span>>>,
    /// When the measured part begins and ends.
    begin: Instant,
    end: Instant,
}

impl Run {
    /// The last whole second.
    pub fn last_second(&self) -> Option<Second> {
        self.recorder.lock().last_second()
    }

    /// What met no hiccup of the machine.
    fn steady(&self, meter: &Meter) -> SteadyRecorder {
        let mut steady = SteadyRecorder::default();
        let slow = meter.between(self.begin, Instant::now());
        for [from, to] in self.spans.iter().flat_map(|spans| std::mem::take(&mut *spans.lock())) {
            steady.record(to - from, hiccups::meets(&slow, from));
        }
        meter.between(self.begin, self.end).iter().for_each(|[from, to]| steady.slow(*to - *from));
        steady
    }

    fn counts(&self, intended: Instant) -> bool {
        intended >= self.begin && intended < self.end
    }

    /// `intended` is when the transaction was meant to start.
    fn record(&self, kind: &'static str, intended: Instant, ending: Ending) {
        let now = Instant::now();
        if !self.counts(intended) {
            // Its latency is the warm-up's, but its end is part of the measured throughput.
            let ended = matches!(ending, Ending::Done | Ending::RolledBack);
            if ended && (self.begin..self.end).contains(&now) {
                self.recorder.lock().completed();
            }
            return;
        }
        if let (Some(spans), Ending::Done | Ending::RolledBack) = (&self.spans, &ending) {
            spans.lock().push([intended, now]);
        }
        let since = now.saturating_duration_since(self.begin);
        self.recorder.lock().record(kind, now - intended, since, now < self.end, ending);
    }
}

/// What a phase has recorded; parts of one phase that was interrupted can be joined.
#[derive(Debug)]
pub struct Recorded {
    recorder: Recorder,
    steady: Option<SteadyRecorder>,
    time: Duration,
    connections: usize,
    rate: Option<f64>,
    overrun: Option<String>,
}

impl Recorded {
    /// Adds a later part of the same phase.
    pub fn join(&mut self, later: Recorded) {
        self.recorder.join(later.recorder, self.time.as_secs());
        if let (Some(steady), Some(later)) = (&mut self.steady, &later.steady) {
            steady.join(later);
        }
        self.time += later.time;
        self.overrun = self.overrun.take().or(later.overrun);
    }

    /// The results.
    pub fn finish(self) -> Phase {
        let mut phase = self.recorder.finish(self.time);
        phase.steady = self.steady.map(|steady| steady.finish(self.time));
        phase.connections = self.connections;
        phase.overrun = self.overrun;
        phase.rate = self.rate;
        (phase.pacing, phase.latency_from) = match self.rate {
            None => {
                ("closed".into(), "actual start, not corrected for coordinated omission".into())
            }
            Some(_) => ("open".into(), "intended start".into()),
        };
        phase
    }
}

/// Runs one phase. `watch` is called each second of it.
pub async fn drive<W: Work>(
    work: Arc<W>,
    settings: &Settings,
    stop: &CancellationToken,
    watch: impl FnMut(&Run),
) -> Result<Phase, DriveError> {
    Ok(record(work, settings, stop, watch).await?.finish())
}

/// Runs one phase, or a part of it. `watch` is called each second.
pub async fn record<W: Work>(
    work: Arc<W>,
    settings: &Settings,
    stop: &CancellationToken,
    mut watch: impl FnMut(&Run),
) -> Result<Recorded, DriveError> {
    let mut sessions = Vec::with_capacity(settings.connections);
    for _ in 0..settings.connections {
        sessions.push(work.open().await.map_err(|failure| DriveError::Gone(text(&failure)))?);
    }
    let start = Instant::now();
    let begin = start + settings.warmup;
    let spans = settings.meter.as_ref().map(|_| Mutex::default());
    let end = begin + settings.time;
    let run = Arc::new(Run { recorder: Mutex::default(), spans, begin, end });
    // Ended by an interrupt from outside or by a failure within.
    let halt = stop.child_token();
    let queue = match settings.pace {
        Pace::Closed => None,
        Pace::Open { rate, arrivals, most_behind } => {
            let random = stream(settings.arrivals_seed, u64::MAX);
            let most = (rate * most_behind.as_secs_f64()).ceil().max(1.0) as usize;
            let queue = schedule::start(start, run.end, rate, arrivals, most, random, halt.clone());
            Some(Arc::new(queue.map_err(DriveError::Thread)?))
        }
    };
    let mut workers = JoinSet::new();
    for (number, session) in sessions.into_iter().enumerate() {
        let worker = Worker {
            work: work.clone(),
            run: run.clone(),
            queue: queue.clone(),
            halt: halt.clone(),
            timeout: settings.transaction_timeout,
            random: stream(settings.seed, number as u64),
        };
        workers.spawn(worker.work(session));
    }
    let outcome = wait(&mut workers, &run, &mut watch).await;
    halt.cancel();
    workers.shutdown().await;
    if stop.is_cancelled() {
        return Err(DriveError::Interrupted);
    }
    outcome?;
    let mut overrun = None;
    if let Some(queue) = &queue {
        // What never got its turn waited at least until now.
        let left = queue.abandon().await;
        for intended in &left {
            run.record("not started", *intended, Ending::Done);
        }
        if !left.is_empty() || queue.overran() {
            overrun = Some(format!(
                "the server did not keep up with the rate: {} transactions were due and not started, or more than the \
                 bounded backlog holds; ask for a lower rate",
                left.len()
            ));
        }
    }
    let recorder = std::mem::take(&mut *run.recorder.lock());
    let rate = match settings.pace {
        Pace::Closed => None,
        Pace::Open { rate, .. } => Some(rate),
    };
    let (time, connections) = (settings.time, settings.connections);
    let steady = settings.meter.as_ref().map(|meter| run.steady(meter));
    Ok(Recorded { recorder, steady, time, connections, rate, overrun })
}

/// Until every worker has ended, or the phase has for too long.
async fn wait(
    workers: &mut JoinSet<Result<(), DriveError>>,
    run: &Run,
    watch: &mut impl FnMut(&Run),
) -> Result<(), DriveError> {
    let deadline = tokio::time::sleep_until((run.end + DRAIN).into());
    tokio::pin!(deadline);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            ended = workers.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(outcome)) => outcome?,
                Some(Err(error)) => return Err(DriveError::Gone(format!("a connection's task ended: {error}"))),
            },
            _ = tick.tick() => watch(run),
            () = &mut deadline => return Ok(()),
        }
    }
}

fn text(failure: &Failure) -> String {
    match failure {
        Failure::Retry(text) | Failure::Error(text) | Failure::Lost(text) => text.clone(),
    }
}

struct Worker<W: Work> {
    work: Arc<W>,
    run: Arc<Run>,
    queue: Option<Arc<Queue>>,
    halt: CancellationToken,
    timeout: Duration,
    random: Random,
}

impl<W: Work> Worker<W> {
    async fn work(mut self, session: W::Session) -> Result<(), DriveError> {
        let halt = self.halt.clone();
        tokio::select! {
            outcome = self.turns(session) => outcome,
            () = halt.cancelled() => Ok(()),
        }
    }

    async fn turns(&mut self, session: W::Session) -> Result<(), DriveError> {
        let mut session = Some(session);
        loop {
            let plan = self.work.draw(&mut self.random);
            let (before, after) = self.work.pauses(&plan, &mut self.random);
            let intended = match &self.queue {
                Some(queue) => match queue.next().await {
                    Some(intended) => intended,
                    None => return Ok(()),
                },
                None => {
                    pause(before).await;
                    let now = Instant::now();
                    if now >= self.run.end {
                        return Ok(());
                    }
                    now
                }
            };
            let ending = self.transaction(&mut session, &plan, intended).await;
            self.run.record(self.work.kind(&plan), intended, ending);
            if session.is_none() {
                session = Some(self.reopen().await?);
            }
            if self.queue.is_none() {
                pause(after).await;
            }
        }
    }

    /// Runs a transaction until it ends; a lost session is taken away.
    async fn transaction(
        &mut self,
        slot: &mut Option<W::Session>,
        plan: &W::Plan,
        intended: Instant,
    ) -> Ending {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let Some(session) = slot.as_mut() else { return Ending::Failed("no session".into()) };
            let outcome =
                match tokio::time::timeout(self.timeout, self.work.run(session, plan)).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(Failure::Lost("timeout".into())),
                };
            let failure = match outcome {
                Ok(ending) => return ending,
                Err(failure) => failure,
            };
            if let Failure::Lost(code) = failure {
                *slot = None;
                return Ending::Failed(code);
            }
            let undone = tokio::time::timeout(self.timeout, self.work.undo(session)).await;
            if !matches!(undone, Ok(Ok(()))) {
                *slot = None;
                return Ending::Failed("connection".into());
            }
            match failure {
                Failure::Retry(code) if attempt < MOST_ATTEMPTS => {
                    if self.run.counts(intended) {
                        self.run.recorder.lock().retried(&code);
                    }
                    // Two that met once should not meet again at once.
                    let most = 500 * u64::from(attempt.min(20));
                    pause(Duration::from_micros(self.random.random_range(0..most))).await;
                }
                Failure::Retry(code) => {
                    return Ending::Failed(format!("{code} after {attempt} attempts"));
                }
                Failure::Error(code) | Failure::Lost(code) => return Ending::Failed(code),
            }
        }
    }

    async fn reopen(&mut self) -> Result<W::Session, DriveError> {
        let deadline = Instant::now() + GONE;
        loop {
            match self.work.open().await {
                Ok(session) => return Ok(session),
                Err(failure) if Instant::now() > deadline => {
                    return Err(DriveError::Gone(text(&failure)));
                }
                Err(_) => pause(Duration::from_millis(200)).await,
            }
        }
    }
}

async fn pause(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}
