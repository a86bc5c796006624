//! HAVING without groups, which MySQL allows: a condition on the rows of the select list. It becomes
//! a part of WHERE, and never touches a query with groups or aggregates.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, ObjectNamePart, Query, Select, SelectItem, Visit, VisitMut,
    Visitor, VisitorMut,
};

use super::rewrite::op;

const AGGREGATES: &[&str] = &[
    "any_value",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "count",
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
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

/// Moves HAVING to WHERE where nothing is grouped; names of the select list stand for what they name.
pub fn without_groups(select: &mut Select) {
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
    _ = having.visit(&mut names);
    let Some(having) = select.having.take() else { return };
    select.selection = Some(match select.selection.take() {
        Some(condition) => op(nested(condition), BinaryOperator::And, nested(having)),
        None => having,
    });
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

/// Whether a part of a query aggregates its rows.
fn aggregates(part: &impl Visit) -> bool {
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
            if let Expr::Function(function) = expr
                && self.depth == 0
                && function.over.is_none()
                && let [ObjectNamePart::Identifier(name)] = &function.name.0[..]
                && AGGREGATES.contains(&name.value.to_lowercase().as_str())
            {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }
    part.visit(&mut Search { depth: 0 }).is_break()
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
