//! Timestamps as a client of placement takes them: in batches, each greater than what was given before it was asked for.

use std::time::Duration;

use tokio::time::timeout;
use types::{Error, NodeId, Result, Timestamp};

use super::{Caller, unexpected};
use crate::api::{Request, Response};
use crate::service::Given;

/// How long a proxy is waited for, before the leader is asked.
const PROXY_LIMIT: Duration = Duration::from_millis(500);

impl Caller {
    /// Timestamps of a leader in this process that no other node could depose.
    pub(super) fn timestamps_alone(&self, count: u32) -> Result<Option<Given>> {
        let Some(here) = self.transport.here() else { return Ok(None) };
        let before = self.memory.lock().given;
        let Some(given) = here.timestamps_alone(count) else { return Ok(None) };
        self.take_given(given, count.into(), before)?;
        Ok(Some(given))
    }

    pub(crate) async fn timestamp_batch(&self, counts: Vec<u32>) -> Result<Vec<Given>> {
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let count = u32::try_from(total)
            .map_err(|_| Error::Invalid(format!("{total} timestamps at once are too many")))?;
        // Batches may overlap; what was given before this one is asked for is smaller than all of it.
        let before = self.memory.lock().given;
        let given = self.first_of(count).await?;
        self.take_given(given, total, before)?;
        let (mut next, catalog, term) = given;
        let each = counts.into_iter().map(|count| {
            let first = next;
            next = Timestamp(next.0.saturating_add(u64::from(count)));
            (first, catalog, term)
        });
        Ok(each.collect())
    }

    async fn first_of(&self, count: u32) -> Result<Given> {
        if let Some(here) = self.transport.here()
            && let Some(given) = here.timestamps_at_once(count).await
        {
            return Ok(given);
        }
        if let Some(given) = self.by_proxy(count).await {
            return Ok(given);
        }
        match self.send(Request::Timestamps { count }).await? {
            Response::Timestamps { first, catalog, term } => Ok((first, catalog, term)),
            other => Err(unexpected("Timestamps", &other)),
        }
    }

    /// How long a batch waits for calls to join it, as is set for the cluster.
    pub(super) fn wait(&self) -> Duration {
        let memory = self.memory.lock();
        memory.catalog.as_ref().map_or(Duration::ZERO, |catalog| catalog.timestamp_wait())
    }

    /// Timestamps by a member of placement that does not lead, if that is set for the cluster. One that cannot give them
    /// leaves it to the leader.
    async fn by_proxy(&self, count: u32) -> Option<Given> {
        let address = {
            let mut memory = self.memory.lock();
            let set = memory.catalog.as_ref().is_some_and(|catalog| catalog.proxies_timestamps());
            if !set || self.transport.here().is_some() {
                return None;
            }
            memory.proxied += 1;
            let leader = memory.leader;
            let others: Vec<&NodeId> =
                self.members.keys().filter(|node| Some(**node) != leader).collect();
            let at = memory.proxied.checked_rem(others.len())?;
            others.get(at).and_then(|node| self.members.get(node)).cloned()?
        };
        let call = self.transport.call(&address, Request::TimestampsByProxy { count });
        match timeout(PROXY_LIMIT, call).await {
            Ok(Ok(Response::Timestamps { first, catalog, term })) => Some((first, catalog, term)),
            _ => None,
        }
    }

    /// Remembers what was given; `before` is what was remembered when it was asked for.
    fn take_given(
        &self,
        (first, catalog, term): Given,
        count: u64,
        before: Option<(Timestamp, u64)>,
    ) -> Result<()> {
        if let Some((seen, _)) = before.filter(|(seen, _)| first <= *seen) {
            return Err(went_back(first, seen));
        }
        let last = Timestamp(first.0.saturating_add(count.saturating_sub(1)));
        let mut memory = self.memory.lock();
        if memory.given.is_none_or(|(seen, _)| seen < last) {
            memory.given = Some((last, term));
        }
        memory.newest = memory.newest.max(catalog);
        Ok(())
    }
}

/// A timestamp that is not greater than one given before. The heartbeat reports what was seen to placement's leader.
fn went_back(first: Timestamp, seen: Timestamp) -> Error {
    Error::Corrupt(format!(
        "placement gave timestamp {first} after {seen}: its log has gone back. Nothing is read or \
         written with such timestamps; `isobar ctl status` shows what its leader knows"
    ))
}
