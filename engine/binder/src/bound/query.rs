//! Queries bound, clause by clause, in the order in which MySQL gives names a meaning: FROM, WHERE, the select list, GROUP
//! BY, HAVING, ORDER BY, LIMIT.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Value as SqlValue, ValueWithSpan,
};
use syntax::names::{TableName, expression_name, parts};
use types::{ColumnType, Value};
use values::error::{SqlResult, ambiguous_column, no_column};

use super::groups::Groups;
use super::scalars::{Result, Scalars, Unbound};
use super::scope::{Clause, Scope, ScopeColumn};
use super::subqueries;
use super::tree::{BoundQuery, ColumnId, Node, OutputColumn, Relation, Scalar, SortKey};
use super::windows::{self, Windows};
use crate::rewrite;
use crate::{QueryContext, ResolvedTable, scopes};

/// Binds a query over tables that are known; `None` where it has a form that is not bound so far. With `hidden`, names
/// may mean hidden columns.
///
/// # Errors
///
/// MySQL's where it is wrong.
pub fn bind(
    query: &Query,
    context: &QueryContext,
    tables: &HashMap<TableName, ResolvedTable>,
    hidden: bool,
) -> SqlResult<Option<BoundQuery>> {
    let (scope, named, outer) = (Scope::default(), Vec::new(), Vec::new());
    let columns = Cell::new(0);
    let mut binder = Binder { context, tables, hidden, columns: &columns, scope, named, outer };
    match binder.query(query) {
        Ok(bound) => Ok(Some(bound)),
        Err(Unbound::NotYet) => Ok(None),
        Err(Unbound::Wrong(error)) => Err(error),
    }
}

/// A query of WITH.
#[derive(Clone)]
pub(super) struct Named<'a> {
    /// Its name, in lower case.
    pub(super) name: String,
    /// What its columns are called; what the query calls them if empty.
    pub(super) columns: Vec<String>,
    /// The query.
    pub(super) query: &'a Query,
    /// How many queries around it sees.
    pub(super) outer: usize,
}

/// An item of a select list.
struct Item {
    name: String,
    scalar: Scalar,
    /// The column that it is, if it is no more than that.
    column: Option<ScopeColumn>,
}

/// Binds a query and those in its FROM.
pub(super) struct Binder<'a> {
    pub(super) context: &'a QueryContext,
    pub(super) tables: &'a HashMap<TableName, ResolvedTable>,
    pub(super) hidden: bool,
    /// Columns so far, of all queries of the statement.
    columns: &'a Cell<u32>,
    /// The tables of the FROM that is bound.
    pub(super) scope: Scope,
    /// The queries of WITH, the innermost last.
    pub(super) named: Vec<Named<'a>>,
    /// What names may mean of the queries around, the innermost last.
    pub(super) outer: Vec<Rc<Frame>>,
}

/// What names within a query may mean of one around it.
pub(super) struct Frame {
    /// Its tables.
    pub(super) scope: Scope,
    /// Items of its select list, by their names in lower case.
    pub(super) named: Vec<(String, Scalar)>,
}

/// An expression in its plain form, and the queries that stood in it.
pub(super) struct Plain {
    pub(super) expr: Expr,
    queries: Vec<Query>,
}

impl Plain {
    pub(super) fn map(self, form: impl FnOnce(Expr) -> Expr) -> Plain {
        Plain { expr: form(self.expr), ..self }
    }
}

impl Binder<'_> {
    /// A binder of queries that see these around them.
    pub(super) fn within(&self, outer: Vec<Rc<Frame>>) -> Binder<'_> {
        let Binder { context, tables, hidden, columns, .. } = *self;
        let (scope, named) = (Scope::default(), self.named.clone());
        Binder { context, tables, hidden, columns, scope, named, outer }
    }
}

impl<'a> Binder<'a> {
    /// Binds a query that sees no column of the FROM that it stands in.
    pub(super) fn query(&mut self, query: &'a Query) -> Result<BoundQuery> {
        if !is_plain(query) {
            return Err(Unbound::NotYet);
        }
        let (around, named) = (std::mem::take(&mut self.scope), self.named.len());
        let bound = self.with(query).and_then(|()| match &*query.body {
            SetExpr::Select(select) => self.select(select, &Tail::of(query)),
            SetExpr::SetOperation { .. } | SetExpr::Query(_) => self.set_query(query),
            _ => Err(Unbound::NotYet),
        });
        self.scope = around;
        self.named.truncate(named);
        bound
    }

    /// Binds a SELECT that is one side of a set operation.
    pub(super) fn side(&mut self, select: &'a Select) -> Result<BoundQuery> {
        let around = std::mem::take(&mut self.scope);
        let bound = self.select(select, &Tail { order_by: None, limit: None });
        self.scope = around;
        bound
    }

    fn with(&mut self, query: &'a Query) -> Result<()> {
        let Some(with) = &query.with else { return Ok(()) };
        if with.recursive {
            return Err(Unbound::NotYet);
        }
        for cte in &with.cte_tables {
            let columns = cte.alias.columns.iter().map(|column| column.name.value.clone());
            let columns = columns.collect();
            let name = cte.alias.name.value.to_lowercase();
            let outer = self.outer.len();
            self.named.push(Named { name, columns, query: &cte.query, outer });
        }
        Ok(())
    }

    fn select(&mut self, select: &'a Select, tail: &Tail) -> Result<BoundQuery> {
        check_forms(select)?;
        scopes::unique(select, &self.context.database)?;
        let mut relation = self.from(select)?;
        if let Some(condition) = &select.selection {
            let plain = self.plain(condition)?.map(rewrite::truth);
            let condition = self.scalars(Clause::Where, &plain).bind(&plain.expr)?;
            let condition = self.condition(condition)?;
            relation = Relation::Filter { input: Box::new(relation), condition };
        }
        let computed = Computed::default();
        let items = self.select_list(select, &computed)?;
        let named: Vec<(String, Scalar)> =
            items.iter().map(|item| (item.name.to_lowercase(), item.scalar.clone())).collect();
        let keys = self.group_by(select, &items, &named)?;
        let having = match &select.having {
            Some(having) => {
                let plain = self.plain(having)?.map(rewrite::truth);
                let scalars = self.scalars(Clause::Having, &plain);
                let scalars = Scalars { named: &named, groups: Some(&computed.groups), ..scalars };
                Some(self.condition(scalars.bind(&plain.expr)?)?)
            }
            None => None,
        };
        // Errors that are made elsewhere so far: neither groups nor their conditions know what windows have, and groups no
        // aggregate.
        let windows = computed.windows.borrow().iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let aggregates =
            computed.groups.borrow().aggregates.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let late = |key: &Scalar| key.reads(&windows) || key.reads(&aggregates);
        if having.as_ref().is_some_and(|having| having.reads(&windows))
            || keys.iter().any(|(_, key)| late(key))
        {
            return Err(Unbound::NotYet);
        }
        let by = self.order_by(tail, &items, &named, &computed)?;
        let grouped = !keys.is_empty() || !computed.groups.borrow().aggregates.is_empty();
        let (relation, items, by) = match grouped {
            true => self.grouped(relation, (keys, computed), items, having, by)?,
            false => {
                // Without groups it is a condition on the rows.
                if let Some(condition) = having {
                    relation = Relation::Filter { input: Box::new(relation), condition };
                }
                (windowed(relation, computed.windows.into_inner()), items, by)
            }
        };
        let distinct = select.distinct.is_some();
        let (relation, output) = self.shown(relation, items, by, distinct)?;
        Ok(BoundQuery { relation: limited(tail.limit, relation)?, output })
    }

    /// The groups of rows, and what windows have for them; everything behind is over the groups' columns.
    fn grouped(
        &self,
        input: Relation,
        (keys, computed): (Vec<(ColumnId, Scalar)>, Computed),
        mut items: Vec<Item>,
        having: Option<Scalar>,
        mut by: Vec<Order>,
    ) -> Result<(Relation, Vec<Item>, Vec<Order>)> {
        let mut groups = Groups { keys, ..computed.groups.into_inner() };
        let having = having.map(|having| groups.of_all_rows(having, || self.next())).transpose()?;
        // Of columns that are not grouped by, any value of the group is taken where sql_mode allows it; what is one row is
        // in order by whatever.
        let any = !self.context.full_groups();
        let any_order = any || groups.keys.is_empty();
        let shown: Vec<Scalar> = items.iter().map(|item| item.scalar.clone()).collect();
        let mut next = || self.next();
        for item in &mut items {
            item.scalar = groups.over(item.scalar.clone(), &self.scope, &|_| any, &mut next)?;
        }
        for key in &mut by {
            if let OrderedBy::Computed(scalar) = &mut key.by {
                *scalar = groups.over(scalar.clone(), &self.scope, &|_| any_order, &mut next)?;
            }
        }
        // HAVING knows the columns of the select list alone.
        let of_list = |scalar: &Scalar| any && shown.contains(scalar);
        let having = having.map(|having| groups.over(having, &self.scope, &of_list, &mut next));
        let having = having.transpose()?;
        let mut calls = Windows::new();
        for (id, call) in computed.windows.into_inner() {
            let call =
                call.try_map(&mut |part| groups.over(part, &self.scope, &|_| any, &mut next))?;
            calls.push((id, call));
        }
        let Groups { keys, aggregates } = groups;
        let mut relation = Relation::Group { input: Box::new(input), keys, aggregates };
        if let Some(condition) = having {
            relation = Relation::Filter { input: Box::new(relation), condition };
        }
        Ok((windowed(relation, calls), items, by))
    }

    /// The rows with the columns of the result, sorted.
    fn shown(
        &self,
        input: Relation,
        items: Vec<Item>,
        by: Vec<Order>,
        distinct: bool,
    ) -> Result<(Relation, Vec<OutputColumn>)> {
        let mut columns: Vec<(ColumnId, Scalar)> = Vec::with_capacity(items.len());
        let mut output = Vec::with_capacity(items.len());
        for Item { name, scalar, column } in items {
            let (id, ty) = (self.next(), scalar.ty);
            let origin = column.and_then(|column| column.origin);
            output.push(OutputColumn { id, name, origin, ty });
            columns.push((id, scalar));
        }
        let shown = columns.len();
        let mut keys = Vec::with_capacity(by.len());
        for Order { by, descending } in by {
            let column = match by {
                OrderedBy::Shown(at) => output.get(at).map(|column| column.id),
                OrderedBy::Computed(scalar) => {
                    let known = columns.iter().find(|(_, known)| *known == scalar);
                    Some(match known {
                        Some((id, _)) => *id,
                        None => {
                            let id = self.next();
                            columns.push((id, scalar));
                            id
                        }
                    })
                }
            };
            keys.push(SortKey { column: column.ok_or(Unbound::NotYet)?, descending });
        }
        // What distinct rows are sorted by must be theirs.
        if distinct && columns.len() > shown {
            return Err(Unbound::NotYet);
        }
        let mut relation = Relation::Map { input: Box::new(input), columns };
        if distinct {
            relation = Relation::Distinct { input: Box::new(relation) };
        }
        if !keys.is_empty() {
            relation = Relation::Sort { input: Box::new(relation), by: keys };
        }
        Ok((relation, output))
    }

    /// The number of the next column.
    pub(super) fn next(&self) -> ColumnId {
        self.columns.set(self.columns.get() + 1);
        ColumnId(self.columns.get())
    }

    /// An expression in its plain form.
    pub(super) fn plain(&self, expr: &Expr) -> Result<Plain> {
        let mut expr = expr.clone();
        let queries = subqueries::taken_out(&mut expr)?;
        let expr = rewrite::rewrite_expr(expr, self.context, self.tables)?;
        Ok(Plain { expr, queries })
    }

    /// What binds an expression of a clause that has no name besides columns, no aggregate and no window.
    pub(super) fn scalars<'b>(&'b self, clause: Clause, plain: &'b Plain) -> Scalars<'b, 'a> {
        let (scope, queries) = (&self.scope, &plain.queries[..]);
        Scalars { binder: self, scope, named: &[], clause, groups: None, windows: None, queries }
    }

    fn select_list(&self, select: &Select, computed: &Computed) -> Result<Vec<Item>> {
        let mut items = Vec::with_capacity(select.projection.len());
        let written = windows::written_out(select)?;
        let written = written.as_ref().unwrap_or(select);
        for (shown, item) in select.projection.iter().zip(&written.projection) {
            let (expr, name) = match (item, shown) {
                (SelectItem::UnnamedExpr(expr), SelectItem::UnnamedExpr(shown)) => {
                    (expr, expression_name(shown))
                }
                (SelectItem::ExprWithAlias { expr, alias }, _) => (expr, alias.value.clone()),
                (SelectItem::Wildcard(_), _) => {
                    items.extend(self.wildcard(&[])?);
                    continue;
                }
                (
                    SelectItem::QualifiedWildcard(
                        SelectItemQualifiedWildcardKind::ObjectName(name),
                        _,
                    ),
                    _,
                ) => {
                    items.extend(self.wildcard(&parts(name))?);
                    continue;
                }
                _ => return Err(Unbound::NotYet),
            };
            let column = match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                    self.scope.column(&path(expr), Clause::FieldList).ok().cloned()
                }
                _ => None,
            };
            let plain = self.plain(expr)?;
            let scalars = computed.of(self.scalars(Clause::FieldList, &plain));
            let scalar = self.values(scalars.bind(&plain.expr)?, true)?;
            items.push(Item { name, scalar, column });
        }
        Ok(items)
    }

    fn wildcard(&self, qualifier: &[String]) -> Result<Vec<Item>> {
        let columns = match self.scope.wildcard(qualifier) {
            Some(columns) if !columns.is_empty() => columns,
            // Errors that are made elsewhere so far.
            _ => return Err(Unbound::NotYet),
        };
        let item = |column: &ScopeColumn| Item {
            name: column.name.clone(),
            scalar: column.value(),
            column: Some(column.clone()),
        };
        Ok(columns.into_iter().map(item).collect())
    }

    /// What is grouped by, each thing once. A name means a column first, then an item of the select list.
    fn group_by(
        &self,
        select: &Select,
        items: &[Item],
        named: &[(String, Scalar)],
    ) -> Result<Vec<(ColumnId, Scalar)>> {
        let GroupByExpr::Expressions(exprs, _) = &select.group_by else {
            return Err(Unbound::NotYet);
        };
        let mut keys: Vec<(ColumnId, Scalar)> = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let key = match place(expr) {
                Some(at) => items.get(at).ok_or(Unbound::NotYet)?.scalar.clone(),
                None => {
                    let plain = self.plain(expr)?;
                    let scalars = Scalars { named, ..self.scalars(Clause::GroupBy, &plain) };
                    self.values(scalars.bind(&plain.expr)?, true)?
                }
            };
            // A literal is no key, documents are no keys, and an alias of an aggregate is an error.
            let json = key.ty.column == Some(ColumnType::Json);
            if json || matches!(key.node, Node::Literal(_)) || has_place(expr, items) {
                return Err(Unbound::NotYet);
            }
            if keys.iter().all(|(_, known)| *known != key) {
                keys.push((self.next(), key));
            }
        }
        Ok(keys)
    }

    fn order_by(
        &self,
        tail: &Tail,
        items: &[Item],
        named: &[(String, Scalar)],
        computed: &Computed,
    ) -> Result<Vec<Order>> {
        let shown: Vec<(&str, &Scalar)> =
            items.iter().map(|item| (item.name.as_str(), &item.scalar)).collect();
        let exprs = tail.orders()?;
        let mut keys = Vec::with_capacity(exprs.len());
        for by in exprs {
            let descending = by.options.asc == Some(false);
            let by = match ordered_by_name(by, &shown)? {
                Some(at) => OrderedBy::Shown(at),
                None => {
                    let plain = self.plain(&by.expr)?;
                    let scalars = computed.of(self.scalars(Clause::OrderBy, &plain));
                    let scalars = Scalars { named, ..scalars };
                    OrderedBy::Computed(self.values(scalars.bind(&plain.expr)?, true)?)
                }
            };
            keys.push(Order { by, descending });
        }
        Ok(keys)
    }
}

/// What expressions of a query compute over several rows.
#[derive(Default)]
struct Computed {
    groups: RefCell<Groups>,
    windows: RefCell<Windows>,
}

impl Computed {
    /// Expressions that may have aggregates and windows.
    fn of<'b, 'a>(&'b self, scalars: Scalars<'b, 'a>) -> Scalars<'b, 'a> {
        Scalars { groups: Some(&self.groups), windows: Some(&self.windows), ..scalars }
    }
}

fn windowed(input: Relation, calls: Windows) -> Relation {
    match calls.is_empty() {
        true => input,
        false => Relation::Windows { input: Box::new(input), calls },
    }
}

/// One of the things that rows are sorted by.
struct Order {
    by: OrderedBy,
    descending: bool,
}

enum OrderedBy {
    /// An item of the select list, by its place.
    Shown(usize),
    /// Another expression.
    Computed(Scalar),
}

/// What stands behind the SELECT or the set operation of a query.
pub(super) struct Tail<'q> {
    order_by: Option<&'q OrderBy>,
    pub(super) limit: Option<&'q LimitClause>,
}

impl<'q> Tail<'q> {
    pub(super) fn of(query: &'q Query) -> Tail<'q> {
        Tail { order_by: query.order_by.as_ref(), limit: query.limit_clause.as_ref() }
    }

    /// What the rows are sorted by.
    pub(super) fn orders(&self) -> Result<&'q [OrderByExpr]> {
        let Some(order) = self.order_by else { return Ok(&[]) };
        let OrderByKind::Expressions(exprs) = &order.kind else { return Err(Unbound::NotYet) };
        let plain = |by: &OrderByExpr| by.options.nulls_first.is_none() && by.with_fill.is_none();
        if exprs.iter().all(plain) { Ok(exprs) } else { Err(Unbound::NotYet) }
    }
}

/// Whether nothing stands around the body of a query that is not bound.
fn is_plain(query: &Query) -> bool {
    query.fetch.is_none()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty()
}

/// Leaves to the rest of the planner what a SELECT has that is not bound.
fn check_forms(select: &Select) -> Result<()> {
    let plain_groups = matches!(&select.group_by, GroupByExpr::Expressions(_, modifiers)
        if modifiers.is_empty());
    let plain = matches!(select.distinct, None | Some(Distinct::Distinct))
        && select.select_modifiers.as_ref().is_none_or(|some| !some.sql_calc_found_rows)
        && select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.qualify.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty();
    let tables: usize = select.from.iter().map(|from| 1 + from.joins.len()).sum();
    match plain && plain_groups && tables <= rewrite::MOST_TABLES {
        true => Ok(()),
        false => Err(Unbound::NotYet),
    }
}

/// The identifiers of a name.
fn path(expr: &Expr) -> Vec<String> {
    match expr {
        Expr::Identifier(name) => vec![name.value.clone()],
        Expr::CompoundIdentifier(names) => names.iter().map(|name| name.value.clone()).collect(),
        _ => Vec::new(),
    }
}

/// The place in a select list that a number in ORDER BY or GROUP BY means, counted from 0.
fn place(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(ValueWithSpan { value: SqlValue::Number(place, _), .. }) => {
            place.parse::<usize>().ok()?.checked_sub(1)
        }
        _ => None,
    }
}

/// Whether a key of GROUP BY names an item that has an aggregate.
fn has_place(expr: &Expr, items: &[Item]) -> bool {
    let item = match expr {
        Expr::Identifier(name) => {
            let called = name.value.to_lowercase();
            items.iter().find(|item| item.name.to_lowercase() == called)
        }
        expr => place(expr).and_then(|at| items.get(at)),
    };
    item.is_some_and(|item| item.column.is_none() && item.scalar.has_aggregates())
}

/// The place of the item that an ORDER BY means by its name or its place; of items of one name only if all are the same.
pub(super) fn ordered_by_name<T: PartialEq>(
    by: &OrderByExpr,
    items: &[(&str, &T)],
) -> Result<Option<usize>> {
    match &by.expr {
        Expr::Value(ValueWithSpan { value: SqlValue::Number(number, _), .. }) => {
            if number.parse::<usize>().is_err() {
                return Ok(None);
            }
            match place(&by.expr).filter(|at| *at < items.len()) {
                Some(at) => Ok(Some(at)),
                None => Err(no_column(number, Clause::OrderBy.name()).into()),
            }
        }
        Expr::Identifier(name) => {
            let called = name.value.to_lowercase();
            let named = items.iter().enumerate();
            let mut named = named.filter(|(_, (item, _))| item.to_lowercase() == called);
            let Some((at, (_, first))) = named.next() else { return Ok(None) };
            match named.any(|(_, (_, other))| other != first) {
                false => Ok(Some(at)),
                true => Err(ambiguous_column(&name.value, Clause::OrderBy.name()).into()),
            }
        }
        _ => Ok(None),
    }
}

/// The rows that a LIMIT leaves.
pub(super) fn limited(limit: Option<&LimitClause>, input: Relation) -> Result<Relation> {
    let (skip, fetch) = match limit {
        None => return Ok(input),
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            (offset.as_ref().map(|offset| &offset.value), limit.as_ref())
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(offset), Some(limit)),
        Some(_) => return Err(Unbound::NotYet),
    };
    let count = |expr: &Expr| match syntax::constant::literal(expr) {
        Some(Value::Int(n)) => u64::try_from(n).map_err(|_| Unbound::NotYet),
        Some(Value::UInt(n)) => Ok(n),
        _ => Err(Unbound::NotYet),
    };
    let skip = skip.map(count).transpose()?.unwrap_or(0);
    let fetch = fetch.map(count).transpose()?;
    Ok(Relation::Limit { input: Box::new(input), skip, fetch })
}
