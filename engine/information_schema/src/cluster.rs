//! Replicas, leases, nodes, regions, connections.

use std::collections::BTreeMap;

use access::Need;
use placement::api::{Garbage, Node, PeerReport, User};
use syntax::names::TableName;
use types::Privileges;
use types::{NodeId, PeerRole, Region, RegionKind, ReplicaLag, Table, Timestamp, Value};
use values::error::SqlResult;

use super::{Listing, Source, int, string};

/// Most characters of a statement in the process list.
pub const LONGEST_INFO: usize = 64 * 1024;
/// Words of statements that may hold a password or a token.
const SECRETS: [&str; 3] = ["password", "identified", "isobar_"];

impl Source<'_> {
    /// information_schema.columnar_replica: TiDB's columns, and lag.
    pub(super) async fn columnar_replica(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&[
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "#TABLE_ID",
            "#REPLICA_COUNT",
            "LOCATION_LABELS",
            "#AVAILABLE",
            "PROGRESS",
            "#REGIONS",
            "#READY_REGIONS",
            "#LAG_MS",
            "#LAG_P50_MS",
            "#LAG_P99_MS",
            "#ROW_COUNT",
            "#BYTES",
        ]);
        let status = self.storage.status().await?;
        let replicated = self.catalog.tables.iter().filter(|table| table.columnar_replicas > 0);
        for table in replicated {
            let of_table = |region: &Region| region.holds(RegionKind::Records(table.id));
            let routes: Vec<_> = status.routes.iter().filter(|r| of_table(&r.region)).collect();
            let ready = routes.iter().filter(|route| !route.ready_learners.is_empty()).count();
            let learners: Vec<&PeerReport> = status
                .peers
                .iter()
                .filter(|(node, report)| of_table(&report.region) && is_learner(report, *node))
                .map(|(_, report)| report)
                .collect();
            let lags: Vec<ReplicaLag> = learners.iter().filter_map(|report| report.lag).collect();
            // The table is as far behind as the region that is furthest behind.
            let worst = |of: fn(&ReplicaLag) -> Option<u64>| {
                lags.iter().filter_map(of).max().map_or(Value::Null, int)
            };
            let available = !routes.is_empty() && ready == routes.len();
            let progress = if routes.is_empty() { 0.0 } else { ready as f64 / routes.len() as f64 };
            listing.rows.push(vec![
                string(&table.database),
                string(&table.name),
                int(table.id),
                int(table.columnar_replicas),
                string(""),
                int(i64::from(available)),
                string(format!("{progress:.2}")),
                int(routes.len()),
                int(ready),
                worst(|lag| lag.last_ms),
                worst(|lag| (lag.batches > 0).then_some(lag.p50_ms)),
                worst(|lag| (lag.batches > 0).then_some(lag.p99_ms)),
                int(learners.iter().map(|report| report.rows).sum::<u64>()),
                int(learners.iter().map(|report| report.bytes).sum::<u64>()),
            ]);
        }
        Ok(listing)
    }

    /// information_schema.snapshot_leases. Superseded versions are counted for the cluster, not by
    /// lease: regions know how many bytes they keep, and not since when, so that a lease's own share
    /// would have to be walked for.
    pub(super) async fn snapshot_leases(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&[
            "#LEASE_ID",
            "#SNAPSHOT_TS",
            "OWNER",
            "#AGE_MS",
            "#EXPIRES_IN_MS",
            "TAKEN_AT",
            "EXPIRES_AT",
            "#HOLDS_BACK",
            "#CLUSTER_HISTORY_BYTES",
        ]);
        // Placement's time, by which leases end; this machine's clock may differ.
        let now = self.storage.timestamp().await?.physical_ms();
        let datetime = |ms: u64| {
            string(values::temporal::format_datetime(
                i64::try_from(ms).unwrap_or(0).saturating_mul(1000),
                3,
            ))
        };
        let leases = self.storage.leases().await?;
        let garbage = self.storage.status().await?.garbage;
        let young = now.saturating_sub(garbage.life_ms);
        for lease in leases {
            // What is younger than this is kept with or without it.
            let holds = lease.ts.physical_ms() < young;
            listing.rows.push(vec![
                int(lease.id),
                int(lease.ts.0),
                string(lease.owner),
                int(now.saturating_sub(lease.taken_ms)),
                int(lease.expires_ms.saturating_sub(now)),
                datetime(lease.taken_ms),
                datetime(lease.expires_ms),
                int(i64::from(holds)),
                int(garbage.history_bytes),
            ]);
        }
        Ok(listing)
    }

    /// information_schema.garbage_collection.
    pub(super) async fn garbage_collection(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&[
            "#LIFE_MS",
            "#SAFE_POINT",
            "#SAFE_POINT_AGE_MS",
            "#SETTLED",
            "#HISTORY_BYTES",
        ]);
        let now = self.clock.unix_millis();
        let Garbage { safe_point, life_ms, history_bytes } = self.storage.status().await?.garbage;
        let age = match safe_point.floor {
            Timestamp::ZERO => Value::Null,
            floor => int(now.saturating_sub(floor.physical_ms())),
        };
        listing.rows.push(vec![
            int(life_ms),
            int(safe_point.floor.0),
            age,
            int(safe_point.settled.0),
            int(history_bytes),
        ]);
        Ok(listing)
    }

    /// information_schema.cluster_info.
    pub(super) async fn cluster_info(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&[
            "#NODE_ID",
            "TYPE",
            "INSTANCE",
            "CLIENT_ADDRESS",
            "#SILENT_MS",
            "#DISK_BYTES",
            "#DISK_FREE",
            "FAULTS",
            "#PLACEMENT_LEADER",
        ]);
        let status = self.storage.status().await?;
        for known in status.nodes {
            listing.rows.push(vec![
                int(known.node.id),
                string(known.node.role.name()),
                string(known.node.rpc_address),
                string(known.node.client_address),
                known.silent_ms.map_or(Value::Null, int),
                int(known.report.disk_bytes),
                int(known.report.disk_free),
                string(known.report.faults.join("; ")),
                int(i64::from(known.node.id == status.leader)),
            ]);
        }
        Ok(listing)
    }

    /// information_schema.cluster_config: the settings that nodes go by, as they have last reported them.
    pub async fn cluster_config(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&["TYPE", "INSTANCE", "KEY", "VALUE"]);
        let settings = self.storage.node_settings().await?;
        let nodes = self.storage.status().await?.nodes;
        for (id, settings) in settings {
            let Some(known) = nodes.iter().find(|known| known.node.id == id) else { continue };
            let Node { role, rpc_address, .. } = &known.node;
            for (key, value) in settings {
                let (role, instance) = (string(role.name()), string(rpc_address));
                listing.rows.push(vec![role, instance, string(key), string(value)]);
            }
        }
        Ok(listing)
    }

    /// information_schema.regions.
    pub(super) async fn regions(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&[
            "#REGION_ID",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "INDEX_NAME",
            "#LEADER_NODE",
            "VOTERS",
            "LEARNERS",
            "READY_LEARNERS",
            "#ROW_COUNT",
            "#BYTES",
            "START_KEY",
            "END_KEY",
            "EPOCH",
        ]);
        let tables: BTreeMap<u64, &Table> =
            self.catalog.tables.iter().map(|t| (t.id, t.as_ref())).collect();
        let status = self.storage.status().await?;
        for route in status.routes {
            let region = &route.region;
            let table = region.table().and_then(|id| tables.get(&id));
            // Keys hold values of rows.
            if table.is_none() && !self.rights.everywhere(Privileges::PROCESS) {
                continue;
            }
            let named = table.map(|table| TableName {
                database: table.database.to_lowercase(),
                table: table.name.to_lowercase(),
            });
            let reads = named.is_none_or(|name| self.rights.check(&Need::to_select(name)).is_ok());
            let bound = |key: &[u8]| if reads { hex(key) } else { Value::Null };
            let index = match region.kind {
                RegionKind::Index(_, id) => table
                    .and_then(|table| table.indexes.iter().find(|index| index.id == id))
                    .map_or(Value::Null, |index| string(&index.name)),
                _ => Value::Null,
            };
            listing.rows.push(vec![
                int(region.id),
                table.map_or(Value::Null, |table| string(&table.database)),
                table.map_or(Value::Null, |table| string(&table.name)),
                index,
                route.leader.map_or(Value::Null, int),
                nodes(region.voters().map(|peer| peer.node)),
                nodes(region.learners().map(|peer| peer.node)),
                nodes(route.ready_learners.iter().copied()),
                int(route.rows),
                int(route.bytes),
                bound(&region.start),
                bound(&region.end),
                string(format!("{}.{}", region.epoch.version, region.epoch.conf)),
            ]);
        }
        Ok(listing)
    }

    /// information_schema.processlist, with so many characters of each statement.
    pub fn processlist(&self, longest: usize) -> Listing {
        let mut listing =
            Listing::of(&["#ID", "USER", "HOST", "DB", "COMMAND", "#TIME", "STATE", "INFO"]);
        let processes = self.host.map(|host| host.processes()).unwrap_or_default();
        let (own, _) = self.rights.account();
        let all = self.rights.everywhere(Privileges::PROCESS);
        for process in processes.into_iter().filter(|process| all || process.user == own) {
            listing.rows.push(vec![
                int(process.id),
                string(process.user),
                string(process.host),
                process.database.map_or(Value::Null, string),
                string(process.command),
                int(process.seconds),
                string(""),
                process.statement.map_or(Value::Null, |text| string(shown(&text, longest))),
            ]);
        }
        listing
    }

    /// mysql.user, without passwords.
    pub(super) fn users(&self) -> Listing {
        let mut listing = Listing::of(&["Host", "User", "User_attributes"]);
        let groups = &self.catalog.resources;
        let attributes = |user: &User| match groups.given(&user.name, &user.host) {
            // Names of groups may hold a quotation mark.
            Some(group) => string(format!(r#"{{"resource_group": {}}}"#, serde_json::json!(group))),
            None => Value::Null,
        };
        listing.rows = self
            .catalog
            .users
            .iter()
            .map(|user| vec![string(&user.host), string(&user.name), attributes(user)])
            .collect();
        listing
    }
}

/// A statement as others may see it: not one that may hold a password or a token.
pub(super) fn shown(text: &str, longest: usize) -> String {
    let lower = text.to_ascii_lowercase();
    match SECRETS.iter().any(|word| lower.contains(word)) {
        true => "(not shown: it may hold a password or a snapshot token)".to_owned(),
        false => text.chars().take(longest).collect(),
    }
}

fn is_learner(report: &PeerReport, node: NodeId) -> bool {
    report.ready && report.region.peer_on(node).is_some_and(|peer| peer.role == PeerRole::Learner)
}

fn nodes(nodes: impl Iterator<Item = NodeId>) -> Value {
    string(nodes.map(|node| node.to_string()).collect::<Vec<_>>().join(","))
}

fn hex(bytes: &[u8]) -> Value {
    string(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}
