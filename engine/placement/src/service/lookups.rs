//! Where regions are, and how the cluster is: what placement's leader answers without a change.
//!
//! An answer is confirmed by a quorum first.

use std::time::Duration;

use env::Clock;
use tokio::time::timeout;
use types::{Error, RegionKind, Result, key};

use crate::api::{Response, Route};
use crate::leader_state::LeaderState;
use crate::service::PlacementService;
use crate::state::{State, tiles};

/// How long a look-up waits for both halves of a split to be reported.
const SETTLE: Duration = Duration::from_secs(3);

impl PlacementService {
    pub(super) async fn locate(&self, key: &[u8]) -> Result<Response> {
        let holes = |state: &State| {
            let covers =
                |kind| key::range(kind).is_some_and(|(start, end)| *start <= *key && *key < *end);
            state.regions.values().any(|record| covers(record.region.kind))
        };
        self.settled(|state, leader| match state.locate(key) {
            Some(record) => Ok(Some(vec![leader.route(state, &record.region)])),
            None if holes(state) => Ok(None),
            // Its table or index was dropped, but locks elsewhere may have their primary there,
            // and only there it is known what became of their transaction.
            None if let Some(region) = state.locate_dropped(key) => {
                Ok(Some(vec![leader.route(state, region)]))
            }
            None => Err(Error::not_found("table", "of the requested key")),
        })
        .await
    }

    pub(super) async fn regions(&self, kind: RegionKind) -> Result<Response> {
        self.settled(|state, leader| {
            // Entries of a dropped index that has no regions of its own are where they were.
            let shared = kind.table().is_some_and(|table| state.is_shared(table));
            if !(state.is_live(kind) || shared) || kind == RegionKind::Placement {
                return Err(Error::not_found("table", format!("of {kind:?}")));
            }
            let tiles = state.tiling(kind);
            Ok(tiles.map(|tiles| {
                tiles.into_iter().map(|tile| leader.route(state, &tile.region)).collect()
            }))
        })
        .await
    }

    pub(super) async fn dropped_regions(&self, kind: RegionKind) -> Result<Response> {
        self.settled(|state, leader| {
            let regions = state.readable_tombstones(kind);
            if regions.is_empty() {
                return Err(Error::not_found("dropped table", format!("of {kind:?}")));
            }
            let whole = tiles(kind, regions.iter().copied());
            Ok(whole
                .then(|| regions.into_iter().map(|region| leader.route(state, region)).collect()))
        })
        .await
    }

    /// Looks something up, waiting while a split was reported by one half only.
    async fn settled<F>(&self, find: F) -> Result<Response>
    where
        F: Fn(&State, &LeaderState) -> Result<Option<Vec<Route>>>,
    {
        let term = self.lead()?;
        self.confirm(term).await?;
        let mut changes = self.view.subscribe();
        let search = async {
            loop {
                changes.mark_unchanged();
                let found = {
                    let leader = self.leader_state(term)?;
                    find(&self.view.read(), &leader)?
                };
                if let Some(routes) = found {
                    return Ok(Response::Routes(routes));
                }
                if changes.changed().await.is_err() {
                    return Err(Error::Unavailable("this node is shutting down".into()));
                }
            }
        };
        timeout(SETTLE, search).await.unwrap_or_else(|_| {
            Err(Error::Unavailable("a split of the region is still being reported: retry".into()))
        })
    }

    pub(super) async fn status(&self) -> Result<Response> {
        let term = self.lead()?;
        self.confirm(term).await?;
        let (voters, own) = (self.voters()?, self.own_clock());
        let leader = self.leader_state(term)?;
        let state = self.view.read();
        Ok(Response::Status {
            nodes: leader.node_statuses(&state, self.clock.now()),
            routes: state
                .regions
                .values()
                .map(|record| leader.route(&state, &record.region))
                .collect(),
            peers: leader.peer_reports(),
            leader: self.node,
            garbage: leader.garbage(&state),
            time: leader.time(&state, &voters, own, self.clock.now()),
        })
    }
}
