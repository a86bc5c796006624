//! Proposals that are made at once and leave at once, for one write of the log where each would else begin its own.
//!
//! A transaction of several regions has something to propose in each of them. The first proposal wakes Raft's thread, which
//! finds the log idle and writes it alone; the others would wait for that write before theirs begins. It must never keep a
//! proposal for longer than the work takes that it was made in, which does not wait.

use std::cell::RefCell;

use crossbeam_channel::{Sender, TrySendError};
use types::Error;

use crate::mail::{Mail, Proposal, full, stopped};

/// What was proposed to a store.
type Kept = (Sender<Mail>, Vec<Proposal>);

thread_local! {
    /// What this thread has proposed in the work under way; none outside of such work.
    static KEPT: RefCell<Option<Vec<Kept>>> = const { RefCell::new(None) };
}

/// Does some work, such as polling a future once: what it proposes on this thread reaches each store as one, at its end.
pub fn together<T>(work: impl FnOnce() -> T) -> T {
    if is_together() {
        return work();
    }
    KEPT.set(Some(Vec::new()));
    let _leaves = Leaves;
    work()
}

/// Whether this thread is at work in [`together`]: more of its kind is about to follow.
pub fn is_together() -> bool {
    KEPT.with_borrow(Option::is_some)
}

/// Has what was kept leave, also where the work panics.
struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        for (mail, proposals) in KEPT.take().unwrap_or_default() {
            send(&mail, proposals);
        }
    }
}

/// Proposes to a store, at once or at the end of the work under way.
pub(crate) fn propose(mail: &Sender<Mail>, proposal: Proposal) {
    let alone = KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept else { return Some(proposal) };
        match kept.iter_mut().find(|(to, _)| to.same_channel(mail)) {
            Some((_, proposals)) => proposals.push(proposal),
            None => kept.push((mail.clone(), vec![proposal])),
        }
        None
    });
    if let Some(proposal) = alone {
        send(mail, vec![proposal]);
    }
}

fn send(mail: &Sender<Mail>, proposals: Vec<Proposal>) {
    let (unsent, error): (Mail, fn() -> Error) = match mail.try_send(Mail::Propose(proposals)) {
        Ok(()) => return,
        Err(TrySendError::Full(unsent)) => (unsent, full),
        Err(TrySendError::Disconnected(unsent)) => (unsent, stopped),
    };
    if let Mail::Propose(proposals) = unsent {
        proposals.into_iter().for_each(|proposal| proposal.reply.send(Err(error())));
    }
}
