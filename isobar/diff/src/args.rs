//! The command line of `isobar diff`, and what it teaches.

use std::path::PathBuf;

use crate::schema::Wishes;

/// Compare two tables, or a table with files, and say in what rows they differ.
///
/// SOURCE and TARGET are each one of
///   mysql://user:password@host:port/database/table   one table of an Isobar, MySQL or MariaDB server
///   mysql://user:password@host:port/database         every table of a database
///   path.parquet, path.csv, a folder, 'dir/*.parquet'   the files of one table
///
/// Digests of chunks are computed where the data is; only chunks that differ are cut down to rows and
/// fetched. On Isobar everything is read at one snapshot, from columns unless --engine rows says
/// otherwise. Other servers are read as they are, or with --transaction in one transaction.
///
///   isobar diff mysql://root@127.0.0.1:4000/shop/orders mysql://root@127.0.0.1:3306/shop/orders
///   isobar diff orders.parquet mysql://root@127.0.0.1:4000/shop/orders --fix orders.sql
///   isobar diff … --checkpoint run.json --resume     goes on after an interruption
///
/// Passwords are better given in ISOBAR_SOURCE_PASSWORD and ISOBAR_TARGET_PASSWORD, or in files, than
/// in the address, which other users of this machine can see.
///
/// How values are compared:
///   whole numbers   by value, whatever their width or sign; BOOL is 0 or 1
///   decimals        by value; 1.50 and 1.5 are equal where the columns' scales differ
///   floats          every bit (but 0 = -0); with --float-digits N within one unit of the Nth digit
///   text            byte by byte in UTF-8, whatever the collation; trailing spaces of CHAR mean nothing;
///                   --ignore-case and --ignore-trailing-spaces loosen that (not for keys)
///   binary          byte by byte
///   DATETIME        as it reads, to the microsecond
///   TIMESTAMP       as an instant: both sessions are set to UTC
///   NULL            equal to NULL only: not to '', 0 or 0000-00-00
///
/// Exit code: 0 the same, 1 different, 2 inconclusive.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What TARGET should be like
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// What is compared with it, and what --fix corrects
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Columns that are not looked at
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub ignore_columns: Vec<String>,
    /// Columns that identify a row (unique, not NULL) [default: the primary key]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub key: Vec<String>,
    /// Compare only rows of servers that meet this SQL condition
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Floats are equal within one unit of their Nth significant digit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=15))]
    pub float_digits: Option<u8>,
    /// Text is equal if it differs in case only
    #[arg(long)]
    pub ignore_case: bool,
    /// Text is equal if it differs in trailing spaces only
    #[arg(long)]
    pub ignore_trailing_spaces: bool,
    /// Who computes digests on an Isobar server
    #[arg(long, value_name = "ENGINE", default_value = "columns")]
    pub engine: EngineArg,
    /// Read servers other than Isobar in one transaction with a consistent snapshot, on one connection
    #[arg(long)]
    pub transaction: bool,
    /// How long a snapshot of Isobar outlives this process; it is renewed while it runs
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub lease: String,
    /// Write SQL here that makes TARGET like SOURCE
    #[arg(long, value_name = "FILE")]
    pub fix: Option<PathBuf>,
    /// Write a report here, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Stop looking after so many differences
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub max_differences: u64,
    /// Keep what is done here, to go on after an interruption
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Go on with an unfinished checkpoint, if there is one
    #[arg(long, requires = "checkpoint")]
    pub resume: bool,
    /// Begin anew, whatever the checkpoint holds
    #[arg(long, requires = "checkpoint", conflicts_with = "resume")]
    pub restart: bool,
    /// Statements at once on each server
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Read no more than so many rows per second from both sides together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rows_per_second: Option<u64>,
    /// Rows of a chunk, about
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(10..))]
    pub chunk_rows: u64,
    /// Ranges of no more rows are fetched and compared
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub fetch_rows: u64,
    /// Seconds that one statement may take
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// What stands between values of a CSV file [default: a comma, in .tsv a tab]
    #[arg(long, value_name = "CHAR")]
    pub csv_delimiter: Option<char>,
    /// What stands for NULL in a CSV file; an empty value is '' in text, and NULL elsewhere
    #[arg(long, value_name = "TEXT", default_value = "\\N")]
    pub csv_null: String,
    /// Password of SOURCE [env: ISOBAR_SOURCE_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub source_password_file: Option<PathBuf>,
    /// Password of TARGET [env: ISOBAR_TARGET_PASSWORD]
    #[arg(long, value_name = "FILE")]
    pub target_password_file: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Engines as one names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EngineArg {
    /// Columnar replicas, where a table has one
    Columns,
    /// The row store
    Rows,
}

impl Args {
    /// What it says about columns.
    pub fn wishes(&self) -> Wishes {
        Wishes {
            ignore: self.ignore_columns.clone(),
            key: self.key.clone(),
            float_digits: self.float_digits,
            ignore_case: self.ignore_case,
            ignore_trailing_spaces: self.ignore_trailing_spaces,
        }
    }
}
