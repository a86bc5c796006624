//! `isobar bench scan`: how many rows a second a full scan of LINEITEM reads, by reader.
//!
//! No rate is shown before all readers have seen the same rows; one that is not here is reported, not replaced.

mod mariadb;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use serde::Serialize;
use serde_json::json;

use crate::batch::{Engine, connect};
use crate::measure::{bar, median, table};
use crate::output::{self, note};
use crate::peers::{Opened, Peers};
use crate::replicas;
use crate::stage::{self, Setting, Stage, StageArgs};
use crate::target::Target;
use crate::tpch::PeerArgs;
use crate::tpch::data::{self, Files};
use mariadb::MariaDb;

const TABLE: &str = "lineitem";
/// What every reader must have seen: rows, and sums and largest values of some columns.
const SEEN: &str = "SELECT COUNT(*), SUM(l_orderkey), SUM(l_extendedprice), MAX(l_shipdate), MAX(l_comment) FROM lineitem";
/// Every column is read.
const AGGREGATE: &str = "SELECT COUNT(*), SUM(l_orderkey), SUM(l_extendedprice), MAX(l_shipdate), MAX(l_comment), \
    SUM(l_partkey), SUM(l_suppkey), SUM(l_linenumber), SUM(l_quantity), SUM(l_discount), SUM(l_tax), \
    MIN(l_returnflag), MIN(l_linestatus), MIN(l_commitdate), MIN(l_receiptdate), MIN(l_shipinstruct), \
    MIN(l_shipmode) FROM lineitem";
/// Who the others are compared with.
const BASE: &str = "connector";
/// Readers of MariaDB.
const MARIADB: [&str; 2] = ["mariadb-1", "mariadb-4"];

/// A full scan of TPC-H's LINEITEM: rows per second of each reader.
///
/// Without --target it starts a playground and a MariaDB of its own, makes the table (`isobar dbgen`)
/// and fills both. Every reader reads every column of every row, --repetitions times after a first
/// one, in turn; everybody has the same --threads processors.
///
///   sql-columns, sql-rows   an aggregate over all columns, answered here
///   connector               Spark on columns
///   spark-parquet           Spark over the file that was imported
///   jdbc-1, jdbc-4          Spark's JDBC source at this cluster, by cursor, in 1 and 4 partitions
///   mariadb-1, mariadb-4    the same at MariaDB
///
///   isobar bench scan --scale 0.1 --json scan.json \
///       --jdbc-jar ~/.m2/repository/com/mysql/mysql-connector-j/9.5.0/mysql-connector-j-9.5.0.jar
///
/// Spark needs pip install pyspark, JDBC a driver's jar, MariaDB the Debian package mariadb-server.
/// What is not there is named in the report, and the others are measured.
///
/// Exit code 0: measured; 1: a reader has seen other rows, or an error.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    stage: StageArgs,
    /// TPC-H's scale factor: 1 is 6 million line items
    #[arg(long, default_value_t = 0.1, value_name = "FACTOR")]
    scale: f64,
    /// Timed runs of each reader
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
    #[command(flatten)]
    peers: PeerArgs,
    /// A JDBC driver for MySQL: mysql-connector-j's jar
    #[arg(long, value_name = "FILE")]
    jdbc_jar: Option<PathBuf>,
    /// Leave this reader out; may be given several times
    #[arg(long, value_name = "READER")]
    without: Vec<String>,
    /// Keep the table's files here, and find them again [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// The table is there already, with its replica
    #[arg(long, requires = "target")]
    no_load: bool,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Args {
    fn is_without(&self, reader: &str) -> bool {
        self.without.iter().any(|without| without == reader)
    }
}

/// One reader.
#[derive(Clone, Debug, Default, Serialize)]
struct ReaderResult {
    version: String,
    seconds: Vec<f64>,
    rows_per_second: f64,
    /// Its rate as a part of the connector's.
    of_connector: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Report {
    #[serde(flatten)]
    setting: Setting,
    scale: f64,
    repetitions: usize,
    rows: u64,
    readers: BTreeMap<String, ReaderResult>,
    absent: BTreeMap<String, String>,
    failed: BTreeMap<String, String>,
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    if !(args.scale > 0.0 && args.scale <= 1_000.0) {
        bail!("--scale {} is not above 0 and up to 1000", args.scale);
    }
    let mut report =
        stage::measured(&args.stage, "tpch", async |stage, _| measure(&args, stage).await).await?;
    report.finish();
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    print!("{}", report.text());
    Ok(ExitCode::SUCCESS)
}

async fn measure(args: &Args, stage: &Stage) -> Result<Report> {
    let mut report = Report {
        setting: stage.setting().await?,
        scale: args.scale,
        repetitions: args.repetitions.into(),
        ..Report::default()
    };
    let files = Files::new(args.files.as_deref(), args.scale, &stage.isobar)?;
    files.make(TABLE, "parquet").await?;
    if !args.no_load {
        data::create(&stage.target, TABLE).await?;
        replicas::set(&stage.target, &[TABLE.to_owned()], 1).await?;
        note("importing lineitem …");
        data::import(stage, &files, &[TABLE]).await?;
        replicas::wait(&stage.target, &[TABLE.to_owned()], 1).await?;
    }
    let mariadb = mariadb(args, &files, &mut report).await?;
    let (mut peers, readers) = open(args, stage, &files, mariadb.as_ref(), &mut report).await?;
    let rows = connect(&stage.target, Engine::Rows).await?;
    let columns = connect(&stage.target, Engine::Columns).await?;
    let mut scans = Scans { rows, columns, peers: peers.as_mut(), expected: None };
    let measured = rounds(args, readers, &mut scans, &mut report).await;
    if let Some(peers) = peers {
        peers.stop().await;
    }
    if let Some(mariadb) = mariadb {
        mariadb.stop().await;
    }
    measured?;
    Ok(report)
}

/// A MariaDB with the table, unless it is not here or not wanted.
async fn mariadb(args: &Args, files: &Files, report: &mut Report) -> Result<Option<MariaDb>> {
    let wanted = MARIADB.iter().any(|name| !args.is_without(name));
    if !wanted {
        return Ok(None);
    }
    let started = match &args.jdbc_jar {
        Some(_) => MariaDb::start(args.stage.port_base + 90).await,
        None => Err(anyhow::anyhow!("it would be read by JDBC, and --jdbc-jar names no driver")),
    };
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            for name in MARIADB.iter().filter(|name| !args.is_without(name)) {
                report.absent.insert((*name).to_owned(), format!("{error:#}"));
            }
            return Ok(None);
        }
    };
    note("loading lineitem into MariaDB …");
    let file = files.make(TABLE, "tbl").await?;
    data::create(&server.target, TABLE).await?;
    data::load_data(&server.target, TABLE, &file).await?;
    Ok(Some(server))
}

/// Opens the readers; who is not here is noted.
async fn open(
    args: &Args,
    stage: &Stage,
    files: &Files,
    mariadb: Option<&MariaDb>,
    report: &mut Report,
) -> Result<(Option<Peers>, Vec<String>)> {
    let mut here = Vec::new();
    for name in ["sql-columns", "sql-rows"] {
        let version = stage.target.version().await?;
        report.readers.insert(name.to_owned(), ReaderResult { version, ..ReaderResult::default() });
        here.push(name.to_owned());
    }
    let mut peers = Peers::start(&args.peers.peers_command).map_err(|error| format!("{error:#}"));
    let jdbc = |target: &Target| json!({"address": target.address(), "user": target.user(), "database": target.database()});
    let nothing = json!({});
    let mut peer_readers = vec![
        ("connector", "spark-connector", nothing.clone(), 0),
        ("spark-parquet", "spark-parquet", nothing, 0),
        ("jdbc-1", "jdbc", jdbc(&stage.target), 1),
        ("jdbc-4", "jdbc", jdbc(&stage.target), 4),
    ];
    if let Some(mariadb) = mariadb {
        peer_readers.extend([
            ("mariadb-1", "jdbc", jdbc(&mariadb.target), 1),
            ("mariadb-4", "jdbc", jdbc(&mariadb.target), 4),
        ]);
    }
    let highest = highest_key(&stage.target).await?;
    let common = json!({
        "folder": files.folder, "threads": args.stage.threads, "database": stage.target.database(),
        "endpoints": stage.endpoints().await?, "user": stage.target.user(), "jar": args.peers.jar,
        "jdbc_jar": args.jdbc_jar, "spark_memory": args.peers.spark_memory, "highest": highest,
    });
    for (name, kind, own, partitions) in peer_readers {
        if args.is_without(name) {
            continue;
        }
        let mut more = common.clone();
        if let (Some(more), Some(own)) = (more.as_object_mut(), own.as_object()) {
            more.extend(own.clone());
            more.insert("partitions".to_owned(), partitions.into());
        }
        let opened = match &mut peers {
            Ok(peers) => peers.open(name, kind, &more).await,
            Err(error) => Ok(Opened::Absent(error.clone())),
        };
        match opened {
            Ok(Opened::Here(version)) => {
                report
                    .readers
                    .insert(name.to_owned(), ReaderResult { version, ..ReaderResult::default() });
                here.push(name.to_owned());
            }
            Ok(Opened::Absent(why)) => {
                report.absent.insert(name.to_owned(), why);
            }
            Err(error) => {
                report
                    .absent
                    .insert(name.to_owned(), format!("{error:#} ({})", args.peers.peers_command));
            }
        }
    }
    here.retain(|name| !args.without.contains(name));
    report.readers.retain(|name, _| here.contains(name));
    Ok((peers.ok(), here))
}

async fn highest_key(target: &Target) -> Result<u64> {
    let mut conn = connect(target, Engine::Columns).await?;
    let highest: Option<u64> = conn.query_first("SELECT MAX(l_orderkey) FROM lineitem").await?;
    highest.context("lineitem is empty")
}

/// Each reader once, and then in turn.
async fn rounds(
    args: &Args,
    mut readers: Vec<String>,
    scans: &mut Scans<'_>,
    report: &mut Report,
) -> Result<()> {
    let bar = bar((readers.len() * (1 + usize::from(args.repetitions))) as u64, "scans");
    for repetition in 0..=args.repetitions {
        for reader in readers.clone() {
            bar.set_message(reader.clone());
            match scans.scan(&reader).await {
                Ok((rows, seconds)) => {
                    report.rows = rows;
                    if repetition > 0
                        && let Some(result) = report.readers.get_mut(&reader)
                    {
                        result.seconds.push(seconds);
                    }
                }
                Err(Trouble::Failed(error)) if !reader.starts_with("sql-") => {
                    readers.retain(|other| *other != reader);
                    report.readers.remove(&reader);
                    report.failed.insert(reader, format!("{error:#}"));
                }
                Err(Trouble::Failed(error)) => return Err(error.context(reader)),
                Err(Trouble::Differs(text)) => bail!("{text}, so no rate is shown"),
            }
            bar.inc(1);
        }
        readers.rotate_left(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Why a scan has no time.
#[derive(Debug)]
enum Trouble {
    Failed(anyhow::Error),
    Differs(String),
}

impl<E: Into<anyhow::Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Trouble::Failed(error.into())
    }
}

struct Scans<'a> {
    rows: Conn,
    columns: Conn,
    peers: Option<&'a mut Peers>,
    /// What the first reader has seen, and who it was.
    expected: Option<(String, Vec<String>)>,
}

impl Scans<'_> {
    /// Rows and seconds of a scan whose rows are those that all others have seen.
    async fn scan(&mut self, reader: &str) -> Result<(u64, f64), Trouble> {
        let (seen, seconds) = match reader {
            "sql-columns" => aggregate(&mut self.columns).await?,
            "sql-rows" => aggregate(&mut self.rows).await?,
            _ => {
                let peers = self.peers.as_mut().context("no peers")?;
                let answered = peers.scan(reader).await?;
                (answered.seen, answered.seconds)
            }
        };
        let (who, expected) =
            self.expected.get_or_insert_with(|| (reader.to_owned(), seen.clone()));
        if let Some(difference) = differs(expected, &seen) {
            return Err(Trouble::Differs(format!(
                "{reader} has seen other rows than {who}: {difference}"
            )));
        }
        let rows = seen.first().and_then(|rows| rows.parse().ok());
        Ok((rows.context("no count of rows")?, seconds))
    }
}

/// How what two readers have seen differs.
fn differs(expected: &[String], seen: &[String]) -> Option<String> {
    (expected != seen).then(|| format!("{seen:?}, not {expected:?} ({SEEN})"))
}

/// The aggregate's first five values, and its seconds.
async fn aggregate(conn: &mut Conn) -> Result<(Vec<String>, f64)> {
    let began = Instant::now();
    let row: Option<Row> = conn.query_first(AGGREGATE).await?;
    let seconds = began.elapsed().as_secs_f64();
    let row = row.context("the aggregate had no answer")?;
    let text = |at: usize| {
        row.get_opt::<String, _>(at).and_then(Result::ok).context("a value that is no text")
    };
    Ok(((0..5).map(text).collect::<Result<_>>()?, seconds))
}

impl Report {
    fn finish(&mut self) {
        let rows = self.rows as f64;
        for result in self.readers.values_mut() {
            result.rows_per_second =
                median(&result.seconds).map_or(0.0, |seconds| rows / seconds.max(1e-9));
        }
        let base = self.readers.get(BASE).map(|result| result.rows_per_second);
        for result in self.readers.values_mut() {
            result.of_connector = base.map(|base| result.rows_per_second / base);
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "\nFull scan of lineitem, scale {}, {} rows: {}\nanswers checked: all have seen the same rows; median of {}\n\n",
            self.scale, self.rows, self.setting.pinning, self.repetitions
        );
        let head = ["", "rows/s", "seconds", "÷ connector"].map(str::to_owned);
        let mut rows = Vec::new();
        for (name, result) in &self.readers {
            rows.push(vec![
                name.clone(),
                format!("{:.0}", result.rows_per_second),
                median(&result.seconds).map_or("–".to_owned(), |seconds| format!("{seconds:.3}")),
                result.of_connector.map_or("–".to_owned(), |ratio| format!("{ratio:.3}")),
            ]);
        }
        text += &table(&head, &rows);
        for (reader, why) in self.absent.iter().chain(&self.failed) {
            let _ = writeln!(text, "{reader} is absent: {why}");
        }
        if let (Some(columns), Some(rows)) =
            (self.readers.get("sql-columns"), self.readers.get("sql-rows"))
        {
            let ratio = columns.rows_per_second / rows.rows_per_second.max(1e-9);
            let _ = writeln!(text, "columns against rows in SQL: {ratio:.1}×");
        }
        text
    }
}
