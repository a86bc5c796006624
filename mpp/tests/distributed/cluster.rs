//! Three columnar nodes in one process, on loopback ports, with real stores, Flight servers and workers;
//! placement answers from a struct. Each node has its own runtime, so that one can die.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow_flight::error::FlightError;
use arrow_flight::{FlightClient, FlightDescriptor, FlightInfo, Ticket};
use async_trait::async_trait;
use columnar::{ColumnarMachines, ColumnarStore, Config};
use datafusion::execution::runtime_env::RuntimeEnv;
use env::{Clock, RealClock, SimDisk};
use futures::TryStreamExt;
use mpp::error::{MppCode, MppError};
use mpp::exec::Engine;
use mpp::reader::Reader;
use parking_lot::Mutex;
use placement::api::{
    Catalog, Lease, Node, NodeReport, NodeRole, NodeStatus, Request, Response, Route, SafePoint,
};
use placement::client::{PlacementClient, PlacementTransport};
use raft::testing::SoloGroups;
use raft::{Groups, INITIAL_POSITION, Machines, Position, SnapshotChunks};
use resources::Ledger;
use rpc::Channels;
use tokio::runtime::Runtime;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use txn::RowTransport;
use txn::client::{Directory, TxnClient};
use txn::{Fact, Facts, SnapshotItem, SplitChild, WriteKind, encode_chunk, split_region};
use types::{
    ClusterVersion, Epoch, Error, NodeId, Peer, PeerRole, Region, RegionId, RegionKind, Result,
    Row, Table, Timestamp, Value, key, row,
};

/// The nodes.
pub const NODES: [NodeId; 3] = [11, 12, 13];
/// `Basic root:`
pub const ROOT: &str = "Basic cm9vdDo=";

/// What placement knows.
pub struct Known {
    pub now: u64,
    pub catalog: Catalog,
    pub nodes: Vec<Node>,
    pub routes: Vec<Route>,
    pub leases: BTreeMap<u64, Lease>,
    /// Regions of dropped tables that are not collected.
    pub dropped: Vec<Route>,
    /// How often regions were requested.
    pub requests: usize,
    /// Oldest timestamp that can be read, for the next heartbeat.
    pub floor: Timestamp,
}

/// Placement, in process.
pub struct Placement(pub Mutex<Known>);

#[async_trait]
impl PlacementTransport for Placement {
    async fn call(&self, _: &str, request: Request) -> Result<Response> {
        let mut known = self.0.lock();
        let clock = RealClock::new().unix_millis();
        Ok(match request {
            Request::Timestamps { count } => {
                let first = Timestamp(known.now);
                known.now += u64::from(count);
                Response::Timestamps { first, catalog: known.catalog.version, term: 1 }
            }
            Request::Catalog { known: version } => {
                let new = version != known.catalog.version;
                Response::Catalog(new.then(|| Box::new(known.catalog.clone())))
            }
            Request::Regions { kind } => {
                known.requests += 1;
                routes_of(&known.routes, kind)
            }
            Request::DroppedRegions { kind } => routes_of(&known.dropped, kind),
            Request::Status => Response::Status {
                nodes: known
                    .nodes
                    .iter()
                    .map(|node| NodeStatus {
                        node: node.clone(),
                        silent_ms: Some(0),
                        report: NodeReport::default(),
                    })
                    .collect(),
                routes: known.routes.clone(),
                peers: Vec::new(),
                leader: 1,
                garbage: placement::api::Garbage::default(),
                time: placement::api::TimeStatus::default(),
            },
            Request::TakeLease { ts, ttl_ms, owner } => {
                known.now += 1;
                let id = known.now;
                let ts = ts.unwrap_or(Timestamp(known.now));
                let lease = Lease { id, ts, owner, taken_ms: clock, expires_ms: clock + ttl_ms };
                known.leases.insert(id, lease.clone());
                Response::Lease(lease)
            }
            Request::RenewLease { lease, ttl_ms } => match known.leases.get_mut(&lease) {
                Some(lease) => {
                    lease.expires_ms = clock + ttl_ms;
                    Response::Lease(lease.clone())
                }
                None => Response::Failed(Error::LeaseLost(lease)),
            },
            Request::ReleaseLease { lease } => {
                known.leases.remove(&lease);
                Response::Done
            }
            Request::Heartbeat { .. } => Response::Orders {
                orders: Vec::new(),
                catalog: known.catalog.version,
                nodes: known.nodes.clone(),
                safe_point: SafePoint { floor: known.floor, ..SafePoint::default() },
            },
            Request::Leases => Response::Leases(known.leases.values().cloned().collect()),
            Request::SigningKey => Response::SigningKey(KEY.to_vec()),
            other => Response::Failed(Error::Invalid(format!("not asked here: {other:?}"))),
        })
    }
}

fn routes_of(routes: &[Route], kind: RegionKind) -> Response {
    let of: Vec<Route> = routes.iter().filter(|route| route.region.kind == kind).cloned().collect();
    match of.is_empty() {
        true => Response::Failed(Error::not_found("table", format!("of {kind:?}"))),
        false => Response::Routes(of),
    }
}

/// Placement's signing key.
pub const KEY: [u8; 32] = [42; 32];

/// No row store: no lock is ever pending here.
struct NoRows;

#[async_trait]
impl RowTransport for NoRows {
    async fn call(&self, _: NodeId, _: txn::api::Request) -> Result<txn::api::Response> {
        Err(Error::Unavailable("there are no rows here".into()))
    }
}

#[async_trait]
impl Directory for NoRows {
    async fn timestamp(&self) -> Result<Timestamp> {
        Err(Error::Unavailable("there is no directory here".into()))
    }
    async fn locate(&self, _: &[u8]) -> Result<Route> {
        Err(Error::Unavailable("there is no directory here".into()))
    }
    async fn regions(&self, _: RegionKind) -> Result<Vec<Route>> {
        Err(Error::Unavailable("there is no directory here".into()))
    }
    fn forget(&self, _: RegionId) {}
}

/// A columnar node.
pub struct ColumnarNode {
    pub groups: Arc<SoloGroups>,
    pub reader: Arc<Reader>,
    pub engine: Arc<Engine>,
    pub placement: PlacementClient,
    pub flight: SocketAddr,
    runtime: Option<Runtime>,
}

impl ColumnarNode {
    /// Ends the node: its ports close, its connections break.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for ColumnarNode {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A table, its rows, and where they are: each region's first key and nodes.
pub struct Content {
    pub table: Table,
    pub rows: Vec<Row>,
    pub regions: Vec<(i64, Vec<NodeId>)>,
}

/// The whole.
pub struct Cluster {
    pub placement: Arc<Placement>,
    pub nodes: BTreeMap<NodeId, ColumnarNode>,
}

struct OneChunk(Option<Vec<u8>>);

impl SnapshotChunks for OneChunk {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.take())
    }
}

fn key_of(table: &Table, row: &Row) -> Vec<u8> {
    key::record(table.id, &row[..1])
}

fn regions_of(content: &Content) -> Vec<Region> {
    let table = content.table.id;
    let starts: Vec<Vec<u8>> = content
        .regions
        .iter()
        .enumerate()
        .map(|(at, (from, _))| match at {
            0 => key::records_start(table),
            _ => key::record(table, &[Value::Int(*from)]),
        })
        .collect();
    let each = content.regions.iter().enumerate().map(|(at, (_, nodes))| Region {
        id: table * 100 + at as u64,
        epoch: Epoch { version: 1, conf: 1 },
        kind: RegionKind::Records(table),
        start: starts[at].clone(),
        end: starts.get(at + 1).cloned().unwrap_or_else(|| key::records_end(table)),
        peers: nodes
            .iter()
            .map(|node| Peer {
                id: table * 10_000 + at as u64 * 100 + node,
                node: *node,
                role: PeerRole::Learner,
            })
            .collect(),
    });
    each.collect()
}

/// Loads what a node holds: the first half of each region by snapshot, the rest by facts.
fn fill(node: NodeId, contents: &[Content], store: &ColumnarStore) -> SoloGroups {
    let machines = ColumnarMachines::new(store);
    let mut rest = Vec::new();
    for content in contents {
        for region in regions_of(content).iter().filter(|region| region.peer_on(node).is_some()) {
            let rows: Vec<&Row> = content
                .rows
                .iter()
                .filter(|row| region.contains(&key_of(&content.table, row)))
                .collect();
            let (early, late) = rows.split_at(rows.len() / 2);
            let mut items = vec![SnapshotItem::Schema(Box::new(content.table.clone()))];
            items.extend(early.iter().map(|row| SnapshotItem::Version {
                key: key_of(&content.table, row),
                commit_ts: Timestamp(100),
                start_ts: Timestamp(99),
                kind: WriteKind::Put,
                row: Some(row::encode(&content.table, row)),
                ended_by: None,
            }));
            let mut machine = machines.create(region, false).unwrap();
            let at = Position { index: INITIAL_POSITION.index, term: 5 };
            let chunk = encode_chunk(&items).unwrap();
            machine.restore(region, at, &mut OneChunk(Some(chunk))).unwrap();
            let write = |row: &&Row| Fact::Write {
                key: key_of(&content.table, row),
                commit_ts: Timestamp(200),
                kind: WriteKind::Put,
                row: Some(row::encode(&content.table, row)),
                replaces: None,
            };
            rest.push((region.clone(), late.iter().map(write).collect::<Vec<_>>()));
        }
    }
    let groups = SoloGroups::open(node, Box::new(machines)).unwrap();
    for (region, facts) in rest.into_iter().filter(|(_, facts)| !facts.is_empty()) {
        propose(&groups, &region, facts);
    }
    groups
}

fn propose(groups: &SoloGroups, region: &Region, facts: Vec<Fact>) {
    let term = groups.status(region.id).unwrap().term;
    let entry = Facts { term, epoch: region.epoch, facts }.encode().unwrap();
    futures::executor::block_on(groups.propose(region.id, term, entry)).unwrap();
}

impl Cluster {
    /// Nodes that hold these tables.
    pub async fn start(contents: Vec<Content>) -> Cluster {
        Self::start_at(types::version::CURRENT, contents).await
    }

    /// Nodes of a cluster of this version.
    pub async fn start_at(version: ClusterVersion, contents: Vec<Content>) -> Cluster {
        let mut databases: Vec<String> =
            contents.iter().map(|content| content.table.database.clone()).collect();
        databases.dedup();
        let tables = contents.iter().map(|content| Arc::new(content.table.clone())).collect();
        let users = placement::state::State::new().catalog.users;
        let catalog = Catalog { version: 1, databases, tables, users, ..Catalog::default() };
        let mut routes = Vec::new();
        for content in &contents {
            for (region, (_, nodes)) in regions_of(content).into_iter().zip(&content.regions) {
                let held = |row: &&Row| region.contains(&key_of(&content.table, row));
                let rows = content.rows.iter().filter(held).count() as u64;
                let ready_learners = nodes.clone();
                routes.push(Route {
                    leader: None,
                    ready_learners,
                    rows,
                    bytes: rows * 100,
                    region,
                });
            }
        }
        let ports: Vec<(TcpListener, TcpListener)> = NODES
            .iter()
            .map(|_| {
                (
                    TcpListener::bind("127.0.0.1:0").unwrap(),
                    TcpListener::bind("127.0.0.1:0").unwrap(),
                )
            })
            .collect();
        let described = NODES.iter().zip(&ports).map(|(id, (worker, flight))| Node {
            id: *id,
            role: NodeRole::Columnar,
            rpc_address: worker.local_addr().unwrap().to_string(),
            client_address: flight.local_addr().unwrap().to_string(),
        });
        let nodes = described.collect();
        let (leases, dropped) = Default::default();
        let floor = Timestamp::ZERO;
        let known =
            Known { now: 1 << 40, catalog, nodes, routes, leases, dropped, requests: 0, floor };
        let placement = Arc::new(Placement(Mutex::new(known)));
        let mut nodes = BTreeMap::new();
        for (id, (worker, flight)) in NODES.into_iter().zip(ports) {
            let channels = Channels::default();
            channels.note_version(version);
            let listeners = (worker, flight);
            nodes.insert(id, start_node(id, &contents, &placement, channels, listeners).await);
        }
        Cluster { placement, nodes }
    }

    pub fn node(&self, node: NodeId) -> &ColumnarNode {
        &self.nodes[&node]
    }

    pub async fn client(&self, node: NodeId) -> FlightClient {
        client_of(&format!("grpc://{}", self.node(node).flight), ROOT).await
    }

    /// Cuts a region in two at a row, on its node and in placement.
    pub fn split(&self, node: NodeId, region: RegionId, at: i64, child: RegionId) {
        let mut known = self.placement.0.lock();
        let place = known.routes.iter().position(|route| route.region.id == region).unwrap();
        let route = known.routes[place].clone();
        let RegionKind::Records(table) = route.region.kind else { panic!("not records") };
        let peers = route.region.peers.iter().map(|peer| peer.id + 50).collect();
        let start = key::record(table, &[Value::Int(at)]);
        let children = vec![SplitChild { start, region: child, peers }];
        propose(
            &self.node(node).groups,
            &route.region,
            vec![Fact::Split { children: children.clone() }],
        );
        let (parent, born) = split_region(&route.region, &children).unwrap();
        known.routes[place].region = parent;
        for (offset, region) in born.into_iter().enumerate() {
            known.routes.insert(place + 1 + offset, Route { region, ..route.clone() });
        }
    }

    /// Has the log of every region of a table say something, on each node that holds it.
    pub fn append(&self, table: u64, facts: impl Fn(&Region) -> Vec<Fact>) {
        let routes = self.placement.0.lock().routes.clone();
        for route in routes.iter().filter(|route| route.region.table() == Some(table)) {
            for node in &route.ready_learners {
                propose(&self.node(*node).groups, &route.region, facts(&route.region));
            }
        }
    }

    /// Drops a table as placement does: its regions stay until they are collected.
    pub fn drop_table(&self, table: u64) {
        self.alter(|tables| tables.retain(|known| known.id != table));
        let mut known = self.placement.0.lock();
        let (gone, kept) = std::mem::take(&mut known.routes)
            .into_iter()
            .partition(|route| route.region.table() == Some(table));
        (known.dropped, known.routes) = (gone, kept);
    }

    /// Collects dropped tables: no node holds anything of them any more.
    pub async fn collect(&self) {
        let gone = std::mem::take(&mut self.placement.0.lock().dropped);
        for route in gone {
            for node in &route.ready_learners {
                self.node(*node).groups.destroy(route.region.id).await.unwrap();
            }
        }
    }

    /// Moves a region's only copy, as far as anybody may read it, to a node that holds one.
    pub async fn leave(&self, node: NodeId, region: RegionId) {
        for route in &mut self.placement.0.lock().routes {
            if route.region.id == region {
                route.ready_learners.retain(|holder| *holder != node);
            }
        }
        self.node(node).groups.destroy(region).await.unwrap();
    }

    /// Changes the catalog as placement does: with a new version.
    pub fn alter(&self, change: impl FnOnce(&mut Vec<Arc<Table>>)) {
        let mut known = self.placement.0.lock();
        known.catalog.version += 1;
        change(&mut known.catalog.tables);
    }
}

async fn start_node(
    id: NodeId,
    contents: &[Content],
    placement: &Arc<Placement>,
    channels: Channels,
    (worker, flight): (TcpListener, TcpListener),
) -> ColumnarNode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let store = ColumnarStore::open(
        Arc::new(SimDisk::new()),
        clock.clone(),
        Path::new("/columns"),
        Config::default(),
    )
    .unwrap();
    let groups = Arc::new(fill(id, contents, &store));
    let address = flight.local_addr().unwrap();
    let client = {
        let _inside = runtime.enter();
        PlacementClient::new(placement.clone(), [(1, "placement".to_owned())])
    };
    let txn = TxnClient::new(Arc::new(NoRows), Arc::new(NoRows));
    let reader = Arc::new(Reader::new(id, store, groups.clone(), txn));
    let ledger = Arc::new(Ledger::new(clock.clone()));
    let runtime_env = Arc::new(RuntimeEnv::default());
    let engine =
        Engine::new(client.clone(), channels, clock, reader.clone(), runtime_env, ledger).unwrap();
    let (serving, placement) = (engine.clone(), client.clone());
    let started = runtime.spawn(async move {
        client.status().await.unwrap();
        let routes = serving.worker_routes().unwrap();
        tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(incoming(worker)));
        let flight_service = mpp::flight::service(serving, Arc::new(check), address);
        tokio::spawn(
            Server::builder().add_service(flight_service).serve_with_incoming(incoming(flight)),
        );
    });
    started.await.unwrap();
    ColumnarNode { groups, reader, engine, placement, flight: address, runtime: Some(runtime) }
}

fn incoming(listener: TcpListener) -> TcpIncoming {
    listener.set_nonblocking(true).unwrap();
    TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap())
}

fn check(
    user: String,
    password: String,
    peer: IpAddr,
) -> futures::future::BoxFuture<'static, mpp::error::MppResult<()>> {
    Box::pin(async move {
        match user == "root" && password.is_empty() && peer.is_loopback() {
            true => Ok(()),
            false => Err(MppError::new(MppCode::Unauthenticated, "wrong user or password")),
        }
    })
}

/// A channel to a Flight server at `grpc://host:port`.
pub async fn channel(location: &str) -> Channel {
    let address = location.strip_prefix("grpc://").unwrap();
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

pub async fn client_of(location: &str, authorization: &str) -> FlightClient {
    let mut client = FlightClient::new(channel(location).await);
    client.add_header("authorization", authorization).unwrap();
    client
}

/// GetFlightInfo of a JSON command.
pub async fn info(
    client: &mut FlightClient,
    command: serde_json::Value,
) -> std::result::Result<FlightInfo, FlightError> {
    client.get_flight_info(FlightDescriptor::new_cmd(command.to_string())).await
}

/// DoGet, all of it.
pub async fn get(
    client: &mut FlightClient,
    ticket: Ticket,
) -> std::result::Result<(arrow::datatypes::SchemaRef, Vec<RecordBatch>), FlightError> {
    let mut stream = client.do_get(ticket).await?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.try_next().await? {
        batches.push(batch);
    }
    Ok((stream.schema().cloned().expect("a stream has a schema"), batches))
}

/// The rows of every endpoint of an info, each from its own location; and all schemas agree.
pub async fn fetch(info: FlightInfo) -> std::result::Result<Vec<RecordBatch>, FlightError> {
    let announced = info.clone().try_decode_schema().unwrap();
    let mut all = Vec::new();
    for endpoint in info.endpoint {
        let mut client = client_of(&endpoint.location[0].uri, ROOT).await;
        let (schema, batches) = get(&mut client, endpoint.ticket.unwrap()).await?;
        assert_eq!(schema.fields().len(), announced.fields().len());
        for (sent, expected) in schema.fields().iter().zip(announced.fields()) {
            assert_eq!((sent.name(), sent.data_type()), (expected.name(), expected.data_type()));
        }
        all.extend(batches);
    }
    Ok(all)
}

/// Rows as text, sorted.
pub fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> =
                columns.iter().map(|column| column.value(row).to_string()).collect();
            lines.push(cells.join("|"));
        }
    }
    lines.sort();
    lines
}

/// The message of what must be an error, with its gRPC code.
pub fn refusal<T>(result: std::result::Result<T, FlightError>) -> (tonic::Code, String) {
    match result {
        Err(FlightError::Tonic(status)) => (status.code(), status.message().to_owned()),
        Err(other) => panic!("another kind of error: {other}"),
        Ok(_) => panic!("it should have failed"),
    }
}

/// A query through the Flight server of a node.
pub async fn query(
    cluster: &Cluster,
    node: NodeId,
    sql: &str,
) -> std::result::Result<Vec<String>, FlightError> {
    let mut client = cluster.client(node).await;
    let command = serde_json::json!({ "sql": { "query": sql, "database": "d" } });
    let info = info(&mut client, command).await?;
    Ok(shown(&fetch(info).await?))
}
