//! Actions of the Flight server: snapshots and the catalog, as JSON in and JSON out.

use std::time::Duration;

use arrow_flight::sql::{Any, TicketStatementQuery};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::{RegionKind, SnapshotToken, Timestamp};

use crate::auth::Caller;
use crate::error::{MppCode, MppError, MppResult};
use crate::exec::Engine;
use crate::request::SqlCommand;
use crate::ticket::{Asked, Ticket, Work};

/// Lease of a snapshot that the Flight server takes when a request names none, in milliseconds.
pub const DEFAULT_TTL_MS: u64 = 600_000;
/// Longest lease that a client may ask for, in milliseconds.
const MAX_TTL_MS: u64 = 24 * 3_600_000;

/// The actions and what they do, for `ListActions`.
pub const ACTIONS: [(&str, &str); 10] = [
    ("snapshot.take", "{\"ttl\":\"10m\"} takes a snapshot and a lease that keeps it readable"),
    ("snapshot.renew", "{\"snapshot\":…,\"ttl\":\"10m\"} prolongs a lease"),
    ("snapshot.release", "{\"snapshot\":…} ends a lease"),
    ("catalog.databases", "{} lists databases"),
    ("catalog.tables", "{\"database\":…} lists a database's tables"),
    ("catalog.table", "{\"database\":…,\"table\":…} describes a table"),
    ("explain", "{\"query\":…,\"database\":…,\"analyze\":bool} shows a distributed plan"),
    ("explain.ticket", "{\"ticket\":base64,\"analyze\":bool} shows the plan of a query's ticket"),
    ("CreatePreparedStatement", "Flight SQL's: a handle for a query with parameters"),
    ("ClosePreparedStatement", "Flight SQL's: the end of a handle"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Take {
    #[serde(default)]
    ttl: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renew {
    snapshot: String,
    #[serde(default)]
    ttl: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    snapshot: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InDatabase {
    database: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfTable {
    database: String,
    table: String,
}

#[derive(Deserialize)]
struct Explain {
    #[serde(flatten)]
    command: SqlCommand,
    #[serde(default)]
    analyze: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainTicket {
    ticket: String,
    #[serde(default)]
    analyze: bool,
}

/// A snapshot as clients see it.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotInfo {
    /// Token to hand on.
    pub snapshot: String,
    /// Its timestamp; text, because JSON numbers lose digits.
    pub read_ts: String,
    /// Its lease; text likewise.
    pub lease: String,
    /// Unix milliseconds when the lease ends unless renewed.
    pub expires_ms: u64,
}

fn parse<'a, T: Deserialize<'a>>(action: &str, body: &'a [u8]) -> MppResult<T> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| MppError::new(MppCode::Invalid, format!("{action}: {error}")))
}

/// A duration as people write it: `90s`, `10m`, `2h`; plain digits are seconds.
pub fn parse_ttl(text: &str) -> MppResult<u64> {
    let bad = || {
        MppError::new(
            MppCode::Invalid,
            format!("'{text}' is no duration: write 90s, 10m or 2h, at most 24h"),
        )
    };
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let scale = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(bad()),
    };
    let ttl = number.checked_mul(scale).ok_or_else(bad)?;
    if ttl == 0 || ttl > MAX_TTL_MS { Err(bad()) } else { Ok(ttl) }
}

impl Engine {
    /// Takes a snapshot and its lease.
    pub async fn take_snapshot(
        &self,
        ttl_ms: u64,
        owner: &str,
    ) -> MppResult<(SnapshotToken, SnapshotInfo)> {
        let ttl = Duration::from_millis(ttl_ms);
        let lease = self.placement.take_lease(None, ttl, owner).await?;
        let token = SnapshotToken { ts: lease.ts, lease: lease.id };
        let info = self.snapshot_info(token, lease.expires_ms).await?;
        Ok((token, info))
    }

    async fn snapshot_info(&self, token: SnapshotToken, until: u64) -> MppResult<SnapshotInfo> {
        let key = self.placement.signing_key().await?;
        Ok(SnapshotInfo {
            snapshot: token.sign(&key),
            read_ts: token.ts.to_string(),
            lease: token.lease.to_string(),
            expires_ms: until,
        })
    }

    /// Reads a token that a client presents, and checks that its lease lives.
    pub async fn redeem(&self, text: &str) -> MppResult<(SnapshotToken, SnapshotInfo)> {
        let token = self.verified(text).await?;
        let leases = self.placement.leases().await?;
        let lease = leases
            .iter()
            .find(|lease| lease.id == token.lease)
            .ok_or(types::Error::LeaseLost(token.lease))?;
        let info = self.snapshot_info(token, lease.expires_ms).await?;
        Ok((token, info))
    }

    /// Reads a token, whether its lease lives or not.
    async fn verified(&self, text: &str) -> MppResult<SnapshotToken> {
        let key = self.placement.signing_key().await?;
        SnapshotToken::verify(text, &key)
            .map_err(|error| MppError::new(MppCode::TicketForged, error.to_string()))
    }

    /// Reads a ticket, as it is or as Flight SQL wraps it, and checks that its lease lives.
    pub(crate) async fn open(&self, mut ticket: Bytes) -> MppResult<Ticket> {
        if let Ok(any) = Any::decode(ticket.clone())
            && let Ok(Some(wrapped)) = any.unpack::<TicketStatementQuery>()
        {
            ticket = wrapped.statement_handle;
        }
        let key = self.placement.signing_key().await?;
        let ticket = Ticket::open(&ticket, &key, self.now_ms())?;
        self.check_lease(ticket.lease()).await?;
        Ok(ticket)
    }

    /// Carries out an action for a user.
    pub async fn act(&self, action: &str, body: &[u8], caller: &Caller) -> MppResult<Value> {
        match action {
            "snapshot.take" => {
                let Take { ttl } = parse(action, body)?;
                let ttl = ttl.map_or(Ok(DEFAULT_TTL_MS), |ttl| parse_ttl(&ttl))?;
                to_json(&self.take_snapshot(ttl, &caller.user).await?.1)
            }
            "snapshot.renew" => {
                let Renew { snapshot, ttl } = parse(action, body)?;
                let ttl = ttl.map_or(Ok(DEFAULT_TTL_MS), |ttl| parse_ttl(&ttl))?;
                let (token, _) = self.redeem(&snapshot).await?;
                let ttl = Duration::from_millis(ttl);
                let lease = self.placement.renew_lease(token.lease, ttl).await?;
                to_json(&self.snapshot_info(token, lease.expires_ms).await?)
            }
            "snapshot.release" => {
                let Release { snapshot } = parse(action, body)?;
                let token = self.verified(&snapshot).await?;
                self.placement.release_lease(token.lease).await?;
                Ok(json!({}))
            }
            "catalog.databases" => Ok(json!(self.visible_catalog(caller).await?.databases)),
            "catalog.tables" => {
                let InDatabase { database } = parse(action, body)?;
                let catalog = self.visible_catalog(caller).await?;
                if !catalog.databases.iter().any(|name| name.eq_ignore_ascii_case(&database)) {
                    return Err(types::Error::not_found("database", database).into());
                }
                let tables = catalog.tables.iter();
                let names: Vec<&str> = tables
                    .filter(|table| table.database.eq_ignore_ascii_case(&database))
                    .map(|table| table.name.as_str())
                    .collect();
                Ok(json!(names))
            }
            "catalog.table" => {
                let OfTable { database, table } = parse(action, body)?;
                self.timestamp().await?;
                self.check_known(&database, &table, caller).await?;
                self.describe_table(&database, &table).await
            }
            "explain" => self.explain_command(parse(action, body)?, caller).await,
            "explain.ticket" => self.explain_ticket(parse(action, body)?).await,
            other => Err(MppError::new(
                MppCode::Unsupported,
                format!("there is no action '{other}': ListActions names those there are"),
            )),
        }
    }

    async fn explain_command(&self, explain: Explain, caller: &Caller) -> MppResult<Value> {
        let Explain { command, analyze } = explain;
        let mut context = command.context.unwrap_or_default();
        if context.database.is_empty() {
            context.database = command.database;
        }
        self.check_query(&command.query, &context.database, caller).await?;
        let ts = match command.snapshot {
            Some(text) => {
                let token = self.verified(&text).await?;
                self.check_lease(token.lease).await?;
                token.ts
            }
            None => self.timestamp().await?,
        };
        let query = Asked::Text(command.query);
        let group = self.group_of(caller, command.resource_group.as_deref()).await?;
        Ok(json!(self.explain(&query, &context, ts, analyze, Some(&group)).await?))
    }

    async fn explain_ticket(&self, explain: ExplainTicket) -> MppResult<Value> {
        let ExplainTicket { ticket, analyze } = explain;
        let ticket = BASE64_STANDARD.decode(ticket).map_err(|error| {
            MppError::new(MppCode::Invalid, format!("explain.ticket: ticket: {error}"))
        })?;
        let ticket = self.open(ticket.into()).await?;
        let Work::Sql(sql) = &ticket.work else {
            let text = "only a query's ticket has a plan, and this is a scan's";
            return Err(MppError::new(MppCode::Invalid, text));
        };
        let (ts, group) = (ticket.token.ts, ticket.group.as_deref());
        Ok(json!(self.explain(&sql.query, &sql.context, ts, analyze, group).await?))
    }

    /// A fresh timestamp; also learns whether the catalog changed.
    pub async fn timestamp(&self) -> MppResult<Timestamp> {
        Ok(self.placement.timestamp().await?.0)
    }

    async fn describe_table(&self, database: &str, name: &str) -> MppResult<Value> {
        let table = self.table(database, name).await?;
        let routes = self.placement.fresh_regions(RegionKind::Records(table.id)).await?;
        let available = table.columnar_replicas > 0
            && routes.iter().all(|route| !route.ready_learners.is_empty());
        let rows: u64 = routes.iter().map(|route| route.rows).sum();
        let bytes: u64 = routes.iter().map(|route| route.bytes).sum();
        let shown = table.columns.iter().filter(|column| !column.hidden);
        let columns: Vec<Value> = shown
            .map(|column| {
                json!({
                    "name": column.name,
                    "type": column.ty.to_string(),
                    "nullable": column.nullable,
                })
            })
            .collect();
        let key: Vec<&str> = table
            .primary_key
            .iter()
            .filter_map(|id| table.column(*id))
            .filter(|column| !column.hidden)
            .map(|column| column.name.as_str())
            .collect();
        Ok(json!({
            "table_id": table.id.to_string(),
            "schema_version": table.version.to_string(),
            "columns": columns,
            "primary_key": key,
            "row_count": rows,
            "bytes": bytes,
            "columnar": { "replicas": table.columnar_replicas, "available": available },
        }))
    }
}

fn to_json(value: &impl Serialize) -> MppResult<Value> {
    serde_json::to_value(value).map_err(|error| MppError::new(MppCode::Invalid, error.to_string()))
}
