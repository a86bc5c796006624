//! What the distributed planner cannot do by itself: plan rules that it needs, and the queries that
//! it must not get.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use functions::trees::{PlanTree, Tree};

use crate::error::{MppCode, MppError, MppResult};

type Node = Arc<dyn ExecutionPlan>;

/// A rule that writes the nodes of a plan anew, from below.
#[derive(Debug)]
struct Rule {
    name: &'static str,
    node: fn(Node) -> Result<Transformed<Node>>,
}

impl PhysicalOptimizerRule for Rule {
    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        plan.map_up(&mut |node| (self.node)(node)).data()
    }
}

/// What is to run before the distributed planner, in this order.
pub fn all() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rule = |name, node| Arc::new(Rule { name, node }) as _;
    vec![
        rule("IsolateSingleTaskJoins", isolate_single_task_joins),
        rule("GatherBelowAggregates", gather_below_aggregates),
        rule("CutBelowUnions", cut_below_unions),
        rule("SortByWholePartitions", sort_by_whole_partitions),
    ]
}

/// Joins that the distributed planner runs as one task (`NOT IN`, FULL nested loops) would drag
/// the scans below them into that task, away from their regions. A coalesce below such a join is
/// where the planner cuts a stage, so the scans keep theirs.
fn isolate_single_task_joins(node: Node) -> Result<Transformed<Node>> {
    let null_aware = node.downcast_ref::<HashJoinExec>().is_some_and(|join| join.null_aware);
    let full_loop = node
        .downcast_ref::<NestedLoopJoinExec>()
        .is_some_and(|join| *join.join_type() == JoinType::Full);
    if !null_aware && !full_loop {
        return Ok(Transformed::no(node));
    }
    let children = node
        .children()
        .into_iter()
        .map(|child| match child.output_partitioning().partition_count() {
            0 | 1 => child.clone(),
            _ => Arc::new(CoalescePartitionsExec::new(child.clone())) as _,
        })
        .collect();
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Transformed::yes(node.replace_children(children, options)?))
}

/// An aggregate of all rows gives a row even for none, and so in each task of a stage. What has one partition has no
/// coalesce below such an aggregate; but where the partition is a leaf's that the tasks of a stage share, as one whose
/// condition is false, each task has one.
fn gather_below_aggregates(node: Node) -> Result<Transformed<Node>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return Ok(Transformed::no(node));
    };
    let groups = aggregate.group_expr();
    let of_all = groups.is_true_no_grouping() || groups.has_grouping_set();
    let input = aggregate.input();
    let gathered = input.downcast_ref::<CoalescePartitionsExec>().is_some()
        || input.downcast_ref::<SortPreservingMergeExec>().is_some();
    let one = input.output_partitioning().partition_count() == 1;
    if *aggregate.mode() == AggregateMode::Partial || !of_all || gathered || !one {
        return Ok(Transformed::no(node));
    }
    let input = Arc::new(CoalescePartitionsExec::new(input.clone()));
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Transformed::yes(node.replace_children(vec![input], options)?))
}

/// The branches of a union are one stage, and one that ends in a single task, as an aggregate of all rows does, would take
/// the scans of the others into it, away from their regions. Where any may be such, a coalesce on top of each branch is
/// where the planner cuts a stage.
fn cut_below_unions(node: Node) -> Result<Transformed<Node>> {
    let branches = node.children();
    let is_union = node.downcast_ref::<UnionExec>().is_some();
    if !is_union || !branches.iter().any(|branch| may_be_gathered(branch)) {
        return Ok(Transformed::no(node));
    }
    let cut = |branch: &Arc<dyn ExecutionPlan>| {
        Arc::new(CoalescePartitionsExec::new(branch.clone())) as _
    };
    let branches = branches.into_iter().map(cut).collect();
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Transformed::yes(node.replace_children(branches, options)?))
}

/// Whether a plan's rows may be brought into one task after they were last spread over several. A join that collects its
/// left side may be, or have its sides exchanged by the planner later.
fn may_be_gathered(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let collects = |join: &HashJoinExec| *join.partition_mode() == PartitionMode::CollectLeft;
    if plan.downcast_ref::<CoalescePartitionsExec>().is_some()
        || plan.downcast_ref::<SortPreservingMergeExec>().is_some()
        || plan.downcast_ref::<NestedLoopJoinExec>().is_some()
        || plan.downcast_ref::<HashJoinExec>().is_some_and(collects)
    {
        return true;
    }
    let spread = plan.downcast_ref::<RepartitionExec>();
    if spread.is_some_and(|spread| matches!(spread.partitioning(), Partitioning::Hash(..))) {
        return false;
    }
    plan.children().into_iter().any(may_be_gathered)
}

/// A window's input is not sorted by a key of PARTITION BY that a condition makes constant, or that equals another one by a
/// condition or a join. Nobody knows that any more where the input comes from another node, and the window fails there:
/// so its input is sorted by all of the keys.
fn sort_by_whole_partitions(node: Node) -> Result<Transformed<Node>> {
    let keys = window_exprs(&node).and_then(|all| all.first()).map(|w| w.partition_by());
    let children = node.children();
    let sorted = match (keys, &children[..]) {
        (Some(keys), [input]) => sorted_by(input, keys)?,
        _ => None,
    };
    let Some(sorted) = sorted else { return Ok(Transformed::no(node)) };
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Transformed::yes(node.replace_children(vec![Arc::new(sorted)], options)?))
}

fn window_exprs(node: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn WindowExpr>]> {
    let bounded = node.downcast_ref::<BoundedWindowAggExec>().map(|window| window.window_expr());
    bounded.or_else(|| node.downcast_ref::<WindowAggExec>().map(|window| window.window_expr()))
}

/// A window's input sorted by all of its keys; `None` if it says that it is, or if no equality hides one. Rows come in the
/// order in which they came: what is added has one value among rows of the same other keys.
fn sorted_by(
    input: &Arc<dyn ExecutionPlan>,
    keys: &[Arc<dyn PhysicalExpr>],
) -> Result<Option<SortExec>> {
    let leads = |order: &LexOrdering| {
        let first = order.iter().take(keys.len()).filter(|by| keys.contains(&by.expr));
        first.count() == keys.len()
    };
    if keys.is_empty() || stated_order(input).is_some_and(leads) {
        return Ok(None);
    }
    let properties = input.equivalence_properties();
    let (mut order, found) = properties.find_longest_permutation(keys)?;
    let hidden = |key: &Arc<dyn PhysicalExpr>| {
        key.downcast_ref::<Literal>().is_none()
            && (properties.is_expr_constant(key).is_some()
                || properties.eq_group().get_equivalence_class(key).is_some())
    };
    let sort = input.downcast_ref::<SortExec>();
    // A window that finds its partitions in any order needs none.
    if found.len() < keys.len() || sort.is_none() && !keys.iter().any(hidden) {
        return Ok(None);
    }
    let known = sort.map(|sort| sort.expr()).or_else(|| input.output_ordering());
    let rest = known.into_iter().flat_map(|order| order.iter());
    order.extend(rest.filter(|by| !keys.contains(&by.expr)).cloned());
    let Some(order) = LexOrdering::new(order) else { return Ok(None) };
    Ok(Some(match sort {
        Some(sort) => SortExec::new(order, sort.input().clone())
            .with_preserve_partitioning(sort.preserve_partitioning())
            .with_fetch(sort.fetch()),
        None => SortExec::new(order, input.clone())
            .with_preserve_partitioning(input.output_partitioning().partition_count() > 1),
    }))
}

/// The order that a plan's rows are said to have by a node of it, whoever knows what else.
fn stated_order(plan: &Arc<dyn ExecutionPlan>) -> Option<&LexOrdering> {
    if let Some(sort) = plan.downcast_ref::<SortExec>() {
        return Some(sort.expr());
    }
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
        return Some(merge.expr());
    }
    match (window_exprs(plan), &plan.children()[..]) {
        (Some(_), [input]) => stated_order(input),
        _ => None,
    }
}

/// Refuses WITH RECURSIVE over tables: each round would have to run the other nodes' tasks again,
/// which streams that are read once cannot do.
pub fn refuse_recursion(plan: &LogicalPlan) -> MppResult<()> {
    let mut name = None;
    plan.visit_all(&mut |node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            name = Some(query.name.clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match name {
        Some(name) => Err(MppError::new(
            MppCode::Unsupported,
            format!("WITH RECURSIVE {name} over tables is not run on columns: read rows"),
        )),
        None => Ok(()),
    }
}
