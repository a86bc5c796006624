//! Which rules there are, and in which order.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use super::parts::{OF_EXPRESSIONS, OF_NODES, UNION_TYPES};
use super::{Placed, PlanRule, QueryRule, Rule, RuleInfo, Stage, run};
use crate::{
    PlannedSelect, columns, correlated, dependencies, distinct, equalities, memberships, nullsafe,
    orderings, projections, quotients, single_rows, yielding,
};

type Logical = Arc<dyn OptimizerRule + Send + Sync>;
type Physical = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Of the plan of a bound query.
pub(super) const OF_QUERIES: &[QueryRule] = &[
    Rule {
        name: "operand_types",
        why: "Operands and arguments have the type at which MySQL computes. It runs the rules of expressions and nodes.",
        after: &[],
        apply: |planned, planning| {
            Ok(PlannedSelect {
                plan: run::operand_types(planned.plan, planning.operators)?,
                ..planned
            })
        },
    },
    Rule {
        name: "result_columns",
        why: "The columns of a result have the types that are announced before its first row.",
        after: &["operand_types"],
        apply: |planned, planning| {
            columns::described(planned.plan, planning.output, planning.resolved)
        },
    },
    Rule {
        name: "correlated_subqueries",
        why: "DataFusion has joins for equations with columns outside of a subquery, and for nothing else.",
        // Which joins it has depends on the types that are compared.
        after: &["operand_types"],
        apply: |planned, _| {
            Ok(PlannedSelect { plan: correlated::joined(planned.plan)?, ..planned })
        },
    },
    Rule {
        name: "null_safe_equations",
        why: "DataFusion's mark that NULLs are equal is one of a whole join, and is lost when joins are reordered.",
        // Rows outside are joined with a subquery's by such equations.
        after: &["correlated_subqueries"],
        apply: |planned, _| {
            Ok(PlannedSelect { plan: nullsafe::equations(planned.plan)?, ..planned })
        },
    },
];

/// Of the plan of what is written to a table.
const STORED_VALUES: PlanRule = Rule {
    name: "stored_values",
    why: "A quotient that is stored is rounded once, from all of its digits, to those of its column.",
    after: &["quotient_digits"],
    apply: quotients::written,
};

/// Of a plan that several nodes run.
const SINGLE_ROWS: PlanRule = Rule {
    name: "single_rows",
    why: "Nodes join what a scalar subquery finds; one with several rows has to be error 1242 there, too.",
    after: &["correlated_subqueries"],
    apply: single_rows::single_rows,
};

/// Among DataFusion's rules of logical plans.
const OF_OPTIMIZER: &[Rule<Placed<Logical>>] = &[
    Rule {
        name: "right_dependencies",
        why: "DataFusion takes a key for unique that a join repeats, and leaves out columns that a query needs.",
        after: &[],
        apply: Placed::Around(
            &[
                "replace_distinct_aggregate",
                "eliminate_join",
                "eliminate_duplicated_expr",
                "optimize_projections",
            ],
            |rule| Arc::new(dependencies::Informed(rule)),
        ),
    },
    Rule {
        name: "guarded_memberships",
        why: "DataFusion makes one list of two over a value that may be NULL, and answers false where MySQL answers NULL.",
        after: &["list_items"],
        apply: Placed::Around(&["simplify_expressions"], |rule| {
            Arc::new(memberships::Guarded(rule))
        }),
    },
    Rule {
        name: "same_sums",
        why: "Summing in two steps may change the type of a SUM, and DataFusion then refuses the plan.",
        after: &[],
        apply: Placed::Around(&["single_distinct_aggregation_to_group_by"], |rule| {
            Arc::new(distinct::SameSums(rule))
        }),
    },
    Rule {
        name: "hidden_equalities",
        why: "DataFusion writes ABS(a) for every a where a = ABS(a), in ABS(a), too, and then finds no order that it made.",
        // Behind all that look for keys of joins.
        after: &["null_safe_equations"],
        apply: Placed::Last(|| Arc::new(equalities::HiddenEqualities)),
    },
];

/// Among DataFusion's rules of physical plans.
const OF_PHYSICAL: &[Rule<Placed<Physical>>] = &[
    Rule {
        name: "filters_apart",
        why: "DataFusion looks the columns of a condition up among the output of a filter that has a projection.",
        after: &[],
        apply: Placed::Around(&["ProjectionPushdown"], |rule| Arc::new(projections::Apart(rule))),
    },
    Rule {
        name: "proven_orders",
        why: "An order that a join hides cannot be proven, and the plan would be refused.",
        after: &["hidden_equalities"],
        apply: Placed::Before(&["SanityCheckPlan"], || Arc::new(orderings::Sorted)),
    },
    Rule {
        name: "yielding_joins",
        why: "A join that makes many batches of one never waits, so that its query could not be cancelled.",
        after: &[],
        apply: Placed::Last(|| Arc::new(yielding::YieldingJoins)),
    },
];

/// DataFusion's rules of logical plans, and ours in their places.
pub(crate) fn optimizer() -> Vec<Logical> {
    placed(Optimizer::new().rules, OF_OPTIMIZER, |rule| rule.name())
}

/// DataFusion's rules of physical plans, and ours in their places.
pub(crate) fn physical() -> Vec<Physical> {
    placed(PhysicalOptimizer::new().rules, OF_PHYSICAL, |rule| rule.name())
}

fn placed<R>(theirs: Vec<R>, ours: &[Rule<Placed<R>>], name: fn(&R) -> &str) -> Vec<R> {
    let mut rules = Vec::with_capacity(theirs.len() + ours.len());
    for mut rule in theirs {
        for our in ours {
            match our.apply {
                Placed::Around(names, around) if names.contains(&name(&rule)) => {
                    rule = around(rule)
                }
                Placed::Before(names, made) if names.contains(&name(&rule)) => rules.push(made()),
                _ => {}
            }
        }
        rules.push(rule);
    }
    rules.extend(ours.iter().filter_map(|rule| match rule.apply {
        Placed::Last(made) => Some(made()),
        _ => None,
    }));
    rules
}

/// The plan of what is written to a table.
///
/// # Errors
///
/// If the rule makes no plan of it.
pub fn stored(plan: LogicalPlan) -> Result<LogicalPlan> {
    run::whole(&STORED_VALUES, plan)
}

/// A plan that several nodes run, of which a subquery in the place of a value fails where it has more than one row (1242).
///
/// # Errors
///
/// If the rule makes no plan of it.
pub fn distributed(plan: LogicalPlan) -> Result<LogicalPlan> {
    run::whole(&SINGLE_ROWS, plan)
}

/// All rules, in the order in which they run.
pub fn all() -> Vec<RuleInfo> {
    let mut all = described(Stage::Query, OF_QUERIES);
    all.extend(described(Stage::Union, &[UNION_TYPES]));
    all.extend(described(Stage::Expression, OF_EXPRESSIONS));
    all.extend(described(Stage::Node, OF_NODES));
    all.extend(described(Stage::Stored, &[STORED_VALUES]));
    all.extend(described(Stage::Distributed, &[SINGLE_ROWS]));
    all.extend(described_placed(Stage::Optimizer, OF_OPTIMIZER));
    all.extend(described_placed(Stage::Physical, OF_PHYSICAL));
    all
}

fn described<F>(stage: Stage, rules: &[Rule<F>]) -> Vec<RuleInfo> {
    let about = |&Rule { name, why, after, .. }: &Rule<F>| RuleInfo {
        stage,
        name,
        why,
        after,
        theirs: &[],
    };
    rules.iter().map(about).collect()
}

fn described_placed<R>(stage: Stage, rules: &[Rule<Placed<R>>]) -> Vec<RuleInfo> {
    let theirs = rules.iter().map(|rule| match &rule.apply {
        Placed::Around(names, _) | Placed::Before(names, _) => *names,
        Placed::Last(_) => &[][..],
    });
    let about = described(stage, rules).into_iter().zip(theirs);
    about.map(|(about, theirs)| RuleInfo { theirs, ..about }).collect()
}
