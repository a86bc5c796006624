//! Queries bound, clause by clause.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, GroupByExpr, Join, JoinConstraint, JoinOperator, LimitClause, ObjectName, OrderByExpr,
    OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
    TableWithJoins, Value as SqlValue, ValueWithSpan, Visitor,
};
use syntax::names::{TableName, expression_name, parts, table_name};
use syntax::walk::walk;
use types::Value;
use values::error::{SqlError, SqlResult, no_column};

use super::scalars::{Result, Scalars, Unbound};
use super::scope::{Clause, Scope, ScopeColumn};
use super::tree::{
    BoundQuery, ColumnId, JoinKind, Node, OutputColumn, Relation, Scalar, Scan, SortKey,
};
use crate::planner::rewrite::{self, MOST_TABLES};
use crate::planner::{QueryContext, ResolvedTable, scopes};

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
    let binder = Binder { context, tables, hidden, columns: 0, scope: Scope::default() };
    match only_select(query).and_then(|select| binder.query(query, select)) {
        Ok(bound) => Ok(Some(bound)),
        Err(Unbound::NotYet) => Ok(None),
        Err(Unbound::Wrong(error)) => Err(error),
    }
}

/// The SELECT of a query that is no more than one, if it has the forms that are bound.
fn only_select(query: &Query) -> Result<&Select> {
    let SetExpr::Select(select) = &*query.body else { return Err(Unbound::NotYet) };
    let plain_query = query.with.is_none()
        && query.fetch.is_none()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty();
    let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(exprs, modifiers)
        if exprs.is_empty() && modifiers.is_empty());
    let plain_select = select.distinct.is_none()
        && select.select_modifiers.is_none()
        && select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty();
    let tables: usize = select.from.iter().map(|from| 1 + from.joins.len()).sum();
    if tables > MOST_TABLES {
        return Err(Unbound::NotYet);
    }
    let nested = walk(query, &mut Queries(0)).is_err();
    match plain_query && plain_select && !grouped && !nested {
        true => Ok(select),
        false => Err(Unbound::NotYet),
    }
}

/// Looks for a second query, and for windows.
struct Queries(usize);

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// An item of a select list.
struct Item {
    name: String,
    scalar: Scalar,
    /// The column that it is, if it is no more than that.
    column: Option<ScopeColumn>,
}

struct Binder<'a> {
    context: &'a QueryContext,
    tables: &'a HashMap<TableName, ResolvedTable>,
    hidden: bool,
    /// Columns so far.
    columns: u32,
    scope: Scope,
}

impl Binder<'_> {
    fn query(mut self, query: &Query, select: &Select) -> Result<BoundQuery> {
        scopes::unique(select, &self.context.database)?;
        let mut relation = self.from(select)?;
        let items = self.select_list(select)?;
        if let Some(condition) = &select.selection {
            let condition = rewrite::truth(rewrite::rewrite_expr(condition.clone(), self.context)?);
            let condition = self.scalars(Clause::Where, &[]).bind(&condition)?;
            relation = Relation::Filter { input: Box::new(relation), condition };
        }
        let mut columns = Vec::with_capacity(items.len());
        let mut output = Vec::with_capacity(items.len());
        for Item { name, scalar, column } in items {
            let (id, ty) = (self.next(), scalar.ty);
            let origin = column.and_then(|column| column.origin);
            output.push(OutputColumn { id, name, origin, ty });
            columns.push((id, scalar));
        }
        let by = self.order(query, &output, &mut columns)?;
        relation = Relation::Map { input: Box::new(relation), columns };
        if !by.is_empty() {
            relation = Relation::Sort { input: Box::new(relation), by };
        }
        Ok(BoundQuery { relation: limited(query, relation)?, output })
    }

    fn next(&mut self) -> ColumnId {
        self.columns += 1;
        ColumnId(self.columns)
    }

    fn scalars<'a>(&'a self, clause: Clause, aliases: &'a [ScopeColumn]) -> Scalars<'a> {
        Scalars { scope: &self.scope, aliases, clause }
    }

    fn from(&mut self, select: &Select) -> Result<Relation> {
        let Some((first, others)) = select.from.split_first() else { return Ok(Relation::OneRow) };
        let mut relation = self.joined(first)?;
        for other in others {
            let right = self.joined(other)?;
            relation = join(JoinKind::Inner, relation, right, None);
        }
        Ok(relation)
    }

    /// A table and those that are joined to it. Names in ON mean columns of these alone.
    fn joined(&mut self, from: &TableWithJoins) -> Result<Relation> {
        let before = self.scope.len();
        let mut relation = self.factor(&from.relation)?;
        for Join { relation: right, join_operator, .. } in &from.joins {
            let right = self.factor(right)?;
            let (kind, constraint) = match join_operator {
                JoinOperator::Join(on)
                | JoinOperator::Inner(on)
                | JoinOperator::CrossJoin(on)
                | JoinOperator::StraightJoin(on) => (JoinKind::Inner, on),
                JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinKind::Left, on),
                JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinKind::Right, on),
                _ => return Err(Unbound::NotYet),
            };
            let on = match (constraint, kind) {
                (JoinConstraint::None, JoinKind::Inner) => None,
                (JoinConstraint::On(condition), _) => {
                    let plain = rewrite::rewrite_expr(condition.clone(), self.context)?;
                    let scope = self.scope.from(before);
                    let scalars = Scalars { scope: &scope, aliases: &[], clause: Clause::On };
                    Some(scalars.bind(&rewrite::truth(plain))?)
                }
                _ => return Err(Unbound::NotYet),
            };
            relation = join(kind, relation, right, on);
        }
        Ok(relation)
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<Relation> {
        let (name, alias) = match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                return self.joined(table_with_joins);
            }
            TableFactor::Table {
                name,
                alias,
                args: None,
                with_hints,
                version: None,
                with_ordinality: false,
                partitions,
                json_path: None,
                sample: None,
                ..
            } if with_hints.is_empty() && partitions.is_empty() => (name, alias),
            _ => return Err(Unbound::NotYet),
        };
        if parts(name) == ["dual"] {
            return Ok(Relation::OneRow);
        }
        self.stored(name, alias.as_ref())
    }

    fn stored(
        &mut self,
        name: &ObjectName,
        alias: Option<&sqlparser::ast::TableAlias>,
    ) -> Result<Relation> {
        let name = table_name(name, &self.context.database)?;
        let alias = match alias {
            Some(alias) if !alias.columns.is_empty() => return Err(Unbound::NotYet),
            alias => alias.map(|alias| alias.name.value.as_str()),
        };
        // Tables of the catalog compare texts without case.
        let table = match self.tables.get(&name).and_then(|resolved| resolved.table.as_ref()) {
            Some(table) if name.database != "information_schema" => table.clone(),
            _ => return Err(Unbound::NotYet),
        };
        let columns = &mut self.columns;
        let next = || {
            *columns += 1;
            ColumnId(*columns)
        };
        let columns = self.scope.add(&name, alias, &table, self.hidden, next);
        let alias = alias.map(str::to_lowercase);
        Ok(Relation::Scan(Scan { table: name, alias, columns }))
    }

    fn select_list(&self, select: &Select) -> Result<Vec<Item>> {
        let mut items = Vec::with_capacity(select.projection.len());
        for item in &select.projection {
            let (expr, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, expression_name(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.clone()),
                SelectItem::Wildcard(_) => {
                    items.extend(self.wildcard(&[])?);
                    continue;
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    items.extend(self.wildcard(&parts(name))?);
                    continue;
                }
                _ => return Err(Unbound::NotYet),
            };
            let column = match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                    Some(self.scope.column(&path(expr), Clause::FieldList)?.clone())
                }
                _ => None,
            };
            let plain = rewrite::rewrite_expr(expr.clone(), self.context)?;
            let scalar = self.scalars(Clause::FieldList, &[]).bind(&plain)?;
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
            scalar: Scalar { node: Node::Column(column.id), ty: column.ty },
            column: Some(column.clone()),
        };
        Ok(columns.into_iter().map(item).collect())
    }

    /// What the rows are sorted by; what is no column of the result is computed beside them.
    fn order(
        &mut self,
        query: &Query,
        output: &[OutputColumn],
        columns: &mut Vec<(ColumnId, Scalar)>,
    ) -> Result<Vec<SortKey>> {
        let Some(order) = &query.order_by else { return Ok(Vec::new()) };
        let OrderByKind::Expressions(exprs) = &order.kind else { return Err(Unbound::NotYet) };
        let mut keys = Vec::with_capacity(exprs.len());
        for by in exprs {
            let column = match shown(by, output)? {
                Some(column) => column,
                None => self.sorted_by(&by.expr, output, columns)?,
            };
            let descending = by.options.asc == Some(false);
            if by.options.nulls_first.is_some() || by.with_fill.is_some() {
                return Err(Unbound::NotYet);
            }
            keys.push(SortKey { column, descending });
        }
        Ok(keys)
    }

    fn sorted_by(
        &mut self,
        expr: &Expr,
        output: &[OutputColumn],
        columns: &mut Vec<(ColumnId, Scalar)>,
    ) -> Result<ColumnId> {
        let plain = rewrite::rewrite_expr(expr.clone(), self.context)?;
        let scalar = self.scalars(Clause::OrderBy, &[]).bind(&plain);
        let scalar = match scalar {
            // An expression over a name of the select list.
            Err(Unbound::Wrong(error)) if error.code == 1054 && !output.is_empty() => {
                return Err(Unbound::NotYet);
            }
            scalar => scalar?,
        };
        if let Some((id, _)) = columns.iter().find(|(_, known)| *known == scalar) {
            return Ok(*id);
        }
        let id = self.next();
        columns.push((id, scalar));
        Ok(id)
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

/// The column of the result that an ORDER BY means by its name or its place.
fn shown(by: &OrderByExpr, output: &[OutputColumn]) -> Result<Option<ColumnId>> {
    match &by.expr {
        Expr::Value(ValueWithSpan { value: SqlValue::Number(place, _), .. }) => {
            let Ok(at) = place.parse::<usize>() else { return Ok(None) };
            let column = at.checked_sub(1).and_then(|at| output.get(at));
            let column = column.ok_or_else(|| no_column(place, Clause::OrderBy.name()))?;
            Ok(Some(column.id))
        }
        Expr::Identifier(name) => {
            let called = name.value.to_lowercase();
            let mut named = output.iter().filter(|column| column.name.to_lowercase() == called);
            let Some(first) = named.next() else { return Ok(None) };
            // The same column twice is no other one.
            match named.find(|other| other.origin.is_none() || other.origin != first.origin) {
                None => Ok(Some(first.id)),
                Some(_) => {
                    let text = format!("Column '{}' in order clause is ambiguous", name.value);
                    Err(SqlError::new(1052, b"23000", text).into())
                }
            }
        }
        _ => Ok(None),
    }
}

fn join(kind: JoinKind, left: Relation, right: Relation, on: Option<Scalar>) -> Relation {
    Relation::Join { kind, left: Box::new(left), right: Box::new(right), on }
}

fn limited(query: &Query, input: Relation) -> Result<Relation> {
    let (skip, fetch) = match &query.limit_clause {
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
