//! What operators ask of the session whose statement is planned.

use std::sync::Arc;

use values::temporal::Zone;

/// Types comparisons as MySQL means them.
#[derive(Debug)]
pub struct MysqlOperators {
    /// Session time zone.
    pub zone: Zone,
    /// The same as text, for functions that take it.
    pub zone_name: String,
    /// Whether times may be compared with zero dates.
    pub zero_dates: bool,
}

/// The operators of a session, shared.
pub fn operators(zone: Zone, zone_name: &str, zero_dates: bool) -> Arc<MysqlOperators> {
    Arc::new(MysqlOperators { zone, zone_name: zone_name.to_owned(), zero_dates })
}
