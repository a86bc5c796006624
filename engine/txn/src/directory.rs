//! Placement as a transaction's directory.

use async_trait::async_trait;
use placement::api::Route;
use placement::client::PlacementClient;
use types::{RegionId, RegionKind, Result, Timestamp};

use crate::client::Directory;

#[async_trait]
impl Directory for PlacementClient {
    async fn timestamp(&self) -> Result<Timestamp> {
        Ok(PlacementClient::timestamp(self).await?.0)
    }

    async fn locate(&self, key: &[u8]) -> Result<Route> {
        PlacementClient::locate(self, key).await
    }

    async fn regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        self.fresh_regions(kind).await
    }

    fn forget(&self, region: RegionId) {
        self.invalidate(region);
    }
}
