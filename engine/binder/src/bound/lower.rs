//! A bound query as a plan.
//!
//! Operators and functions become the plan's; what types are compared at, and how values are taken to them, `typing`
//! decides behind it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::{
    Column, DFSchema, ExprSchema, JoinType, ScalarValue, Spans, TableReference,
};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{
    Exists, InList, InSubquery, Like, ScalarFunction, Sort, WindowFunction,
};
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{
    Case, Expr, LogicalPlan, LogicalPlanBuilder, Operator, WindowFrame, WindowFrameBound,
    WindowFrameUnits, binary_expr, lit,
};
use functions::random::{self, SEEDED};
use syntax::names::TableName;
use values::error::{SqlResult, no_table, unknown};

use super::call_types::arrow;
use super::lateral::Lateral;
use super::tree::{
    Bound, BoundQuery, ColumnId, Comparison, Connective, Distance, Frame, JoinKind, Node, Relation,
    Scalar, Scan, SetOperation, SortKey, WindowCall,
};
use super::{literal, windows};
use crate::ResolvedTable;
use crate::lazy::{behind, together};
use crate::operators::MysqlOperators;
use crate::typing::truth;

/// Most rows that plans count to: their limits travel with 32 bits, and a limit is added to its offset first.
const FARTHEST: u64 = i32::MAX as u64;

/// The plan of a bound query. Its columns are the query's, in order.
///
/// # Errors
///
/// What the types of operands forbid; 1146 for a table that is not among these.
pub fn lower(
    query: &BoundQuery,
    tables: &HashMap<TableName, ResolvedTable>,
    operators: &MysqlOperators,
    state: &SessionState,
) -> SqlResult<LogicalPlan> {
    Lowering::of_columns(HashMap::new(), tables, operators, state).query(query)
}

/// What the plan calls the query's columns: each otherwise.
fn unique_names(query: &BoundQuery) -> HashMap<ColumnId, String> {
    let mut taken: HashMap<String, usize> = HashMap::new();
    for column in &query.output {
        *taken.entry(column.name.to_lowercase()).or_default() += 1;
    }
    let name = |column: &super::tree::OutputColumn| {
        let name = column.name.to_lowercase();
        match taken.get(&name) {
            Some(1) => (column.id, name),
            _ => (column.id, format!("{name}#{}", column.id.0)),
        }
    };
    query.output.iter().map(name).collect()
}

pub(super) struct Lowering<'a> {
    tables: &'a HashMap<TableName, ResolvedTable>,
    operators: &'a MysqlOperators,
    /// Where functions are by their names.
    state: &'a SessionState,
    /// What columns of the result are called.
    names: HashMap<ColumnId, String>,
    /// What the plan calls the columns so far, and what they are in it.
    pub(super) columns: HashMap<ColumnId, (Column, FieldRef)>,
    /// What of the plans around is read within this one, by relations and by columns without any: nothing here may be called
    /// so, for rules that join the two go by names.
    pub(super) taken: HashSet<Taken>,
    /// What the rows of recursive queries are.
    last: HashMap<String, SchemaRef>,
}

/// A name that is taken.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Taken {
    Relation(TableReference),
    Column(String),
}

impl<'a> Lowering<'a> {
    /// For expressions over these columns.
    pub(super) fn of_columns(
        columns: HashMap<ColumnId, (Column, FieldRef)>,
        tables: &'a HashMap<TableName, ResolvedTable>,
        operators: &'a MysqlOperators,
        state: &'a SessionState,
    ) -> Lowering<'a> {
        let (names, taken, last) = (HashMap::new(), HashSet::new(), HashMap::new());
        Lowering { tables, operators, state, names, columns, taken, last }
    }
}

impl Lowering<'_> {
    pub(super) fn query(&mut self, query: &BoundQuery) -> SqlResult<LogicalPlan> {
        self.names.extend(unique_names(query));
        self.unnamed(query)
    }

    fn unnamed(&mut self, query: &BoundQuery) -> SqlResult<LogicalPlan> {
        let plan = self.relation(&query.relation)?;
        let shown = query.output.len();
        if plan.schema().fields().len() == shown {
            return Ok(plan);
        }
        let shown = plan.schema().columns().into_iter().take(shown).map(Expr::Column);
        Ok(LogicalPlanBuilder::from(plan).project(shown)?.build()?)
    }

    fn relation(&mut self, relation: &Relation) -> SqlResult<LogicalPlan> {
        Ok(match relation {
            Relation::OneRow => LogicalPlanBuilder::empty(true).build()?,
            Relation::Scan(scan) => self.scan(scan)?,
            Relation::Join { kind, left, right, on } => {
                self.joined(*kind, left, right, on.as_ref())?
            }
            Relation::Filter { input, condition } => {
                let input = self.relation(input)?;
                let condition = self.scalar(condition, input.schema())?;
                LogicalPlanBuilder::from(input).filter(condition)?.build()?
            }
            Relation::Group { input, keys, aggregates, rollup } => {
                let input = self.relation(input)?;
                self.group(input, keys, aggregates, *rollup)?
            }
            Relation::Distinct { input } => {
                LogicalPlanBuilder::from(self.relation(input)?).distinct()?.build()?
            }
            Relation::Set { operation, all, left, right, columns } => {
                let (left, right) = (self.query(left)?, self.query(right)?);
                let plan = set(*operation, *all, left, right)?;
                self.place(columns.iter().copied(), &plan);
                plan
            }
            Relation::Derived { query, alias, .. } => {
                let plan = self.query(query)?;
                let first = query.output.first().map_or(0, |column| column.id.0);
                let alias = self.free(TableReference::bare(alias.as_str()), first);
                let plan = LogicalPlanBuilder::from(plan).alias(alias)?.build()?;
                let ids = query.output.iter().map(|column| column.id);
                self.place(ids, &plan);
                plan
            }
            Relation::Recursive { name, all, first, next, columns } => {
                let first = self.query(first)?;
                self.last.insert(name.clone(), nullable(&first));
                let (next, first) = (self.query(next)?, LogicalPlanBuilder::from(first));
                let plan = first.to_recursive_query(name.clone(), next, !all)?.build()?;
                self.place(columns.iter().copied(), &plan);
                plan
            }
            Relation::Last { name, columns } => {
                let plan = self.last_rows(name)?;
                self.place(columns.iter().copied(), &plan);
                plan
            }
            Relation::Windows { input, calls } => {
                let input = self.relation(input)?;
                self.windows(input, calls)?
            }
            Relation::Map { input, columns } => {
                let input = self.relation(input)?;
                self.map(input, columns)?
            }
            Relation::Sort { input, by } => {
                let input = self.relation(input)?;
                let by = by.iter().map(|key| self.sort_key(key)).collect::<SqlResult<Vec<_>>>()?;
                LogicalPlanBuilder::from(input).sort(by)?.build()?
            }
            Relation::Limit { input, skip, fetch } => {
                let input = self.relation(input)?;
                let count = |n: u64| usize::try_from(n.min(FARTHEST)).unwrap_or(usize::MAX);
                let fetch = fetch.filter(|n| *n <= FARTHEST).map(count);
                LogicalPlanBuilder::from(input).limit(count(*skip), fetch)?.build()?
            }
        })
    }

    fn joined(
        &mut self,
        kind: JoinKind,
        left: &Relation,
        right: &Relation,
        on: Option<&Scalar>,
    ) -> SqlResult<LogicalPlan> {
        let left = self.relation(left)?;
        let kind = match kind {
            JoinKind::Inner => JoinType::Inner,
            JoinKind::Left => JoinType::Left,
            JoinKind::Right => JoinType::Right,
        };
        if let Relation::Derived { query, alias, lateral: true } = right {
            return self.lateral_join(kind, left, &Lateral { query, alias }, on);
        }
        let right = self.relation(right)?;
        let plan = self.join(kind, left, right, on)?;
        self.renew(&plan);
        Ok(plan)
    }

    /// The rows of a recursive query that came last.
    fn last_rows(&self, name: &str) -> SqlResult<LogicalPlan> {
        let missing = || unknown(format!("{name} is no recursive query"));
        let schema = self.last.get(name).cloned().ok_or_else(missing)?;
        let table = provider_as_source(Arc::new(CteWorkTable::new(name, schema)));
        Ok(LogicalPlanBuilder::scan(TableReference::bare(name), table, None)?.build()?)
    }

    fn scan(&mut self, scan: &Scan) -> SqlResult<LogicalPlan> {
        let Scan { table: name, alias, columns } = scan;
        let missing = || no_table(&name.database, &name.table);
        let table = self.tables.get(name).ok_or_else(missing)?;
        let source = provider_as_source(table.provider.clone());
        let qualifier = TableReference::partial(name.database.as_str(), name.table.as_str());
        let places: Vec<usize> = columns.iter().map(|(place, _)| *place).collect();
        let whole = places.len() == source.schema().fields().len();
        let projection = (!whole).then_some(places);
        let called = match alias {
            Some(alias) => TableReference::bare(alias.as_str()),
            None => qualifier.clone(),
        };
        let first = columns.first().map_or(0, |(_, id)| id.0);
        let (mut plan, called) = (
            LogicalPlanBuilder::scan(qualifier.clone(), source, projection)?,
            self.free(called, first),
        );
        if called != qualifier {
            plan = plan.alias(called)?;
        }
        let plan = plan.build()?;
        self.place(columns.iter().map(|(_, id)| *id), &plan);
        Ok(plan)
    }

    /// A name for a relation that no relation around has that is read here.
    pub(super) fn free(&self, called: TableReference, first: u32) -> TableReference {
        match self.taken.contains(&Taken::Relation(called.clone())) {
            true => TableReference::bare(format!("{}#{first}", called.table())),
            false => called,
        }
    }

    /// What columns are in a join: on the side that may have no row they may be NULL.
    pub(super) fn renew(&mut self, plan: &LogicalPlan) {
        for (column, field) in self.columns.values_mut() {
            if let Ok(joined) = plan.schema().field_from_column(column) {
                *field = Arc::clone(joined);
            }
        }
    }

    /// Where columns are: the first ones of a plan.
    pub(super) fn place(&mut self, ids: impl Iterator<Item = ColumnId>, plan: &LogicalPlan) {
        let columns = plan.schema().iter();
        let columns =
            columns.map(|(qualifier, field)| (Column::from((qualifier, field)), Arc::clone(field)));
        self.columns.extend(ids.zip(columns));
    }

    fn join(
        &self,
        kind: JoinType,
        left: LogicalPlan,
        right: LogicalPlan,
        on: Option<&Scalar>,
    ) -> SqlResult<LogicalPlan> {
        if kind == JoinType::Inner && on.is_none() {
            return Ok(LogicalPlanBuilder::from(left).cross_join(right)?.build()?);
        }
        let both = left.schema().join(right.schema())?;
        // An outer join whose condition reads one side alone, where it became that side's, matches every row.
        let on = on.map_or(Ok(lit(true)), |on| self.scalar(on, &both))?;
        Ok(LogicalPlanBuilder::from(left).join_on(right, kind, [on])?.build()?)
    }

    fn map(
        &mut self,
        input: LogicalPlan,
        columns: &[(ColumnId, Scalar)],
    ) -> SqlResult<LogicalPlan> {
        let mut exprs = Vec::with_capacity(columns.len());
        for (id, scalar) in columns {
            let name = match self.names.get(id) {
                Some(name) => name.clone(),
                None => format!("#{}", id.0),
            };
            exprs.push(self.scalar(scalar, input.schema())?.alias(&name));
        }
        let plan = LogicalPlanBuilder::from(input).project(exprs)?.build()?;
        self.place(columns.iter().map(|(id, _)| *id), &plan);
        Ok(plan)
    }

    fn sort_key(&self, key: &SortKey) -> SqlResult<Sort> {
        let ascending = !key.descending;
        Ok(Sort::new(Expr::Column(self.column(key.column)?), ascending, ascending))
    }

    fn column(&self, id: ColumnId) -> SqlResult<Column> {
        let missing = || unknown(format!("column {} of the query has no place in its plan", id.0));
        self.columns.get(&id).map(|(column, _)| column.clone()).ok_or_else(missing)
    }

    /// A query within an expression over what is known of columns here.
    fn subquery(&self, query: &BoundQuery) -> SqlResult<Subquery> {
        // Its columns have no names: a rule that joins it puts those beside them that its conditions read.
        let subquery = Arc::new(self.within(query).unnamed(query)?);
        let outer_ref_columns = subquery.all_out_ref_exprs();
        Ok(Subquery { subquery, outer_ref_columns, spans: Spans::new() })
    }

    /// For a query that reads columns here.
    pub(super) fn within(&self, query: &BoundQuery) -> Lowering<'_> {
        let mut taken = self.taken.clone();
        let read = query.outer_columns().into_iter().filter_map(|id| self.columns.get(&id));
        taken.extend(read.map(|(column, _)| match &column.relation {
            Some(relation) => Taken::Relation(relation.clone()),
            None => Taken::Column(column.name.clone()),
        }));
        let (names, columns) = (HashMap::new(), self.columns.clone());
        let Lowering { tables, operators, state, .. } = *self;
        let last = self.last.clone();
        Lowering { tables, operators, state, names, columns, taken, last }
    }

    fn windows(
        &mut self,
        input: LogicalPlan,
        calls: &[(ColumnId, WindowCall)],
    ) -> SqlResult<LogicalPlan> {
        let schema = input.schema().clone();
        let exprs = calls.iter().map(|(_, call)| self.window(call, &schema));
        let exprs = exprs.collect::<SqlResult<Vec<_>>>()?;
        let plan = LogicalPlanBuilder::window_plan(input, exprs.clone())?;
        for ((id, _), expr) in calls.iter().zip(&exprs) {
            let column = Column::new_unqualified(expr.schema_name().to_string());
            let field = Arc::clone(plan.schema().field_from_column(&column)?);
            self.columns.insert(*id, (column, field));
        }
        Ok(plan)
    }

    /// What rows are sorted by within windows and aggregates.
    pub(super) fn ordered(
        &self,
        order: &[(Scalar, bool)],
        schema: &DFSchema,
    ) -> SqlResult<Vec<Sort>> {
        let by = |(by, descending): &(Scalar, bool)| {
            Ok(Sort::new(self.scalar(by, schema)?, !descending, !descending))
        };
        order.iter().map(by).collect()
    }

    fn window(&self, call: &WindowCall, schema: &DFSchema) -> SqlResult<Expr> {
        let function = windows::function(&call.function)
            .ok_or_else(|| unknown(format!("function {} is not registered", call.function)))?;
        let all = |scalars: &[Scalar]| {
            scalars.iter().map(|scalar| self.scalar(scalar, schema)).collect::<SqlResult<Vec<_>>>()
        };
        let mut order = self.ordered(&call.order, schema)?;
        let frame = frame_of(&call.frame)?;
        frame.regularize_order_bys(&mut order)?;
        let mut window = WindowFunction::new(function, all(&call.args)?);
        window.params.partition_by = all(&call.partition)?;
        window.params.order_by = order;
        window.params.window_frame = frame;
        Ok(Expr::from(window))
    }

    fn boxed(&self, scalar: &Scalar, schema: &DFSchema) -> SqlResult<Box<Expr>> {
        self.scalar(scalar, schema).map(Box::new)
    }

    pub(super) fn scalar(&self, scalar: &Scalar, schema: &DFSchema) -> SqlResult<Expr> {
        Ok(match &scalar.node {
            Node::Column(id) | Node::Aggregate(id) | Node::Window(id) => {
                Expr::Column(self.column(*id)?)
            }
            Node::Outer(id) => {
                let missing = || unknown(format!("column {} is of no query around", id.0));
                let (column, field) = self.columns.get(id).cloned().ok_or_else(missing)?;
                Expr::OuterReferenceColumn(field, column)
            }
            Node::Query(query) => Expr::ScalarSubquery(self.subquery(query)?),
            Node::Exists { query, negated } => {
                Expr::Exists(Exists { subquery: self.subquery(query)?, negated: *negated })
            }
            Node::InQuery { values, query, negated } => {
                let [value] = &values[..] else {
                    return Err(unknown("rows in a query are none of a plan"));
                };
                let (expr, subquery) = (self.boxed(value, schema)?, self.subquery(query)?);
                Expr::InSubquery(InSubquery { expr, subquery, negated: *negated })
            }
            Node::Literal(value) => literal::expr(value),
            Node::Parameter(_) => return Err(unknown("a parameter has no value")),
            Node::Call { function, args } => {
                let args = args.iter().map(|arg| self.scalar(arg, schema));
                self.call(function, args.collect::<SqlResult<_>>()?)?
            }
            Node::Compare { comparison, left, right } => {
                let sides = (self.scalar(left, schema)?, self.scalar(right, schema)?);
                self.operators.compare(operator_of(*comparison), sides, schema)?
            }
            Node::Logic { connective, left, right } => {
                self.connected(*connective, (left, right), schema)?
            }
            Node::Not(value) => Expr::Not(self.boxed(value, schema)?),
            Node::Convert(value) => {
                let (from, to) = (arrow(&value.ty), arrow(&scalar.ty));
                self.operators.at(self.scalar(value, schema)?, &from, &to)?
            }
            Node::IsNull { value, negated: false } => Expr::IsNull(self.boxed(value, schema)?),
            Node::IsNull { value, negated: true } => Expr::IsNotNull(self.boxed(value, schema)?),
            Node::IsTruth { value, truth, negated } => {
                let value = self.boxed(value, schema)?;
                match (truth, negated) {
                    (true, false) => Expr::IsTrue(value),
                    (true, true) => Expr::IsNotTrue(value),
                    (false, false) => Expr::IsFalse(value),
                    (false, true) => Expr::IsNotFalse(value),
                }
            }
            Node::In { value, list, negated } => {
                let items = list.iter().map(|item| self.scalar(item, schema));
                let items = items.collect::<SqlResult<_>>()?;
                Expr::InList(InList::new(self.boxed(value, schema)?, items, *negated))
            }
            Node::Like { text, pattern, negated } => {
                let (text, pattern) = (self.boxed(text, schema)?, self.boxed(pattern, schema)?);
                Expr::Like(Like::new(*negated, text, pattern, None, false))
            }
            Node::Case { branches, otherwise } => {
                self.case(branches, otherwise.as_deref(), schema)?
            }
        })
    }

    fn call(&self, name: &str, args: Vec<Expr>) -> SqlResult<Expr> {
        let function = match name {
            // Each call has its own.
            SEEDED => Some(random::seeded()),
            name => self.state.scalar_functions().get(name).cloned(),
        };
        let missing = || unknown(format!("function {name} is not registered"));
        let function = function.ok_or_else(missing)?;
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(function, args)))
    }

    fn case(
        &self,
        branches: &[(Scalar, Scalar)],
        otherwise: Option<&Scalar>,
        schema: &DFSchema,
    ) -> SqlResult<Expr> {
        let branch = |(when, then): &(Scalar, Scalar)| {
            Ok((self.boxed(when, schema)?, self.boxed(then, schema)?))
        };
        let branches = branches.iter().map(branch).collect::<SqlResult<_>>()?;
        let otherwise = otherwise.map(|last| self.boxed(last, schema)).transpose()?;
        Ok(Expr::Case(Case::new(None, branches, otherwise)))
    }

    /// Two truth values as one.
    fn connected(
        &self,
        connective: Connective,
        (left, right): (&Scalar, &Scalar),
        schema: &DFSchema,
    ) -> SqlResult<Expr> {
        let (left, right) = (self.scalar(left, schema)?, self.scalar(right, schema)?);
        let operator = match connective {
            Connective::And => Operator::And,
            Connective::Or => Operator::Or,
            Connective::Xor => Operator::NotEq,
            Connective::Both => return Ok(together(left, Operator::And, right)?),
            Connective::Either => return Ok(together(left, Operator::Or, right)?),
        };
        let (left, right) = (truth(left, schema)?, truth(right, schema)?);
        let right = behind(&left, operator, right)?;
        Ok(binary_expr(left, operator, right))
    }
}

fn set(
    operation: SetOperation,
    all: bool,
    left: LogicalPlan,
    right: LogicalPlan,
) -> SqlResult<LogicalPlan> {
    Ok(match (operation, all) {
        (SetOperation::Union, true) => LogicalPlanBuilder::from(left).union(right)?.build()?,
        (SetOperation::Union, false) => {
            LogicalPlanBuilder::from(left).union_distinct(right)?.build()?
        }
        (SetOperation::Intersect, all) => LogicalPlanBuilder::intersect(left, right, all)?,
        (SetOperation::Except, all) => LogicalPlanBuilder::except(left, right, all)?,
    })
}

/// What later rows of a recursive query are: any column may be NULL in them.
fn nullable(first: &LogicalPlan) -> SchemaRef {
    let fields = first.schema().fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn frame_of(frame: &Frame) -> SqlResult<WindowFrame> {
    let units = if frame.rows { WindowFrameUnits::Rows } else { WindowFrameUnits::Range };
    let distance = |distance: &Option<Distance>| match distance {
        None => Ok(ScalarValue::UInt64(None)),
        Some(Distance::Number(n)) if frame.rows => {
            ScalarValue::try_from_string(n.clone(), &DataType::UInt64)
        }
        Some(Distance::Number(text) | Distance::Interval(text)) => {
            Ok(ScalarValue::Utf8(Some(text.clone())))
        }
    };
    let bound = |bound: &Bound| -> SqlResult<WindowFrameBound> {
        Ok(match bound {
            Bound::Preceding(by) => WindowFrameBound::Preceding(distance(by)?),
            Bound::CurrentRow => WindowFrameBound::CurrentRow,
            Bound::Following(by) => WindowFrameBound::Following(distance(by)?),
        })
    };
    Ok(WindowFrame::new_bounds(units, bound(&frame.start)?, bound(&frame.end)?))
}

pub(super) fn operator_of(comparison: Comparison) -> Operator {
    match comparison {
        Comparison::Equal => Operator::Eq,
        Comparison::NotEqual => Operator::NotEq,
        Comparison::Less => Operator::Lt,
        Comparison::LessOrEqual => Operator::LtEq,
        Comparison::Greater => Operator::Gt,
        Comparison::GreaterOrEqual => Operator::GtEq,
        Comparison::NullSafeEqual => Operator::IsNotDistinctFrom,
    }
}
