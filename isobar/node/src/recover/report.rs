//! What a row node that is down holds, as a file for other survivors. It decides nothing.

use std::path::Path;

use anyhow::{Context as _, Result};
use env::RealDisk;
use placement::formation::ClusterId;
use raft::Replica;
use serde::{Deserialize, Serialize};
use types::{NodeId, Table, Timestamp};

const FORMAT: env::Format = env::Format::new(*b"ISBRHELD", 1);

/// What a survivor holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub cluster: ClusterId,
    pub node: NodeId,
    /// Its machine's clock, in Unix milliseconds.
    pub clock_ms: u64,
    /// The largest timestamp in its rows.
    pub newest: Timestamp,
    pub replicas: Vec<Replica>,
    /// The newest descriptions of tables that its regions have received.
    pub tables: Vec<Table>,
}

impl Report {
    pub fn write(&self, path: &Path) -> Result<()> {
        let bytes = postcard::to_stdvec(self).context("the report cannot be encoded")?;
        env::atomic_write(&RealDisk, path, FORMAT, &bytes)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn read(path: &Path) -> Result<Self> {
        let bytes = env::read_whole(&RealDisk, path, FORMAT)
            .with_context(|| format!("{} is no report of a survivor", path.display()))?
            .with_context(|| format!("{} does not exist", path.display()))?;
        postcard::from_bytes(&bytes)
            .with_context(|| format!("{} is no report of this version", path.display()))
    }
}
