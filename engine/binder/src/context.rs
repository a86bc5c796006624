//! DataFusion's SQL planner with our tables, functions and operators.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner};
use datafusion::logical_expr::{
    AggregateUDF, Expr as PlanExpr, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use functions::random;
use functions::warnings::{self, ExprWarnings};
use sqlparser::ast::{Expr, Query, Statement};
use syntax::names::{Displayed, TableName};
use values::error::{SqlResult, external, no_table};

use crate::bound::BoundQuery;
use crate::dependencies::Relations;
use crate::scopes::Around;
use crate::typing::{MysqlOperators, operators};
use crate::{PlannedSelect, QueryContext, ResolvedTable, columns, rewrite};

struct Context<'a> {
    state: &'a SessionState,
    tables: HashMap<TableName, Arc<dyn TableSource>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
    relations: [Arc<dyn RelationPlanner>; 1],
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let key = TableName {
            database: name.schema().unwrap_or_default().to_owned(),
            table: name.table().to_owned(),
        };
        let missing = || external(no_table(&key.database, &key.table));
        self.tables.get(&key).cloned().ok_or_else(missing)
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        // Each call has its own.
        if name == random::SEEDED {
            return Some(random::seeded());
        }
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        let table = datafusion::datasource::cte_worktable::CteWorkTable::new(name, schema);
        Ok(provider_as_source(Arc::new(table)))
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_enable_ident_normalization(false)
        .with_map_string_types_to_utf8view(false)
        .with_default_null_ordering(datafusion::sql::planner::NullOrdering::NullsMin)
}

fn context<'a>(
    context: &QueryContext,
    state: &'a SessionState,
    (resolved, hidden): (&HashMap<TableName, ResolvedTable>, bool),
) -> SqlResult<(Context<'a>, Arc<MysqlOperators>)> {
    let operators = operators(context.zone()?, &context.time_zone, context.zero_dates());
    let shown = |table: &ResolvedTable| if hidden { None } else { shown(table) };
    let schemas = resolved.iter().map(|(name, table)| {
        let schema = table.provider.schema();
        Ok((
            name.clone(),
            match shown(table) {
                Some(columns) => Arc::new(schema.project(&columns)?),
                None => schema,
            },
        ))
    });
    let around = Arc::new(Around(schemas.collect::<Result<_>>()?));
    let tables = resolved
        .iter()
        .map(|(name, table)| (name.clone(), provider_as_source(table.provider.clone())))
        .collect();
    let planners: Vec<Arc<dyn ExprPlanner>> = vec![operators.clone(), around];
    let shown = resolved.iter().filter_map(|(name, table)| Some((name.clone(), shown(table)?)));
    let relations: [Arc<dyn RelationPlanner>; 1] = [Arc::new(Relations::new(shown.collect()))];
    Ok((Context { state, tables, planners, relations }, operators))
}

/// Where a table's columns are that are not hidden; `None` if none is.
fn shown(table: &ResolvedTable) -> Option<Vec<usize>> {
    let columns = &table.table.as_ref()?.columns;
    let shown = columns.iter().enumerate().filter(|(_, column)| !column.hidden);
    let shown: Vec<usize> = shown.map(|(at, _)| at).collect();
    (shown.len() < columns.len()).then_some(shown)
}

/// Plans a rewritten query. The tables come with whether their hidden columns are in scope.
pub fn plan(
    query: Query,
    query_context: &QueryContext,
    state: &SessionState,
    (resolved, hidden): (&HashMap<TableName, ResolvedTable>, bool),
    displayed: &[Displayed],
) -> SqlResult<PlannedSelect> {
    let (provider, operators) = context(query_context, state, (resolved, hidden))?;
    let planner = SqlToRel::new_with_options(&provider, parser_options());
    let plan = planner.sql_statement_to_plan(Statement::Query(Box::new(query)))?;
    let plan = crate::lateral::numbered(operators.finish(plan, resolved)?)?;
    let plan = crate::ordering::by_columns(plan)?;
    let mut planned = columns::finish(plan, resolved, displayed)?;
    planned.plan = crate::nullsafe::equations(crate::correlated::joined(planned.plan)?)?;
    Ok(planned)
}

/// Plans a bound query.
pub fn plan_bound(
    bound: &BoundQuery,
    query_context: &QueryContext,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> SqlResult<PlannedSelect> {
    let zone = query_context.zone()?;
    let operators = operators(zone, &query_context.time_zone, query_context.zero_dates());
    let plan = crate::bound::lower(bound, resolved, &operators)?;
    let plan = operators.finish(plan, resolved)?;
    let mut planned = columns::described(plan, &bound.output, resolved)?;
    planned.plan = crate::nullsafe::equations(crate::correlated::joined(planned.plan)?)?;
    Ok(planned)
}

/// One expression over the columns of a schema, ready to evaluate. Names in the schema are in
/// lower case.
pub fn compile(
    expr: Expr,
    schema: &DFSchema,
    query_context: &QueryContext,
    state: &SessionState,
) -> SqlResult<Arc<dyn PhysicalExpr>> {
    let typed = typed(expr, schema, query_context, state)?;
    Ok(state.create_physical_expr(typed, schema)?)
}

/// The same, sending its warnings to a statement.
pub fn compile_with_warnings(
    expr: Expr,
    schema: &DFSchema,
    query_context: &QueryContext,
    state: &SessionState,
    expr_warnings: &Arc<ExprWarnings>,
) -> SqlResult<Arc<dyn PhysicalExpr>> {
    let typed = warnings::listen(expr_warnings, || typed(expr, schema, query_context, state))?;
    let attached = warnings::attach(typed, expr_warnings)?;
    Ok(state.create_physical_expr(attached.data, schema)?)
}

fn typed(
    expr: Expr,
    schema: &DFSchema,
    query_context: &QueryContext,
    state: &SessionState,
) -> SqlResult<PlanExpr> {
    let resolved = HashMap::new();
    let (provider, operators) = context(query_context, state, (&resolved, false))?;
    let planner = SqlToRel::new_with_options(&provider, parser_options());
    let expr = rewrite::rewrite_expr(expr, query_context, &resolved)?;
    let planned = planner.sql_to_expr(expr, schema, &mut PlannerContext::new())?;
    let typed = planned.transform_up(|e| operators.typed(e, schema))?.data;
    Ok(crate::quotients::whole(typed, schema)?)
}
