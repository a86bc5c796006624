//! Queries bound, clause by clause, in the order in which MySQL gives names a meaning: FROM, WHERE, the select list, GROUP
//! BY, HAVING, ORDER BY, LIMIT.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use sqlparser::ast::{
    Distinct, Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, Select, SetExpr,
    TableWithJoins,
};
use syntax::names::TableName;
use types::Value;
use values::error::{SqlResult, syntax, too_many_tables, unsupported, wrong_placement};
use values::mysql_type::MysqlType;

use super::dependencies::Dependencies;
use super::groups::{Groups, Over, Part};
use super::recursion;
use super::scalars::Scalars;
use super::scope::{Clause, Scope};
use super::select_list::{Computed, Keys, Order, OrderedBy, Rows, check_places};
use super::subqueries;
use super::tree::{BoundQuery, ColumnId, Node, OutputColumn, Relation, Scalar};
use super::windows::{Windows, Written, written_out};
use crate::rewrite;
use crate::{QueryContext, ResolvedTable, windows};

/// Binds a query over tables that are known, with parameters of these types.
///
/// # Errors
///
/// MySQL's where it is wrong.
pub fn bind(
    query: &Query,
    context: &QueryContext,
    tables: &HashMap<TableName, ResolvedTable>,
    parameters: &[MysqlType],
) -> SqlResult<BoundQuery> {
    let columns = Cell::new(0);
    Binder { parameters, ..Binder::new(context, tables, &columns) }.query(query)
}

/// What a name of WITH means.
#[derive(Clone)]
pub(super) enum Named<'a> {
    /// A query.
    Query {
        /// Its name, in lower case.
        name: String,
        /// What its columns are called; what the query calls them if empty.
        columns: Vec<String>,
        /// The query.
        query: &'a Query,
        /// How many queries around it sees.
        outer: usize,
        /// Whether it names itself.
        recursive: bool,
    },
    /// Within a recursive query, the rows of its own that came last.
    Last {
        /// Its name, in lower case.
        name: String,
        /// Which it is among those of the statement.
        unique: String,
        /// Its columns, of which each place that names it has its own.
        output: Vec<OutputColumn>,
    },
}

impl Named<'_> {
    /// The name, in lower case.
    pub(super) fn name(&self) -> &str {
        match self {
            Named::Query { name, .. } | Named::Last { name, .. } => name,
        }
    }
}

/// Binds a query and those in its FROM.
pub(super) struct Binder<'a> {
    pub(super) context: &'a QueryContext,
    pub(super) tables: &'a HashMap<TableName, ResolvedTable>,
    /// The types of values that are given later.
    pub(super) parameters: &'a [MysqlType],
    /// Whether rows of tables come with their hidden columns, which no name means.
    pub(super) hidden: bool,
    /// Columns so far, of all queries of the statement.
    pub(super) columns: &'a Cell<u32>,
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

impl<'a> Binder<'a> {
    /// A binder of a statement without parameters, which counts its columns here.
    pub(super) fn new(
        context: &'a QueryContext,
        tables: &'a HashMap<TableName, ResolvedTable>,
        columns: &'a Cell<u32>,
    ) -> Binder<'a> {
        let (scope, named, outer) = (Scope::default(), Vec::new(), Vec::new());
        let (parameters, hidden) = (&[][..], false);
        Binder { context, tables, parameters, hidden, columns, scope, named, outer }
    }
}

impl Binder<'_> {
    /// A binder of queries that see these around them.
    pub(super) fn within(&self, outer: Vec<Rc<Frame>>) -> Binder<'_> {
        let Binder { context, tables, parameters, columns, .. } = *self;
        let named = self.named.clone();
        Binder { parameters, named, outer, ..Binder::new(context, tables, columns) }
    }
}

impl<'a> Binder<'a> {
    /// Binds a query that sees no column of the FROM that it stands in.
    pub(super) fn query(&mut self, query: &'a Query) -> SqlResult<BoundQuery> {
        if !is_plain(query) {
            return Err(syntax("a clause that no query has"));
        }
        let (around, named) = (std::mem::take(&mut self.scope), self.named.len());
        let bound = self.with(query).and_then(|()| match &*query.body {
            SetExpr::Select(select) => self.select(select, &Tail::of(query)),
            _ => self.set_query(query),
        });
        self.scope = around;
        self.named.truncate(named);
        bound
    }

    /// Binds a SELECT that is one side of a set operation.
    pub(super) fn side(&mut self, select: &'a Select) -> SqlResult<BoundQuery> {
        let around = std::mem::take(&mut self.scope);
        let bound = self.select(select, &Tail { order_by: None, limit: None });
        self.scope = around;
        bound
    }

    fn with(&mut self, query: &'a Query) -> SqlResult<()> {
        let Some(with) = &query.with else { return Ok(()) };
        for cte in &with.cte_tables {
            let columns = cte.alias.columns.iter().map(|column| column.name.value.clone());
            let columns = columns.collect();
            let name = cte.alias.name.value.to_lowercase();
            let outer = self.outer.len();
            let recursive = with.recursive && recursion::names_itself(&cte.query, &name);
            self.named.push(Named::Query { name, columns, query: &cte.query, outer, recursive });
        }
        Ok(())
    }

    fn select(&mut self, select: &'a Select, tail: &Tail) -> SqlResult<BoundQuery> {
        check_forms(select)?;
        windows::misplaced(select)?;
        let relation = self.rows(&select.from, select.selection.as_ref())?;
        let computed = Computed::default();
        let orders = tail.orders()?;
        let written = written_out(select, orders)?;
        let (written, orders) = match &written {
            Some(Written { items, orders }) => (&items[..], &orders[..]),
            None => (&select.projection[..], orders),
        };
        let items = self.select_list(select, written, &computed)?;
        let named: Vec<(String, Scalar)> =
            items.iter().map(|item| (item.name.to_lowercase(), item.scalar.clone())).collect();
        let keys = self.group_by(select, &items, &named)?;
        let having = self.having(select, &named, &keys, &computed)?;
        let by = self.order_by(orders, &items, &named, &computed)?;
        check_places(&items, &keys, having.as_ref(), &computed)?;
        let distinct = matches!(select.distinct, Some(Distinct::Distinct));
        let grouped = !keys.keys.is_empty() || !computed.groups.borrow().aggregates.is_empty();
        let rows = Rows { relation, items, by };
        let rows = match grouped {
            true => self.grouped(rows, keys, computed, having, distinct)?,
            false => {
                let Rows { mut relation, items, by } = rows;
                // Without groups it is a condition on the rows.
                if let Some(condition) = having {
                    relation = Relation::Filter { input: Box::new(relation), condition };
                }
                Rows { relation: windowed(relation, computed.windows.into_inner()), items, by }
            }
        };
        let (relation, output) = self.shown(rows, distinct)?;
        Ok(BoundQuery { relation: limited(tail.limit, relation)?, output })
    }

    /// The rows of a FROM for which a condition is true.
    pub(super) fn rows(
        &mut self,
        from: &'a [TableWithJoins],
        condition: Option<&Expr>,
    ) -> SqlResult<Relation> {
        let input = self.from(from)?;
        let Some(condition) = condition else { return Ok(input) };
        let plain = self.plain(condition)?.map(rewrite::truth);
        let condition = self.scalars(Clause::Where, &plain).bind(&plain.expr)?;
        Ok(Relation::Filter { input: Box::new(input), condition: self.condition(condition)? })
    }

    fn having(
        &self,
        select: &Select,
        named: &[(String, Scalar)],
        keys: &Keys,
        computed: &Computed,
    ) -> SqlResult<Option<Scalar>> {
        let Some(having) = &select.having else { return Ok(None) };
        let plain = self.plain(having)?.map(rewrite::truth);
        let scalars = self.scalars(Clause::Having, &plain);
        let of_all = keys.keys.is_empty();
        let (groups, keys) = (Some(&computed.groups), Some(&keys.keys[..]));
        let scalars = Scalars { named, groups, keys, ..scalars };
        let having = scalars.bind(&plain.expr)?;
        // Of one group that is there without rows it may stand within a CASE, where there is no join for NOT IN.
        match of_all && !having.has_aggregates() {
            true => self.values(having, false).map(Some),
            false => self.condition(having).map(Some),
        }
    }

    /// The groups of rows, and what windows have for them; everything behind is over the groups' columns.
    fn grouped(
        &self,
        rows: Rows,
        keys: Keys,
        computed: Computed,
        having: Option<Scalar>,
        distinct: bool,
    ) -> SqlResult<Rows> {
        let Rows { relation: input, mut items, mut by } = rows;
        let Keys { keys, places, rollup } = keys;
        let of_all = keys.is_empty();
        let mut groups = Groups { keys, rollup, of_all, ..computed.groups.into_inner() };
        let next = || self.next();
        groups.check_groupings()?;
        let having = groups.condition(having, &next)?;
        if rollup && by.is_empty() && !distinct {
            let totals = groups.totals_behind(&next)?.into_iter();
            let computed = |by| Order { by: OrderedBy::Computed(by), descending: false };
            by = totals.map(computed).collect();
        }
        if !rollup {
            let columns = groups.keys.iter().filter_map(|(_, key)| match key.node {
                Node::Column(id) => Some(id),
                _ => None,
            });
            groups.determined = Dependencies::of(&input, self.tables).closure(columns);
        }
        // Of columns that are not grouped by, any value of the group is taken where sql_mode allows it; what is one row is
        // in order by whatever.
        let any = !self.context.full_groups();
        let (of_list, of_order) = (|_: &Scalar| any, |_: &Scalar| any || of_all);
        let shown: Vec<Scalar> = items.iter().map(|item| item.scalar.clone()).collect();
        let over = |part, any| Over { scope: &self.scope, part, any, next: &next };
        for (at, item) in items.iter_mut().enumerate() {
            // Of two levels of totals that are the same expression each item is its own.
            item.scalar = match places.iter().find(|(place, _)| *place == at && rollup) {
                Some((_, id)) => Scalar { node: Node::Column(*id), ty: item.scalar.ty },
                None => groups.over(item.scalar.clone(), &over(Part::Item(at), &of_list))?,
            };
        }
        for key in &mut by {
            if let OrderedBy::Computed(scalar) = &mut key.by {
                *scalar = groups.over(scalar.clone(), &over(Part::Order, &of_order))?;
            }
        }
        // HAVING knows the columns of the select list alone.
        let of_shown = |scalar: &Scalar| any && shown.contains(scalar);
        let having = having.map(|having| groups.over(having, &over(Part::Having, &of_shown)));
        let having = having.transpose()?;
        let mut calls = Windows::new();
        for (id, call) in computed.windows.into_inner() {
            let part = Part::Item(0);
            let call = call.try_map(&mut |arg| groups.over(arg, &over(part, &of_list)))?;
            calls.push((id, call));
        }
        let Groups { keys, aggregates, .. } = groups;
        let mut relation = Relation::Group { input: Box::new(input), keys, aggregates, rollup };
        if let Some(condition) = having {
            relation = Relation::Filter { input: Box::new(relation), condition };
        }
        Ok(Rows { relation: windowed(relation, calls), items, by })
    }

    /// The number of the next column.
    pub(super) fn next(&self) -> ColumnId {
        self.columns.set(self.columns.get() + 1);
        ColumnId(self.columns.get())
    }

    /// An expression in its plain form.
    pub(super) fn plain(&self, expr: &Expr) -> SqlResult<Plain> {
        let mut expr = expr.clone();
        let queries = subqueries::taken_out(&mut expr);
        let expr = rewrite::rewrite_expr(expr, self.context, self.tables)?;
        Ok(Plain { expr, queries })
    }

    /// What binds an expression of a clause that has no name besides columns, no aggregate and no window.
    pub(super) fn scalars<'b>(&'b self, clause: Clause, plain: &'b Plain) -> Scalars<'b, 'a> {
        let (scope, queries) = (&self.scope, &plain.queries[..]);
        Scalars {
            binder: self,
            scope,
            named: &[],
            keys: None,
            clause,
            groups: None,
            windows: None,
            queries,
        }
    }
}

fn windowed(input: Relation, calls: Windows) -> Relation {
    match calls.is_empty() {
        true => input,
        false => Relation::Windows { input: Box::new(input), calls },
    }
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
    pub(super) fn orders(&self) -> SqlResult<&'q [OrderByExpr]> {
        let Some(order) = self.order_by else { return Ok(&[]) };
        let OrderByKind::Expressions(exprs) = &order.kind else {
            return Err(syntax("ORDER BY ALL"));
        };
        let plain = |by: &OrderByExpr| by.options.nulls_first.is_none() && by.with_fill.is_none();
        match exprs.iter().all(plain) {
            true => Ok(exprs),
            false => Err(syntax("ORDER BY with NULLS or WITH FILL")),
        }
    }
}

/// Whether nothing stands around the body of a query that MySQL does not have.
fn is_plain(query: &Query) -> bool {
    query.fetch.is_none()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty()
}

/// Errors of clauses that MySQL's SELECT does not have, or has elsewhere.
fn check_forms(select: &Select) -> SqlResult<()> {
    if select.into.is_some() {
        return Err(unsupported("SELECT … INTO"));
    }
    let tables: usize = select.from.iter().map(|from| 1 + from.joins.len()).sum();
    if tables > rewrite::MOST_TABLES {
        return Err(too_many_tables(rewrite::MOST_TABLES));
    }
    if select.select_modifiers.as_ref().is_some_and(|some| some.sql_calc_found_rows) {
        return Err(wrong_placement("SQL_CALC_FOUND_ROWS"));
    }
    let known = matches!(select.distinct, None | Some(Distinct::Distinct | Distinct::All))
        && select.top.is_none()
        && select.exclude.is_none()
        && select.qualify.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty();
    match known {
        true => Ok(()),
        false => Err(syntax("a clause that SELECT does not have")),
    }
}

/// The rows that a LIMIT leaves.
pub(super) fn limited(limit: Option<&LimitClause>, input: Relation) -> SqlResult<Relation> {
    let odd = || syntax("LIMIT takes whole numbers");
    let (skip, fetch) = match limit {
        None => return Ok(input),
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            (offset.as_ref().map(|offset| &offset.value), limit.as_ref())
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(offset), Some(limit)),
        Some(_) => return Err(odd()),
    };
    let count = |expr: &Expr| match syntax::constant::literal(expr) {
        Some(Value::Int(n)) => u64::try_from(n).map(Some).map_err(|_| odd()),
        Some(Value::UInt(n)) => Ok(Some(n)),
        // A parameter that has no value yet.
        Some(Value::Null) => Ok(None),
        _ => Err(odd()),
    };
    let skip = skip.map(count).transpose()?.flatten().unwrap_or(0);
    let fetch = fetch.map(count).transpose()?.flatten();
    Ok(Relation::Limit { input: Box::new(input), skip, fetch })
}
