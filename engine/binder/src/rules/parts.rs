//! The rules of nodes and of expressions, in the order in which they run.

use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::{ExpressionRule, NodeRule, Rule};
use crate::{caseless, json, labels, quotients};

/// Of the plan of a UNION, which has no expressions.
pub(super) const UNION_TYPES: NodeRule = Rule {
    name: "union_types",
    why: "The inputs of a UNION have one type by MySQL's rules, which are not DataFusion's.",
    after: &[],
    apply: |walk, node, _| match node {
        LogicalPlan::Union(union) => walk.operators.union(union),
        _ => Ok(None),
    },
};

/// Of nodes whose expressions are done.
pub(super) const OF_NODES: &[NodeRule] = &[
    Rule {
        name: "json_orders",
        why: "JSON sorts by MySQL's order of documents, not by their text.",
        after: &["json_arguments"],
        apply: |_, node, schema| json::sorted(node, schema),
    },
    Rule {
        name: "label_orders",
        why: "ENUM and SET sort by number, not by text.",
        after: &["label_numbers"],
        apply: |_, node, schema| labels::sorted(node, schema),
    },
    Rule {
        name: "caseless_orders",
        why: "Texts of information_schema sort, join and group without case.",
        after: &["caseless_texts"],
        apply: |_, node, schema| caseless::arranged(node, schema),
    },
];

/// Of expressions whose parts are done.
pub(super) const OF_EXPRESSIONS: &[ExpressionRule] = &[
    Rule {
        name: "quotient_sums",
        why: "A sum of quotients with all of their digits is shown with those of its type.",
        after: &[],
        apply: |walk, expr, schema| walk.sums.shown(expr, schema),
    },
    Rule {
        name: "json_arguments",
        why: "What MySQL does not do with documents is refused; what else takes them is given keys or texts.",
        after: &[],
        apply: |_, expr, schema| json::checked(expr, schema).map(Transformed::no),
    },
    Rule {
        name: "caseless_texts",
        why: "Texts of information_schema compare without case.",
        after: &[],
        apply: |_, expr, schema| caseless::typed(expr, schema).map(with_flag),
    },
    Rule {
        name: "label_window_orders",
        why: "Windows and aggregates that have an order have ENUM and SET in that of their numbers.",
        after: &[],
        apply: |_, expr, schema| labels::ordered(expr, schema).map(with_flag),
    },
    Rule {
        name: "label_numbers",
        why: "An ENUM or a SET among numbers is a number.",
        after: &[],
        apply: |_, expr, schema| match expr {
            Expr::ScalarFunction(function) => {
                labels::with_numeric_args(function, schema).map(with_flag)
            }
            expr => Ok(Transformed::no(expr)),
        },
    },
    Rule {
        name: "list_items",
        why: "Items of IN, and the rows of its subquery, have the type at which they are compared with what is looked up.",
        after: &["caseless_texts"],
        apply: |walk, expr, schema| match expr {
            Expr::InList(list) => walk.operators.list(list, schema),
            Expr::InSubquery(predicate) => walk.operators.member(predicate, schema),
            expr => Ok(Transformed::no(expr)),
        },
    },
    Rule {
        name: "case_branches",
        why: "The results of CASE have one type by MySQL's rules, which are not DataFusion's.",
        after: &["label_numbers"],
        apply: |walk, expr, schema| {
            let other = match &expr {
                Expr::Case(case) => walk.operators.case(case, schema)?,
                _ => None,
            };
            Ok(or_unchanged(expr, other))
        },
    },
    Rule {
        name: "like_texts",
        why: "LIKE takes texts, or bytes where one of the two is bytes; a TIMESTAMP is the text of its local time.",
        after: &["caseless_texts"],
        apply: |walk, expr, schema| walk.operators.like(expr, schema),
    },
    Rule {
        name: "times_of_today",
        why: "A function that takes a TIME with a DATETIME takes it as one of the present day.",
        after: &[],
        apply: |walk, expr, schema| walk.operators.with_one_kind_of_time(expr, schema),
    },
    Rule {
        name: "local_timestamps",
        why: "Functions take a TIMESTAMP as the time in the zone of the session.",
        // What that took as the present day's is local already.
        after: &["times_of_today"],
        apply: |walk, expr, schema| walk.operators.with_local_times(expr, schema),
    },
    Rule {
        name: "lazy_branches",
        why: "What is not asked for is not computed where that may fail: DataFusion computes all arguments for all rows.",
        // It takes a function apart, whose arguments have to be as it takes them.
        after: &["label_numbers", "times_of_today", "local_timestamps"],
        apply: |walk, expr, schema| {
            let other = match &expr {
                Expr::ScalarFunction(function) => walk.operators.lazy(function, schema)?,
                _ => None,
            };
            Ok(or_unchanged(expr, other))
        },
    },
    Rule {
        name: "quotient_digits",
        why: "A quotient within an expression has more digits than one that is shown: 1 / 3 * 100 is 33.3333.",
        // What has the digits depends on which function computes and at which types.
        after: &["list_items", "case_branches", "lazy_branches"],
        apply: |_, expr, schema| quotients::kept(expr, schema).map(with_flag),
    },
];

fn with_flag((expr, changed): (Expr, bool)) -> Transformed<Expr> {
    Transformed::new_transformed(expr, changed)
}

fn or_unchanged(expr: Expr, other: Option<Expr>) -> Transformed<Expr> {
    other.map_or(Transformed::no(expr), Transformed::yes)
}
