//! Filters that have a projection within, taken apart before DataFusion pushes projections down.
//!
//! Over such a filter it looks the columns of the condition, which are its input's, up among its output's: where name
//! and place agree by chance, it makes a condition over another column or no plan at all. Which rows a filter keeps must never
//! change here.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use functions::trees::Tree;

/// A rule for physical plans.
pub(crate) type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// A rule that sees projections over filters instead of within.
#[derive(Debug)]
pub(crate) struct Apart(pub(crate) Rule);

impl PhysicalOptimizerRule for Apart {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let apart = plan.map_up(&mut |node| {
            let apart = taken_apart(&node)?;
            Ok(apart.map_or(Transformed::no(node), Transformed::yes))
        });
        self.0.optimize(apart.data()?, config)
    }
}

/// A filter with a projection within as one below a projection; `None` of another node.
fn taken_apart(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(None) };
    let Some(places) = filter.projection() else { return Ok(None) };
    let schema = filter.input().schema();
    let columns = places.iter().map(|place| {
        let name = schema.field(*place).name();
        ProjectionExpr { expr: Arc::new(Column::new(name, *place)), alias: name.clone() }
    });
    let columns = columns.collect::<Vec<_>>();
    let plain = FilterExecBuilder::from(filter).apply_projection(None)?.build()?;
    Ok(Some(Arc::new(ProjectionExec::try_new(columns, Arc::new(plain))?)))
}
