//! A SELECT into a bound query, and a bound query into a logical plan with MySQL's meaning.
//!
//! The same on every node that plans: nothing here knows where a table's rows are, reads a clock
//! or talks to a session. What a query needs of its session comes in a [`QueryContext`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aggregates;
mod bound;
mod branches;
mod calls;
mod caseless;
mod columns;
mod context;
mod correlated;
mod dependencies;
mod dependent_join;
mod distinct;
mod equalities;
mod forms;
mod fractional_seconds;
mod json;
mod labels;
mod lazy;
pub mod literal;
mod memberships;
mod nullsafe;
mod operators;
mod orderings;
mod outside;
mod predicates;
mod projections;
mod query_context;
mod quotients;
mod result_type;
mod rewrite;
pub mod rules;
mod scalars;
mod scopes;
pub mod short;
mod single_rows;
mod tuples;
pub mod typing;
mod udf;
mod windows;
mod yielding;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::{Constraint, Constraints};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use sqlparser::ast::{Query, Statement};
use syntax::names::{TableName, tables_of};
use types::Table;
use types::columns::arrow_type;
use values::column::ResultColumn;
use values::error::{SqlResult, unsupported};
use values::mysql_type::MysqlType;

pub use bound::{
    Answer, Assigned, BoundChange, BoundInsert, BoundQuery, ColumnId, GivenRows, GivenValue,
    NewValue, NewValueOfMet, Node, OnDuplicate, RowQuery, RowsOf, Scalar, Set, Target, Targets,
    Total, bind_change, bind_insert, given_column, in_order, plain_literal, shown_columns,
    tables_of_insert, written_value,
};
pub use caseless::caseless;
pub use columns::{answered, rename};
pub use context::{Compiler, plan};
pub use query_context::QueryContext;
pub use result_type::result_type;
pub use rewrite::truth;

/// Name within plans of the function of a session that keeps the number it is given for LAST_INSERT_ID().
pub const KEEP_INSERT_ID: &str = "mysql_keep_insert_id";

/// A table that a query names.
#[derive(Clone)]
pub struct ResolvedTable {
    /// Its rows. The provider's schema must be [`planning_schema`] of its description.
    pub provider: Arc<dyn TableProvider>,
    /// Its description; a virtual table has one too.
    pub table: Option<Arc<Table>>,
}

/// Who knows tables by name.
#[async_trait]
pub trait TableResolver: Send + Sync {
    /// The table; MySQL's error 1146 if there is none. Names come in lower case.
    async fn resolve(&self, database: &str, table: &str) -> SqlResult<ResolvedTable>;
}

/// A planned query.
pub struct PlannedSelect {
    /// The plan, typed as MySQL types it; not yet optimised. Its columns have the types of
    /// [`types::columns::arrow_type`].
    pub plan: LogicalPlan,
    /// What its columns are, in order.
    pub columns: Vec<ResultColumn>,
}

/// The Arrow schema that plans see of a table: column names in lower case, hidden ones included,
/// and what an ENUM or SET may hold.
pub fn planning_schema(table: &Table) -> SchemaRef {
    let field = |column: &types::Column| {
        let name = column.name.to_lowercase();
        labels::marked(Field::new(name, arrow_type(column.ty), column.nullable), column.ty)
    };
    Arc::new(Schema::new(table.columns.iter().map(field).collect::<Vec<_>>()))
}

/// What plans know of a table's rows: its primary key decides every other column, so that a query
/// may show them all when it groups by the key.
pub fn planning_constraints(table: &Table) -> Constraints {
    let position = |id: &types::ColumnId| table.columns.iter().position(|c| c.id == *id);
    let key: Option<Vec<usize>> = table.primary_key.iter().map(position).collect();
    match key {
        Some(key) if !key.is_empty() => {
            Constraints::new_unverified(vec![Constraint::PrimaryKey(key)])
        }
        _ => Constraints::default(),
    }
}

/// A session state that knows MySQL's functions. Workers that only run plans need it too: plans
/// name functions.
pub fn session_state_builder(config: SessionConfig) -> SessionStateBuilder {
    let mut config = config;
    let options = config.options_mut();
    // DataFusion's operators for IS TRUE and CASE may be NULL where its plans know better: that is no fault of a plan.
    options.execution.skip_physical_aggregate_schema_check = true;
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_optimizer_rules(rules::optimizer())
        .with_physical_optimizer_rules(rules::physical());
    builder.scalar_functions().get_or_insert_with(Vec::new).extend(functions::all());
    builder
}

/// The tables of a query, by name.
pub type ResolvedTables = HashMap<TableName, ResolvedTable>;

/// The one SELECT of a text. Variables and parameters must have been written into it as literals.
///
/// # Errors
///
/// 1064 for a text that is none, 1235 for another statement.
pub fn query_of(sql: &str) -> SqlResult<Query> {
    match syntax::parser::parse_sql(sql)? {
        Statement::Query(query) => Ok(*query),
        other => Err(unsupported(format!("{} where a SELECT is due", first_word(&other)))),
    }
}

/// Binds a parsed SELECT, and says what its tables are.
///
/// # Errors
///
/// MySQL's for a query that is wrong, 1146 for a table that there is not.
pub async fn bind(
    query: &Query,
    context: &QueryContext,
    tables: &dyn TableResolver,
) -> SqlResult<(BoundQuery, ResolvedTables)> {
    let resolved = resolve_tables(tables_of(&[query], &context.database)?, tables).await?;
    let bound = bound::bind(query, context, &resolved, &[])?;
    Ok((bound, resolved))
}

/// Binds a parsed SELECT with parameters (`?1` is the first) of these types over tables that are known. What it gives is
/// a query once [`BoundQuery::with_values`] has put values in their places.
///
/// # Errors
///
/// As of [`bind`].
pub fn bind_with_parameters(
    query: &Query,
    context: &QueryContext,
    parameters: &[MysqlType],
    tables: &ResolvedTables,
) -> SqlResult<BoundQuery> {
    bound::bind(query, context, tables, parameters)
}

/// The tables of a query that was bound elsewhere, or before. They must be of the versions that it was bound with.
///
/// # Errors
///
/// 1146 for a table that there is not.
pub async fn resolve(bound: &BoundQuery, tables: &dyn TableResolver) -> SqlResult<ResolvedTables> {
    resolve_tables(bound.tables().into_iter().cloned(), tables).await
}

/// Tables by their names.
///
/// # Errors
///
/// 1146 for one that there is not.
pub async fn resolve_tables(
    names: impl IntoIterator<Item = TableName>,
    tables: &dyn TableResolver,
) -> SqlResult<ResolvedTables> {
    let mut resolved = HashMap::new();
    for name in names {
        let table = tables.resolve(&name.database, &name.table).await?;
        resolved.insert(name, table);
    }
    Ok(resolved)
}

/// Binds and plans a parsed SELECT.
///
/// # Errors
///
/// As of [`bind`] and [`plan`].
pub async fn plan_query(
    query: &Query,
    context: &QueryContext,
    state: &SessionState,
    tables: &dyn TableResolver,
) -> SqlResult<PlannedSelect> {
    let (bound, resolved) = bind(query, context, tables).await?;
    plan(&bound, context, state, &resolved)
}

fn first_word(statement: &Statement) -> String {
    statement.to_string().split_whitespace().next().unwrap_or("statement").to_owned()
}
