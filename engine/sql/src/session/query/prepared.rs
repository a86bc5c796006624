//! A query between routing and its answer. It runs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use binder::{BoundQuery, PlannedSelect, QueryContext, ResolvedTables, RowQuery};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use execution::bound_queries::Template;
use execution::router::Route;
use functions::warnings::ExprWarnings;
use placement::api::Catalog;
use storage::reader::Reader;
use syntax::names::TableName;
use types::{SchemaVersion, TableId};

use super::known::Operands;

/// A plan for rows.
pub(super) struct Optimized {
    pub(super) plan: LogicalPlan,
    /// Plans what is left to plan.
    pub(super) state: Arc<SessionState>,
    /// For each stored table, whether every scan of it reads only a part.
    pub(super) narrow: BTreeMap<TableName, bool>,
}

impl Optimized {
    /// Whether it reads every stored table by key or by a small range.
    pub(super) fn reads_little(&self) -> bool {
        self.narrow.values().all(|narrow| *narrow)
    }
}

/// A query that is bound and routed. Planned it is here only where rows answer it, or where no one can tell without
/// whether they read it by key: columns plan what they answer.
pub(in crate::session) struct Prepared {
    /// What it asks.
    pub(super) bound: Arc<BoundQuery>,
    /// The tables that it asks, for rows to read.
    pub(super) resolved: ResolvedTables,
    /// What gives it meaning.
    pub(super) context: QueryContext,
    /// Its plan, and what its columns are.
    pub(super) planned: Option<PlannedSelect>,
    /// What rows would run.
    pub(super) optimized: Option<Optimized>,
    /// The warnings of its expressions.
    pub(super) expr_warnings: Arc<ExprWarnings>,
    /// The query as one that needs no plan, if it is one and was planned before.
    pub(super) row_query: Option<RowQuery>,
    /// What is kept of queries of its shape.
    pub(super) template: Option<Arc<Template>>,
    /// Where its literals come from, where that is to be known of a prepared query.
    pub(super) operands: Option<Operands>,
    /// What tables are called in it.
    pub(super) aliases: BTreeMap<TableName, Vec<String>>,
    pub(super) route: Route,
    pub(super) reader: Reader,
    pub(super) catalog: Arc<Catalog>,
    /// The stored tables that it names.
    pub(super) described: Vec<(TableId, SchemaVersion)>,
}

impl Prepared {
    /// Whether a plan could read a table by key or index. It could not if no condition restricts the first column of one.
    pub(super) fn may_be_narrow(&self) -> bool {
        self.bound.may_restrict(&|name| {
            let table = self.resolved.get(name).and_then(|table| table.table.as_ref());
            let Some(table) = table else { return Vec::new() };
            let indexes = table.indexes.iter().filter_map(|index| index.columns.first());
            let firsts = table.primary_key.first().into_iter().chain(indexes);
            firsts
                .filter_map(|id| table.columns.iter().position(|column| column.id == *id))
                .collect()
        })
    }
}
