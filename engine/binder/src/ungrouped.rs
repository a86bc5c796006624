//! Columns that a query neither groups by nor aggregates, in its rewritten form: any value of the group stands for one
//! where sql_mode allows it, and in the ORDER BY of what is one row, where it decides nothing, always.
//!
//! It must never touch a column of a query around, which has one value for all rows, nor what is grouped by: of the
//! totals of ROLLUP that is NULL, and any value is not.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, GroupByExpr, NamedWindowDefinition, ObjectName, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, Value, ValueWithSpan,
    VisitorMut,
};
use syntax::names::parts;
use syntax::tree::{call, plain};
use syntax::walk::walk_mut;

use crate::counted::Shown;
use crate::duplicate_names::{DUPLICATE_MARK, unique};
use crate::groups::{aggregates, is_aggregate};
use crate::natural_joins::columns_of;

/// The aggregate that takes any value: of the first row that comes.
const ANY: &str = "first_value";

/// What is known of a SELECT's tables.
struct Tables {
    /// What they are called there.
    names: HashSet<String>,
    /// Their columns, where all are known.
    columns: Option<HashSet<String>>,
    /// Whether a column without a table before it may be one of a query around.
    nested: bool,
}

impl Tables {
    fn of(select: &Select, shown: Shown, nested: bool) -> Tables {
        let mut names = HashSet::new();
        select.from.iter().for_each(|from| called(from, &mut names));
        let columns = select.from.iter().map(|from| columns_of(from, shown));
        let columns: Option<Vec<_>> = columns.collect();
        let columns = columns.map(|all| all.into_iter().flatten().map(|(name, _)| name).collect());
        Tables { names, columns, nested }
    }

    /// Whether a column of this name is one of the tables' own; not, where that is not known.
    fn own(&self, path: &[String]) -> bool {
        match path {
            [column] => match &self.columns {
                Some(columns) => columns.contains(column),
                None => !self.nested,
            },
            [.., table, _] => self.names.contains(table),
            [] => false,
        }
    }

    /// Whether a column of this name is surely one of the tables'.
    fn has(&self, column: &str) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.contains(column))
    }
}

fn called(from: &TableWithJoins, names: &mut HashSet<String>) {
    for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation)) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                called(table_with_joins, names);
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => {
                names.insert(alias.name.value.to_lowercase());
            }
            TableFactor::Table { name, .. } => names.extend(parts(name).pop()),
            _ => {}
        }
    }
}

/// What a query groups by.
struct Groups {
    /// Columns, by their names' parts.
    columns: Vec<Vec<String>>,
    /// Other expressions.
    exprs: Vec<Expr>,
    /// Places of the select list, from 0, that are grouped by.
    places: HashSet<usize>,
}

impl Groups {
    /// `None` if rows are not grouped. All of them are one group of aggregates that stand without GROUP BY.
    fn of(select: &Select, tables: &Tables) -> Option<Groups> {
        let by = match &select.group_by {
            GroupByExpr::Expressions(by, _) => by,
            GroupByExpr::All(_) => return None,
        };
        let mut groups = Groups { columns: Vec::new(), exprs: Vec::new(), places: HashSet::new() };
        if by.is_empty() && !aggregates(&select.projection) && !aggregates(&select.having) {
            return None;
        }
        let rolled_up = by.iter().flat_map(|expr| match expr {
            Expr::Rollup(lists) => lists.iter().flatten().collect(),
            expr => vec![expr],
        });
        for expr in rolled_up {
            groups.add(bare(expr), select, tables);
        }
        Some(groups)
    }

    fn add(&mut self, expr: &Expr, select: &Select, tables: &Tables) {
        if let Expr::Value(ValueWithSpan { value: Value::Number(n, _), .. }) = expr {
            let place = n.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            self.add_place(place, select);
            return;
        }
        // A column of that name comes before one of the list.
        if let Expr::Identifier(name) = expr
            && !tables.has(&name.value)
        {
            let named = |item: &SelectItem| {
                matches!(item, SelectItem::ExprWithAlias { alias, .. }
                    if alias.value.eq_ignore_ascii_case(&name.value))
            };
            let place = select.projection.iter().position(named);
            self.add_place(place, select);
        }
        match path(expr) {
            Some(path) => self.columns.push(path),
            None => self.exprs.push(expr.clone()),
        }
    }

    fn add_place(&mut self, place: Option<usize>, select: &Select) {
        let Some(place) = place else { return };
        if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) =
            select.projection.get(place)
        {
            self.places.insert(place);
            match path(expr) {
                Some(path) => self.columns.push(path),
                None => self.exprs.push(bare(expr).clone()),
            }
        }
    }

    /// Whether a column is grouped by: one that one of the two names has no table is the same.
    fn has(&self, path: &[String]) -> bool {
        let same = |known: &Vec<String>| {
            let length = known.len().min(path.len());
            known[known.len() - length..] == path[path.len() - length..]
        };
        self.columns.iter().any(same)
    }
}

/// An expression without parentheses around it.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        expr => expr,
    }
}

/// The parts of a column's name, in lower case.
fn path(expr: &Expr) -> Option<Vec<String>> {
    match bare(expr) {
        Expr::Identifier(name) => Some(vec![name.value.to_lowercase()]),
        Expr::CompoundIdentifier(names) => {
            Some(names.iter().map(|name| name.value.to_lowercase()).collect())
        }
        _ => None,
    }
}

/// Takes any value of its group for each such column of the select list, of windows and of HAVING.
pub fn take_any(select: &mut Select, shown: Shown, nested: bool) {
    let tables = Tables::of(select, shown, nested);
    let Some(groups) = Groups::of(select, &tables) else { return };
    let listed = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => path(expr),
        _ => None,
    });
    let listed: Vec<Vec<String>> = listed.collect();
    let mut wrapping = Wrapping { groups: &groups, tables: &tables, only: None, within: 0 };
    let mut nameless = Vec::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        if groups.places.contains(&at) {
            continue;
        }
        let column = path(expr).and_then(|mut path| path.pop());
        _ = walk_mut(expr, &mut wrapping);
        if let Some(column) = column
            && path(expr).is_none()
            && matches!(item, SelectItem::UnnamedExpr(_))
        {
            nameless.push((at, column));
        }
    }
    // Each is called by what it was.
    let mut seen = names(&select.projection);
    for (at, column) in nameless {
        if let Some(item) = select.projection.get_mut(at)
            && let SelectItem::UnnamedExpr(expr) = item
        {
            let alias = plain(unique(&mut seen, column));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    for NamedWindowDefinition(_, window) in &mut select.named_window {
        _ = walk_mut(window, &mut wrapping);
    }
    // HAVING knows the columns of the list alone.
    wrapping.only = Some(Only::These(&listed));
    _ = walk_mut(&mut select.having, &mut wrapping);
}

/// What the items of a list are called, as far as they say.
fn names(items: &[SelectItem]) -> HashSet<String> {
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        SelectItem::UnnamedExpr(expr) => path(expr)?.pop(),
        _ => None,
    };
    items.iter().filter_map(name).collect()
}

/// The same in ORDER BY: of all groups where sql_mode allows it, else of the one row of aggregates without GROUP BY. A
/// name of the select list is no column there.
pub fn order_by_any(query: &mut Query, all: bool, shown: Shown, nested: bool) {
    let SetExpr::Select(select) = &*query.body else { return };
    let Some(OrderByKind::Expressions(orders)) = query.order_by.as_mut().map(|by| &mut by.kind)
    else {
        return;
    };
    let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    if grouped && (!all || select.distinct.is_some()) {
        return;
    }
    let tables = Tables::of(select, shown, nested);
    let Some(groups) = Groups::of(select, &tables) else { return };
    let listed = names(&select.projection);
    let only = Some(Only::NoneOf(&listed));
    let mut wrapping = Wrapping { groups: &groups, tables: &tables, only, within: 0 };
    for order in orders {
        _ = walk_mut(&mut order.expr, &mut wrapping);
    }
}

/// Writes `*` out where it shows columns that are not grouped by: for the keys of all tables that it is of, the planner
/// below knows that a group has one value of each column. `key` knows the columns of stored tables' primary keys.
pub fn spell_out(
    select: &mut Select,
    shown: Shown,
    key: &dyn Fn(&ObjectName) -> Option<Vec<String>>,
) {
    let is_star = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    if !select.projection.iter().any(is_star) {
        return;
    }
    let tables = Tables::of(select, shown, true);
    let Some(groups) = Groups::of(select, &tables) else { return };
    let columns: Option<Vec<_>> = select.from.iter().map(|from| columns_of(from, shown)).collect();
    let Some(columns) = columns else { return };
    let columns: Vec<(String, Expr)> = columns.into_iter().flatten().collect();
    let table_of = |column: &Expr| path(column).and_then(|path| path.first().cloned());
    let keyed: Vec<String> =
        select.from.iter().flat_map(|from| keyed(from, &groups, key)).collect();
    let is_keyed = |table: &String| keyed.contains(table);
    let items = std::mem::take(&mut select.projection);
    for item in items {
        let written: Vec<&Expr> = match &item {
            SelectItem::Wildcard(_) => columns.iter().map(|(_, column)| column).collect(),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let table = parts(name).pop();
                columns.iter().map(|(_, column)| column).filter(|c| table_of(c) == table).collect()
            }
            _ => Vec::new(),
        };
        if written.iter().all(|column| table_of(column).as_ref().is_some_and(is_keyed)) {
            select.projection.push(item);
        } else {
            let written = written.into_iter().cloned().map(SelectItem::UnnamedExpr);
            select.projection.extend(written);
        }
    }
}

/// The tables of a FROM whose primary keys are grouped by.
fn keyed(
    from: &TableWithJoins,
    groups: &Groups,
    key: &dyn Fn(&ObjectName) -> Option<Vec<String>>,
) -> Vec<String> {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation));
    let keyed = factors.filter_map(|factor| {
        let TableFactor::Table { name, alias, .. } = factor else { return None };
        let called = match alias {
            Some(alias) => alias.name.value.to_lowercase(),
            None => parts(name).pop()?,
        };
        let columns = key(name)?;
        let grouped = |column: &String| groups.has(&[called.clone(), column.clone()]);
        (!columns.is_empty() && columns.iter().all(grouped)).then_some(called)
    });
    keyed.collect()
}

/// Which columns are meant, besides that they are not grouped by.
#[derive(Clone, Copy)]
enum Only<'a> {
    /// Those of the select list.
    These(&'a [Vec<String>]),
    /// Those that no item of the select list has the name of.
    NoneOf(&'a HashSet<String>),
}

/// Takes any value of the group for columns outside of aggregates and subqueries.
struct Wrapping<'a> {
    groups: &'a Groups,
    tables: &'a Tables,
    only: Option<Only<'a>>,
    /// How many aggregates, subqueries and expressions that are grouped by the visitor is in.
    within: usize,
}

impl Wrapping<'_> {
    /// Whether an expression is one for each group whatever columns it reads.
    fn is_of_group(&self, expr: &Expr) -> bool {
        is_aggregate(expr) || self.groups.exprs.contains(expr)
    }

    fn is_meant(&self, path: &[String]) -> bool {
        let last = path.last().map(String::as_str).unwrap_or_default();
        let meant = match self.only {
            None => true,
            Some(Only::These(listed)) => {
                listed.iter().any(|one| one.ends_with(path) || path.ends_with(one))
            }
            Some(Only::NoneOf(names)) => path.len() > 1 || !names.contains(last),
        };
        meant && !last.contains(DUPLICATE_MARK) && self.tables.own(path) && !self.groups.has(path)
    }
}

impl VisitorMut for Wrapping<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.within += usize::from(self.within > 0 || self.is_of_group(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.within > 0 {
            self.within -= 1;
            return ControlFlow::Continue(());
        }
        if !matches!(expr, Expr::Nested(_))
            && let Some(path) = path(expr)
            && self.is_meant(&path)
        {
            let column = std::mem::replace(expr, syntax::tree::null());
            *expr = call(ANY, vec![column]);
        }
        ControlFlow::Continue(())
    }
}
