//! Placement as a transaction's directory, and as the place where waits come together.

use async_trait::async_trait;
use placement::api::Route;
use placement::client::PlacementClient;
use types::{Error, RegionId, RegionKind, Result, SchemaVersion, TableId, Timestamp};

use crate::client::Directory;
use crate::service::row_locks::WaitGraph;

#[async_trait]
impl Directory for PlacementClient {
    async fn timestamp(&self) -> Result<Timestamp> {
        Ok(PlacementClient::timestamp(self).await?.0)
    }

    async fn commit_timestamp(&self, tables: &[(TableId, SchemaVersion)]) -> Result<Timestamp> {
        // The timestamp carries the catalog's version; placement is asked only if that is new.
        let (ts, _) = PlacementClient::timestamp(self).await?;
        let catalog = self.catalog().await?;
        match tables.iter().find(|(table, _)| catalog.table(*table).is_none()) {
            Some((table, sent)) => {
                Err(Error::SchemaChanged { table: *table, sent: *sent, known: None })
            }
            None => Ok(ts),
        }
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

#[async_trait]
impl WaitGraph for PlacementClient {
    async fn waits(&self, waiter: Timestamp, holder: Timestamp, key: Vec<u8>) -> Result<bool> {
        Ok(!self.wait(waiter, holder, key).await?.is_empty())
    }

    async fn ended(&self, waiter: Timestamp, key: Vec<u8>) -> Result<()> {
        self.wait_ended(waiter, key).await
    }
}
