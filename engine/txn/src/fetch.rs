//! Reads across regions at one timestamp: keys in parallel, ranges page by page.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, join_all};
use kv::Pair;
use resources::Units;
use types::{Error, Result, Timestamp};

use crate::api::{Request, Response};
use crate::client::{Answer, TxnClient};
use crate::replicas::ReplicaReads;
use crate::resolve::unexpected;
use crate::retry::Retry;
use crate::routes::Target;

/// Keys of one request.
const GET_KEYS: usize = 1_024;
/// Bytes of one page, about.
const PAGE_BYTES: u32 = 1 << 20;
/// The same for who has to keep to the lowest rate: smaller pages cost more than what is read.
const SMALL_PAGE_BYTES: u32 = 64 << 10;
/// Pairs of one page, unless the reader wants fewer.
pub(crate) const PAGE_PAIRS: u32 = 16_384;

impl TxnClient {
    /// Pairs of those keys that have a row at `ts`, ascending; from replicas, if that is wanted.
    pub(crate) fn fetch<'a>(
        &'a self,
        keys: Vec<Vec<u8>>,
        ts: Timestamp,
        reads: Option<&'a ReplicaReads>,
    ) -> BoxFuture<'a, Result<Vec<Pair>>> {
        self.fetch_all(keys, ts, reads).boxed()
    }

    async fn fetch_all(
        &self,
        keys: Vec<Vec<u8>>,
        ts: Timestamp,
        reads: Option<&ReplicaReads>,
    ) -> Result<Vec<Pair>> {
        let mut left = keys;
        left.sort_unstable();
        left.dedup();
        let mut retry = self.retry("a region to read keys from");
        let mut waiting = self.lock_wait();
        let mut pairs = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let groups = self.group(left, Vec::as_slice, &mut retry).await?;
            let mut calls: Vec<BoxFuture<'_, Answer>> = Vec::new();
            for (target, keys) in &groups {
                for keys in keys.chunks(GET_KEYS) {
                    let (region, keys) = (target.reference(), keys.to_vec());
                    let request = Request::Get { region, keys: keys.clone(), ts };
                    let call = async move { (keys, self.send_read(target, request, reads).await) };
                    calls.push(call.boxed());
                }
            }
            let answers = join_all(calls).await;
            left = Vec::new();
            for (keys, answer) in answers {
                match answer {
                    Ok(Response::Pairs { pairs: found, .. }) => pairs.extend(found),
                    Ok(_) => return Err(unexpected("keys")),
                    Err(error) => {
                        left.extend(keys);
                        self.get_over(error, &mut retry, &mut waiting).await?;
                    }
                }
            }
        }
        pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(pairs)
    }

    /// Deals with what kept a request from success, if it can be repeated.
    pub(crate) async fn get_over(
        &self,
        error: Error,
        retry: &mut Retry,
        waiting: &mut Retry,
    ) -> Result<()> {
        match error {
            Error::Locked(lock) => self.get_past(&lock, waiting).await,
            error if error.is_retryable() => retry.pause(error).await,
            error => Err(error),
        }
    }
}

/// A range at one timestamp, page by page across regions.
pub(crate) struct Pages {
    client: TxnClient,
    ts: Timestamp,
    start: Vec<u8>,
    end: Vec<u8>,
    reverse: bool,
    pairs: u32,
    reads: Option<Arc<ReplicaReads>>,
}

/// Bytes of a page for who pays. One that has to keep to a rate reads a portion at a time and waits in between, so that
/// work beside it waits for a portion at most.
fn page_bytes(portion: Option<Units>) -> u32 {
    portion.map_or(PAGE_BYTES, |portion| {
        let bytes = u32::try_from(portion.bytes_read()).unwrap_or(PAGE_BYTES);
        bytes.clamp(SMALL_PAGE_BYTES, PAGE_BYTES)
    })
}

/// A page: its pairs, and the part of the range that it covers.
pub(crate) struct Page {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl Pages {
    pub(crate) fn new(
        client: TxnClient,
        ts: Timestamp,
        (start, end): (Vec<u8>, Vec<u8>),
        reverse: bool,
    ) -> Self {
        Pages { client, ts, start, end, reverse, pairs: PAGE_PAIRS, reads: None }
    }

    /// The same of replicas.
    pub(crate) fn of_replicas(self, reads: Option<Arc<ReplicaReads>>) -> Self {
        Pages { reads, ..self }
    }

    /// Asks for pages of about so many pairs.
    pub(crate) fn page_pairs(&mut self, pairs: u32) {
        self.pairs = pairs.clamp(1, PAGE_PAIRS);
    }

    /// The next page, or none at the end. A page may be empty.
    pub(crate) fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        self.next_page().boxed()
    }

    async fn next_page(&mut self) -> Result<Option<Page>> {
        if self.start >= self.end {
            return Ok(None);
        }
        let mut retry = self.client.retry("a region to scan");
        let mut waiting = self.client.lock_wait();
        loop {
            let target = match self.locate(&mut retry).await {
                Err(Error::NotFound { .. }) if self.reverse => return Ok(self.cover(vec![], None)),
                target => target?,
            };
            let start = self.start.clone().max(target.region.start.clone());
            let end = self.end.clone().min(target.region.end.clone());
            let request = Request::Scan {
                region: target.reference(),
                start: start.clone(),
                end: end.clone(),
                ts: self.ts,
                limit: self.pairs,
                bytes: page_bytes(self.client.portion()),
                reverse: self.reverse,
            };
            let reads = self.reads.as_deref();
            match self.client.send_read(&target, request, reads).await {
                Ok(Response::Pairs { pairs, resume }) => {
                    let border = if self.reverse { start } else { end };
                    return Ok(self.cover(pairs, Some(resume.unwrap_or(border))));
                }
                Ok(_) => return Err(unexpected("a range")),
                Err(error) => self.client.get_over(error, &mut retry, &mut waiting).await?,
            }
        }
    }

    async fn locate(&self, retry: &mut Retry) -> Result<Target> {
        if self.reverse {
            self.client.locate_below(&self.start, &self.end, retry).await
        } else {
            self.client.locate(&self.start, retry).await
        }
    }

    /// Moves on to `border`, or to the end of the range.
    fn cover(&mut self, pairs: Vec<Pair>, border: Option<Vec<u8>>) -> Option<Page> {
        let (mut start, mut end) = (self.start.clone(), self.end.clone());
        if self.reverse {
            start = border.unwrap_or(start);
            self.end.clone_from(&start);
        } else {
            end = border.unwrap_or(end);
            self.start.clone_from(&end);
        }
        Some(Page { pairs, start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_to_a_rate_reads_in_portions() {
        let pages =
            [None, Some(0), Some(3), Some(1_000)].map(|ru| page_bytes(ru.map(Units::whole)));
        assert_eq!(pages, [PAGE_BYTES, SMALL_PAGE_BYTES, 192 << 10, PAGE_BYTES]);
    }
}
