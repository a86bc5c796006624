//! `isobar bench tpch`: hot seconds of the 22 queries on columns, beside DuckDB, DataFusion and Spark on the same data.
//!
//! No time is shown before every answer was compared, and a peer that is not here is reported, not replaced.

pub mod data;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mysql_async::consts::ColumnType;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use serde_json::json;

use crate::batch::{Engine, connect};
use crate::measure::bar;
use crate::output::{self, note};
use crate::peers::{Opened, Peers};
use crate::replicas;
use crate::stage::{self, Stage, StageArgs};
use data::{Files, TABLES};
use report::{Bytes, Load, QueryTimes, Report};

/// Us.
const COLUMNS: &str = "columns";
/// How long a query of ours may take.
const QUERY_LIMIT: Duration = Duration::from_secs(600);
/// The standard's texts, in order.
const QUERIES: [&str; 22] = [
    include_str!("../../../examples/tpch/queries/q01.sql"),
    include_str!("../../../examples/tpch/queries/q02.sql"),
    include_str!("../../../examples/tpch/queries/q03.sql"),
    include_str!("../../../examples/tpch/queries/q04.sql"),
    include_str!("../../../examples/tpch/queries/q05.sql"),
    include_str!("../../../examples/tpch/queries/q06.sql"),
    include_str!("../../../examples/tpch/queries/q07.sql"),
    include_str!("../../../examples/tpch/queries/q08.sql"),
    include_str!("../../../examples/tpch/queries/q09.sql"),
    include_str!("../../../examples/tpch/queries/q10.sql"),
    include_str!("../../../examples/tpch/queries/q11.sql"),
    include_str!("../../../examples/tpch/queries/q12.sql"),
    include_str!("../../../examples/tpch/queries/q13.sql"),
    include_str!("../../../examples/tpch/queries/q14.sql"),
    include_str!("../../../examples/tpch/queries/q15.sql"),
    include_str!("../../../examples/tpch/queries/q16.sql"),
    include_str!("../../../examples/tpch/queries/q17.sql"),
    include_str!("../../../examples/tpch/queries/q18.sql"),
    include_str!("../../../examples/tpch/queries/q19.sql"),
    include_str!("../../../examples/tpch/queries/q20.sql"),
    include_str!("../../../examples/tpch/queries/q21.sql"),
    include_str!("../../../examples/tpch/queries/q22.sql"),
];

/// TPC-H's 22 queries on columns, beside DuckDB, DataFusion and Spark.
///
/// Without --target it starts a playground, makes the tables (`isobar dbgen`), fills them by `isobar
/// import`, and removes everything at the end. Then each query runs once at every reader, and its
/// answers are compared; then --repetitions times more at each in turn, and these are timed, with
/// fetching the rows. Everybody has the same --threads processors.
///
///   columns              this cluster, by SQL over the MySQL protocol
///   duckdb               its own tables, in memory
///   duckdb-parquet       and over the files that were imported
///   datafusion-parquet   over the same files
///   spark-connector      Spark on this cluster's columns (--spark)
///   spark-parquet        Spark over the same files (--spark)
///
///   isobar bench tpch --scale 0.1 --json tpch.json
///   isobar bench tpch --scale 1 --spark --files /var/tmp/tpch      keeps the files for the next time
///
/// The peers are Python packages: pip install duckdb datafusion pyspark pyarrow. One that is not
/// there is named in the report, and the others are measured.
///
/// Exit code 0: measured; 1: an answer is wrong, or an error.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    stage: StageArgs,
    /// TPC-H's scale factor: 1 is 6 million line items
    #[arg(long, default_value_t = 0.01, value_name = "FACTOR")]
    scale: f64,
    /// Timed runs of each query at each reader
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,
    /// Only this query, 1 to 22; may be given several times
    #[arg(long = "query", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=22))]
    queries: Vec<u16>,
    /// Spark, too
    #[arg(long)]
    spark: bool,
    #[command(flatten)]
    peers: PeerArgs,
    /// Keep the tables' files here, and find them again [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// The tables are there already, with replicas
    #[arg(long, requires = "target")]
    no_load: bool,
    /// The table that is loaded once more, by LOAD DATA
    #[arg(long, value_name = "TABLE", default_value = "lineitem", value_parser = TABLES)]
    load_data: String,
    /// Leave that out
    #[arg(long)]
    no_load_data: bool,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How the peers are run.
#[derive(clap::Args, Clone, Debug)]
pub struct PeerArgs {
    /// Runs the peers
    #[arg(long, value_name = "COMMAND", default_value = "python3 examples/tpch/peers.py")]
    pub peers_command: String,
    /// The Spark connector's runtime jar
    #[arg(
        long,
        value_name = "FILE",
        default_value = "spark-connector/target/isobar-spark-runtime-4.2_2.13.jar"
    )]
    pub jar: PathBuf,
    /// Memory of Spark's process
    #[arg(long, value_name = "SIZE", default_value = "3g")]
    pub spark_memory: String,
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
    for table in TABLES {
        files.make(table, "parquet").await?;
    }
    if !args.no_load {
        report.load = Some(fill(stage, &files).await?);
    }
    report.readers.insert(COLUMNS.to_owned(), format!("Isobar {}", env!("CARGO_PKG_VERSION")));
    let (peers, mut readers) = open(args, stage, &files, &mut report).await?;
    readers.insert(0, COLUMNS.to_owned());
    let conn = connect(&stage.target, Engine::Columns).await?;
    let mut round = Rounds { args, conn, peers, readers, report: &mut report };
    let measured = round.all().await;
    if let Some(peers) = round.peers {
        peers.stop().await;
    }
    measured?;
    report.bytes = bytes(stage, &files).await?;
    if let Some(load) = &mut report.load
        && !args.no_load_data
    {
        by_load_data(stage, &files, &args.load_data, load).await?;
    }
    Ok(report)
}

/// Makes and fills the tables.
async fn fill(stage: &Stage, files: &Files) -> Result<Load> {
    let names: Vec<String> = TABLES.map(str::to_owned).into();
    for table in TABLES {
        data::create(&stage.target, table).await?;
    }
    replicas::set(&stage.target, &names, 1).await?;
    note("importing the tables …");
    let import_seconds = data::import(stage, files, &TABLES).await?;
    replicas::wait(&stage.target, &names, 1).await?;
    let mut import_rows = 0;
    for table in TABLES {
        import_rows += data::count(&stage.target, table).await?;
    }
    let all: f64 = import_seconds.iter().map(|(_, seconds)| seconds).sum();
    Ok(Load {
        import_rows,
        import_rows_per_second: import_rows as f64 / all.max(1e-9),
        import_seconds: import_seconds.into_iter().collect(),
        ..Load::default()
    })
}

/// Loads a table into a database of its own, without replicas, and drops it.
async fn by_load_data(stage: &Stage, files: &Files, table: &str, load: &mut Load) -> Result<()> {
    note(&format!("loading {table} once more, by LOAD DATA …"));
    let target = stage.target.with_database(&format!("{}_load_data", stage.target.database()));
    let file = files.make(table, "tbl").await?;
    target.connect_and_create().await?;
    data::create(&target, table).await?;
    let (rows, seconds) = data::load_data(&target, table, &file).await?;
    if rows != data::count(&target, table).await? {
        bail!("LOAD DATA said {rows} rows of {table}, and there are not as many");
    }
    target.connect().await?.query_drop(format!("DROP DATABASE {}", target.database())).await?;
    load.load_data_table = Some(table.to_owned());
    load.load_data_rows = Some(rows);
    load.load_data_seconds = Some(seconds);
    load.load_data_rows_per_second = Some(rows as f64 / seconds.max(1e-9));
    Ok(())
}

async fn bytes(stage: &Stage, files: &Files) -> Result<Bytes> {
    let mut conn = stage.target.connect().await.context("cannot connect")?;
    let columns: Option<Option<u64>> = conn
        .query_first(format!(
            "SELECT CAST(SUM(bytes) AS UNSIGNED) FROM information_schema.columnar_replica WHERE table_schema = '{}'",
            stage.target.database()
        ))
        .await
        .context("cannot ask for the bytes of columns")?;
    Ok(Bytes {
        row_node: stage.bytes("row-1"),
        columnar_nodes: stage.bytes("columnar-"),
        columns: columns.flatten(),
        parquet_zstd: files.parquet_bytes(),
    })
}

/// Opens the peers; who is not here is noted.
async fn open(
    args: &Args,
    stage: &Stage,
    files: &Files,
    report: &mut Report,
) -> Result<(Option<Peers>, Vec<String>)> {
    let mut names = vec!["duckdb", "duckdb-parquet", "datafusion-parquet"];
    if args.spark {
        names.extend(["spark-connector", "spark-parquet"]);
    }
    let mut peers = match Peers::start(&args.peers.peers_command) {
        Ok(peers) => peers,
        Err(error) => {
            let why = format!("{error:#}; --peers-command says how they are run");
            report.absent.extend(names.iter().map(|name| ((*name).to_owned(), why.clone())));
            return Ok((None, Vec::new()));
        }
    };
    let more = json!({
        "folder": files.folder, "threads": args.stage.threads, "database": stage.target.database(),
        "endpoints": stage.endpoints().await?, "user": stage.target.user(), "jar": args.peers.jar,
        "spark_memory": args.peers.spark_memory,
    });
    let (mut here, bar) = (Vec::new(), bar(names.len() as u64, "peers"));
    for name in names {
        bar.set_message(name);
        match peers.open(name, name, &more).await {
            Ok(Opened::Here(version)) => {
                report.readers.insert(name.to_owned(), version);
                here.push(name.to_owned());
            }
            Ok(Opened::Absent(why)) => {
                report.absent.insert(name.to_owned(), why);
            }
            Err(error) => {
                let command = &args.peers.peers_command;
                report.absent.insert(name.to_owned(), format!("{error:#} ({command})"));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok((Some(peers), here))
}

/// The queries, at every reader in turn.
struct Rounds<'a> {
    args: &'a Args,
    conn: Conn,
    peers: Option<Peers>,
    readers: Vec<String>,
    report: &'a mut Report,
}

impl Rounds<'_> {
    async fn all(&mut self) -> Result<()> {
        let only = &self.args.queries;
        let numbers: Vec<usize> = (1..=22)
            .filter(|n| only.is_empty() || only.iter().any(|a| usize::from(*a) == *n))
            .collect();
        let rounds = numbers.len() * (1 + usize::from(self.args.repetitions));
        let bar = bar(rounds as u64, "queries");
        let mut wrong = Vec::new();
        for number in numbers {
            let mut query = QueryTimes { number, ..QueryTimes::default() };
            let mut readers = self.readers.clone();
            // The peers first: the first answer is what the others are compared with.
            readers.rotate_left(1);
            for repetition in 0..=self.args.repetitions {
                bar.set_message(format!("Q{number}"));
                for reader in readers.clone() {
                    match self.once(&reader, number, repetition == 0, &mut wrong).await {
                        Ok(seconds) if repetition > 0 => {
                            query.seconds.entry(reader).or_default().push(seconds);
                        }
                        Ok(_) => {}
                        Err(error) if reader == COLUMNS => {
                            return Err(error.context(format!("Q{number} on columns")));
                        }
                        Err(error) => {
                            readers.retain(|other| *other != reader);
                            query.seconds.remove(&reader);
                            self.report
                                .failed
                                .insert(format!("Q{number} of {reader}"), format!("{error:#}"));
                        }
                    }
                }
                // Nobody is always the one after the slowest.
                readers.rotate_left(1);
                bar.inc(1);
            }
            self.report.queries.push(query);
        }
        bar.finish_and_clear();
        match wrong.is_empty() {
            true => Ok(()),
            false => bail!("answers differ, so no time is shown:\n{}", wrong.join("\n")),
        }
    }

    /// Runs a query once; seconds.
    async fn once(
        &mut self,
        reader: &str,
        number: usize,
        check: bool,
        wrong: &mut Vec<String>,
    ) -> Result<f64> {
        let answered = if reader == COLUMNS {
            let answer = run_query(&mut self.conn, &text(number, self.args.scale)).await?;
            match (&mut self.peers, check) {
                (Some(peers), true) => {
                    let mut answered =
                        peers.check(reader, number, &answer.types, &answer.rows).await?;
                    answered.seconds = answer.seconds;
                    answered
                }
                _ => return Ok(answer.seconds),
            }
        } else {
            let peers = self.peers.as_mut().context("no peers")?;
            peers.query(reader, (number, self.args.scale), check).await?
        };
        if let Some(against) = answered.against {
            for difference in answered.differences {
                wrong.push(format!(
                    "Q{number}: {reader} answers otherwise than {against}: {difference}"
                ));
            }
            self.report.checked_against = Some(against);
        }
        Ok(answered.seconds)
    }
}

/// A query's text; Q11's fraction is the one parameter that the standard ties to the scale.
fn text(number: usize, scale: f64) -> String {
    let text = QUERIES.get(number - 1).copied().unwrap_or_default();
    match number {
        11 => text.replace("0.0001\n", &format!("{:.10}\n", 0.0001 / scale)),
        _ => text.to_owned(),
    }
}

struct Answer {
    seconds: f64,
    types: Vec<&'static str>,
    rows: Vec<Vec<Option<String>>>,
}

async fn run_query(conn: &mut Conn, text: &str) -> Result<Answer> {
    let began = Instant::now();
    let query = async {
        let mut result = conn.query_iter(text).await?;
        let columns = result.columns();
        let rows: Vec<Row> = result.collect().await?;
        Ok::<_, mysql_async::Error>((columns, rows))
    };
    let (columns, rows) = match tokio::time::timeout(QUERY_LIMIT, query).await {
        Ok(answer) => answer?,
        Err(_) => bail!("no answer within {} s", QUERY_LIMIT.as_secs()),
    };
    let seconds = began.elapsed().as_secs_f64();
    let types =
        columns.iter().flat_map(|columns| columns.iter()).map(|column| kind(column.column_type()));
    let texts = rows.into_iter().map(|row| row.unwrap().into_iter().map(cell).collect());
    Ok(Answer { seconds, types: types.collect(), rows: texts.collect() })
}

/// A cell as its text, which is how this protocol sends it.
fn cell(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true).trim_matches('\'').to_owned()),
    }
}

/// How the peers' helper reads a column's texts.
fn kind(ty: ColumnType) -> &'static str {
    use ColumnType::{
        MYSQL_TYPE_DATE, MYSQL_TYPE_DECIMAL, MYSQL_TYPE_DOUBLE, MYSQL_TYPE_FLOAT, MYSQL_TYPE_INT24,
        MYSQL_TYPE_LONG, MYSQL_TYPE_LONGLONG, MYSQL_TYPE_NEWDECIMAL, MYSQL_TYPE_SHORT,
        MYSQL_TYPE_TINY, MYSQL_TYPE_YEAR,
    };
    match ty {
        MYSQL_TYPE_DECIMAL | MYSQL_TYPE_NEWDECIMAL => "decimal",
        MYSQL_TYPE_TINY | MYSQL_TYPE_SHORT | MYSQL_TYPE_LONG | MYSQL_TYPE_LONGLONG
        | MYSQL_TYPE_INT24 | MYSQL_TYPE_YEAR => "int",
        MYSQL_TYPE_FLOAT | MYSQL_TYPE_DOUBLE => "float",
        MYSQL_TYPE_DATE => "date",
        _ => "text",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_standards_but_for_the_fraction() {
        assert_eq!(text(1, 0.1), QUERIES[0]);
        assert!(text(11, 1.0).contains("0.0001000000\n"));
        assert!(text(11, 0.1).contains("0.0010000000\n"));
    }
}
