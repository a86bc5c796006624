//! What operators ask of the session whose statement is planned.

use std::sync::Arc;

use values::error::SqlResult;
use values::temporal::Zone;

use crate::QueryContext;

/// Types comparisons as MySQL means them.
#[derive(Debug)]
pub struct MysqlOperators {
    /// Session time zone.
    pub zone: Zone,
    /// The same as text, for functions that take it.
    pub zone_name: String,
    /// Whether times may be compared with zero dates.
    pub zero_dates: bool,
    /// See [`QueryContext::today`].
    pub today: i64,
}

/// The operators of a session, shared.
///
/// # Errors
///
/// If its time zone is none that is known.
pub fn operators(context: &QueryContext) -> SqlResult<Arc<MysqlOperators>> {
    let (zone, zone_name) = (context.zone()?, context.time_zone.clone());
    let (today, zero_dates) = (context.today()?, context.zero_dates());
    Ok(Arc::new(MysqlOperators { zone, zone_name, zero_dates, today }))
}
