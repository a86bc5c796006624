//! Makes the plan of a bound query, by the rules of whole plans in the order of their list.

use datafusion::logical_expr::LogicalPlan;
use tracing::{Level, enabled, trace};
use values::error::SqlResult;

use super::Planning;
use super::lists::OF_QUERIES;
use crate::PlannedSelect;

/// The plan of a bound query with MySQL's meaning, and what its columns are.
pub(crate) fn plan(lowered: LogicalPlan, planning: &Planning) -> SqlResult<PlannedSelect> {
    let shown = |plan: &LogicalPlan| {
        enabled!(Level::TRACE).then(|| plan.display_indent().to_string()).unwrap_or_default()
    };
    let mut before = shown(&lowered);
    trace!("lowered\n{before}");
    let mut planned = PlannedSelect { plan: lowered, columns: Vec::new() };
    for rule in OF_QUERIES {
        planned = (rule.apply)(planned, planning)?;
        let after = shown(&planned.plan);
        if after != before {
            trace!("{}\n{after}", rule.name);
            before = after;
        }
    }
    Ok(planned)
}
