//! Sorts where a join hides that its rows are sorted.
//!
//! DataFusion leaves constant columns out of what it sorts a join's input by, but its joins do not know which columns of
//! their right input are constant (`EquivalenceClass::try_with_offset` drops that): the order of the rows is right, cannot
//! be proven, and the plan is refused at its end. What can be proven sorted must never be sorted again here.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use functions::trees::Tree;

type Node = Arc<dyn ExecutionPlan>;

/// Sorts what an operator needs sorted and DataFusion's own rules left in an order that no one can prove.
#[derive(Debug)]
pub(crate) struct Sorted;

impl PhysicalOptimizerRule for Sorted {
    fn name(&self) -> &str {
        "Sorted"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        plan.map_up(&mut over_sorted_inputs).data()
    }
}

fn over_sorted_inputs(node: Node) -> Result<Transformed<Node>> {
    let mut sorted = false;
    let mut inputs = Vec::new();
    for (input, required) in node.children().into_iter().zip(node.required_input_ordering()) {
        let required = required.map(|orderings| orderings.into_single());
        // What cannot be said is left to the check of plans behind this rule.
        let unproven = required.filter(|required| {
            let properties = input.equivalence_properties();
            !properties.ordering_satisfy_requirement(required.clone()).unwrap_or(true)
        });
        sorted |= unproven.is_some();
        inputs.push(match unproven {
            None => Arc::clone(input),
            Some(required) => {
                let partitions = input.output_partitioning().partition_count();
                let sort = SortExec::new(LexOrdering::from(required), Arc::clone(input));
                Arc::new(sort.with_preserve_partitioning(partitions > 1))
            }
        });
    }
    if !sorted {
        return Ok(Transformed::no(node));
    }
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(inputs, recompute).map(Transformed::yes)
}
