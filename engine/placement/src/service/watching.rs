//! Watched queries and runaways: what SQL nodes set, report and read of them.
//!
//! What is read is not confirmed by a quorum: a watch that is seen a moment late was set a moment late.

use types::{Error, Result, version};

use crate::api::{Request, Response};
use crate::command::{Command, Outcome};
use crate::service::PlacementService;

/// Most runaways that are reported at a time.
const MOST_REPORTED: usize = 1_000;

impl PlacementService {
    pub(crate) async fn runaways_request(&self, request: Request) -> Result<Response> {
        match request {
            Request::Watches(known) => {
                self.lead()?;
                let kept = &self.view.read().runaways;
                let watches = || (kept.version, kept.watches.clone());
                Ok(Response::Watches((kept.version != known).then(watches)))
            }
            Request::Runaways => {
                self.lead()?;
                Ok(Response::Runaways(self.view.read().runaways.met.iter().cloned().collect()))
            }
            Request::Watch(watch) => match self.change_runaways(Command::Watch(watch)).await? {
                Outcome::First(id) => Ok(Response::Ids(id)),
                other => Err(Error::Corrupt(format!("a watch gave {other:?}"))),
            },
            Request::Unwatch(id) => {
                self.change_runaways(Command::Unwatch(id)).await?;
                Ok(Response::Done)
            }
            Request::NoteRunaways(met) if met.len() <= MOST_REPORTED => {
                self.change_runaways(Command::NoteRunaways(met)).await?;
                Ok(Response::Done)
            }
            Request::NoteRunaways(_) => {
                Err(Error::Invalid(format!("one request reports at most {MOST_REPORTED} runaways")))
            }
            _ => Err(Error::Invalid("a request that has nothing to do with runaways".into())),
        }
    }

    /// Programs of older versions could not read such an entry of the log.
    async fn change_runaways(&self, command: Command) -> Result<Outcome> {
        let cluster = self.view.read().version;
        if cluster < version::QUERY_WATCHES {
            return Err(Error::Invalid(format!(
                "the cluster is at version {cluster}, and queries are watched from version {} on: upgrade all \
                 nodes first",
                version::QUERY_WATCHES
            )));
        }
        self.propose(command).await
    }
}
