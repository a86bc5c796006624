//! What MySQL allows of groups beyond the standard: HAVING without any, totals. It never changes a standard query.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, GroupByExpr, GroupByWithModifier, ObjectNamePart, OrderBy,
    OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectItem, SetExpr, Visit, Visitor,
    VisitorMut,
};
use syntax::tree::{call, number};
use syntax::walk::{finds, walk_mut};
use values::error::{SqlResult, not_aggregated};

use crate::rewrite::op;

/// Aggregates by the names that MySQL has for them, and by those of their rewritten forms.
const AGGREGATES: &[&str] = &[
    "any_value",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "count",
    "first_value",
    "group_concat",
    "grouping",
    "json_arrayagg",
    "json_objectagg",
    "max",
    "min",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var",
    "var_pop",
    "var_samp",
    "variance",
];

/// Moves HAVING to WHERE where nothing is grouped: it is a condition on the rows of the select list,
/// and names of the list stand for what they name.
pub fn having_without_groups(select: &mut Select) {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let Some(having) = &mut select.having else { return };
    if grouped || aggregates(having) || aggregates(&select.projection) {
        return;
    }
    let named = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            Some((alias.value.to_lowercase(), expr.clone()))
        }
        _ => None,
    });
    let mut names = Names { named: named.collect(), depth: 0 };
    _ = walk_mut(having, &mut names);
    let Some(having) = select.having.take() else { return };
    select.selection = Some(match select.selection.take() {
        Some(condition) => op(nested(condition), BinaryOperator::And, nested(having)),
        None => having,
    });
}

/// Error 1140 for a plain column beside aggregates of all rows.
pub fn mixed(select: &Select) -> SqlResult<()> {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
        GroupByExpr::All(_) => true,
    };
    if grouped || select.from.is_empty() || !aggregates(&select.projection) {
        return Ok(());
    }
    let names = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => column(expr),
        _ => None,
    });
    match names.enumerate().find_map(|(at, name)| Some((at + 1, name?))) {
        Some((at, name)) => Err(not_aggregated(at, name)),
        None => Ok(()),
    }
}

/// Orders the answer of a ROLLUP that has no ORDER BY: each total behind its groups, as clients show them. Only
/// where columns are grouped by, and no other thing of the select list has the name of one.
pub fn totals_behind(query: &mut Query) {
    let SetExpr::Select(select) = &*query.body else { return };
    let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return };
    let rolled_up = modifiers.iter().any(|m| matches!(m, GroupByWithModifier::Rollup));
    if !rolled_up || query.order_by.is_some() || select.distinct.is_some() {
        return;
    }
    let hidden = |name: &String| {
        select.projection.iter().any(|item| {
            matches!(item, SelectItem::ExprWithAlias { expr, alias }
                if alias.value.to_lowercase() == *name && column(expr).as_ref() != Some(name))
        })
    };
    if groups.iter().any(|group| column(group).as_ref().is_none_or(hidden)) {
        return;
    }
    let by = |expr: Expr| OrderByExpr {
        expr,
        options: OrderByOptions { asc: None, nulls_first: None },
        with_fill: None,
    };
    let pair = |group: &Expr| [by(call("grouping", vec![group.clone()])), by(group.clone())];
    let orders = crate::repeats::levels(groups, select).iter().flat_map(pair).collect();
    query.order_by = Some(OrderBy { kind: OrderByKind::Expressions(orders), interpolate: None });
}

/// HAVING of all rows in one group, whatever its condition asks, stays a condition on that group: the planner below would
/// make one of the rows of what reads no column, and the group would be there without them.
pub fn having_of_all_rows(select: &mut Select) {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let Some(having) = select.having.take() else { return };
    if grouped || aggregates(&having) || !aggregates(&select.projection) {
        select.having = Some(having);
        return;
    }
    let always = op(call("count", vec![number(1)]), BinaryOperator::GtEq, number(0));
    select.having = Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: always, result: having }],
        else_result: None,
    });
}

/// HAVING of a ROLLUP: no rows have no total, but the planner below makes a row of them.
pub fn of_rows(having: Option<Expr>) -> Expr {
    let some = op(call("count", vec![number(1)]), BinaryOperator::Gt, number(0));
    match having {
        Some(having) => op(having, BinaryOperator::And, some),
        None => some,
    }
}

/// Whether an expression is an aggregate, whose arguments are columns of single rows.
pub fn is_aggregate(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    function.over.is_none()
        && matches!(&function.name.0[..], [ObjectNamePart::Identifier(name)]
            if AGGREGATES.contains(&name.value.to_lowercase().as_str()))
}

/// The name of a column, in lower case, if the expression is no more than that.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(name.value.to_lowercase()),
        Expr::CompoundIdentifier(names) => names.last().map(|name| name.value.to_lowercase()),
        _ => None,
    }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

/// Whether a part of a query aggregates its rows.
pub fn aggregates(part: &impl Visit) -> bool {
    struct Search {
        depth: usize,
    }
    impl Visitor for Search {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match self.depth == 0 && is_aggregate(expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    finds(part, &mut Search { depth: 0 })
}

/// Puts expressions in the place of their names, outside of subqueries.
struct Names {
    named: HashMap<String, Expr>,
    depth: usize,
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && self.depth == 0
            && let Some(meant) = self.named.get(&name.value.to_lowercase())
        {
            *expr = nested(meant.clone());
        }
        ControlFlow::Continue(())
    }
}
