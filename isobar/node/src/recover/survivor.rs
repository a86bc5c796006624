//! A row node that is down: its directories, what it holds, and the file for other survivors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use env::{Clock as _, Disk as _, RealDisk};
use placement::alone::Lost;
use placement::command::going_on;
use placement::formation::{ClusterId, Standing};
use placement::identity::Directories;
use placement::{PlacementMachines, View};
use raft::{Alone, FAR, Offline, Outcome};
use txn::{RowMachines, RowStore};
use types::region::PLACEMENT_REGION;
use types::{NodeId, RegionId, Table};

use super::plan::{Plan, survivors};
use super::report::Report;

/// A node's directories.
pub(super) struct Place {
    pub data: PathBuf,
    pub log: PathBuf,
}

/// A row node that is down, opened and locked.
pub(super) struct Survivor {
    pub cluster: ClusterId,
    pub node: NodeId,
    rows: Arc<RowStore>,
    /// Placement's state, if it holds that.
    view: Arc<View>,
    offline: Offline,
    _lock: std::fs::File,
}

impl Survivor {
    /// Opens a node's directories, unless they are in use or not a row node's.
    pub fn open(place: &Place) -> Result<Self> {
        let data = &place.data;
        let disk: Arc<dyn env::Disk> = Arc::new(RealDisk);
        if !RealDisk.exists(&data.join(crate::row::CONTENTS[0]))? {
            bail!("{} is not the data directory of a row node", data.display());
        }
        let lock = crate::lock(data).context("stop the node first")?;
        let contents = crate::row::CONTENTS;
        let directories = Directories::new(disk.clone(), data, Some(&place.log), &contents);
        let stamp = directories
            .open()?
            .filter(|stamp| matches!(stamp.standing, Standing::Member | Standing::Committed(_)));
        let stamp = stamp
            .with_context(|| format!("the node of {} belongs to no cluster yet", data.display()))?;
        let engine = crate::row::open_engine(data)?;
        let rows = RowStore::open(engine.clone())?;
        let view = Arc::new(View::default());
        let machines = RowMachines::new(rows.clone());
        let machines = PlacementMachines::new(engine, view.clone(), Some(Box::new(machines)));
        let disk = crate::store_disk(disk, data, place.log.clone());
        let offline = Offline::open(stamp.node, disk, Box::new(machines))
            .context("cannot open the Raft log")?;
        Ok(Survivor { cluster: stamp.cluster, node: stamp.node, rows, view, offline, _lock: lock })
    }

    /// What it holds, without a look at all of its rows.
    pub fn glance(&self) -> Result<Report> {
        Ok(Report {
            cluster: self.cluster,
            node: self.node,
            clock_ms: env::RealClock::new().unix_millis(),
            newest: self.rows.newest_timestamp().unwrap_or_default(),
            replicas: self.offline.replicas()?,
            tables: self.rows.newest_schemas(),
        })
    }

    /// What it holds.
    pub fn report(&self) -> Result<Report> {
        Ok(Report { newest: self.rows.newest_held()?, ..self.glance()? })
    }

    /// What placement will have lost; none where another survivor goes on with placement, or none needs to.
    pub fn preview(
        &self,
        plan: &Plan,
        before: &Report,
        others: &BTreeMap<NodeId, Report>,
    ) -> Result<Option<Preview>> {
        if plan.home() != Some(self.node) {
            return Ok(None);
        }
        let state = self.view.read().clone();
        let tables = state.catalog.tables.clone();
        let mut after = state;
        let lost = after.go_on(survivors(plan, before, others))?;
        Ok(Some(Preview { lost, tables }))
    }

    /// Does it.
    pub fn go_on(mut self, plan: &Plan, others: &BTreeMap<NodeId, Report>) -> Result<()> {
        let mine = |(region, outcome): (&RegionId, &Outcome)| match outcome {
            Outcome::Alone { node, .. } if *node == self.node => Some(*region),
            _ => None,
        };
        let regions: BTreeSet<RegionId> = plan.outcomes.iter().filter_map(mine).collect();
        self.offline.take_all(&regions)?;
        let held = self.report()?;
        let (mut groups, mut dropped) = (Vec::new(), BTreeSet::new());
        for replica in &held.replicas {
            let region = replica.region.id;
            let (term, conf) = match plan.outcomes.get(&region) {
                Some(Outcome::Quorum) => continue,
                Some(Outcome::Alone { node, term, conf }) if *node == self.node => (*term, *conf),
                // Split off by an entry that nobody had applied.
                None => (replica.term + FAR, replica.region.epoch.conf + FAR),
                Some(_) => {
                    dropped.insert(region);
                    continue;
                }
            };
            groups.push(Alone { region, term, conf, command: None });
        }
        let own = groups.iter_mut().find(|group| group.region == PLACEMENT_REGION);
        if let Some(own) = own {
            own.command = Some(going_on(survivors(plan, &held, others))?);
        }
        self.offline.finish(groups, &dropped)?;
        Ok(())
    }
}

/// What placement loses.
pub(super) struct Preview {
    pub lost: Lost,
    /// Tables of the catalog.
    pub tables: Vec<Arc<Table>>,
}
