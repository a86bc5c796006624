//! What a statement answers: the contract between the engine and the MySQL wire.
//!
//! Rows are Arrow record batches on every path; the wire turns them into packets.

use std::pin::Pin;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use functions::warnings::ExprWarnings;
use futures::Stream;
use types::ColumnType;
use values::error::SqlError;

/// How many warnings a result has. More may come for as long as its rows are computed.
#[derive(Clone, Debug, Default)]
pub struct WarningCount {
    own: u64,
    expr_warnings: Option<Arc<ExprWarnings>>,
}

impl WarningCount {
    /// Those of a statement, and those of its expressions.
    pub(crate) fn new(own: u64, expr_warnings: Option<Arc<ExprWarnings>>) -> Self {
        WarningCount { own, expr_warnings }
    }

    /// The number as it is now, as far as the protocol can carry it.
    pub fn now(&self) -> u16 {
        let of_exprs = self.expr_warnings.as_ref().map_or(0, |warnings| warnings.count());
        u16::try_from(self.own.saturating_add(of_exprs)).unwrap_or(u16::MAX)
    }
}

/// One column of a result, with all that MySQL's column definition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// Name or alias.
    pub name: String,
    /// Name in its table; empty for expressions.
    pub org_name: String,
    /// Table or alias; empty for expressions.
    pub table: String,
    /// Name of the table; empty for expressions.
    pub org_table: String,
    /// Database of the table; empty for expressions.
    pub database: String,
    /// Type; `None` for the type of a bare NULL.
    pub ty: Option<ColumnType>,
    /// Digits behind the point that a DOUBLE is shown with; as many as it has without.
    pub decimals: Option<u8>,
    /// Whether NULL can occur.
    pub nullable: bool,
    /// Part of the primary key.
    pub primary_key: bool,
    /// First column of a unique index.
    pub unique_key: bool,
    /// First column of any other index.
    pub multiple_key: bool,
    /// AUTO_INCREMENT.
    pub auto_increment: bool,
}

impl ResultColumn {
    /// A column that is no table's.
    pub fn expression(name: impl Into<String>, ty: Option<ColumnType>, nullable: bool) -> Self {
        ResultColumn {
            name: name.into(),
            org_name: String::new(),
            table: String::new(),
            org_table: String::new(),
            database: String::new(),
            ty,
            decimals: None,
            nullable,
            primary_key: false,
            unique_key: false,
            multiple_key: false,
            auto_increment: false,
        }
    }
}

/// Batches of a result, pulled by its reader: dropping it stops the work behind it.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, SqlError>> + Send>>;

/// What a statement without rows answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows changed (or found, under CLIENT_FOUND_ROWS).
    pub affected_rows: u64,
    /// First AUTO_INCREMENT number given, or 0.
    pub last_insert_id: u64,
    /// Warnings that SHOW WARNINGS would list.
    pub warnings: u16,
    /// `Records: 3  Duplicates: 0  Warnings: 0` and the like.
    pub info: String,
}

/// What a statement answers.
pub enum Reply {
    /// No rows.
    Done(Done),
    /// Rows; their Arrow columns stand in the order of `columns`, typed by
    /// [`types::columns::arrow_type`].
    Rows {
        /// What the columns are.
        columns: Vec<ResultColumn>,
        /// The rows.
        batches: BatchStream,
        /// Warnings that SHOW WARNINGS would list.
        warnings: WarningCount,
    },
    /// LOAD DATA LOCAL INFILE: the client is to send this file; its bytes go to
    /// `Session::load_data`, whose reply follows.
    LocalInfile {
        /// Name as the statement gave it.
        file: String,
    },
}
