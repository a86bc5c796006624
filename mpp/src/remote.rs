//! The SQL node's way into the analytic tier: a Flight client that mints its own tickets.
//!
//! One round trip: the columnar node that coordinates a query plans what the session has bound.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, FlightClient, Ticket as FlightTicket};
use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use binder::QueryContext;
use env::Clock;
use execution::analytic::{Analytic, AnalyticAnswer, AnalyticQuery};
use futures::{StreamExt, TryStreamExt};
use placement::api::{Node, NodeRole};
use placement::client::PlacementClient;
use rpc::{Channels, Pulse};
use types::{NodeId, RegionKind, TableId};
use values::error::{
    INTERRUPTED, NO_TABLE, SNAPSHOT_TOO_OLD, SqlError, TABLE_CHANGED, UNSUPPORTED, columns_timeout,
    columns_unavailable, unknown,
};

use crate::auth::voucher;
use crate::error::{MppCode, MppError, MppResult};
use crate::ticket::{Asked, SqlTicket, Ticket, Work};

/// How long a query may compute before its first row. A node that is gone is noticed by the
/// channel's keep-alives, long before.
const FIRST_MESSAGE: Duration = Duration::from_secs(3_600);
/// How long an internal ticket may be redeemed, in milliseconds.
const TICKET_TTL_MS: u64 = 3_600_000;

/// The analytic tier over Flight.
pub struct RemoteAnalytic {
    placement: PlacementClient,
    channels: Channels,
    clock: Arc<dyn Clock>,
    pulse: Pulse,
}

impl RemoteAnalytic {
    /// A client of every columnar node that placement knows.
    pub fn new(placement: PlacementClient, channels: Channels, clock: Arc<dyn Clock>) -> Self {
        let pulse = Pulse::new(channels.clone());
        RemoteAnalytic { placement, channels, clock, pulse }
    }

    /// Columnar nodes in an order that shifts with each query, those that did not answer last.
    async fn nodes(&self) -> MppResult<Vec<Node>> {
        let mut nodes = self.known();
        if nodes.is_empty() {
            // A SQL node that has just started may be asked before its first heartbeat is answered.
            self.placement.status().await?;
            nodes = self.known();
        }
        if nodes.is_empty() {
            let text = "there is no columnar node: start one, or read rows";
            return Err(MppError::new(MppCode::Unavailable, text));
        }
        let shift = (self.clock.unix_micros() as usize) % nodes.len();
        nodes.rotate_left(shift);
        let mut silent = self.pulse.silent();
        if nodes.iter().all(|node| silent.contains(&node.id)) {
            let all: Vec<_> = nodes.iter().map(address).collect();
            silent = self.pulse.ping_all(&all).await;
            if nodes.iter().all(|node| silent.contains(&node.id)) {
                let text = "no columnar node answers: check that they run, or read rows";
                return Err(MppError::new(MppCode::Unavailable, text));
            }
        }
        nodes.sort_by_key(|node| silent.contains(&node.id));
        Ok(nodes)
    }

    fn known(&self) -> Vec<Node> {
        let nodes = self.placement.known_nodes().into_iter();
        nodes.filter(|node| node.role == NodeRole::Columnar).collect()
    }

    /// Runs a query at one of these nodes, the first of them if it answers.
    async fn get_from(
        &self,
        (node, others): (&Node, &[Node]),
        query: &AnalyticQuery,
        key: &[u8],
    ) -> MppResult<AnalyticAnswer> {
        let mut context = query.context.clone();
        context.avoid = self.pulse.silent().into_iter().collect();
        let ticket = self.ticket(query, context, key)?;
        let without = |_: &BTreeSet<NodeId>| {
            let silent = self.pulse.silent();
            others.iter().any(|other| !silent.contains(&other.id))
        };
        let answer = self.get(&node.client_address, &query.context.user, &ticket);
        match self.pulse.watch(&[address(node)], without, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(MppError::new(
                MppCode::Unavailable,
                format!("the columnar node at {} does not answer", node.client_address),
            )),
        }
    }

    fn ticket(
        &self,
        query: &AnalyticQuery,
        context: QueryContext,
        key: &[u8],
    ) -> MppResult<Vec<u8>> {
        let asked = Asked::Bound { bound: query.bound.clone() };
        let work = Work::Sql(SqlTicket { query: asked, context });
        let expires_ms = self.clock.unix_millis() + TICKET_TTL_MS;
        let group = Some(query.group.clone());
        Ticket { work, token: query.token, expires_ms, group }.seal(key)
    }

    async fn client(&self, node: &str, user: &str) -> MppResult<FlightClient> {
        let key = self.placement.signing_key().await?;
        let token = voucher(user, &key, self.clock.unix_millis())?;
        let client = FlightServiceClient::new(self.channels.get(node)?);
        // A schema comes in one piece, with the labels of its ENUMs.
        let client = client.max_decoding_message_size(usize::MAX);
        let mut client = FlightClient::new_from_inner(client);
        client
            .add_header("authorization", &format!("Bearer {token}"))
            .map_err(|error| MppError::new(MppCode::Invalid, error.to_string()))?;
        Ok(client)
    }

    async fn get(&self, node: &str, user: &str, ticket: &[u8]) -> MppResult<AnalyticAnswer> {
        let mut client = self.client(node, user).await?;
        let ticket = FlightTicket { ticket: ticket.to_vec().into() };
        let first = async {
            let mut stream = client.do_get(ticket).await.map_err(flight_error)?;
            // Polling once brings the schema, and any failure before the first row.
            let first = stream.next().await.transpose().map_err(flight_error)?;
            Ok::<_, MppError>((stream, first))
        };
        let (stream, first) =
            tokio::time::timeout(FIRST_MESSAGE, first).await.map_err(|_| {
                MppError::from(types::Error::timeout(
                    format!("columnar node {node}"),
                    FIRST_MESSAGE,
                ))
            })??;
        let schema = stream
            .schema()
            .cloned()
            .or_else(|| first.as_ref().map(|batch| batch.schema()))
            .ok_or_else(|| MppError::new(MppCode::Unavailable, "an answer without a schema"))?;
        let (node, coordinator) = (node.to_owned(), node.to_owned());
        let rest = stream.map_err(move |error| {
            let mut error = flight_error(error);
            if error.code.is_retryable() {
                let why = error.text;
                error.text = format!(
                    "the answer of the columnar node at {node} broke off after some rows ({why}): \
                     run the query again"
                );
            }
            sql_error(error)
        });
        let batches = futures::stream::iter(first.map(Ok)).chain(rest).boxed();
        Ok(AnalyticAnswer { schema, batches, coordinator })
    }
}

fn address(node: &Node) -> rpc::pulse::Address {
    (node.id, node.rpc_address.clone())
}

fn flight_error(error: FlightError) -> MppError {
    match error {
        FlightError::Tonic(status) => MppError::from(*status),
        other => MppError::find(&other.to_string())
            .unwrap_or_else(|| MppError::new(MppCode::Unavailable, other.to_string())),
    }
}

fn sql_error(error: MppError) -> SqlError {
    if !error.code.is_retryable()
        && let Some(error) = error.sql()
    {
        return error;
    }
    let why = error.to_string();
    match error.code {
        MppCode::NotFound => SqlError::received(NO_TABLE, *b"42S02", why),
        MppCode::Unsupported => SqlError::received(UNSUPPORTED, *b"42000", why),
        MppCode::TableChanged => SqlError::received(TABLE_CHANGED, *b"HY000", why),
        MppCode::Cancelled => SqlError::received(INTERRUPTED, *b"70100", why),
        MppCode::SnapshotTooOld => SqlError::received(SNAPSHOT_TOO_OLD, *b"HY000", why),
        MppCode::Timeout => columns_timeout(why),
        MppCode::StaleRegion | MppCode::Unavailable => columns_unavailable(why),
        _ => unknown(why),
    }
}

#[async_trait]
impl Analytic for RemoteAnalytic {
    async fn available(&self, table: TableId) -> bool {
        match self.placement.regions(RegionKind::Records(table)).await {
            Ok(routes) if routes.iter().all(|route| !route.ready_learners.is_empty()) => {
                !routes.is_empty()
            }
            // The cached routes may be older than the replica.
            Ok(_) => match self.placement.fresh_regions(RegionKind::Records(table)).await {
                Ok(routes) => {
                    !routes.is_empty()
                        && routes.iter().all(|route| !route.ready_learners.is_empty())
                }
                Err(_) => false,
            },
            Err(_) => false,
        }
    }

    async fn query(&self, query: AnalyticQuery) -> Result<AnalyticAnswer, SqlError> {
        let run = async {
            let key = self.placement.signing_key().await?;
            let mut failure = None;
            let nodes = self.nodes().await?;
            let mut left = nodes.as_slice();
            while let Some((node, others)) = left.split_first() {
                left = others;
                match self.get_from((node, others), &query, &key).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) if error.code.is_retryable() => {
                        let node = node.client_address.as_str();
                        tracing::info!(node, %error, "another columnar node is tried");
                        failure = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(failure.unwrap_or_else(|| {
                MppError::new(MppCode::Unavailable, "no columnar node answered")
            }))
        };
        run.await.map_err(sql_error)
    }

    async fn explain(&self, query: AnalyticQuery, analyze: bool) -> Result<Vec<String>, SqlError> {
        let run = async {
            let key = self.placement.signing_key().await?;
            let ticket = self.ticket(&query, query.context.clone(), &key)?;
            let ticket = BASE64_STANDARD.encode(ticket);
            let body = serde_json::json!({ "ticket": ticket, "analyze": analyze });
            let mut failure = None;
            for node in self.nodes().await? {
                let node = node.client_address;
                let mut client = self.client(&node, &query.context.user).await?;
                let action = Action::new("explain.ticket", body.to_string());
                let answer = async {
                    let results = client.do_action(action).await.map_err(flight_error)?;
                    let all: Vec<_> = results.try_collect().await.map_err(flight_error)?;
                    Ok::<_, MppError>(all.concat())
                };
                match tokio::time::timeout(FIRST_MESSAGE, answer).await {
                    Ok(Ok(bytes)) => {
                        return serde_json::from_slice(&bytes)
                            .map_err(|error| MppError::new(MppCode::Invalid, error.to_string()));
                    }
                    Ok(Err(error)) if !error.code.is_retryable() => return Err(error),
                    Ok(Err(error)) => failure = Some(error),
                    Err(_) => failure = Some(types::Error::timeout(node, FIRST_MESSAGE).into()),
                }
            }
            Err(failure.unwrap_or_else(|| {
                MppError::new(MppCode::Unavailable, "no columnar node answered")
            }))
        };
        run.await.map_err(sql_error)
    }
}
