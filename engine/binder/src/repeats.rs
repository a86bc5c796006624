//! What a query groups by more than once: without ROLLUP it is one group, with it each time is a level of totals.
//!
//! The planner below takes equal expressions for one, and then misses the others. It must never take two columns of
//! one name for the same.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, GroupByExpr, GroupByWithModifier, Join, Select, SelectItem, TableFactor, Value,
    ValueWithSpan, VisitorMut,
};
use syntax::tree::{call, plain};
use syntax::walk::walk_mut;

use crate::counted::Shown;
use crate::natural_joins::{by_name, columns_of};

/// One expression that is grouped by.
struct Group {
    meant: Expr,
    /// The parts of a column's name, or the text of anything else, in one spelling.
    spelled: Vec<String>,
    is_column: bool,
    /// The place of the select list that it names.
    place: Option<usize>,
}

/// Leaves out what a SELECT groups by again, and makes it another expression of the same value where it is a level of
/// ROLLUP: a column is NULL in every total that is not of all of its levels.
pub fn make_distinct(select: &mut Select, shown: Shown) {
    let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else { return };
    let columns: Option<Vec<_>> = select.from.iter().map(|from| columns_of(from, shown)).collect();
    let columns = columns.map(|all| all.into_iter().flatten().map(|(name, _)| name).collect());
    let groups: Vec<Group> =
        exprs.iter().map(|expr| Group::of(expr, select, columns.as_ref())).collect();
    let alike = Alike::of(select);
    let again = alike.again(&groups);
    if again.iter().all(|times| *times == 0) {
        return;
    }
    let rolled_up = modifiers.iter().any(|m| matches!(m, GroupByWithModifier::Rollup));
    let first = |at: usize| groups.iter().take(at).all(|before| !alike.same(before, &groups[at]));
    let kept: Vec<Expr> = match rolled_up {
        true => (0..groups.len()).map(|at| level(&groups[at].meant, again[at])).collect(),
        false => (0..groups.len()).filter(|at| first(*at)).map(|at| exprs[at].clone()).collect(),
    };
    if rolled_up {
        for (at, group) in groups.iter().enumerate().filter(|(at, _)| again[*at] > 0) {
            // Of two columns of the list that are the same, each is NULL in the totals of its own levels.
            let mut later = groups.iter().skip(at + 1).filter(|later| alike.same(group, later));
            let apart = later.all(|later| later.place.is_some() && later.place != group.place);
            let Some(place) = group.place.filter(|_| apart) else { continue };
            if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) =
                select.projection.get_mut(place)
            {
                *expr = kept[at].clone();
            }
        }
    }
    if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
        *exprs = kept;
    }
}

/// The levels of a ROLLUP of columns, as [`make_distinct`] has them.
pub fn levels(exprs: &[Expr], select: &Select) -> Vec<Expr> {
    let groups: Vec<Group> = exprs.iter().map(|expr| Group::new(expr, None)).collect();
    let again = Alike::of(select).again(&groups);
    groups.iter().zip(again).map(|(group, again)| level(&group.meant, again)).collect()
}

/// An expression's value, as another expression for each time that it is grouped by again.
fn level(expr: &Expr, again: usize) -> Expr {
    (0..again).fold(expr.clone(), |expr, _| call("coalesce", vec![expr]))
}

impl Group {
    fn new(meant: &Expr, place: Option<usize>) -> Group {
        let (spelled, is_column) = match in_one_spelling(meant) {
            Expr::Identifier(name) => (vec![name.value], true),
            Expr::CompoundIdentifier(names) => {
                (names.into_iter().map(|name| name.value).collect(), true)
            }
            other => (vec![other.to_string()], false),
        };
        Group { meant: meant.clone(), spelled, is_column, place }
    }

    fn of(expr: &Expr, select: &Select, columns: Option<&HashSet<String>>) -> Group {
        let place = match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(n, _), .. }) => {
                n.parse::<usize>().ok().and_then(|n| n.checked_sub(1))
            }
            // A column of that name comes before one of the list.
            Expr::Identifier(name)
                if columns.is_some_and(|c| !c.contains(&name.value.to_lowercase())) =>
            {
                select.projection.iter().position(|item| {
                    matches!(item, SelectItem::ExprWithAlias { alias, .. }
                        if alias.value.eq_ignore_ascii_case(&name.value))
                })
            }
            _ => None,
        };
        let is_star = |item: &SelectItem| {
            matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
        };
        match place.and_then(|place| select.projection.get(place)) {
            Some(
                SelectItem::UnnamedExpr(meant) | SelectItem::ExprWithAlias { expr: meant, .. },
            ) if !select.projection.iter().any(is_star) => Group::new(meant, place),
            _ => Group::new(expr, None),
        }
    }
}

/// When two expressions are the same.
struct Alike {
    /// Whether a column's name may leave out its table: a name that tables are joined by is a column of its own.
    bare: bool,
}

impl Alike {
    fn of(select: &Select) -> Alike {
        let mut joins = select.from.iter().flat_map(|from| &from.joins);
        let nested =
            |join: &Join| matches!(join.relation, TableFactor::NestedJoin { .. }) || by_name(join);
        let mut first = select.from.iter().map(|from| &from.relation);
        let nests = first.any(|relation| matches!(relation, TableFactor::NestedJoin { .. }));
        Alike { bare: !nests && !joins.any(nested) }
    }

    /// How often each of some expressions stands behind itself.
    fn again(&self, groups: &[Group]) -> Vec<usize> {
        let later = |at: usize| {
            groups.iter().skip(at + 1).filter(|later| self.same(&groups[at], later)).count()
        };
        (0..groups.len()).map(later).collect()
    }

    fn same(&self, a: &Group, b: &Group) -> bool {
        if !(self.bare && a.is_column && b.is_column) {
            return a.is_column == b.is_column && a.spelled == b.spelled;
        }
        let length = a.spelled.len().min(b.spelled.len());
        a.spelled[a.spelled.len() - length..] == b.spelled[b.spelled.len() - length..]
    }
}

/// An expression without parentheses, its names in lower case and without quotes.
fn in_one_spelling(expr: &Expr) -> Expr {
    struct Plain;
    impl VisitorMut for Plain {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(name) => *name = plain(name.value.to_lowercase()),
                Expr::CompoundIdentifier(names) => {
                    names.iter_mut().for_each(|name| *name = plain(name.value.to_lowercase()));
                }
                Expr::Nested(inner)
                    if matches!(**inner, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) =>
                {
                    *expr = (**inner).clone();
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    while let Expr::Nested(inner) = expr {
        expr = *inner;
    }
    _ = walk_mut(&mut expr, &mut Plain);
    expr
}
