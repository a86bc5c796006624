//! What a query shows, groups by and is sorted by: the items of its select list, and what means one of them by its name or
//! its place.
//!
//! DISTINCT rows are sorted by what they have; by anything else only where sql_mode lets any row of equal ones decide.

use std::cell::RefCell;

use sqlparser::ast::{
    Expr, GroupByExpr, GroupByWithModifier, OrderByExpr, Select, SelectItem,
    SelectItemQualifiedWildcardKind, Value as SqlValue, ValueWithSpan,
};
use syntax::names::{expression_name, parts};
use values::error::{
    SqlResult, ambiguous_column, group_by_aggregate, no_column, no_tables_used, order_not_distinct,
    order_not_selected, syntax, unknown, unknown_tables, window_alias_here,
};

use super::arguments;
use super::groups::{Groups, any_of};
use super::query::Binder;
use super::scalars::Scalars;
use super::scope::{Clause, ScopeColumn};
use super::subqueries::bare;
use super::tree::{ColumnId, Node, OutputColumn, Relation, Scalar, SortKey};
use super::windows::Windows;

/// An item of a select list.
pub(super) struct Item {
    pub(super) name: String,
    pub(super) scalar: Scalar,
    /// The column that it is, if it is no more than that.
    column: Option<ScopeColumn>,
}

impl Item {
    /// A column.
    pub(super) fn of_column(column: &ScopeColumn) -> Item {
        let (name, scalar) = (column.name.clone(), column.value());
        Item { name, scalar, column: Some(column.clone()) }
    }

    /// An expression that nobody has to name.
    pub(super) fn unnamed(scalar: Scalar) -> Item {
        Item { name: String::new(), scalar, column: None }
    }
}

/// One of the things that rows are sorted by.
pub(super) struct Order {
    pub(super) by: OrderedBy,
    pub(super) descending: bool,
}

pub(super) enum OrderedBy {
    /// An item of the select list, by its place.
    Shown(usize),
    /// Another expression.
    Computed(Scalar),
}

/// What is grouped by.
pub(super) struct Keys {
    pub(super) keys: Vec<(ColumnId, Scalar)>,
    /// The items of the select list that were meant by their places or names, from 0, and their keys.
    pub(super) places: Vec<(usize, ColumnId)>,
    /// Whether there are totals.
    pub(super) rollup: bool,
}

/// Rows, what is shown of them, and their order.
pub(super) struct Rows {
    pub(super) relation: Relation,
    pub(super) items: Vec<Item>,
    pub(super) by: Vec<Order>,
}

/// What expressions of a query compute over several rows.
#[derive(Default)]
pub(super) struct Computed {
    pub(super) groups: RefCell<Groups>,
    pub(super) windows: RefCell<Windows>,
}

impl Computed {
    /// Expressions that may have aggregates and windows.
    fn of<'b, 'a>(&'b self, scalars: Scalars<'b, 'a>) -> Scalars<'b, 'a> {
        Scalars { groups: Some(&self.groups), windows: Some(&self.windows), ..scalars }
    }
}

/// The columns of a result so far, and those that rows are sorted by beside them.
struct Columns {
    all: Vec<(ColumnId, Scalar)>,
    output: Vec<OutputColumn>,
}

impl Columns {
    /// The column of the result that is such an expression, if there is one.
    fn shown_as(&self, scalar: &Scalar) -> Option<ColumnId> {
        let shown = self.all.iter().take(self.output.len());
        shown.clone().find(|(_, known)| known == scalar).map(|(id, _)| *id)
    }

    /// The column that is such an expression, if there is one.
    fn known(&self, scalar: &Scalar) -> Option<ColumnId> {
        self.all.iter().find(|(_, known)| known == scalar).map(|(id, _)| *id)
    }
}

impl Binder<'_> {
    /// The rows with the columns of the result, sorted.
    pub(super) fn shown(
        &self,
        rows: Rows,
        distinct: bool,
    ) -> SqlResult<(Relation, Vec<OutputColumn>)> {
        let Rows { relation: input, items, by } = rows;
        let mut columns = Columns {
            all: Vec::with_capacity(items.len()),
            output: Vec::with_capacity(items.len()),
        };
        for Item { name, scalar, column } in items {
            let (id, ty) = (self.next(), scalar.ty);
            let origin = column.and_then(|column| column.origin);
            columns.output.push(OutputColumn { id, name, origin, ty });
            columns.all.push((id, scalar));
        }
        if distinct {
            return self.distinct(input, columns, by);
        }
        let mut keys = Vec::with_capacity(by.len());
        for Order { by, descending } in by {
            let column = match by {
                OrderedBy::Shown(at) => shown_at(&columns.output, at)?,
                OrderedBy::Computed(scalar) => columns.known(&scalar).unwrap_or_else(|| {
                    let id = self.next();
                    columns.all.push((id, scalar));
                    id
                }),
            };
            keys.push(SortKey { column, descending });
        }
        let relation = Relation::Map { input: Box::new(input), columns: columns.all };
        Ok((sorted(relation, keys), columns.output))
    }

    /// Each row once, sorted.
    fn distinct(
        &self,
        input: Relation,
        mut columns: Columns,
        by: Vec<Order>,
    ) -> SqlResult<(Relation, Vec<OutputColumn>)> {
        let any = !self.context.full_groups();
        let shown = columns.all.len();
        // What is computed of each row once, and any row's values of what equal rows have not in common.
        let (mut behind, mut of_any, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut keys = Vec::with_capacity(by.len());
        for Order { by, descending } in by {
            let column = match by {
                OrderedBy::Shown(at) => shown_at(&columns.output, at)?,
                OrderedBy::Computed(scalar) => match columns.shown_as(&scalar) {
                    Some(id) => id,
                    None => {
                        let id = self.next();
                        match self.over_shown(scalar.clone(), columns.all.iter().take(shown)) {
                            Ok(computed) => behind.push((id, computed)),
                            Err(_) if any => {
                                let of_row = self.next();
                                others.push((id, value(id, &scalar)));
                                of_any.push((id, any_of(value(of_row, &scalar))));
                                columns.all.push((of_row, scalar));
                            }
                            Err(error) => return Err(error),
                        }
                        id
                    }
                },
            };
            keys.push(SortKey { column, descending });
        }
        let own = columns.all.iter().take(shown);
        let own: Vec<(ColumnId, Scalar)> =
            own.map(|(id, scalar)| (*id, value(*id, scalar))).collect();
        let mut relation = Relation::Map { input: Box::new(input), columns: columns.all };
        relation = match of_any.is_empty() {
            true => Relation::Distinct { input: Box::new(relation) },
            false => {
                let (input, keys) = (Box::new(relation), own.clone());
                Relation::Group { input, keys, aggregates: of_any, rollup: false }
            }
        };
        if !behind.is_empty() {
            let columns = own.into_iter().chain(behind).chain(others).collect();
            relation = Relation::Map { input: Box::new(relation), columns };
        }
        Ok((sorted(relation, keys), columns.output))
    }

    /// An expression over what is shown; 3065 if it reads anything else.
    fn over_shown<'c>(
        &self,
        scalar: Scalar,
        shown: impl Iterator<Item = &'c (ColumnId, Scalar)> + Clone,
    ) -> SqlResult<Scalar> {
        if let Some((id, known)) = shown.clone().find(|(_, known)| *known == scalar) {
            return Ok(value(*id, known));
        }
        match scalar.node {
            Node::Column(id) => {
                let (full, _) = self.scope.name_of(id).unwrap_or_default();
                Err(order_not_selected(full))
            }
            Node::Aggregate(_) | Node::Window(_) | Node::Query(_) => Err(order_not_distinct()),
            _ => scalar.try_map(&mut |part| self.over_shown(part, shown.clone())),
        }
    }

    /// The items of a select list, of which the windows are written out.
    pub(super) fn select_list(
        &self,
        select: &Select,
        written: &[SelectItem],
        computed: &Computed,
    ) -> SqlResult<Vec<Item>> {
        let mut items = Vec::with_capacity(select.projection.len());
        for (shown, item) in select.projection.iter().zip(written) {
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
                (other, _) => return Err(syntax(format!("'{other}' is nothing to select"))),
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

    fn wildcard(&self, qualifier: &[String]) -> SqlResult<Vec<Item>> {
        let columns = match self.scope.wildcard(qualifier) {
            Some(columns) if !columns.is_empty() => columns,
            Some(_) if qualifier.is_empty() => return Err(no_tables_used()),
            _ => return Err(unknown_tables(qualifier.join("."))),
        };
        Ok(columns.into_iter().map(Item::of_column).collect())
    }

    /// What is grouped by, each thing once, but each level of totals. A name means a column first, then an item of the select
    /// list.
    pub(super) fn group_by(
        &self,
        select: &Select,
        items: &[Item],
        named: &[(String, Scalar)],
    ) -> SqlResult<Keys> {
        let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
            return Err(syntax("GROUP BY ALL"));
        };
        let rollup = match &modifiers[..] {
            [] => false,
            [GroupByWithModifier::Rollup] => true,
            [other, ..] => return Err(syntax(format!("GROUP BY … {other}"))),
        };
        let mut found: Vec<(Scalar, Option<usize>)> = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let place = self.item_meant(expr, items);
            let key = match place {
                Some(at) => items.get(at).map(|item| item.scalar.clone()),
                None => None,
            };
            let key = match (key, place_of(expr)) {
                (Some(key), _) => key,
                (None, Some(_)) => {
                    return Err(no_column(expr.to_string(), Clause::GroupBy.name()));
                }
                (None, None) => {
                    let plain = self.plain(expr)?;
                    let scalars = Scalars { named, ..self.scalars(Clause::GroupBy, &plain) };
                    self.values(scalars.bind(&plain.expr)?, true)?
                }
            };
            if key.has_aggregates() {
                let item = place.and_then(|at| items.get(at));
                let name = item.map_or_else(|| expr.to_string(), |item| item.name.clone());
                return Err(group_by_aggregate(name));
            }
            if rollup || found.iter().all(|(known, _)| *known != key) {
                found.push((key, place));
            }
        }
        let mut keys = Keys { keys: Vec::with_capacity(found.len()), places: Vec::new(), rollup };
        for (at, (key, place)) in found.iter().enumerate() {
            let later = found.iter().skip(at + 1).filter(|(later, _)| later == key);
            let again = later.clone().count();
            // Of an item that a later level means, too, that one decides.
            let mut apart = later.map(|(_, later)| later.is_some() && later != place);
            let key = (0..again).try_fold(key.clone(), |key, _| {
                // The same value as another expression: plans take equal ones for one level.
                arguments::call("mysql_coalesce", vec![key])
            })?;
            let id = self.next();
            keys.places.extend(place.filter(|_| apart.all(|apart| apart)).map(|place| (place, id)));
            keys.keys.push((id, key));
        }
        Ok(keys)
    }

    /// The item that a key of GROUP BY means by its place, or by its name where no column has it.
    fn item_meant(&self, expr: &Expr, items: &[Item]) -> Option<usize> {
        match bare(expr) {
            expr @ Expr::Identifier(_)
                if self.scope.column(&path(expr), Clause::GroupBy).is_err() =>
            {
                let name = path(expr).pop()?.to_lowercase();
                let mut named = items.iter().enumerate();
                let (at, first) = named.find(|(_, item)| item.name.to_lowercase() == name)?;
                let same =
                    |item: &Item| item.name.to_lowercase() != name || item.scalar == first.scalar;
                items.iter().all(same).then_some(at)
            }
            expr => place_of(expr),
        }
    }

    pub(super) fn order_by(
        &self,
        exprs: &[OrderByExpr],
        items: &[Item],
        named: &[(String, Scalar)],
        computed: &Computed,
    ) -> SqlResult<Vec<Order>> {
        let shown: Vec<(&str, &Scalar)> =
            items.iter().map(|item| (item.name.as_str(), &item.scalar)).collect();
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

/// Error 3594 for groups and conditions on them that ask by a name what a window has.
pub(super) fn check_places(
    items: &[Item],
    keys: &Keys,
    having: Option<&Scalar>,
    computed: &Computed,
) -> SqlResult<()> {
    let windows: Vec<ColumnId> = computed.windows.borrow().iter().map(|(id, _)| *id).collect();
    let asked = keys.keys.iter().map(|(_, key)| key).chain(having);
    if windows.is_empty() || !asked.into_iter().any(|scalar| scalar.reads(&windows)) {
        return Ok(());
    }
    let item = items.iter().find(|item| item.scalar.reads(&windows));
    Err(window_alias_here(item.map_or("", |item| &item.name)))
}

fn shown_at(output: &[OutputColumn], at: usize) -> SqlResult<ColumnId> {
    let column = output.get(at).ok_or_else(|| unknown("an item of the select list is missing"))?;
    Ok(column.id)
}

fn value(id: ColumnId, scalar: &Scalar) -> Scalar {
    Scalar { node: Node::Column(id), ty: scalar.ty }
}

fn sorted(relation: Relation, keys: Vec<SortKey>) -> Relation {
    match keys.is_empty() {
        true => relation,
        false => Relation::Sort { input: Box::new(relation), by: keys },
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

/// The place in a select list that a number in ORDER BY or GROUP BY means, counted from 0; 0 means one that no list has.
fn place_of(expr: &Expr) -> Option<usize> {
    match bare(expr) {
        Expr::Value(ValueWithSpan { value: SqlValue::Number(place, _), .. }) => {
            place.parse::<usize>().ok().map(|place| place.wrapping_sub(1))
        }
        _ => None,
    }
}

/// The place of the item that an ORDER BY means by its name or its place; of items of one name only if all are the same.
pub(super) fn ordered_by_name<T: PartialEq>(
    by: &OrderByExpr,
    items: &[(&str, &T)],
) -> SqlResult<Option<usize>> {
    match bare(&by.expr) {
        Expr::Value(ValueWithSpan { value: SqlValue::Number(number, _), .. }) => {
            if number.parse::<usize>().is_err() {
                return Ok(None);
            }
            match place_of(&by.expr).filter(|at| *at < items.len()) {
                Some(at) => Ok(Some(at)),
                None => Err(no_column(number, Clause::OrderBy.name())),
            }
        }
        Expr::Identifier(name) => {
            let called = name.value.to_lowercase();
            let named = items.iter().enumerate();
            let mut named = named.filter(|(_, (item, _))| item.to_lowercase() == called);
            let Some((at, (_, first))) = named.next() else { return Ok(None) };
            match named.any(|(_, (_, other))| other != first) {
                false => Ok(Some(at)),
                true => Err(ambiguous_column(&name.value, Clause::OrderBy.name())),
            }
        }
        _ => Ok(None),
    }
}
