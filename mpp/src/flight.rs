//! The Flight server: Arrow Flight and the part of Flight SQL that ADBC drivers need to query, and to
//! ask about the catalog.
//!
//! It authenticates every call, hands out signed tickets, and streams what they stand for. It
//! holds no state of a client between calls.

mod statements;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::{
    Any, CommandPreparedStatementQuery, CommandStatementQuery, ProstMessageExt,
    TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, Result as ActionResult, SchemaAsIpc,
    SchemaResult, Ticket as FlightTicket,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Extensions, Request, Response, Status, Streaming};
use types::SnapshotToken;

use crate::actions::{ACTIONS, DEFAULT_TTL_MS, SnapshotInfo};
use crate::auth::{Bearers, Caller, PasswordCheck, authenticate, bearer};
use crate::error::{MppCode, MppError, MppResult};
use crate::exec::{Answer, Engine, answer_schema, scan_schema};
use crate::guard::Guarded;
use crate::metadata::MetadataRequest;
use crate::request::{Command, ScanCommand, SqlCommand};
use crate::ticket::{Asked, ScanTicket, SqlTicket, Ticket, Work};
use crate::{layout, parts};

/// How long a ticket may be redeemed at all, in milliseconds; its lease may end sooner.
const TICKET_TTL_MS: u64 = 24 * 3_600_000;
/// Largest message that clients may send, in bytes.
const REQUEST_LIMIT: usize = 16 << 20;
/// Largest batch sent, in bytes; Flight splits what is larger.
const BATCH_BYTES: usize = 2 << 20;

/// The Flight server of a columnar node.
pub struct FlightServer {
    engine: Arc<Engine>,
    check: PasswordCheck,
    /// Its own address, for tickets that only name a query.
    address: SocketAddr,
}

/// The Flight server as a gRPC service.
pub fn service(
    engine: Arc<Engine>,
    check: PasswordCheck,
    address: SocketAddr,
) -> Guarded<FlightServiceServer<impl FlightService>> {
    let service = FlightServiceServer::new(FlightServer { engine, check, address });
    let service = service.max_decoding_message_size(REQUEST_LIMIT);
    Guarded(service.max_encoding_message_size(usize::MAX))
}

fn unsupported(what: &str) -> Status {
    MppError::new(
        MppCode::Unsupported,
        format!("{what} is not offered here: write through the MySQL port, read with DoGet"),
    )
    .into()
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<TcpConnectInfo>().and_then(|info| info.remote_addr()).map(|addr| addr.ip())
}

fn location(address: String) -> arrow_flight::Location {
    arrow_flight::Location { uri: address }
}

impl FlightServer {
    async fn user(&self, metadata: &MetadataMap, extensions: &Extensions) -> MppResult<Caller> {
        self.admit(metadata, extensions, Bearers::Current).await
    }

    async fn admit(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
        taken: Bearers,
    ) -> MppResult<Caller> {
        let key = self.engine.placement.signing_key().await?;
        let now = self.engine.now_ms();
        authenticate(metadata, peer(extensions), &key, now, &self.check, taken).await
    }

    async fn snapshot(
        &self,
        named: Option<&str>,
        user: &str,
    ) -> MppResult<(SnapshotToken, SnapshotInfo)> {
        match named {
            Some(text) => self.engine.redeem(text).await,
            None => self.engine.take_snapshot(DEFAULT_TTL_MS, user).await,
        }
    }

    async fn seal(&self, work: Work, token: SnapshotToken, group: &str) -> MppResult<FlightTicket> {
        let key = self.engine.placement.signing_key().await?;
        let expires_ms = self.engine.now_ms() + TICKET_TTL_MS;
        let group = Some(group.to_owned());
        let sealed = Ticket { work, token, expires_ms, group }.seal(&key)?;
        Ok(FlightTicket { ticket: sealed.into() })
    }

    async fn scan_info(&self, command: ScanCommand, caller: &Caller) -> MppResult<FlightInfo> {
        self.engine.timestamp().await?;
        self.engine.check_scan(&command.database, &command.table, caller).await?;
        let group = self.engine.group_of(caller, command.resource_group.as_deref()).await?;
        let table = self.engine.table(&command.database, &command.table).await?;
        let position = |name: &String| {
            table.column_named(name).map(|(at, _)| at).ok_or_else(|| {
                let text =
                    format!("table {}.{} has no column '{name}'", table.database, table.name);
                MppError::new(MppCode::NotFound, text)
            })
        };
        let positions: Vec<usize> =
            command.columns.iter().map(position).collect::<MppResult<_>>()?;
        if let Some(filter) = &command.filter {
            filter.to_expr(&table)?;
        }
        let schema = scan_schema(&table, &positions)?;
        let (token, info) = self.snapshot(command.snapshot.as_deref(), &caller.user).await?;
        self.engine.check_age(&table, token.ts).await?;
        let owners = self.engine.owners()?;
        let layout =
            layout::fetch(&self.engine.placement, table.clone(), &owners, &[], true).await?;
        let described = Arc::new(parts::described(&table, &command));
        let mut endpoints = Vec::new();
        for part in parts::parts(&layout.regions, &owners) {
            let ticket = Work::Scan(ScanTicket {
                table: described.clone(),
                columns: command.columns.clone(),
                filter: command.filter.clone(),
                ranges: part.ranges,
                limit: command.limit,
            });
            endpoints.push(FlightEndpoint {
                ticket: Some(self.seal(ticket, token, &group).await?),
                location: part.locations.into_iter().map(location).collect(),
                app_metadata: serde_json::json!({ "replicas": part.replicas }).to_string().into(),
                ..Default::default()
            });
        }
        let metadata = serde_json::json!({
            "snapshot": info.snapshot,
            "read_ts": info.read_ts,
            "lease": info.lease,
            "expires_ms": info.expires_ms,
            "table_id": table.id.to_string(),
            "schema_version": table.version.to_string(),
        });
        let exact = command.filter.is_none() && command.limit.is_none();
        let known = |n: u64| if exact { n as i64 } else { -1 };
        flight_info(&schema, endpoints, known(layout.rows), known(layout.bytes), &metadata)
    }

    async fn sql_info(
        &self,
        command: SqlCommand,
        caller: &Caller,
        flight_sql: bool,
    ) -> MppResult<FlightInfo> {
        self.engine.timestamp().await?;
        let mut context = command.context.unwrap_or_default();
        if context.database.is_empty() {
            context.database = command.database;
        }
        if context.user.is_empty() {
            context.user.clone_from(&caller.user);
        }
        self.engine.check_query(&command.query, &context.database, caller).await?;
        let group = self.engine.group_of(caller, command.resource_group.as_deref()).await?;
        let (token, info) = self.snapshot(command.snapshot.as_deref(), &caller.user).await?;
        let (bound, columns) = self.engine.bind(&command.query, &mut context, token.ts).await?;
        let schema = answer_schema(&columns);
        let query = match self.engine.version() {
            // Nodes of the release before may redeem it: they know only texts.
            ..2 => Asked::Text(command.query),
            _ => Asked::Bound { bound },
        };
        let work = Work::Sql(SqlTicket { query, context });
        let mut ticket = self.seal(work, token, &group).await?;
        if flight_sql {
            // Flight SQL clients expect its own ticket message around the handle.
            let wrapped = TicketStatementQuery { statement_handle: ticket.ticket };
            ticket = FlightTicket { ticket: wrapped.as_any().encode_to_vec().into() };
        }
        let endpoint = FlightEndpoint {
            ticket: Some(ticket),
            location: vec![location(format!("grpc://{}", self.address))],
            ..Default::default()
        };
        let metadata = serde_json::json!({
            "snapshot": info.snapshot,
            "read_ts": info.read_ts,
            "lease": info.lease,
            "expires_ms": info.expires_ms,
        });
        flight_info(&schema, vec![endpoint], -1, -1, &metadata)
    }

    /// Answers a descriptor, and repeats it: clients refuse an answer without one.
    async fn info(&self, descriptor: FlightDescriptor, caller: &Caller) -> MppResult<FlightInfo> {
        let mut info = self.answer_to(descriptor.cmd.clone(), caller).await?;
        info.flight_descriptor = Some(descriptor);
        Ok(info)
    }

    async fn answer_to(&self, bytes: Bytes, caller: &Caller) -> MppResult<FlightInfo> {
        if bytes.first() == Some(&b'{') {
            return match Command::parse(&bytes)? {
                Command::Scan(command) => self.scan_info(command, caller).await,
                Command::Sql(command) => self.sql_info(command, caller, false).await,
            };
        }
        let bad = |what: &str| MppError::new(MppCode::Invalid, what.to_owned());
        let any = Any::decode(bytes).map_err(|_| {
            bad("the descriptor's command is neither JSON nor a Flight SQL message")
        })?;
        if let Some(metadata) = MetadataRequest::of(&any)? {
            return metadata_info(metadata);
        }
        let unreadable = |error: arrow::error::ArrowError| {
            bad(&format!("unreadable Flight SQL message: {error}"))
        };
        if let Some(prepared) = any.unpack::<CommandPreparedStatementQuery>().map_err(unreadable)? {
            let command = self.bound_command(&prepared.prepared_statement_handle).await?;
            return self.sql_info(command, caller, true).await;
        }
        let statement: Option<CommandStatementQuery> = any.unpack().map_err(unreadable)?;
        let Some(statement) = statement else {
            let text = format!("Flight SQL's {} is not offered: send a query", any.type_url);
            return Err(MppError::new(MppCode::Unsupported, text));
        };
        let command = SqlCommand {
            query: statement.query,
            database: String::new(),
            snapshot: None,
            context: None,
            resource_group: None,
        };
        self.sql_info(command, caller, true).await
    }

    /// Answers a metadata request from what its caller may see of it now.
    async fn metadata_answer(
        &self,
        request: &MetadataRequest,
        caller: &Caller,
    ) -> MppResult<Answer> {
        let batch = request.answer(&*self.engine.visible_catalog(caller).await?)?;
        let schema = batch.schema();
        Ok(Answer { schema, batches: futures::stream::iter([Ok(batch)]).boxed() })
    }

    async fn redeem(&self, ticket: FlightTicket) -> MppResult<Answer> {
        let ticket = self.engine.open(ticket.ticket).await?;
        let group = ticket.group.as_deref();
        match &ticket.work {
            Work::Scan(scan) => self.engine.scan(scan, ticket.token.ts, group).await,
            Work::Sql(sql) => {
                let answer = self.engine.query(&sql.query, &sql.context, ticket.token, group).await;
                answer.map_err(|error| match error.code {
                    // It was all there when the ticket was made.
                    MppCode::NotFound => MppError {
                        code: MppCode::TableChanged,
                        text: format!("{} any more: plan this read again", error.text),
                        ..error
                    },
                    _ => error,
                })
            }
        }
    }
}

/// How to get the answer to a metadata request: here, on the same connection, by repeating it.
fn metadata_info(request: MetadataRequest) -> MppResult<FlightInfo> {
    let schema = request.schema()?;
    let ticket = FlightTicket { ticket: request.ticket().into() };
    let endpoint = FlightEndpoint { ticket: Some(ticket), ..Default::default() };
    flight_info(&schema, vec![endpoint], -1, -1, &serde_json::json!({}))
}

fn flight_info(
    schema: &SchemaRef,
    endpoints: Vec<FlightEndpoint>,
    rows: i64,
    bytes: i64,
    metadata: &serde_json::Value,
) -> MppResult<FlightInfo> {
    let mut info = FlightInfo::new()
        .try_with_schema(schema)
        .map_err(MppError::from)?
        .with_total_records(rows)
        .with_total_bytes(bytes)
        .with_app_metadata(metadata.to_string());
    for endpoint in endpoints {
        info = info.with_endpoint(endpoint);
    }
    Ok(info)
}

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl FlightService for FlightServer {
    type HandshakeStream = Out<HandshakeResponse>;
    type ListFlightsStream = Out<FlightInfo>;
    type DoGetStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoPutStream = Out<PutResult>;
    type DoActionStream = Out<ActionResult>;
    type ListActionsStream = Out<ActionType>;
    type DoExchangeStream = Out<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let caller = self.user(request.metadata(), request.extensions()).await?;
        let key = self.engine.placement.signing_key().await.map_err(MppError::from)?;
        let token = bearer(&caller.user, &key, self.engine.now_ms())?;
        let payload = HandshakeResponse { protocol_version: 0, payload: token.clone().into() };
        let mut response: Response<Self::HandshakeStream> =
            Response::new(Box::pin(futures::stream::once(async { Ok(payload) })));
        let header = format!("Bearer {token}")
            .parse()
            .map_err(|_| Status::internal("the token is not a header value"))?;
        response.metadata_mut().insert("authorization", header);
        Ok(response)
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let caller = self.user(request.metadata(), request.extensions()).await?;
        Ok(Response::new(self.info(request.into_inner(), &caller).await?))
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        let caller = self.user(request.metadata(), request.extensions()).await?;
        let info = self.info(request.into_inner(), &caller).await?;
        let schema =
            info.try_decode_schema().map_err(|error| Status::internal(error.to_string()))?;
        let options = IpcWriteOptions::default();
        let result = SchemaAsIpc::new(&schema, &options)
            .try_into()
            .map_err(|error: arrow::error::ArrowError| Status::internal(error.to_string()))?;
        Ok(Response::new(result))
    }

    async fn do_get(
        &self,
        request: Request<FlightTicket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        // A metadata request is no permission, so the caller has to be known now.
        let metadata = MetadataRequest::in_ticket(&request.get_ref().ticket)?;
        let taken = if metadata.is_some() { Bearers::Current } else { Bearers::Genuine };
        let caller = self.admit(request.metadata(), request.extensions(), taken).await?;
        let answer = match metadata {
            Some(metadata) => self.metadata_answer(&metadata, &caller).await?,
            None => self.redeem(request.into_inner()).await?,
        };
        let batches =
            answer.batches.map_err(|error| FlightError::Tonic(Box::new(Status::from(error))));
        let stream = FlightDataEncoderBuilder::new()
            .with_schema(answer.schema)
            .with_max_flight_data_size(BATCH_BYTES)
            .build(batches)
            .map_err(Status::from);
        Ok(Response::new(stream.boxed()))
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        let caller = self.user(request.metadata(), request.extensions()).await?;
        let action = request.into_inner();
        let body = match action.r#type.as_str() {
            statements::CREATE => self.create_statement(&action.body, &caller).await?,
            statements::CLOSE => {
                self.close_statement(&action.body).await?;
                return Ok(Response::new(Box::pin(futures::stream::empty::<
                    Result<ActionResult, Status>,
                >())));
            }
            other => self.engine.act(other, &action.body, &caller).await?.to_string().into(),
        };
        let result = ActionResult { body };
        Ok(Response::new(Box::pin(futures::stream::once(async { Ok(result) }))))
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.user(request.metadata(), request.extensions()).await?;
        let all = ACTIONS.map(|(name, description)| {
            Ok(ActionType { r#type: name.to_owned(), description: description.to_owned() })
        });
        Ok(Response::new(Box::pin(futures::stream::iter(all))))
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(unsupported("ListFlights"))
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        Err(unsupported("PollFlightInfo"))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        self.user(request.metadata(), request.extensions()).await?;
        let result = self.bind(request.into_inner()).await?;
        Ok(Response::new(Box::pin(futures::stream::once(async { Ok(result) }))))
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(unsupported("DoExchange"))
    }
}
