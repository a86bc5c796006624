//! Snapshot leases at placement's leader: by which clock they are given, and what is asked of them.

use types::{Error, Result};

use crate::api::{Request, Response};
use crate::command::{Command, Outcome};
use crate::leases;
use crate::service::PlacementService;

/// Unix milliseconds that leases go by.
struct LeaseTimes {
    /// By the clocks of a majority, so that none ends early or late because one machine's clock is wrong.
    /// Until so many are known, timestamps' own time.
    now_ms: u64,
    /// What leases are given and prolonged from: timestamps' own time, or what the clocks of a majority
    /// may turn out to say if that is later. Of two that are known one may be far behind, and that time
    /// with it, until the third is known: a lease ends late then, not early.
    from_ms: u64,
}

impl PlacementService {
    pub(super) async fn lease_request(&self, request: Request) -> Result<Response> {
        let LeaseTimes { now_ms, from_ms } = self.lease_times(self.lead()?)?;
        let command = match request {
            Request::TakeLease { ts, ttl_ms, owner } => {
                leases::check_ttl(ttl_ms)?;
                let now = self.allocate(self.lead()?, 1).await?;
                let ts = ts.unwrap_or(now);
                if ts > now {
                    return Err(Error::Invalid(format!(
                        "snapshot {ts} lies in the future (now is {now}): leases are taken at \
                         timestamps that were handed out"
                    )));
                }
                Command::TakeLease { ts, owner, now_ms: from_ms, ttl_ms }
            }
            Request::RenewLease { lease, ttl_ms } => {
                Command::RenewLease { lease, now_ms, from_ms, ttl_ms }
            }
            Request::ReleaseLease { lease } => Command::ReleaseLease(lease),
            _ => {
                self.confirm(self.lead()?).await?;
                let state = self.view.read();
                return Ok(Response::Leases(leases::live(&state, now_ms).cloned().collect()));
            }
        };
        match self.propose(command).await? {
            Outcome::Lease(lease) => Ok(Response::Lease(lease)),
            _ => Ok(Response::Done),
        }
    }

    /// The times that leases go by.
    fn lease_times(&self, term: u64) -> Result<LeaseTimes> {
        let (leader, now) = self.clocks(term)?;
        let from_ms = leader.oracle.time_ms(now).max(now.latest_ms);
        Ok(LeaseTimes { now_ms: now.clock_ms.unwrap_or(from_ms), from_ms })
    }
}
