//! TPC-H's tables: as files by `isobar dbgen`, and in a database by `isobar import` and LOAD DATA.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use tokio::process::Command;

use crate::measure::bar;
use crate::output::note;
use crate::stage::{Stage, below};
use crate::target::Target;

/// The tables' definitions.
const SCHEMA: &str = include_str!("../../../../examples/tpch/schema.sql");
/// The tables, small ones first.
pub const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"];

/// The tables as files.
pub struct Files {
    /// Where they are.
    pub folder: PathBuf,
    scale: f64,
    isobar: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Files {
    /// Files in a folder that keeps them for the next time, or in a temporary one.
    pub fn new(kept: Option<&Path>, scale: f64, isobar: &Path) -> Result<Self> {
        let isobar = isobar.to_owned();
        let (folder, temporary) = match kept {
            Some(kept) => (kept.join(format!("sf{scale}")), None),
            None => {
                let folder = tempfile::Builder::new().prefix("isobar-tpch-").tempdir();
                let folder = folder.context("cannot make a folder for the tables' files")?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        Ok(Files { folder, scale, isobar, _temporary: temporary })
    }

    /// A table's file, made if it is not there.
    pub async fn make(&self, table: &str, format: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{table}.{format}"));
        if !path.is_file() {
            note(&format!("making {} …", path.display()));
            let mut command = Command::new(&self.isobar);
            command.args(["dbgen", "--format", format, "--table", table]);
            command.args(["--scale", &self.scale.to_string()]).arg("--dir").arg(&self.folder);
            run(command, &format!("making {}", path.display())).await?;
        }
        Ok(path)
    }

    /// Bytes of the tables as Parquet.
    pub fn parquet_bytes(&self) -> u64 {
        TABLES.iter().map(|table| below(&self.folder.join(format!("{table}.parquet")))).sum()
    }
}

/// Makes a table of TPC-H.
pub async fn create(target: &Target, table: &str) -> Result<()> {
    let head = format!("CREATE TABLE {table} (");
    let text = SCHEMA.find(&head).and_then(|at| SCHEMA.get(at..)).unwrap_or_default();
    let text = text.split(';').next().unwrap_or_default();
    let mut conn = target.connect().await.context("cannot connect")?;
    conn.query_drop(text).await.with_context(|| {
        format!(
            "cannot make table {table} in {}: name another database, or --no-load if its tables are TPC-H's",
            target.shown
        )
    })
}

/// Fills tables, which have their replicas already, by `isobar import`; seconds of each.
pub async fn import(stage: &Stage, files: &Files, tables: &[&str]) -> Result<Vec<(String, f64)>> {
    let mut took = Vec::new();
    let bar = bar(tables.len() as u64, "import");
    for table in tables {
        bar.set_message((*table).to_owned());
        let file = files.make(table, "parquet").await?;
        let target = &stage.target;
        let mut command = Command::new(&stage.isobar);
        command.args(["import", "--target", &target.address(), "--user", target.user()]);
        command.args(["--database", target.database(), "--table", table]).arg(file);
        command.env("ISOBAR_PASSWORD", target.password());
        let began = Instant::now();
        run(command, &format!("importing {table}")).await?;
        took.push(((*table).to_owned(), began.elapsed().as_secs_f64()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(took)
}

/// Fills a table by LOAD DATA of a `.tbl` file; rows and seconds.
pub async fn load_data(target: &Target, table: &str, file: &Path) -> Result<(u64, f64)> {
    let mut conn = target.connect_to_load(file).await.context("cannot connect")?;
    let text = format!(
        "LOAD DATA LOCAL INFILE '{}' INTO TABLE {table} FIELDS TERMINATED BY '|' LINES TERMINATED BY '|\\n'",
        file.display()
    );
    let began = Instant::now();
    conn.query_drop(text).await.with_context(|| format!("LOAD DATA into {table} failed"))?;
    Ok((conn.affected_rows(), began.elapsed().as_secs_f64()))
}

/// Rows of a table, as the row store counts them.
pub async fn count(target: &Target, table: &str) -> Result<u64> {
    let mut conn = target.connect().await.context("cannot connect")?;
    let count: Option<u64> = conn.query_first(format!("SELECT COUNT(*) FROM {table}")).await?;
    count.with_context(|| format!("{table} cannot be counted"))
}

/// Runs a program to its end.
async fn run(mut command: Command, what: &str) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let done = command.output().await.with_context(|| format!("{what}: cannot start"))?;
    if !done.status.success() {
        bail!("{what} failed: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}
