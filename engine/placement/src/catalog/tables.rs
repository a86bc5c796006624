//! Tables that come, change and go, with their regions.
//!
//! All is checked before anything changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::{
    ClusterVersion, Column, Error, Index, NodeId, Peer, PeerRole, Region, RegionId, RegionKind,
    Result, Table, TableId, Timestamp, key, version,
};

use super::descriptions::{
    check_description, check_no_view, check_shape, check_successor, check_table,
    check_user_database, check_width,
};
use super::referred;
use crate::api::Catalog;
use crate::replicas;
use crate::state::{INITIAL_EPOCH, RegionRecord, State, Tombstone, VOTERS};

/// Row nodes that may hold voters of new regions, as the leader chose them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EligibleNodes(pub Vec<NodeId>);

pub(crate) fn create_table(
    state: &mut State,
    mut table: Table,
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<(Option<Table>, Vec<RegionId>)> {
    table.database = check_user_database(state, &table.database)?;
    check_shape(&table)?;
    check_no_view(&state.catalog, &table)?;
    if state.catalog.table_named(&table.database, &table.name).is_some() {
        return Err(Error::exists("table", format!("{}.{}", table.database, table.name)));
    }
    check_eligible(eligible)?;
    table.id = state.next_table;
    table.version = 1;
    let created = create_regions(state, &kinds_of(state.version, &table), eligible)?;
    state.next_table += 1;
    remember_numbers(state, &table);
    state.catalog.tables.push(Arc::new(table.clone()));
    state.catalog.created.insert(table.id, now);
    Ok((Some(table), created))
}

/// What regions a table begins with: one for everything, or one for its records and one for each index
/// while there are nodes that know of no other.
pub(crate) fn kinds_of(cluster: ClusterVersion, table: &Table) -> Vec<RegionKind> {
    if cluster >= version::SHARED_REGIONS {
        return vec![RegionKind::Table(table.id)];
    }
    let indexes = table.indexes.iter().map(|index| RegionKind::Index(table.id, index.id));
    std::iter::once(RegionKind::Records(table.id)).chain(indexes).collect()
}

pub(crate) fn alter_table(
    state: &mut State,
    mut table: Table,
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<(Option<Table>, Vec<RegionId>)> {
    let stored = check_table(state, table.id)?.clone();
    check_successor(&stored, table.version)?;
    state.catalog.check_not_importing(table.id)?;
    check_description(&state.catalog, &table)?;
    table.database = check_user_database(state, &table.database)?;
    check_columns_kept(state, &stored, &table)?;
    remember_dropped(&stored, &mut table);
    check_width(&table)?;
    renumber_indexes(state, &stored, &mut table)?;
    let has = |table: &Table, id| table.indexes.iter().any(|index: &Index| index.id == id);
    let new: Vec<RegionKind> = table
        .indexes
        .iter()
        .filter(|index| !has(&stored, index.id) && !state.is_shared(table.id))
        .map(|index| RegionKind::Index(table.id, index.id))
        .collect();
    if !new.is_empty() {
        check_eligible(eligible)?;
    }
    let created = create_regions(state, &new, eligible)?;
    for index in stored.indexes.iter().filter(|index| !has(&table, index.id)) {
        drop_regions(state, now, |kind| kind == RegionKind::Index(table.id, index.id));
    }
    remember_numbers(state, &table);
    note_name(&mut state.catalog, &table, now);
    referred::follow_names(&mut state.catalog, &[(&stored, &table)]);
    let gone = |column: &Column| table.column(column.id).is_none();
    if stored.columns.iter().any(|column| gone(column) && stored.is_replaced(column.id)) {
        // Of rows from before, the column that has come in its place knows nothing.
        state.catalog.created.insert(table.id, now);
    }
    if state.version >= version::COLUMN_CHANGES && columns_differ(&stored, &table) {
        state.catalog.columns_change(table.id, now);
    }
    if let Some(slot) = state.catalog.tables.iter_mut().find(|listed| listed.id == table.id) {
        *slot = Arc::new(table.clone());
    }
    replicas::note_replicas(state, table.id, table.columnar_replicas);
    Ok((Some(table), created))
}

pub(crate) fn drop_table(state: &mut State, id: TableId, now: Timestamp) {
    drop_regions(state, now, |kind| kind.table() == Some(id));
    state.catalog.tables.retain(|table| table.id != id);
    state.catalog.created.remove(&id);
    state.catalog.created.remove(&!id);
    state.catalog.importing.remove(&id);
    state.catalog.foreign_keys.0.remove(&id);
    replicas::note_replicas(state, id, 0);
    state.auto_increment.remove(&id);
    state.used_numbers.remove(&id);
}

pub(crate) fn check_eligible(eligible: &EligibleNodes) -> Result<()> {
    if eligible.0.is_empty() {
        return Err(Error::Unavailable(
            "no row node can hold a new table: start one, then repeat the statement".into(),
        ));
    }
    Ok(())
}

/// Takes note of when a table that the catalog has came by its name, before it is described anew.
pub fn note_name(catalog: &mut Catalog, renamed: &Table, now: Timestamp) {
    let same = |table: &Table| {
        table.database.eq_ignore_ascii_case(&renamed.database)
            && table.name.eq_ignore_ascii_case(&renamed.name)
    };
    if !catalog.table(renamed.id).is_some_and(same) {
        catalog.created.insert(renamed.id, now);
    }
}

/// Creates one region for each kind, over its whole range, on the least loaded of the eligible nodes.
fn create_regions(
    state: &mut State,
    kinds: &[RegionKind],
    eligible: &EligibleNodes,
) -> Result<Vec<RegionId>> {
    let mut loads = state.voter_loads();
    let mut created = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let Some((start, end)) = key::range(*kind) else { continue };
        let mut nodes = eligible.0.clone();
        nodes.sort_by_key(|node| (loads.get(node).copied().unwrap_or(0), *node));
        nodes.dedup();
        nodes.truncate(VOTERS);
        nodes.sort_unstable();
        let id = state.take_ids(1 + nodes.len() as u64)?;
        let peers: Vec<Peer> = nodes
            .iter()
            .zip(id + 1..)
            .map(|(node, id)| Peer { id, node: *node, role: PeerRole::Voter })
            .collect();
        nodes.iter().for_each(|node| *loads.entry(*node).or_default() += 1);
        let region = Region { id, epoch: INITIAL_EPOCH, kind: *kind, start, end, peers };
        let uncreated: BTreeSet<NodeId> = nodes.into_iter().collect();
        state.regions.insert(id, RegionRecord { region, uncreated });
        created.push(id);
    }
    Ok(created)
}

fn drop_regions(state: &mut State, dropped: Timestamp, gone: impl Fn(RegionKind) -> bool) {
    let ids: Vec<RegionId> = state
        .regions
        .values()
        .filter(|record| gone(record.region.kind))
        .map(|record| record.region.id)
        .collect();
    for id in ids {
        if let Some(record) = state.regions.remove(&id) {
            state.tombstones.insert(id, Tombstone { region: record.region, dropped });
        }
    }
}

/// Gives fresh numbers to new indexes whose number was in use before: regions of the dropped index
/// may still exist, and its keys would be taken for the new one's.
fn renumber_indexes(state: &State, stored: &Table, table: &mut Table) -> Result<()> {
    let mut used = state.used_numbers.get(&table.id).map_or(0, |(_, index)| *index);
    for index in &mut table.indexes {
        if stored.indexes.iter().any(|known| known.id == index.id) {
            continue;
        }
        if index.id <= used {
            let next = used.checked_add(1).filter(|next| *next < u32::MAX);
            index.id = next.ok_or_else(|| {
                Error::Invalid(format!("table {} has run out of index numbers", table.name))
            })?;
        }
        used = index.id;
    }
    Ok(())
}

/// Refuses what would make stored rows mean something else.
fn check_columns_kept(state: &State, stored: &Table, table: &Table) -> Result<()> {
    let name = format!("{}.{}", stored.database, stored.name);
    if table.primary_key != stored.primary_key {
        return Err(Error::Invalid(format!("the primary key of table {name} cannot be changed")));
    }
    let used = state.used_numbers.get(&table.id).map_or(0, |(column, _)| *column);
    for column in &table.columns {
        match stored.column(column.id) {
            Some(known) if !column.ty.holds_all(known.ty) => {
                return Err(Error::Invalid(format!(
                    "column {} of table {name} is stored as {}: another type needs another column",
                    column.name, known.ty
                )));
            }
            Some(known) if known.nullable && !column.nullable => {
                return Err(Error::Invalid(format!(
                    "column {} of table {name} may hold NULL: NOT NULL needs another column",
                    column.name
                )));
            }
            None if column.id <= used => {
                return Err(Error::Invalid(format!(
                    "column number {} of table {name} was in use before: give column {} a number \
                     above {used}",
                    column.id, column.name
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Rows from before hold the columns that go, so what they are stays known.
fn remember_dropped(stored: &Table, table: &mut Table) {
    let mut dropped = stored.dropped.clone();
    dropped.extend(stored.columns.iter().filter(|known| table.column(known.id).is_none()).cloned());
    table.dropped = dropped;
}

/// Whether queries see other columns.
fn columns_differ(stored: &Table, table: &Table) -> bool {
    let seen = |table: &Table| {
        let visible = table.columns.iter().filter(|column| !column.hidden);
        visible.map(|column| (column.id, column.name.clone(), column.ty)).collect::<Vec<_>>()
    };
    seen(stored) != seen(table)
}

fn remember_numbers(state: &mut State, table: &Table) {
    let used = state.used_numbers.entry(table.id).or_default();
    used.0 = table.columns.iter().map(|column| column.id).fold(used.0, u32::max);
    used.1 = table.indexes.iter().map(|index| index.id).fold(used.1, u32::max);
}
