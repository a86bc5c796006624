//! Parts of tables: how a scan is cut into tickets, and how any columnar node serves one of them.
//!
//! A part is ranges of keys, which outlive splits, moves and ALTERs. Which regions hold them, and
//! on which nodes, is looked up whenever it is read: what is here is read here, the rest from its
//! nodes. It never guesses: the regions cover the ranges exactly, each key once, or the read is
//! planned anew and at last fails with a typed error, before its first row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::Column as Named;
use datafusion::logical_expr::col;
use datafusion::prelude::SessionContext;
use execution::threads;
use futures::StreamExt;
use placement::api::Route;
use types::{Column, Error, NodeId, RegionKind, Table, Timestamp};

use crate::attempts::attempts;
use crate::error::{MppCode, MppError, MppResult};
use crate::exec::{Answer, Engine, first_batch, rename, scan_schema};
use crate::handlers::QueryNodes;
use crate::layout::{Owners, PlacedRegion, TableLayout, assign_near};
use crate::payer::Payer;
use crate::request::ScanCommand;
use crate::table::ColumnarTable;
use crate::ticket::{KeyRange, ScanTicket};
use crate::verifier;

/// Most regions of one part, so that a ticket stays small.
const MOST_REGIONS: usize = 256;
/// Most nodes that are named for one part.
const MOST_LOCATIONS: usize = 8;
/// What one ticket reads, and where it is best redeemed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Ranges of keys, ascending, none touching the next.
    pub ranges: Vec<KeyRange>,
    /// Flight servers in the order in which they should be tried. Every one of them serves the
    /// part; the first ones without asking others.
    pub locations: Vec<String>,
    /// How many of the first locations hold all of the part.
    pub replicas: usize,
}

/// Cuts a placed table into parts by the nodes that are to scan it.
pub fn parts(regions: &[PlacedRegion], owners: &Owners) -> Vec<Part> {
    let mut groups: BTreeMap<NodeId, Vec<&PlacedRegion>> = BTreeMap::new();
    for region in regions {
        groups.entry(region.node).or_default().push(region);
    }
    let lots = groups.iter().flat_map(|(node, group)| {
        group.chunks(MOST_REGIONS).map(|regions| part(*node, regions, owners))
    });
    lots.collect()
}

fn part(chosen: NodeId, regions: &[&PlacedRegion], owners: &Owners) -> Part {
    let mut ranges: Vec<KeyRange> = Vec::new();
    for region in regions {
        let (start, end) = &region.range;
        match ranges.last_mut() {
            Some((_, last)) if last == start => last.clone_from(end),
            _ => ranges.push(region.range.clone()),
        }
    }
    let held = |node: NodeId| regions.iter().filter(|one| one.replicas.contains(&node)).count();
    let mut nodes: Vec<(NodeId, usize)> =
        owners.0.keys().map(|node| (*node, held(*node))).collect();
    nodes.sort_by_key(|(node, held)| (*node != chosen, std::cmp::Reverse(*held), *node));
    nodes.truncate(MOST_LOCATIONS);
    let servers = nodes.iter().filter_map(|(node, _)| owners.0.get(node));
    Part {
        ranges,
        locations: servers.map(|owner| owner.flight.clone()).collect(),
        replicas: nodes.iter().filter(|(_, held)| *held == regions.len()).count(),
    }
}

/// A table's description as a ticket carries it: the key, and what the command names.
pub fn described(table: &Table, command: &ScanCommand) -> Table {
    let needed = |column: &&Column| {
        table.primary_key.contains(&column.id)
            || command.columns.iter().any(|name| name.eq_ignore_ascii_case(&column.name))
            || command.filter.as_ref().is_some_and(|filter| filter.names(&column.name))
    };
    let plain =
        |column: &Column| Column { default: None, comment: String::new(), ..column.clone() };
    Table {
        id: table.id,
        version: table.version,
        database: table.database.clone(),
        name: table.name.clone(),
        columns: table.columns.iter().filter(needed).map(plain).collect(),
        primary_key: table.primary_key.clone(),
        indexes: Vec::new(),
        columnar_replicas: table.columnar_replicas,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

/// The regions whose records are in exactly these ranges, each key once; none if that is not how the
/// table is cut. Both are in key order.
fn covering(routes: &[Route], ranges: &[KeyRange]) -> Option<Vec<Route>> {
    let records: Vec<(KeyRange, &Route)> =
        routes.iter().filter_map(|route| Some((route.region.records()?, route))).collect();
    let mut found = Vec::new();
    let mut read_to: &[u8] = &[];
    for (start, end) in ranges {
        if start.as_slice() < read_to {
            return None;
        }
        let mut at = start.as_slice();
        let first = records.partition_point(|((first, _), _)| first.as_slice() < at);
        for ((first, next), route) in records.iter().skip(first) {
            if at >= end.as_slice() {
                break;
            }
            if first != at || next > end {
                return None;
            }
            at = next;
            found.push((*route).clone());
        }
        if at != end.as_slice() {
            return None;
        }
        read_to = end;
    }
    Some(found)
}

impl Engine {
    /// Reads a part of a table, as its ticket describes it, wherever its regions are by now.
    pub async fn scan(
        &self,
        ticket: &ScanTicket,
        ts: Timestamp,
        group: Option<&str>,
    ) -> MppResult<Answer> {
        let payer = &self.payers.of_group(group, 0).await;
        attempts("a part", |before| self.scan_once(ticket, ts, before, payer)).await
    }

    /// One attempt; `before` is what the last one met.
    async fn scan_once(
        &self,
        ticket: &ScanTicket,
        ts: Timestamp,
        before: Option<MppCode>,
        payer: &Payer,
    ) -> MppResult<Answer> {
        self.check_readable(ts)?;
        let here = self.reader.node();
        let mut avoid = self.nodes_to_avoid(&[], before.is_some()).await;
        if !matches!(before, None | Some(MppCode::StaleRegion)) {
            // It may have been this node's own replica that is damaged or late.
            avoid.push(here);
        }
        let layout = self.place(ticket, &avoid, before.is_some()).await?;
        let table = layout.table.clone();
        let (state, at_home) = self.state_for(&layout, payer)?;
        let owners = self.owners()?;
        let needed = layout.regions.iter().filter_map(|region| owners.0.get(&region.node));
        let needed: Vec<_> = needed.cloned().collect();
        let replicas: Vec<Vec<NodeId>> =
            layout.regions.iter().map(|region| region.replicas.clone()).collect();
        let context = SessionContext::new_with_state(state);
        let mut frame = context.read_table(Arc::new(ColumnarTable::new(layout, ts)))?;
        if let Some(filter) = &ticket.filter {
            frame = frame.filter(filter.to_expr(&table)?)?;
        }
        let wanted = positions(ticket)?;
        let names = binder::planning_schema(&table);
        let fields = wanted.iter().filter_map(|at| names.fields().get(*at));
        frame = frame.select(
            fields
                .map(|field| col(Named::new_unqualified(field.name().clone())))
                .collect::<Vec<_>>(),
        )?;
        if let Some(limit) = ticket.limit {
            frame = frame.limit(0, Some(usize::try_from(limit).unwrap_or(usize::MAX)))?;
        }
        let tasks = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        match at_home {
            true => verifier::verify_at_home(&plan, here)?,
            false => verifier::verify(&plan)?,
        };
        let without = |silent: &BTreeSet<NodeId>| {
            replicas.iter().all(|held| held.iter().any(|node| !silent.contains(node)))
        };
        let first = first_batch(payer.work().begin(|| threads::run(plan, tasks))?);
        let mut answer = self.while_answered(needed, without, first).await?;
        let schema = scan_schema(&table, &wanted)?;
        let renamed = schema.clone();
        answer.batches = answer.batches.map(move |batch| rename(batch?, &renamed)).boxed();
        answer.schema = schema;
        Ok(answer)
    }

    /// Where a part's rows are: on this node, as far as they are here.
    async fn place(
        &self,
        ticket: &ScanTicket,
        avoid: &[NodeId],
        fresh: bool,
    ) -> MppResult<TableLayout> {
        let table = &ticket.table;
        let kind = RegionKind::Records(table.id);
        let routes = match fresh {
            true => self.placement.fresh_regions(kind).await,
            false => self.placement.regions(kind).await,
        };
        let routes = match routes {
            // Dropped, or emptied: its rows stay for those who read from before, until collected.
            Err(Error::NotFound { .. }) => match self.placement.dropped_regions(kind).await {
                Err(Error::NotFound { .. }) => return Err(gone(table)),
                dropped => dropped?,
            },
            live => live?,
        };
        let name = format!("{}.{}", table.database, table.name);
        let routes = covering(&routes, &ticket.ranges).ok_or_else(|| {
            let text = format!("the regions of table {name} are being split");
            MppError::new(MppCode::StaleRegion, text)
        })?;
        let owners = self.owners()?;
        let regions = assign_near(&name, &routes, &owners, avoid, Some(self.reader.node()))?;
        let rows = routes.iter().map(|route| route.rows).sum();
        let bytes = routes.iter().map(|route| route.bytes).sum();
        Ok(TableLayout { table: table.clone(), regions, rows, bytes })
    }

    /// The session that reads the regions of a layout, and whether all of them are on this node.
    fn state_for(
        &self,
        layout: &TableLayout,
        payer: &Payer,
    ) -> MppResult<(datafusion::execution::SessionState, bool)> {
        let here = self.reader.node();
        let mut nodes: Vec<NodeId> = layout.regions.iter().map(|region| region.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.iter().all(|node| *node == here) {
            return Ok((self.sessions.local(payer.clone()), true));
        }
        let owners = self.owners()?;
        let nodes: Vec<_> =
            nodes.into_iter().map(|node| owners.get(node).cloned()).collect::<MppResult<_>>()?;
        Ok((self.sessions.coordinator(QueryNodes::new(nodes), payer)?, false))
    }
}

/// Positions, in the ticket's description, of the columns of its answer.
fn positions(ticket: &ScanTicket) -> MppResult<Vec<usize>> {
    let position = |name: &String| {
        let found = ticket.table.column_named(name).map(|(at, _)| at);
        found.ok_or_else(|| {
            let text = format!("a ticket does not describe its column '{name}'");
            MppError::new(MppCode::Invalid, text)
        })
    };
    ticket.columns.iter().map(position).collect()
}

fn gone(table: &Table) -> MppError {
    MppError::new(
        MppCode::TableChanged,
        format!(
            "table {}.{} was dropped or emptied since this read was planned, and its rows are \
             collected: plan the read again",
            table.database, table.name
        ),
    )
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Region};
    use url::Url;

    use super::*;
    use crate::layout::Owner;

    fn owners(nodes: std::ops::Range<NodeId>) -> Owners {
        let owner = |node| Owner {
            node,
            worker: Url::parse(&format!("http://10.0.0.{node}:1")).unwrap(),
            flight: node.to_string(),
        };
        Owners(nodes.map(|node| (node, owner(node))).collect())
    }

    fn key(n: usize) -> Vec<u8> {
        [types::key::records_start(1), format!("{n:04}").into_bytes()].concat()
    }

    fn placed(at: usize, replicas: &[NodeId]) -> PlacedRegion {
        PlacedRegion {
            id: at as u64,
            epoch: Epoch { version: 1, conf: 1 },
            range: (key(at), key(at + 1)),
            node: replicas[0],
            replicas: replicas.to_vec(),
        }
    }

    fn route(from: usize, to: usize) -> Route {
        let region = Region {
            id: from as u64,
            epoch: Epoch { version: 1, conf: 1 },
            kind: RegionKind::Table(1),
            start: key(from),
            end: key(to),
            peers: Vec::new(),
        };
        Route { region, leader: None, ready_learners: Vec::new(), rows: 0, bytes: 0 }
    }

    #[test]
    fn parts_are_bounded_and_together_they_are_the_table() {
        let all: Vec<PlacedRegion> =
            (0..1_000).map(|at| placed(at, [&[1, 2][..], &[2, 1, 3]][at / 10 % 2])).collect();
        let parts = parts(&all, &owners(1..20));
        assert_eq!(parts.len(), 4, "two nodes, 500 regions each");
        let mut ranges: Vec<KeyRange> = parts.iter().flat_map(|part| part.ranges.clone()).collect();
        ranges.sort();
        let joined = ranges.windows(2).all(|pair| pair[0].1 == pair[1].0);
        assert!(joined && ranges[0].0 == key(0) && ranges[ranges.len() - 1].1 == key(1_000));
        assert!(parts.iter().all(|part| part.locations.len() == MOST_LOCATIONS));
        assert_eq!(parts[0].locations[..2], ["1", "2"]);
        assert_eq!(parts[2].locations[..3], ["2", "1", "3"]);
        assert_eq!((parts[0].replicas, parts[2].replicas), (2, 3));
    }

    #[test]
    fn regions_cover_a_range_exactly_or_not_at_all() {
        let routes = [route(0, 10), route(10, 15), route(15, 20), route(20, 40)];
        let found = |ranges: &[(usize, usize)]| {
            let ranges: Vec<KeyRange> =
                ranges.iter().map(|(from, to)| (key(*from), key(*to))).collect();
            let found = covering(&routes, &ranges)?;
            Some(found.iter().map(|route| route.region.id).collect::<Vec<_>>())
        };
        assert_eq!(found(&[(0, 40)]), Some(vec![0, 10, 15, 20]));
        assert_eq!(found(&[(10, 20)]), Some(vec![10, 15]));
        assert_eq!(found(&[(0, 10), (15, 20)]), Some(vec![0, 15]));
        // Of a region that holds entries of indexes, too, a part names the records.
        let (first, end) = (types::key::records_start(1), key(40));
        let mut shared = route(0, 40);
        shared.region.start = types::key::table_start(1);
        let range = [(first, end)];
        assert_eq!(covering(&[shared], &range).map(|found| found.len()), Some(1));
        for wrong in [
            &[(0, 12)][..],
            &[(5, 10)],
            &[(0, 50)],
            &[(50, 60)],
            &[(0, 10), (0, 10)],
            &[(15, 20), (0, 10)],
            &[(0, 20), (10, 15)],
        ] {
            assert_eq!(found(wrong), None, "{wrong:?}");
        }
    }
}
