//! Arrivals of an open loop: a thread that knows when each transaction is due, and a bounded queue of them.
//!
//! It must never wait for the server. A thread of its own sleeps to a twentieth of a millisecond, where
//! the runtime's timers would be late by a whole one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rand::Rng;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio_util::sync::CancellationToken;

use crate::random::Random;

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// Independent of each other, as many users are (exponential gaps).
    Poisson,
    /// Evenly.
    Fixed,
}

/// The longest sleep, so that a stop is noticed.
const NAP: Duration = Duration::from_millis(100);

/// Transactions that are due.
pub struct Queue {
    due: tokio::sync::Mutex<Receiver<Instant>>,
    overran: Arc<AtomicBool>,
}

impl Queue {
    /// When the next transaction was meant to start; `None` when there will be no more.
    pub async fn next(&self) -> Option<Instant> {
        self.due.lock().await.recv().await
    }

    /// Whether more was due than the queue holds.
    pub fn overran(&self) -> bool {
        self.overran.load(Ordering::Acquire)
    }

    /// What was due and has not started; nothing more comes.
    pub async fn abandon(&self) -> Vec<Instant> {
        let mut due = self.due.lock().await;
        due.close();
        let mut left = Vec::new();
        while let Some(intended) = due.recv().await {
            left.push(intended);
        }
        left
    }
}

/// The times at which transactions are due.
pub struct Schedule {
    next: Instant,
    gap: f64,
    arrivals: Arrivals,
    random: Random,
}

impl Schedule {
    /// From `start` on, so many a second.
    pub fn new(start: Instant, rate: f64, arrivals: Arrivals, random: Random) -> Self {
        Schedule { next: start, gap: 1.0 / rate, arrivals, random }
    }
}

impl Iterator for Schedule {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let gap = match self.arrivals {
            Arrivals::Fixed => self.gap,
            Arrivals::Poisson => -(1.0 - self.random.random::<f64>()).ln() * self.gap,
        };
        self.next += Duration::from_secs_f64(gap);
        Some(self.next)
    }
}

/// Starts a schedule that ends at `end`, with at most `most` transactions waiting.
pub fn start(
    start: Instant,
    end: Instant,
    rate: f64,
    arrivals: Arrivals,
    most: usize,
    random: Random,
    halt: CancellationToken,
) -> std::io::Result<Queue> {
    let (sender, receiver) = channel(most);
    let overran = Arc::new(AtomicBool::new(false));
    let flag = overran.clone();
    let schedule = Schedule::new(start, rate, arrivals, random);
    std::thread::Builder::new()
        .name("schedule".into())
        .spawn(move || send(schedule, end, &sender, &flag, &halt))?;
    Ok(Queue { due: tokio::sync::Mutex::new(receiver), overran })
}

fn send(
    schedule: Schedule,
    end: Instant,
    sender: &Sender<Instant>,
    overran: &AtomicBool,
    halt: &CancellationToken,
) {
    for due in schedule.take_while(|due| *due < end) {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if halt.is_cancelled() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
        match sender.try_send(due) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                overran.store(true, Ordering::Release);
                return;
            }
            Err(TrySendError::Closed(_)) => return,
        }
    }
}
