//! The interface from the SQL node to the analytic tier: run this query at this snapshot elsewhere, and
//! stream the batches back.
//!
//! `engine/` knows no more of columns than this trait; without an implementation every query reads
//! rows.

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use types::{SchemaVersion, SnapshotToken, TableId};
use values::error::SqlError;

use crate::result::BatchStream;

/// A query with the whole context that gives it meaning.
#[derive(Clone, Debug)]
pub struct AnalyticQuery {
    /// The statement's text, parameters inlined as literals.
    pub sql: String,
    /// Current database.
    pub database: String,
    /// What to read.
    pub token: SnapshotToken,
    /// Catalog version that the statement was planned with.
    pub catalog_version: u64,
    /// The stored tables that the statement was planned with: no other description of them, and no
    /// other table, may answer in their place (error 1412).
    pub tables: Vec<(TableId, SchemaVersion)>,
    /// Statement time, Unix microseconds.
    pub now_us: i64,
    /// Session time zone, as `+00:00` or a zone's name.
    pub time_zone: String,
    /// sql_mode.
    pub sql_mode: String,
    /// `user@host`.
    pub user: String,
    /// Connection number.
    pub connection_id: u64,
}

/// How an analytic query went, for EXPLAIN ANALYZE and the receipt.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    /// Lines for a person: node, wait, rows from delta, regions.
    pub lines: Vec<String>,
}

/// A running analytic query.
pub struct AnalyticAnswer {
    /// Schema of the batches.
    pub schema: SchemaRef,
    /// The rows. An error before the first batch means that the query may run elsewhere.
    pub batches: BatchStream,
    /// How it was set up.
    pub receipt: Receipt,
}

/// The analytic tier, as the SQL node sees it.
#[async_trait]
pub trait Analytic: Send + Sync {
    /// Whether every region of the table has a columnar replica that holds data.
    async fn available(&self, table: TableId) -> bool;

    /// Runs a query on columns. A failure before the first batch was tried on every replica.
    async fn query(&self, query: AnalyticQuery) -> Result<AnalyticAnswer, SqlError>;

    /// The distributed plan as text; runs it first if `analyze`.
    async fn explain(&self, query: AnalyticQuery, analyze: bool) -> Result<Vec<String>, SqlError>;
}
