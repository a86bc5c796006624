//! What SQL nodes and columnar nodes ask and tell of resource groups and of runaways.

use resources::{Grant, Processors, Units, Use};
use types::calibration::Calibration;
use types::query_watch::{QueryWatch, Runaway};
use types::{NodeId, Result};

use super::{PlacementClient, unexpected};
use crate::api::{NodeSettings, Request, Response};

impl PlacementClient {
    /// Reports what this process has used of resource groups; what it may use from now on.
    pub async fn shares(&self, node: NodeId, uses: Vec<Use>) -> Result<Vec<Grant>> {
        match self.caller.send(Request::Shares { node, uses }).await? {
            Response::Shares(grants) => Ok(grants),
            other => Err(unexpected("Shares", &other)),
        }
    }

    /// What each resource group has used since placement's leader began to lead, as far as processes have reported it.
    pub async fn units_used(&self) -> Result<Vec<(String, Units)>> {
        match self.caller.send(Request::UnitsUsed).await? {
            Response::UnitsUsed(used) => {
                Ok(used.into_iter().map(|(group, units)| (group, Units(units))).collect())
            }
            other => Err(unexpected("UnitsUsed", &other)),
        }
    }

    /// Reports what this process has used of its processors.
    pub async fn note_processors(&self, node: NodeId, processors: Processors) -> Result<()> {
        self.caller.send(Request::Processors { node, processors }).await.map(drop)
    }

    /// How many request units a second the cluster carries.
    ///
    /// # Errors
    ///
    /// `Invalid` with what keeps it from being known.
    pub async fn calibrate(&self, by: Calibration) -> Result<u64> {
        match self.caller.send(Request::Calibrate(by)).await? {
            Response::Quota(quota) => Ok(quota),
            other => Err(unexpected("Quota", &other)),
        }
    }

    /// Reports by what settings this node goes.
    pub async fn note_settings(&self, node: NodeId, settings: Vec<(String, String)>) -> Result<()> {
        self.caller.send(Request::NoteSettings { node, settings }).await.map(drop)
    }

    /// By what settings all nodes go, as far as they have said so.
    pub async fn node_settings(&self) -> Result<NodeSettings> {
        match self.caller.send(Request::NodeSettings).await? {
            Response::NodeSettings(settings) => Ok(settings),
            other => Err(unexpected("NodeSettings", &other)),
        }
    }

    /// Watched queries and their version; none if they are known as of this one.
    pub async fn watches(&self, known: u64) -> Result<Option<(u64, Vec<QueryWatch>)>> {
        match self.caller.send(Request::Watches(known)).await? {
            Response::Watches(watches) => Ok(watches),
            other => Err(unexpected("Watches", &other)),
        }
    }

    /// Watches queries from now on; the watch's number.
    pub async fn watch(&self, watch: QueryWatch) -> Result<u64> {
        match self.caller.send(Request::Watch(watch)).await? {
            Response::Ids(id) => Ok(id),
            other => Err(unexpected("Ids", &other)),
        }
    }

    /// Ends a watch; `NotFound` if there is none of this number.
    pub async fn unwatch(&self, id: u64) -> Result<()> {
        self.caller.send(Request::Unwatch(id)).await.map(drop)
    }

    /// Keeps runaways that were met here.
    pub async fn note_runaways(&self, met: Vec<Runaway>) -> Result<()> {
        self.caller.send(Request::NoteRunaways(met)).await.map(drop)
    }

    /// The last runaways, oldest first.
    pub async fn runaways(&self) -> Result<Vec<Runaway>> {
        match self.caller.send(Request::Runaways).await? {
            Response::Runaways(met) => Ok(met),
            other => Err(unexpected("Runaways", &other)),
        }
    }
}
