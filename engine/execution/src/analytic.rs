//! The interface from the SQL node to the analytic tier: run this query at this snapshot elsewhere, and
//! stream the batches back.
//!
//! Sessions know no more of columns than this trait; without an implementation every query reads
//! rows.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use binder::{BoundQuery, QueryContext};
use types::{SnapshotToken, TableId};
use values::error::SqlError;

use crate::BatchStream;

/// A query with the whole context that gives it meaning.
#[derive(Clone, Debug)]
pub struct AnalyticQuery {
    /// What it asks, bound to the tables of `context`.
    pub bound: Arc<BoundQuery>,
    /// What to read.
    pub token: SnapshotToken,
    /// What gives it meaning.
    pub context: QueryContext,
    /// The resource group that pays for it.
    pub group: String,
}

/// A running analytic query.
pub struct AnalyticAnswer {
    /// Schema of the batches. What the columns of the result are is made of it: their digits, and which have no NULL
    /// ([`types::columns::NOT_NULL`]).
    pub schema: SchemaRef,
    /// The rows. An error before the first batch means that the query may run elsewhere.
    pub batches: BatchStream,
    /// Address of the columnar node that coordinates the query.
    pub coordinator: String,
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
