//! SELECT: routed to rows or columns, run, streamed; and EXPLAIN of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use binder::{BoundQuery, PlannedSelect, QueryContext, ResolvedTables, RowQuery, short};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use execution::BatchStream;
use execution::analytic::AnalyticQuery;
use execution::bound_queries::{Kept, Shape, Template};
use execution::router::{self, QueryFacts, TableFacts};
use execution::threads;
use functions::warnings::{self, ExprWarnings};
use futures::{StreamExt, TryStreamExt};
use placement::api::Catalog;
use sqlparser::ast::{Query, Select, TableFactor, Visitor};
use syntax::hints::{self, Hints};
use syntax::names::{self, TableName, tables_of};
use syntax::statement::Stmt;
use syntax::walk::{Part, walk};
use types::{Column, ColumnType, SnapshotToken, Table, Timestamp, Value};
use values::column::ResultColumn;
use values::error::{SqlError, SqlResult, hint_syntax, no_engine_answers, unsupported};

use super::columns::Answer;
use super::known::Operands;
use super::last_query::{AnsweredBy, ByColumns};
use super::prepared::{Optimized, Prepared};
use super::tables::{Tables, stored};
use super::user_variables::without_assignments;
use crate::engine::Engine;
use crate::session::transaction::locking::Locked;
use crate::session::transaction::past::forget_times;
use crate::session::{Session, impossible};
use execution::reply::{Reply, WarningCount};
use functions::trees::PlanTree;
use storage::access;
use storage::reader::Reader;

/// What a query is bound to, and what is kept of its shape.
struct Bound {
    bound: BoundQuery,
    resolved: ResolvedTables,
    template: Option<Arc<Template>>,
    row_query: Option<RowQuery>,
    operands: Option<Operands>,
}

impl Bound {
    /// What was bound for this query alone.
    fn anew(bound: BoundQuery, resolved: ResolvedTables) -> Self {
        Bound { bound, resolved, template: None, row_query: None, operands: None }
    }
}

impl Session {
    /// SELECT.
    pub(in crate::session) async fn select(
        &mut self,
        query: Query,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        match self.looked_up(&query, parameters).await? {
            Some(reply) => Ok(reply),
            None => self.found(query, parameters).await,
        }
    }

    /// Begins a SELECT, and answers it if it is a look-up, of which nothing is the session's own but its parameters.
    pub(in crate::session) async fn looked_up(
        &mut self,
        query: &Query,
        parameters: &[Value],
    ) -> SqlResult<Option<Reply>> {
        self.begin_reading(query).await?;
        if !query.locks.is_empty() || self.variables.most_rows().is_some() {
            return Ok(None);
        }
        if let Some(reply) = self.known_read(query, parameters).await? {
            return Ok(Some(reply));
        }
        self.point_select(query, parameters, None).await
    }

    /// Answers a SELECT that has begun and is no look-up as it stands.
    pub(super) async fn found(
        &mut self,
        mut query: Query,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        // Columns are called what the client wrote, never what a variable or a token was.
        let displayed = names::displayed(&query);
        self.read_as_of(&mut query, parameters).await?;
        self.assign_items(&mut query, parameters).await?;
        if !query.locks.is_empty() {
            self.check_no_view_is_locked(&query).await?;
        }
        self.inline(&mut query, parameters).await?;
        let mut source = None;
        if !query.locks.is_empty()
            && let Some(open) = self.enclosing().await?
        {
            match self.locking_select(&mut query, &open).await? {
                Locked::Answer(reply) => return Ok(reply),
                Locked::Read(reader, catalog) => {
                    source = Some((self.kept_as_is(reader).await?, catalog));
                }
            }
        } else if let Some(reply) = self.point_select(&query, &[], None).await? {
            return Ok(reply);
        }
        let source = match source {
            Some(source) => source,
            None => self.reader().await?,
        };
        let again = query.clone();
        let expr_warnings = self.expr_warnings();
        let mut prepared = Box::new(self.routed_from(query, source, expr_warnings).await?);
        if let Some(why) = prepared.route.refused.clone() {
            // What is wrong with the query itself comes first.
            self.planned(&mut prepared)?;
            return Err(no_engine_answers(why));
        }
        for warning in &prepared.route.warnings {
            self.diagnostics.warn(no_engine_answers(warning));
        }
        if prepared.route.engine == hints::Engine::Columns {
            prepared = match Box::pin(self.by_columns(again, prepared, &displayed)).await? {
                Answer::Columns(reply) => return Ok(reply),
                Answer::Rows(prepared) => prepared,
            };
        }
        if let Some(reply) = self.unplanned(&mut prepared, &displayed).await? {
            return Ok(reply);
        }
        let mut columns = self.planned(&mut prepared)?.columns.clone();
        if let Some(template) = &prepared.template {
            template.describe(&columns);
        }
        binder::rename(&mut columns, &displayed);
        let plan = self.physical(&mut prepared).await?;
        let batches = self.rows(plan)?;
        let Prepared { route, reader, .. } = *prepared;
        self.note_query(AnsweredBy::Route { route, columns: None }, reader.ts());
        Ok(Reply::Rows { columns, batches, warnings: WarningCount::default() })
    }

    /// Columns of a query's result, without running it.
    pub(in crate::session) async fn columns_of(
        &mut self,
        mut query: Query,
        parameters: &[Value],
    ) -> SqlResult<Vec<ResultColumn>> {
        let displayed = names::displayed(&query);
        without_assignments(&mut query);
        forget_times(&mut query);
        self.inline_values(&mut query, parameters).await?;
        Self::describe_calls(&mut query);
        let mut prepared = self.routed(query).await?;
        let mut columns = self.planned(&mut prepared)?.columns.clone();
        binder::rename(&mut columns, &displayed);
        Ok(columns)
    }

    /// Batches of a bound query over rows, whatever the router would say: for INSERT … SELECT and DML. The
    /// warnings of its expressions go where they are listened to, if they are.
    pub(in crate::session) async fn batches_of(
        &self,
        bound: &BoundQuery,
        resolved: &ResolvedTables,
        listening: Option<&Arc<ExprWarnings>>,
    ) -> SqlResult<(Vec<ResultColumn>, BatchStream)> {
        let (context, state) = (self.context(), &self.engine.state);
        let planning = || binder::plan(bound, &context, state, resolved);
        let mut planned = match listening {
            Some(expr_warnings) => warnings::listen(expr_warnings, planning)?,
            None => planning()?,
        };
        planned.plan = binder::rules::stored(planned.plan)?;
        if let Some(expr_warnings) = listening {
            planned.plan = warnings::attach_to_plan(planned.plan, expr_warnings)?;
        }
        let plan = state.create_physical_plan(&planned.plan).await?;
        Ok((planned.columns, self.rows(plan)?))
    }

    async fn routed(&mut self, query: Query) -> SqlResult<Prepared> {
        let source = self.reader().await?;
        // Nobody gets an answer of it, nor the warnings of its constants.
        let expr_warnings = Arc::new(self.variables.expr_warnings());
        self.routed_from(query, source, expr_warnings).await
    }

    /// Binds and routes a query over what it reads from.
    pub(super) async fn routed_from(
        &mut self,
        query: Query,
        (reader, catalog): (Reader, Arc<Catalog>),
        expr_warnings: Arc<ExprWarnings>,
    ) -> SqlResult<Prepared> {
        let tables = Tables {
            engine: self.engine.clone(),
            catalog: catalog.clone(),
            reader: reader.clone(),
            rights: self.identity.known_rights(),
        };
        let context = self.context();
        let names = tables_of(&[&query], &context.database)?;
        let aliases = aliases(&query, &context.database);
        let hints = self.hinted_engines(&query);
        let locking = !query.locks.is_empty();
        let binding = self.bound(&query, &names, &context, &tables);
        let found = warnings::listen_async(&expr_warnings, binding).await?;
        let Bound { bound, resolved, template, row_query, operands } = found;
        let named = |name: &TableName| catalog.table_named(&name.database, &name.table);
        for table in names.iter().filter_map(named) {
            self.check_columns_then(&catalog, table)?;
        }
        let described = names.iter().filter_map(named).map(|table| (table.id, table.version));
        let described = described.collect();
        let mut facts = Vec::new();
        for name in &names {
            let table = stored(&catalog, &name.database, &name.table).ok();
            let facts_of =
                self.table_facts(name, table.as_deref(), &catalog, &reader, &aliases).await;
            facts.push(facts_of);
        }
        // What hints say, and that they are none, is read from the text.
        let operands = operands.filter(|_| hints_of(&query).is_empty());
        let mut facts = self.query_facts(facts, hints, locking);
        let settled = router::route_without_narrow(&mut facts);
        let is_settled = settled.is_some();
        let mut prepared = Prepared {
            bound: Arc::new(bound),
            resolved,
            context,
            planned: None,
            optimized: None,
            expr_warnings,
            row_query,
            template,
            operands,
            aliases,
            route: settled.unwrap_or_else(|| router::route(&facts)),
            reader,
            catalog,
            described,
        };
        if !is_settled && prepared.may_be_narrow() {
            let found = match prepared.is_unplanned_narrow() {
                Some(narrow) => names.iter().map(|name| (name.clone(), narrow)).collect(),
                None => self.optimized(&mut prepared)?.narrow.clone(),
            };
            for (table, name) in facts.tables.iter_mut().zip(&names) {
                table.narrow = found.get(name).copied().unwrap_or(false);
            }
            prepared.route = router::route(&facts);
        }
        Ok(prepared)
    }

    /// Engines of tables as a query's hints have them; what is no hint is a warning.
    fn hinted_engines(&mut self, query: &Query) -> BTreeMap<String, hints::Engine> {
        let mut hints = BTreeMap::new();
        for comment in hints_of(query) {
            hints.extend(comment.engines);
            if let Some(unknown) = comment.unknown {
                self.diagnostics.warn(hint_syntax(unknown));
            }
        }
        hints
    }

    /// What a query is bound to, and its tables.
    async fn bound(
        &self,
        query: &Query,
        names: &[TableName],
        context: &QueryContext,
        tables: &Tables,
    ) -> SqlResult<Bound> {
        let kept = &self.engine.bound_queries;
        // What a listing shows has no version.
        let stored = names.iter().all(|name| !information_schema::is_virtual(&name.database));
        let Some(shape) = stored.then(|| Shape::of(query, context)).flatten() else {
            let (bound, resolved) = binder::bind(query, context, tables).await?;
            return Ok(Bound::anew(bound, resolved));
        };
        let found = kept.find(&shape);
        if let Some(Kept::Template(template)) = &found
            // What is wrong with a table, binding says.
            && let Ok(resolved) = binder::resolve(template.bound(), tables).await
            && let Some(bound) = kept.query(template, &shape, &resolved)
        {
            let row_query = template.row_query(shape.literals());
            let operands = row_query.as_ref().and_then(|_| self.operands_of(&shape));
            let template = Some(template.clone());
            return Ok(Bound { bound, resolved, template, row_query, operands });
        }
        let (bound, resolved) = binder::bind(query, context, tables).await?;
        kept.note(found, shape, &bound, context, &resolved);
        Ok(Bound::anew(bound, resolved))
    }

    /// The plan, optimised for what it is.
    fn optimize(
        &self,
        plan: &LogicalPlan,
        catalog: &Catalog,
        ts: Timestamp,
        expr_warnings: &ExprWarnings,
    ) -> SqlResult<Optimized> {
        let Engine { state, short, .. } = &self.engine;
        let before = expr_warnings.count();
        if short::is_chain(plan)? {
            let plan = short.optimize(plan)?;
            let narrow = narrow(&plan, catalog, ts)?;
            if narrow.values().all(|narrow| *narrow) {
                return Ok(Optimized { plan, state: short.clone(), narrow });
            }
        }
        // Constants are computed while a plan is optimised: now once more.
        expr_warnings.forget_from(before);
        let plan = state.optimize(plan)?;
        let narrow = narrow(&plan, catalog, ts)?;
        Ok(Optimized { plan, state: state.clone(), narrow })
    }

    /// What the router has to know of a query.
    pub(super) fn query_facts(
        &self,
        tables: Vec<TableFacts>,
        hints: BTreeMap<String, hints::Engine>,
        locking: bool,
    ) -> QueryFacts {
        let (rows_allowed, columns_allowed) = self.variables.read_engines();
        let tier = self.engine.analytic.is_some();
        let fallback = self.variables.falls_back();
        QueryFacts { tables, hints, rows_allowed, columns_allowed, locking, tier, fallback }
    }

    /// The same of a table; none for one that is not stored.
    pub(super) async fn table_facts(
        &self,
        name: &TableName,
        table: Option<&Table>,
        catalog: &Catalog,
        reader: &Reader,
        aliases: &BTreeMap<TableName, Vec<String>>,
    ) -> TableFacts {
        let replicas = table.map_or(0, |table| table.columnar_replicas);
        let available = match (table, &self.engine.analytic) {
            (Some(table), Some(analytic)) if replicas > 0 => analytic.available(table.id).await,
            _ => false,
        };
        let written = match table {
            Some(table) => reader.has_written(table.id).await,
            None => false,
        };
        let mut names = aliases.get(name).cloned().unwrap_or_default();
        names.push(name.table.clone());
        TableFacts {
            name: format!("{}.{}", name.database, name.table),
            aliases: names,
            stored: table.is_some(),
            replicas,
            available,
            complete: table.is_some_and(|table| catalog.complete_columns.contains(&table.id)),
            written,
            narrow: false,
        }
    }

    async fn physical(&self, prepared: &mut Prepared) -> SqlResult<Arc<dyn ExecutionPlan>> {
        let Optimized { plan, state, .. } = self.optimized(prepared)?;
        Ok(state.query_planner().create_physical_plan(plan, &**state).await?)
    }

    /// The plan of a query, made now where nobody needed it before.
    pub(super) fn planned<'a>(&self, prepared: &'a mut Prepared) -> SqlResult<&'a PlannedSelect> {
        let Prepared { bound, resolved, context, planned, expr_warnings, .. } = prepared;
        if planned.is_none() {
            let planning = || binder::plan(bound, context, &self.engine.state, resolved);
            let mut made = warnings::listen(expr_warnings, planning)?;
            made.plan = warnings::attach_to_plan(made.plan, expr_warnings)?;
            *planned = Some(made);
        }
        planned.as_ref().ok_or_else(|| impossible("a query without a plan"))
    }

    /// What rows would run, made now where nobody needed it before.
    pub(super) fn optimized<'a>(&self, prepared: &'a mut Prepared) -> SqlResult<&'a Optimized> {
        if prepared.optimized.is_none() {
            let plan = self.planned(prepared)?.plan.clone();
            let Prepared { catalog, reader, expr_warnings, .. } = &*prepared;
            let made = self.optimize(&plan, catalog, reader.ts(), expr_warnings)?;
            let is_narrow = made.narrow.values().any(|narrow| *narrow);
            debug_assert!(!is_narrow || prepared.may_be_narrow(), "{}", prepared.bound);
            prepared.optimized = Some(made);
        }
        prepared.optimized.as_ref().ok_or_else(|| impossible("a query without a plan"))
    }

    fn rows(&self, plan: Arc<dyn ExecutionPlan>) -> SqlResult<BatchStream> {
        let stream = threads::run(plan, self.engine.state.task_ctx())?;
        Ok(Box::pin(stream.map_err(SqlError::from)))
    }

    /// Runs a query on columns; an error means that no row was seen yet.
    pub(in crate::session) async fn on_columns(
        &self,
        prepared: &Prepared,
    ) -> SqlResult<(Vec<ResultColumn>, BatchStream, ByColumns)> {
        let began = Instant::now();
        let analytic =
            self.engine.analytic.clone().ok_or_else(|| impossible("columns without a tier"))?;
        let answer = analytic.query(self.analytic_query(prepared)).await?;
        let columns = binder::answered(&prepared.bound, &prepared.resolved, &answer.schema)?;
        let mut batches = answer.batches;
        // The first batch is awaited here: until it comes, others may still answer.
        let first = match batches.next().await {
            Some(first) => Some(first?),
            None => None,
        };
        let by = ByColumns { wait: began.elapsed(), coordinator: answer.coordinator };
        // Until the last row, this node reports to placement that the reader's snapshot is in use. A
        // lease would cost two entries of a log whose syncs the online path waits for.
        let reader = prepared.reader.clone();
        let batches = futures::stream::iter(first.map(Ok)).chain(batches).map(move |batch| {
            _ = &reader;
            batch
        });
        Ok((columns, Box::pin(batches), by))
    }

    fn analytic_query(&self, prepared: &Prepared) -> AnalyticQuery {
        let context = QueryContext {
            catalog_version: prepared.catalog.version,
            tables: prepared.described.clone(),
            ..prepared.context.clone()
        };
        let at = prepared.reader.ts();
        let token = match self.transaction.snapshot() {
            Some(token) if token.ts == at => token,
            _ => SnapshotToken::without_lease(at),
        };
        let group = self.group.running().to_owned();
        AnalyticQuery { bound: prepared.bound.clone(), token, context, group }
    }

    /// EXPLAIN [ANALYZE].
    pub(in crate::session) async fn explain(
        &mut self,
        statement: Stmt,
        analyze: bool,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        let lines = match statement {
            Stmt::Query(mut query) => {
                if !analyze {
                    Self::describe_calls(&mut *query);
                }
                self.begin_reading(&query).await?;
                self.read_as_of(&mut query, parameters).await?;
                self.inline(&mut *query, parameters).await?;
                let mut prepared = self.routed(*query).await?;
                self.explain_lines(&mut prepared, analyze).await?
            }
            Stmt::Insert(_) | Stmt::Update(_) | Stmt::Delete(..) if !analyze => {
                vec!["written through rows".into()]
            }
            _ => return Err(unsupported("EXPLAIN of this statement")),
        };
        let rows = lines.into_iter().map(|line| vec![Value::String(line)]).collect();
        let column = Column {
            id: 1,
            name: "EXPLAIN".into(),
            ty: ColumnType::Text(u32::MAX),
            nullable: false,
            default: None,
            original: None,
            auto_increment: false,
            on_update_now: false,
            hidden: false,
            comment: String::new(),
        };
        information_schema::Listing { columns: vec![column], rows }.reply()
    }

    async fn explain_lines(
        &mut self,
        prepared: &mut Prepared,
        analyze: bool,
    ) -> SqlResult<Vec<String>> {
        let mut lines = Vec::new();
        for (table, why) in &prepared.route.reasons {
            lines.push(format!("{table}: {} ({why})", prepared.route.engine));
        }
        lines.extend(prepared.route.warnings.iter().map(|w| format!("warning: {w}")));
        lines.extend(prepared.route.refused.iter().map(|why| format!("refused: {why}")));
        if prepared.route.engine == hints::Engine::Columns {
            let analytic =
                self.engine.analytic.clone().ok_or_else(|| impossible("columns without a tier"))?;
            let error = match analytic.explain(self.analytic_query(prepared), analyze).await {
                Ok(plan) => {
                    lines.extend(plan);
                    return Ok(lines);
                }
                Err(error) => error,
            };
            // What is wrong with the query itself comes first.
            self.planned(prepared)?;
            if self.rows_may_answer(prepared)? {
                lines.push(format!("columns failed, rows answer: {}", error.message));
            } else {
                let error = self.not_scanned(error);
                if analyze {
                    return Err(error);
                }
                lines.push(format!("columns fail with {}: {}", error.code, error.message));
                return Ok(lines);
            }
        }
        let plan = self.physical(prepared).await?;
        if !analyze {
            lines.extend(text(&displayable(plan.as_ref()).indent(false).to_string()));
            return Ok(lines);
        }
        let began = Instant::now();
        let mut batches = self.rows(plan.clone())?;
        let mut count = 0;
        while let Some(batch) = batches.try_next().await? {
            count += RecordBatch::num_rows(&batch);
        }
        lines.push(format!("{count} rows in {} ms", began.elapsed().as_millis()));
        let measured = DisplayableExecutionPlan::with_metrics(plan.as_ref());
        lines.extend(text(&measured.indent(false).to_string()));
        Ok(lines)
    }
}

fn text(plan: &str) -> Vec<String> {
    plan.lines().map(str::to_owned).collect()
}

/// For each stored table of a plan, whether every scan of it reads only a part.
fn narrow(
    plan: &LogicalPlan,
    catalog: &Catalog,
    ts: Timestamp,
) -> SqlResult<BTreeMap<TableName, bool>> {
    let mut narrow: BTreeMap<TableName, bool> = BTreeMap::new();
    plan.visit_all(&mut |node| {
        if let LogicalPlan::TableScan(scan) = node {
            let name = TableName {
                database: scan.table_name.schema().unwrap_or_default().to_owned(),
                table: scan.table_name.table().to_owned(),
            };
            if let Some(table) = catalog.table_named(&name.database, &name.table) {
                let is = access::choose(table, &scan.filters, ts).is_narrow();
                narrow.entry(name).and_modify(|all| *all &= is).or_insert(is);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(narrow)
}

/// The aliases that tables go by in a query.
fn aliases(query: &Query, database: &str) -> BTreeMap<TableName, Vec<String>> {
    struct Aliases<'a>(&'a str, BTreeMap<TableName, Vec<String>>);
    impl Visitor for Aliases<'_> {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> std::ops::ControlFlow<()> {
            if let TableFactor::Table { name, alias: Some(alias), .. } = factor
                && let Ok(name) = names::table_name(name, self.0)
            {
                self.1.entry(name).or_default().push(alias.name.value.to_lowercase());
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut found = Aliases(database, BTreeMap::new());
    _ = walk(query, &mut found);
    found.1
}

/// The hints of a query's SELECTs, or of those within another statement, comment by comment.
pub(in crate::session) fn hints_of(part: &dyn Part) -> Vec<Hints> {
    struct Comments(Vec<Hints>);
    impl Visitor for Comments {
        type Break = ();
        fn pre_visit_select(&mut self, select: &Select) -> std::ops::ControlFlow<()> {
            self.0.extend(select.optimizer_hints.iter().map(|hint| hints::parse(&hint.text)));
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut comments = Comments(Vec::new());
    _ = walk(part, &mut comments);
    comments.0
}
