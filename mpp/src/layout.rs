//! Who holds what, for one query: each region of its tables and the node that will scan it.
//!
//! A layout is data, fetched once at planning; a scan that finds it outdated fails and is planned
//! again.

use std::collections::BTreeMap;
use std::sync::Arc;

use placement::api::{Node, NodeRole, Route};
use placement::client::PlacementClient;
use types::{Epoch, NodeId, RegionId, RegionKind, Table};
use url::Url;

use crate::error::{MppCode, MppError, MppResult};
use crate::ticket::KeyRange;

/// A columnar node that can take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Number.
    pub node: NodeId,
    /// Where its worker listens (internal port).
    pub worker: Url,
    /// Where its Flight server listens, `grpc://host:port`.
    pub flight: String,
}

/// A region and who scans it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRegion {
    /// Region.
    pub id: RegionId,
    /// Its epoch at planning.
    pub epoch: Epoch,
    /// Keys of its records.
    pub range: KeyRange,
    /// Chosen node.
    pub node: NodeId,
    /// Every node that could do it, the chosen one first.
    pub replicas: Vec<NodeId>,
}

/// A table and where its columns are.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// Description that the query is planned with.
    pub table: Arc<Table>,
    /// Regions, in key order.
    pub regions: Vec<PlacedRegion>,
    /// Rows, about.
    pub rows: u64,
    /// Bytes, about.
    pub bytes: u64,
}

/// Columnar nodes by number.
#[derive(Clone, Debug, Default)]
pub struct Owners(pub BTreeMap<NodeId, Owner>);

impl Owners {
    /// The columnar nodes among all.
    pub fn of(nodes: &[Node]) -> MppResult<Self> {
        let columnar = nodes.iter().filter(|node| node.role == NodeRole::Columnar);
        let owners = columnar.map(|node| {
            let worker = Url::parse(&format!("http://{}", node.rpc_address)).map_err(|error| {
                MppError::new(
                    MppCode::Unavailable,
                    format!("address of node {} is no address: {error}", node.id),
                )
            })?;
            let flight = format!("grpc://{}", node.client_address);
            Ok((node.id, Owner { node: node.id, worker, flight }))
        });
        Ok(Owners(owners.collect::<MppResult<_>>()?))
    }

    /// A node.
    pub fn get(&self, node: NodeId) -> MppResult<&Owner> {
        self.0.get(&node).ok_or_else(|| {
            MppError::new(MppCode::Unavailable, format!("columnar node {node} is not known"))
        })
    }
}

/// Chooses a node for each region: spread evenly, never one of `avoid` if another holds the data.
///
/// Fails if a region has no replica that holds data: half a table is no table.
pub fn assign(
    name: &str,
    routes: &[Route],
    owners: &Owners,
    avoid: &[NodeId],
) -> MppResult<Vec<PlacedRegion>> {
    assign_near(name, routes, owners, avoid, None)
}

/// As [`assign`], but a node that is named as `near` takes every region that it holds.
pub fn assign_near(
    name: &str,
    routes: &[Route],
    owners: &Owners,
    avoid: &[NodeId],
    near: Option<NodeId>,
) -> MppResult<Vec<PlacedRegion>> {
    let mut load: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut placed = Vec::with_capacity(routes.len());
    for route in routes {
        let mut replicas: Vec<NodeId> = route
            .ready_learners
            .iter()
            .copied()
            .filter(|node| owners.0.contains_key(node))
            .collect();
        replicas.sort_by_key(|node| {
            let load = load.get(node).copied().unwrap_or(0);
            (avoid.contains(node), near.is_some() && near != Some(*node), load, *node)
        });
        let Some(node) = replicas.first().copied() else {
            return Err(MppError::new(
                MppCode::Unavailable,
                format!(
                    "region {} of table {name} has no columnar replica that holds data: wait until \
                     information_schema.columnar_replica shows it available, or read rows",
                    route.region.id
                ),
            ));
        };
        *load.entry(node).or_default() += 1;
        let range = route.region.records().ok_or_else(|| {
            let text = format!("the regions of table {name} are being split");
            MppError::new(MppCode::StaleRegion, text)
        })?;
        placed.push(PlacedRegion {
            id: route.region.id,
            epoch: route.region.epoch,
            range,
            node,
            replicas,
        });
    }
    Ok(placed)
}

/// Whether the regions cover the keys of all records of a table without gap or overlap.
pub fn covers(table: &Table, routes: &[Route]) -> bool {
    placement::state::tiles(RegionKind::Records(table.id), routes.iter().map(|route| &route.region))
}

/// Refuses a table with a column that no columnar replica holds.
pub fn check_columns(table: &Table) -> MppResult<()> {
    let Some(column) = table.columns.iter().find(|column| column.ty.is_wide()) else {
        return Ok(());
    };
    Err(MppError::new(
        MppCode::Unsupported,
        format!(
            "column {} of table {}.{} is {}: columnar replicas hold DECIMALs of up to 38 digits; read the table \
             over the MySQL protocol",
            column.name, table.database, table.name, column.ty
        ),
    ))
}

/// Fetches the layout of a table.
pub async fn fetch(
    placement: &PlacementClient,
    table: Arc<Table>,
    owners: &Owners,
    avoid: &[NodeId],
    fresh: bool,
) -> MppResult<TableLayout> {
    check_columns(&table)?;
    let kind = RegionKind::Records(table.id);
    let routes = match fresh {
        true => placement.fresh_regions(kind).await?,
        false => placement.regions(kind).await?,
    };
    if !covers(&table, &routes) {
        return Err(MppError::new(
            MppCode::StaleRegion,
            format!("the regions of table {}.{} are being split", table.database, table.name),
        ));
    }
    let name = format!("{}.{}", table.database, table.name);
    let regions = assign(&name, &routes, owners, avoid)?;
    let rows = routes.iter().map(|route| route.rows).sum();
    let bytes = routes.iter().map(|route| route.bytes).sum();
    Ok(TableLayout { table, regions, rows, bytes })
}
