//! What requests to regions cost whoever they are made for.
//!
//! A request is paid for when it was answered; one that failed costs nothing. Pages of ranges wait while their payer is in
//! debt, and nothing else does: what holds keys that others wait for goes on.

use resources::{Payer, Units};
use types::Result;

use crate::api::{Mutation, Request, Response};

/// What a request costs, as far as that is known before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    /// By the bytes of its answer.
    Read,
    /// A write of so many bytes.
    Write(usize),
    /// Nothing: it serves the system, or somebody else's transaction.
    Nothing,
}

impl Price {
    pub(crate) fn of(request: &Request) -> Self {
        let of_all = |mutations: &[Mutation]| mutations.iter().map(Mutation::bytes).sum();
        match request {
            Request::Get { .. } | Request::Scan { .. } | Request::Acquire { .. } => Price::Read,
            Request::ByReplica(_) => Price::Read,
            Request::Shared(request) => Price::of(request),
            Request::Prewrite { mutations, .. } | Request::CommitAtOnce { mutations, .. } => {
                Price::Write(of_all(mutations))
            }
            Request::PrewriteAsync { first, .. } => Price::Write(of_all(&first.mutations)),
            Request::Commit { keys, .. } => Price::Write(keys.iter().map(Vec::len).sum()),
            Request::Import { rows, .. } => {
                Price::Write(rows.iter().map(|(key, row)| key.len() + row.len()).sum())
            }
            _ => Price::Nothing,
        }
    }

    /// What it has cost on so many replicas, now that it is answered.
    fn units(self, answer: &Response, replicas: usize) -> Units {
        match self {
            Price::Read => Units::of_read(bytes_of(answer)),
            Price::Write(bytes) => Units::of_write(bytes, replicas),
            Price::Nothing => Units::ZERO,
        }
    }

    /// Has somebody pay for an answer.
    pub(crate) fn charge(self, to: &Payer, answer: &Response, replicas: usize) {
        let units = self.units(answer, replicas);
        if units > Units::ZERO {
            to.charge(units);
        }
    }
}

/// Returns once a request may be made for who pays.
pub(crate) async fn admit(payer: &Payer, request: &Request) -> Result<()> {
    match request {
        Request::Scan { .. } => payer.admit().await,
        _ => Ok(()),
    }
}

/// Bytes of rows in an answer.
fn bytes_of(answer: &Response) -> usize {
    match answer {
        Response::Pairs { pairs, .. } | Response::ByReplica { pairs, .. } => {
            pairs.iter().map(|(key, row)| key.len() + row.len()).sum()
        }
        Response::Acquired { found, .. } => {
            let row = |row: &Option<Vec<u8>>| row.as_ref().map_or(0, Vec::len);
            found.iter().map(|current| current.key.len() + row(&current.row)).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Timestamp};

    use super::*;
    use crate::api::RegionRef;

    #[test]
    fn reads_cost_by_their_answer_and_writes_by_themselves() {
        let region = RegionRef { id: 1, epoch: Epoch { version: 1, conf: 1 } };
        let (keys, ts) = (vec![vec![0; 24]], Timestamp(1));
        let read = Price::of(&Request::Get { region, keys: keys.clone(), ts });
        let row =
            Response::Pairs { pairs: vec![(vec![0; 24], vec![0; (64 << 10) - 24])], resume: None };
        assert_eq!(read.units(&row, 3), Units::of_read(64 << 10));
        let commit = Request::Commit { region, start_ts: ts, commit_ts: ts, keys: keys.clone() };
        assert_eq!(Price::of(&commit).units(&Response::Done, 3), Units::of_write(24, 3));
        let rollback = Request::Rollback { region, start_ts: ts, keys };
        assert_eq!(Price::of(&rollback), Price::Nothing);
    }
}
