//! An engine over canned tables, and a server before it: what the wire's tests talk to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Decimal256Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, LargeStringArray, NullArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{Field, Schema, i256};
use async_trait::async_trait;
use execution::BatchStream;
use execution::reply::{Done, Reply, SessionChanges, WarningCount};
use futures::StreamExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::{ColumnType, IntWidth, Labels, Value};
use values::column::ResultColumn;
use values::error::{self, SqlError};
use wire::{
    AuthPlugin, Backend, ConnectionInfo, Connections, InfileReceiver, KillScope, Options, Prepared,
    Server, Session, SessionStatus, StoredPassword,
};

/// Rows in one batch of `SELECT rows`.
pub const BATCH: usize = 1000;

/// What the engine noticed, for tests to look at.
#[derive(Default)]
pub struct Seen {
    /// Batches that streams were asked for.
    pub batches: AtomicU64,
    /// Statements that ended because they were cancelled.
    pub cancelled: AtomicU64,
    /// Streams that exist.
    pub streams: AtomicUsize,
    /// Sessions that were closed.
    pub closed: AtomicU64,
}

/// The engine.
pub struct Canned {
    pub users: HashMap<&'static str, StoredPassword>,
    pub seen: Arc<Seen>,
    pub connections: Arc<Connections>,
}

/// A server that runs until it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    pub connections: Arc<Connections>,
    pub shutdown: CancellationToken,
    pub task: Option<JoinHandle<()>>,
}

impl Running {
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

pub fn users() -> HashMap<&'static str, StoredPassword> {
    let both = |plugin| StoredPassword::from_plaintext(b"secret", plugin);
    HashMap::from([
        ("root", StoredPassword::empty()),
        ("alice", both(AuthPlugin::CachingSha2)),
        ("nora", both(AuthPlugin::Native)),
        // Known by one digest only.
        ("nate", StoredPassword { sha2: None, ..both(AuthPlugin::Native) }),
        ("shay", StoredPassword { native: None, ..both(AuthPlugin::CachingSha2) }),
    ])
}

pub async fn start(options: Options) -> Running {
    let connections = Arc::new(Connections::default());
    let seen = Arc::new(Seen::default());
    let backend = Arc::new(Canned {
        users: users(),
        seen: Arc::clone(&seen),
        connections: Arc::clone(&connections),
    });
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(local, options, backend, Arc::clone(&connections)).await.unwrap();
    let address = server.address().unwrap();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.run(shutdown.clone()));
    Running { address, seen, connections, shutdown, task: Some(task) }
}

/// Options with TLS, whose certificate lives in `directory`.
pub fn with_tls(directory: &std::path::Path) -> Options {
    let tls = wire::tls::server_config(None, directory).unwrap();
    Options { tls: Some(tls), ..Options::default() }
}

/// Waits until `condition`, at most ten seconds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let bound = tokio::time::timeout(Duration::from_secs(10), waited).await;
    bound.unwrap_or_else(|_| panic!("not within ten seconds: {what}"));
}

#[async_trait]
impl Backend for Canned {
    async fn credentials(
        &self,
        user: &str,
        host: IpAddr,
    ) -> Result<Option<StoredPassword>, SqlError> {
        assert!(host.is_loopback());
        Ok(self.users.get(user).cloned())
    }

    async fn open_session(&self, info: ConnectionInfo) -> Result<Box<dyn Session>, SqlError> {
        let mut session = CannedSession {
            database: None,
            info: info.clone(),
            in_transaction: false,
            severed: false,
            changes: SessionChanges::default(),
            next_statement: 1,
            prepared: HashMap::new(),
            seen: Arc::clone(&self.seen),
            connections: Arc::clone(&self.connections),
        };
        if let Some(database) = &info.database {
            session.use_database(database).await?;
        }
        Ok(Box::new(session))
    }
}

struct CannedSession {
    database: Option<String>,
    info: ConnectionInfo,
    in_transaction: bool,
    /// The outcome of the next commit stays unknown.
    severed: bool,
    changes: SessionChanges,
    next_statement: u32,
    prepared: HashMap<u32, String>,
    seen: Arc<Seen>,
    connections: Arc<Connections>,
}

pub fn int(width: IntWidth, unsigned: bool) -> ColumnType {
    ColumnType::Int { width, unsigned }
}

fn column(name: &str, ty: ColumnType) -> ResultColumn {
    ResultColumn::expression(name, Some(ty), true)
}

fn rows(columns: Vec<ResultColumn>, arrays: Vec<ArrayRef>) -> Reply {
    let fields: Vec<Field> = columns
        .iter()
        .zip(&arrays)
        .map(|(column, array)| Field::new(&column.name, array.data_type().clone(), true))
        .collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let batches: BatchStream = Box::pin(futures::stream::iter([Ok(batch)]));
    Reply::Rows { columns, batches, warnings: WarningCount::default() }
}

fn texts(pairs: &[(&str, String)]) -> Reply {
    let columns = pairs.iter().map(|(name, _)| column(name, ColumnType::Varchar(255))).collect();
    let arrays = pairs
        .iter()
        .map(|(_, text)| Arc::new(StringArray::from(vec![text.clone()])) as ArrayRef)
        .collect();
    rows(columns, arrays)
}

/// One column of every type; a row of large values, one of small ones, one of NULLs.
pub fn all_types() -> (Vec<ResultColumn>, Vec<ArrayRef>) {
    use IntWidth::{Big, Int, Medium, Small, Tiny};
    let mut columns = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    let mut add = |name: &str, ty: ColumnType, array: ArrayRef| {
        columns.push(ResultColumn {
            org_name: name.to_owned(),
            table: "t".to_owned(),
            org_table: "types".to_owned(),
            database: "test".to_owned(),
            ..column(name, ty)
        });
        arrays.push(array);
    };
    add("i8", int(Tiny, false), Arc::new(Int8Array::from(vec![Some(127), Some(-128), None])));
    add("u8", int(Tiny, true), Arc::new(UInt8Array::from(vec![Some(255), Some(0), None])));
    add(
        "i16",
        int(Small, false),
        Arc::new(Int16Array::from(vec![Some(32767), Some(-32768), None])),
    );
    add("u16", int(Small, true), Arc::new(UInt16Array::from(vec![Some(65535), Some(0), None])));
    let medium = Int32Array::from(vec![Some(8_388_607), Some(-8_388_608), None]);
    add("i24", int(Medium, false), Arc::new(medium));
    let medium = UInt32Array::from(vec![Some(16_777_215), Some(0), None]);
    add("u24", int(Medium, true), Arc::new(medium));
    let ints = Int32Array::from(vec![Some(i32::MAX), Some(i32::MIN), None]);
    add("i32", int(Int, false), Arc::new(ints));
    add("u32", int(Int, true), Arc::new(UInt32Array::from(vec![Some(u32::MAX), Some(0), None])));
    let bigs = Int64Array::from(vec![Some(i64::MAX), Some(i64::MIN), None]);
    add("i64", int(Big, false), Arc::new(bigs));
    add("u64", int(Big, true), Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None])));
    let doubles = Float64Array::from(vec![Some(1e20), Some(-0.1), None]);
    add("f64", ColumnType::Double, Arc::new(doubles));
    let decimals = Decimal128Array::from(vec![Some(123_456_789), Some(-1), None]);
    let decimals = decimals.with_precision_and_scale(12, 3).unwrap();
    add("dec", ColumnType::Decimal { precision: 12, scale: 3 }, Arc::new(decimals));
    let chars = StringArray::from(vec![Some("grün"), Some(""), None]);
    add("c", ColumnType::Char(4), Arc::new(chars.clone()));
    add("v", ColumnType::Varchar(20), Arc::new(chars.clone()));
    add("x", ColumnType::Text(65_535), Arc::new(chars));
    add(
        "d",
        ColumnType::Date,
        Arc::new(Date32Array::from(vec![Some(19_675), Some(-719_162), None])),
    );
    let times = || vec![Some(1_700_000_000_123_456), Some(0), None];
    add("dt", ColumnType::DateTime(0), Arc::new(TimestampMicrosecondArray::from(times())));
    add("dt6", ColumnType::DateTime(6), Arc::new(TimestampMicrosecondArray::from(times())));
    let stamps = TimestampMicrosecondArray::from(times()).with_timezone("UTC");
    add("ts3", ColumnType::Timestamp(3), Arc::new(stamps));
    let documents = LargeStringArray::from(vec![Some("{\"grün\": [1, null]}"), Some("\"\""), None]);
    add("js", ColumnType::Json, Arc::new(documents));
    let nines = i256::from_string(&"9".repeat(65));
    let wides = Decimal256Array::from(vec![nines, Some(i256::MINUS_ONE), None]);
    let wides = wides.with_precision_and_scale(65, 30).unwrap();
    add("wide", ColumnType::Decimal { precision: 65, scale: 30 }, Arc::new(wides));
    let labels =
        |all: &[&str]| Labels::new(&all.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>());
    let label = StringArray::from(vec![Some("grün"), Some(""), None]);
    add("en", ColumnType::Enum(labels(&["klein", "grün"])), Arc::new(label));
    let set = StringArray::from(vec![Some("x,grün"), Some(""), None]);
    add("st", ColumnType::Set(labels(&["x", "y", "grün"])), Arc::new(set));
    (columns, arrays)
}

/// What [`all_types`] prints, in the session's time zone `+02:00`.
pub const ALL_TYPES_TEXT: [&str; 2] = [
    "127\t255\t32767\t65535\t8388607\t16777215\t2147483647\t4294967295\t9223372036854775807\t\
     18446744073709551615\t1e20\t123456.789\tgrün\tgrün\tgrün\t2023-11-14\t2023-11-14 22:13:20\t\
     2023-11-14 22:13:20.123456\t2023-11-15 00:13:20.123\t{\"grün\": [1, null]}\t\
     99999999999999999999999999999999999.999999999999999999999999999999\tgrün\tx,grün",
    "-128\t0\t-32768\t0\t-8388608\t0\t-2147483648\t0\t-9223372036854775808\t0\t-0.1\t-0.001\t\t\t\t\
     0001-01-01\t1970-01-01 00:00:00\t1970-01-01 00:00:00.000000\t1970-01-01 02:00:00.000\t\"\"\t\
     -0.000000000000000000000000000001\t\t",
];

/// Counts streams that exist.
struct Alive(Arc<Seen>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
    }
}

/// `n` rows of a number and 100 bytes, made as they are pulled.
fn many_rows(seen: &Arc<Seen>, n: usize) -> Reply {
    seen.streams.fetch_add(1, Ordering::SeqCst);
    let alive = Alive(Arc::clone(seen));
    let columns =
        vec![column("n", int(IntWidth::Big, false)), column("pad", ColumnType::Varchar(100))];
    let fields = vec![
        Field::new("n", arrow::datatypes::DataType::Int64, false),
        Field::new("pad", arrow::datatypes::DataType::Utf8, false),
    ];
    let schema = Arc::new(Schema::new(fields));
    let starts = futures::stream::iter((0..n).step_by(BATCH));
    let batches = starts.map(move |start| {
        alive.0.batches.fetch_add(1, Ordering::SeqCst);
        let numbers: Vec<i64> = (start..n.min(start + BATCH)).map(|n| n as i64).collect();
        let pads = StringArray::from(vec!["x".repeat(100); numbers.len()]);
        let arrays: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(numbers)), Arc::new(pads)];
        Ok(RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap())
    });
    Reply::Rows { columns, batches: Box::pin(batches), warnings: WarningCount::default() }
}

impl CannedSession {
    async fn run(&mut self, sql: &str, cancel: &CancellationToken) -> Result<Reply, SqlError> {
        let upper = sql.to_ascii_uppercase();
        let words: Vec<&str> = upper.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().unwrap();
        match words.as_slice() {
            ["SELECT", "1"] => {
                let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
                Ok(rows(vec![column("1", int(IntWidth::Big, false))], vec![one]))
            }
            ["SELECT", "NULL"] => {
                let column = ResultColumn::expression("NULL", None, true);
                Ok(rows(vec![column], vec![Arc::new(NullArray::new(1))]))
            }
            ["SELECT", "*", "FROM", "TYPES" | "`TYPES`", ..] => {
                let (columns, arrays) = all_types();
                Ok(rows(columns, arrays))
            }
            ["SELECT", "ROWS", n] => Ok(many_rows(&self.seen, number(n))),
            ["SELECT", "BYTES", n] => Ok(texts(&[("bytes", "z".repeat(number(n)))])),
            ["SELECT", "SLEEP"] => {
                cancel.cancelled().await;
                self.seen.cancelled.fetch_add(1, Ordering::SeqCst);
                Err(error::interrupted())
            }
            ["SELECT", "BROKEN"] => Ok(broken_rows()),
            ["SELECT", "LIED"] => {
                let text: ArrayRef = Arc::new(StringArray::from(vec!["no number"]));
                Ok(rows(vec![column("lie", int(IntWidth::Int, false))], vec![text]))
            }
            ["SELECT", "LENGTH", ..] => Ok(texts(&[("length", sql.len().to_string())])),
            ["SELECT", "CONNECTION_ID()"] => Ok(texts(&[("id", self.info.id.to_string())])),
            ["SELECT", "DATABASE()"] => {
                Ok(texts(&[("database", self.database.clone().unwrap_or_default())]))
            }
            ["SELECT", "WHO"] => Ok(self.who()),
            ["SELECT", "@@MAX_ALLOWED_PACKET,@@WAIT_TIMEOUT"] => Ok(texts(&[
                ("@@max_allowed_packet", "67108864".to_owned()),
                ("@@wait_timeout", "28800".to_owned()),
            ])),
            ["SELECT", "DATABASE(),", "USER()", "LIMIT", "1"] => {
                Ok(texts(&[("database", String::new()), ("user", self.info.user.clone())]))
            }
            ["SELECT", "@@VERSION_COMMENT", "LIMIT", "1"] => {
                Ok(texts(&[("@@version_comment", "canned".to_owned())]))
            }
            ["SHOW", "PROCESSLIST"] => {
                let first = self.connections.list().into_iter().next().unwrap();
                Ok(texts(&[("Id", first.id.to_string()), ("Command", first.command.to_owned())]))
            }
            ["KILL", id] => self.kill(id, KillScope::Connection),
            ["KILL", "QUERY", id] => self.kill(id, KillScope::Query),
            // A commit whose outcome cannot be learned.
            ["COMMIT"] if std::mem::take(&mut self.severed) => {
                self.in_transaction = false;
                let what = "the transaction that began at 7";
                Err(types::Error::outcome_unknown(what, Duration::from_secs(40)).into())
            }
            ["SET", "SEVERED"] => {
                self.severed = true;
                Ok(Reply::Done(Done::default()))
            }
            ["BEGIN"] => {
                self.in_transaction = true;
                Ok(Reply::Done(Done::default()))
            }
            ["COMMIT" | "ROLLBACK"] => {
                self.in_transaction = false;
                Ok(Reply::Done(Done::default()))
            }
            ["INSERT", ..] => Ok(Reply::Done(Done {
                affected_rows: 3,
                last_insert_id: 300,
                warnings: 2,
                info: "Records: 3  Duplicates: 0  Warnings: 2".to_owned(),
            })),
            ["SET", "ZONE"] => {
                self.changes.variables.push(("time_zone".to_owned(), "+01:00".to_owned()));
                Ok(Reply::Done(Done::default()))
            }
            ["SET", "ANYTHING"] => {
                self.changes.tracks_state = true;
                self.changes.any = true;
                Ok(Reply::Done(Done::default()))
            }
            ["SET", ..] => Ok(Reply::Done(Done::default())),
            ["LOAD", "DATA", "LOCAL", "INFILE", ..] => {
                let file = sql.split('\'').nth(1).unwrap_or_default().to_owned();
                Ok(Reply::LocalInfile { file })
            }
            _ => Err(error::syntax(format!("the canned engine knows no '{sql}'"))),
        }
    }

    fn kill(&self, id: &str, scope: KillScope) -> Result<Reply, SqlError> {
        match self.connections.kill(id.parse().unwrap(), scope) {
            true => Ok(Reply::Done(Done::default())),
            false => Err(error::no_thread(id)),
        }
    }

    fn who(&self) -> Reply {
        let mut attributes: Vec<_> =
            self.info.attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
        attributes.sort();
        texts(&[
            ("user", self.info.user.clone()),
            ("tls", self.info.tls.to_string()),
            ("found_rows", self.info.found_rows.to_string()),
            ("attributes", attributes.join(",")),
        ])
    }
}

/// A batch, then an error.
fn broken_rows() -> Reply {
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let schema = Schema::new(vec![Field::new("n", one.data_type().clone(), true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![one]).unwrap();
    let error = error::storage_failed("the second batch is lost");
    let batches: BatchStream = Box::pin(futures::stream::iter([Ok(batch), Err(error)]));
    Reply::Rows {
        columns: vec![column("n", int(IntWidth::Big, false))],
        batches,
        warnings: WarningCount::default(),
    }
}

#[async_trait]
impl Session for CannedSession {
    async fn execute(&mut self, sql: &[u8], cancel: &CancellationToken) -> Result<Reply, SqlError> {
        match std::str::from_utf8(sql) {
            Ok(sql) => self.run(sql, cancel).await,
            Err(_) => Ok(texts(&[("raw", format!("{} raw bytes", sql.len()))])),
        }
    }

    async fn prepare(&mut self, sql: &[u8]) -> Result<Prepared, SqlError> {
        let sql = String::from_utf8_lossy(sql).into_owned();
        let params = sql.bytes().filter(|byte| *byte == b'?').count() as u16;
        let columns = match sql.as_str() {
            "SELECT * FROM types" => all_types().0,
            echo if echo.starts_with("ECHO") => {
                (0..params).map(|_| column("echo", ColumnType::Varchar(255))).collect()
            }
            insert if insert.starts_with("INSERT") => Vec::new(),
            other => {
                return Err(error::syntax(format!("cannot prepare '{other}'")));
            }
        };
        let id = self.next_statement;
        self.next_statement += 1;
        self.prepared.insert(id, sql);
        Ok(Prepared { id, params, columns, warnings: 0 })
    }

    async fn execute_prepared(
        &mut self,
        id: u32,
        params: Vec<Value>,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError> {
        let sql = self.prepared.get(&id).cloned().unwrap();
        if !sql.starts_with("ECHO") {
            return self.run(&sql, cancel).await;
        }
        let echo = |value: &Value| {
            let text = format!("{value:?}");
            match text.len() < 200 {
                true => text,
                false => format!("{} bytes", value.to_string().len()),
            }
        };
        let pairs: Vec<_> = params.iter().map(|value| ("echo", echo(value))).collect();
        Ok(texts(&pairs))
    }

    async fn open_prepared(
        &mut self,
        id: u32,
        params: Vec<Value>,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError> {
        self.execute_prepared(id, params, cancel).await
    }

    async fn close_prepared(&mut self, id: u32) {
        self.prepared.remove(&id).unwrap();
    }

    async fn load_data(
        &mut self,
        mut file: InfileReceiver,
        _: &CancellationToken,
    ) -> Result<Reply, SqlError> {
        let mut bytes = 0;
        let mut lines = 0;
        while let Some(piece) = file.recv().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    self.seen.cancelled.fetch_add(1, Ordering::SeqCst);
                    return Err(error);
                }
            };
            if piece.starts_with(b"bad") {
                return Err(error::too_many_fields(1));
            }
            bytes += piece.len();
            lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        let info = format!("{bytes} bytes");
        Ok(Reply::Done(Done { affected_rows: lines, info, ..Done::default() }))
    }

    async fn use_database(&mut self, name: &str) -> Result<(), SqlError> {
        if name == "nowhere" {
            return Err(error::no_database(name));
        }
        self.database = Some(name.to_owned());
        Ok(())
    }

    fn database(&self) -> Option<String> {
        self.database.clone()
    }

    fn take_changes(&mut self) -> SessionChanges {
        SessionChanges { tracks_schema: true, ..std::mem::take(&mut self.changes) }
    }

    fn status(&self) -> SessionStatus {
        SessionStatus {
            in_transaction: self.in_transaction,
            autocommit: true,
            no_backslash_escapes: false,
        }
    }

    fn time_zone(&self) -> String {
        "+02:00".to_owned()
    }

    async fn close(&mut self) {
        self.seen.closed.fetch_add(1, Ordering::SeqCst);
    }
}
