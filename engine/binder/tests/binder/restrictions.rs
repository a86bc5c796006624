//! What a bound query says of the columns that its conditions restrict: never less than its plan has.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use binder::{ResolvedTable, TableResolver, bind, plan, query_of, session_state_builder};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use goldenscript::{Command, Context, Runner};
use values::error::SqlResult;

use crate::tables::Tables;

/// A table that takes every condition, as one in a store does to find rows by key.
#[derive(Debug)]
struct Taking(Arc<dyn TableProvider>);

#[async_trait]
impl TableProvider for Taking {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.0.constraints()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.scan(state, projection, filters, limit).await
    }
}

struct TakingTables;

#[async_trait]
impl TableResolver for TakingTables {
    async fn resolve(&self, database: &str, name: &str) -> SqlResult<ResolvedTable> {
        let ResolvedTable { provider, table } = Tables.resolve(database, name).await?;
        Ok(ResolvedTable { provider: Arc::new(Taking(provider)), table })
    }
}

/// Whether conditions may restrict the primary key of a table that the query reads: by the bound query, and by its plan.
fn restricted(text: &str) -> SqlResult<(bool, bool)> {
    let context = crate::bound::context();
    let state = session_state_builder(SessionConfig::new()).build();
    let query = query_of(text)?;
    let bind = bind(&query, &context, &TakingTables);
    let (bound, resolved) = futures::executor::block_on(bind)?;
    let optimized = state.optimize(&plan(&bound, &context, &state, &resolved)?.plan)?;
    let mut by_plan = false;
    optimized.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let columns = scan.filters.iter().flat_map(Expr::column_refs);
            by_plan |= columns.into_iter().any(|column| column.name == "id");
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((bound.may_restrict(&|_| vec![0]), by_plan))
}

/// Checks the queries of golden scripts.
#[derive(Default)]
struct Queries {
    checked: usize,
    by_plan: usize,
}

impl Runner for Queries {
    type Command = Command;

    fn run(
        &mut self,
        command: &Command,
        _: &Context,
    ) -> std::result::Result<String, Box<dyn std::error::Error>> {
        let text = command.consume_args().next_pos().ok_or("a query is missing")?.to_owned();
        match command.name.as_str() {
            "change" => return crate::bound::change(&text),
            "insert" => return crate::bound::insert(&text),
            _ => {}
        }
        let (by_query, by_plan) = restricted(&text)?;
        assert!(by_query || !by_plan, "its plan restricts a key: {text}");
        self.checked += 1;
        self.by_plan += usize::from(by_plan);
        Ok(String::new())
    }
}

#[test]
fn no_plan_restricts_a_key_that_its_query_does_not() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut queries = Queries::default();
    for folder in ["bound", "rules"] {
        for script in std::fs::read_dir(tests.join(folder)).unwrap() {
            let script = std::fs::read_to_string(script.unwrap().path()).unwrap();
            goldenscript::generate(&mut queries, &script).unwrap();
        }
    }
    let Queries { checked, by_plan } = queries;
    assert!(checked > 100 && by_plan > 3, "few queries: {checked}, {by_plan}");
}

#[test]
fn conditions_restrict_keys_directly_and_by_what_is_equal() {
    for (text, expected) in [
        ("SELECT * FROM t WHERE id = 5", true),
        ("SELECT * FROM t WHERE id + 1 IN (5, 6)", true),
        ("SELECT * FROM t JOIN u ON t.id = u.t_id WHERE u.t_id > 3", true),
        (
            "SELECT * FROM t, u, t x WHERE t.n = u.t_id AND u.t_id = x.id AND t.n BETWEEN 1 AND 2",
            true,
        ),
        ("SELECT * FROM (SELECT id AS k FROM t UNION ALL SELECT t_id FROM u) d WHERE k = 3", true),
        ("SELECT * FROM t WHERE id IN (SELECT 5)", true),
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.t_id = 7)", true),
        ("SELECT * FROM t WHERE n = 5", false),
        ("SELECT * FROM t JOIN u ON t.id = u.t_id WHERE t.price > 3 AND u.span IS NULL", false),
        (
            "SELECT id, COUNT(*) FROM t WHERE day > '2024-01-01' GROUP BY id HAVING COUNT(*) > 3 ORDER BY id",
            false,
        ),
        ("SELECT * FROM t WHERE id IN (SELECT t_id FROM u WHERE span > '10:00:00')", false),
    ] {
        let (by_query, by_plan) = restricted(text).unwrap();
        assert_eq!(by_query, expected, "{text}");
        assert!(by_query || !by_plan, "{text}");
    }
}
