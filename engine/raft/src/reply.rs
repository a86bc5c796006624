//! Answers that come later.
//!
//! An answer is never lost: a store that stops leaves its callers a typed error.

use futures::FutureExt;
use futures::channel::oneshot;
use types::{Error, Result};

use crate::groups::Pending;

/// For how long somebody waits, in ticks since the store's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub since: u64,
    pub deadline: u64,
}

impl Wait {
    /// Milliseconds between two ticks, by the store's tick length.
    pub fn millis(since: u64, now: u64) -> u64 {
        now.saturating_sub(since) * crate::config::TICK.as_millis() as u64
    }
}

/// The side that answers.
pub(crate) struct Reply<T>(oneshot::Sender<Result<T>>);

impl<T> Reply<T> {
    /// Answers at once.
    pub fn send(self, answer: Result<T>) {
        // A caller that gave up needs no answer.
        let _ = self.0.send(answer);
    }
}

/// A request's reply channel: where to answer, and what the caller waits for.
pub(crate) fn reply_channel<T: Send + 'static>(what: &'static str) -> (Reply<T>, Pending<T>) {
    let (sender, receiver) = oneshot::channel();
    let pending = receiver.map(move |answer| match answer {
        Ok(answer) => answer,
        Err(oneshot::Canceled) => Err(Error::Timeout {
            what: format!("{what}: the store stopped, so the outcome is unknown"),
            millis: 0,
        }),
    });
    (Reply(sender), pending.boxed())
}

/// An answer known at once.
pub(crate) fn at_once<T: Send + 'static>(answer: Result<T>) -> Pending<T> {
    futures::future::ready(answer).boxed()
}

/// Answers that wait until the state they report is visible.
#[derive(Default)]
pub(crate) struct Answers(Vec<Box<dyn FnOnce() + Send>>);

impl Answers {
    /// Answers once [`Answers::send`] is called.
    pub fn push<T: Send + 'static>(&mut self, reply: Reply<T>, answer: Result<T>) {
        self.0.push(Box::new(move || reply.send(answer)));
    }

    /// Sends every answer, in the order they were given.
    pub fn send(&mut self) {
        for answer in self.0.drain(..) {
            answer();
        }
    }
}
