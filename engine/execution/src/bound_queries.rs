//! Bound queries that are kept for the next that differs from them in literals alone, of text and prepared statements
//! alike.
//!
//! A query is looked up by its syntax tree without the literals that it compares with in WHERE and ON, by their types, and
//! by what else gives it its meaning: database, sql_mode, time zone. Nothing is kept that another value, moment or user
//! could make another query: what is to be kept is bound once more, for types in the place of values and as if by
//! somebody else at another time, and must be the same. A kept query is used over the very versions of tables that it was
//! bound to, and no others.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use binder::{BoundQuery, QueryContext, ResolvedTables, RowQuery, Scalar, plain_literal};
use quick_cache::sync::Cache;
use sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Query, Select, SelectItem, Value,
    ValueWithSpan, Visitor, VisitorMut,
};
use syntax::names::TableName;
use syntax::tree::value;
use syntax::walk::{finds, walk_mut};
use types::{SchemaVersion, TableId};
use values::column::ResultColumn;
use values::mysql_type::MysqlType;

/// Queries that are kept: some ten kilobytes each.
const MOST_KEPT: usize = 1_000;
/// Literals of a query that is kept. One with more has a list of values, and the next list has another length.
const MOST_LITERALS: usize = 64;
/// Longest text of a query that is kept, in bytes.
const LONGEST: usize = 4_096;
/// Most bytes of what a query that is kept was bound to, as it would be sent: in memory it takes some times as many.
const LARGEST: usize = 16_384;
/// Another moment: on another day, at another time of the day, in another second.
const LATER_US: i64 = ((400 * 24 + 7) * 3_600 + 61) * 1_000_000 + 1;

/// What the queries of a process are bound to.
pub struct BoundQueries {
    kept: Cache<Key, Kept>,
    hits: AtomicU64,
    misses: AtomicU64,
    unplanned: AtomicU64,
    repeated: AtomicU64,
}

/// What is the same of all queries that are bound alike. Places in the text are no part of a syntax tree's equality.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    query: Query,
    parameters: Vec<MysqlType>,
    database: String,
    sql_mode: String,
    time_zone: String,
}

/// What was learned of queries of a shape.
#[derive(Clone)]
pub enum Kept {
    /// One was bound. The next is worth keeping: most never come again.
    Seen,
    /// They are to be bound each time.
    Never,
    /// What they are bound to.
    Template(Arc<Template>),
}

/// A query with parameters in the place of literals.
pub struct Template {
    bound: BoundQuery,
    /// The query as one that needs no plan.
    row_query: Option<RowQuery>,
    /// What its columns are, once one of its shape was planned.
    columns: OnceLock<Vec<ResultColumn>>,
    tables: BTreeMap<TableName, (TableId, SchemaVersion)>,
}

/// A query without the literals that it compares with.
pub struct Shape {
    key: Key,
    literals: Vec<Scalar>,
}

impl Default for BoundQueries {
    fn default() -> Self {
        let (hits, misses, unplanned, repeated) = Default::default();
        BoundQueries { kept: Cache::new(MOST_KEPT), hits, misses, unplanned, repeated }
    }
}

impl BoundQueries {
    /// What is known of queries of a shape; `None` if nothing is.
    pub fn find(&self, shape: &Shape) -> Option<Kept> {
        self.kept.get(&shape.key)
    }

    /// A query as it was kept, over these tables; `None` if it was over other versions of them.
    pub fn query(
        &self,
        template: &Template,
        shape: &Shape,
        tables: &ResolvedTables,
    ) -> Option<BoundQuery> {
        if versions(tables).as_ref() != Some(&template.tables) {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(template.bound.with_values(&shape.literals))
    }

    /// Keeps what a query over stored tables was bound to, if that is the same for all values, moments and users.
    fn keep(
        &self,
        shape: Shape,
        bound: &BoundQuery,
        context: &QueryContext,
        tables: &ResolvedTables,
    ) {
        let kept = match template(&shape, bound, context, tables) {
            Some(template) => Kept::Template(Arc::new(template)),
            None => Kept::Never,
        };
        self.kept.insert(shape.key, kept);
    }

    /// Takes note of a query that was bound. Of one that has come before, keeps what it was bound to.
    pub fn note(
        &self,
        found: Option<Kept>,
        shape: Shape,
        bound: &BoundQuery,
        context: &QueryContext,
        tables: &ResolvedTables,
    ) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        // Nothing of a long one stays, not even that it was seen.
        if shape.key.query.to_string().len() > LONGEST {
            return;
        }
        match found {
            None => self.kept.insert(shape.key, Kept::Seen),
            Some(Kept::Never) => {}
            Some(Kept::Seen | Kept::Template(_)) => self.keep(shape, bound, context, tables),
        }
    }

    /// Takes note of a prepared query for which an earlier run of it was used, which had used a kept one.
    pub fn note_repeated(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.repeated.fetch_add(1, Ordering::Relaxed);
    }

    /// Prepared queries for which an earlier run of them was used.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Queries for which a kept one was used.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Queries that were bound to be kept.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Takes note of a query that was answered without a plan.
    pub fn note_unplanned(&self) {
        self.unplanned.fetch_add(1, Ordering::Relaxed);
    }

    /// Queries that were answered without a plan.
    pub fn unplanned(&self) -> u64 {
        self.unplanned.load(Ordering::Relaxed)
    }

    /// How many shapes are known.
    pub fn count(&self) -> usize {
        self.kept.len()
    }
}

/// A query with parameters, of which this one is what binding gave for its literals.
fn template(
    shape: &Shape,
    bound: &BoundQuery,
    context: &QueryContext,
    tables: &ResolvedTables,
) -> Option<Template> {
    let Shape { key, literals } = shape;
    let versions = versions(tables)?;
    // One that it names and does not read must be there, too.
    if !bound.tables().into_iter().eq(versions.keys()) {
        return None;
    }
    let other = QueryContext {
        now_us: context.now_us.saturating_add(LATER_US),
        user: format!("-{}", context.user),
        connection_id: context.connection_id.wrapping_add(1),
        ..context.clone()
    };
    let again = binder::bind_with_parameters(&key.query, &other, &key.parameters, tables).ok()?;
    let small = postcard::to_allocvec(&again).is_ok_and(|bytes| bytes.len() <= LARGEST);
    let same = again.with_values(literals) == *bound;
    if !(small && same) {
        return None;
    }
    let only = tables.values().next().filter(|_| tables.len() == 1);
    let row_query = only.and_then(|only| again.row_query(only.table.as_ref()?));
    Some(Template { bound: again, row_query, columns: OnceLock::new(), tables: versions })
}

/// The versions of tables; `None` if one has none.
fn versions(tables: &ResolvedTables) -> Option<BTreeMap<TableName, (TableId, SchemaVersion)>> {
    let version = |(name, resolved): (&TableName, &binder::ResolvedTable)| {
        let table = resolved.table.as_ref()?;
        Some((name.clone(), (table.id, table.version)))
    };
    tables.iter().map(version).collect()
}

impl Template {
    /// The query, for what it reads.
    pub fn bound(&self) -> &BoundQuery {
        &self.bound
    }

    /// The query that compares with these literals, as one that needs no plan, if it is and its columns are known. Nobody
    /// knows those before one was planned.
    pub fn row_query(&self, literals: &[Scalar]) -> Option<RowQuery> {
        self.columns.get()?;
        Some(self.row_query.as_ref()?.with_values(literals))
    }

    /// What the columns are of all queries of its shape, once one was planned.
    pub fn columns(&self) -> Option<&Vec<ResultColumn>> {
        self.columns.get()
    }

    /// Takes note of what the columns are.
    pub fn describe(&self, columns: &[ResultColumn]) {
        self.columns.get_or_init(|| columns.to_vec());
    }
}

/// Where a literal comes from.
#[derive(Clone, Debug)]
pub enum Operand {
    /// It is a parameter: its place among them.
    Parameter(usize),
    /// It stands there.
    Literal(Scalar),
}

impl Operand {
    fn of(expr: &Expr) -> Option<Operand> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Placeholder(mark), .. }) => {
                let nth: usize = mark.trim_start_matches('?').parse().ok()?;
                Some(Operand::Parameter(nth.checked_sub(1)?))
            }
            other => plain_literal(other).map(Operand::Literal),
        }
    }
}

impl Shape {
    /// Where the literals come from in each query that differs from `prepared` in its parameters alone; `None` if this is
    /// not one of them.
    pub fn operands(&self, prepared: &Query) -> Option<Vec<Operand>> {
        let mut query = prepared.clone();
        let mut taken = Taken { take: Operand::of, found: Vec::new() };
        walk_mut(&mut query, &mut taken).ok()?;
        (query == self.key.query).then_some(taken.found)
    }

    /// What the query compares with.
    pub fn literals(&self) -> &[Scalar] {
        &self.literals
    }

    /// The types of that.
    pub fn types(&self) -> &[MysqlType] {
        &self.key.parameters
    }

    /// What is the same of a query and others; `None` of one that is not worth it.
    pub fn of(query: &Query, context: &QueryContext) -> Option<Shape> {
        let mut query = query.clone();
        let mut taken = Taken { take: plain_literal, found: Vec::new() };
        walk_mut(&mut query, &mut taken).ok()?;
        let literals = taken.found;
        let key = Key {
            query,
            parameters: literals.iter().map(|literal| literal.ty).collect(),
            database: context.database.clone(),
            sql_mode: context.sql_mode.clone(),
            time_zone: context.time_zone.clone(),
        };
        Some(Shape { key, literals })
    }
}

/// What was taken out of a query's conditions.
struct Taken<T> {
    /// What there is to take of an operand, if anything.
    take: fn(&Expr) -> Option<T>,
    found: Vec<T>,
}

impl<T> VisitorMut for Taken<T> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        // Such an item is called what it asks, literals included, and ORDER BY may mean it by that name.
        let asks = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expr) if finds(expr, &mut IsQuery));
        if select.projection.iter().any(asks) {
            return ControlFlow::Break(());
        }
        if let Some(condition) = &mut select.selection {
            self.condition(condition);
        }
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            if let JoinOperator::Join(JoinConstraint::On(condition))
            | JoinOperator::Inner(JoinConstraint::On(condition))
            | JoinOperator::Left(JoinConstraint::On(condition))
            | JoinOperator::LeftOuter(JoinConstraint::On(condition)) = &mut join.join_operator
            {
                self.condition(condition);
            }
        }
        match self.found.len() > MOST_LITERALS {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Finds a query.
struct IsQuery;

impl Visitor for IsQuery {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

impl<T> Taken<T> {
    fn condition(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Nested(inner) => self.condition(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                self.condition(left);
                self.condition(right);
            }
            Expr::BinaryOp {
                left,
                op:
                    BinaryOperator::Eq
                    | BinaryOperator::NotEq
                    | BinaryOperator::Lt
                    | BinaryOperator::LtEq
                    | BinaryOperator::Gt
                    | BinaryOperator::GtEq
                    | BinaryOperator::Spaceship,
                right,
            } => {
                self.operand(left);
                self.operand(right);
            }
            Expr::Between { low, high, .. } => {
                self.operand(low);
                self.operand(high);
            }
            // A long one is of no shape: the next is of another length.
            Expr::InList { list, .. } => {
                list.iter_mut().take(MOST_LITERALS + 1).for_each(|item| self.operand(item));
            }
            _ => {}
        }
    }

    fn operand(&mut self, expr: &mut Expr) {
        if let Some(taken) = (self.take)(expr) {
            self.found.push(taken);
            *expr = value(Value::Placeholder(format!("?{}", self.found.len())));
        }
    }
}
