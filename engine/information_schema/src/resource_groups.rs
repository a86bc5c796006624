//! Resource groups as information_schema lists them: TiDB's columns in TiDB's table, what it has not there in one of our own.

use super::{Listing, Source, string, yes};

/// Tables that are made of resource groups.
pub(super) const NAMES: [&str; 2] = ["resource_groups", "resource_group_limits"];

impl Source<'_> {
    /// A listing of resource groups, if there is one of this name.
    pub(super) fn resource_groups(&self, name: &str) -> Option<Listing> {
        let limits = match name {
            "resource_groups" => false,
            "resource_group_limits" => true,
            _ => return None,
        };
        let mut listing = Listing::of(match limits {
            false => &["NAME", "RU_PER_SEC", "PRIORITY", "BURSTABLE"],
            true => &["NAME", "QUERY_LIMIT", "BACKGROUND"],
        });
        for group in self.catalog.resources.groups.values() {
            let rate = group.ru_per_sec.map_or_else(|| "UNLIMITED".to_owned(), |ru| ru.to_string());
            let limit = group.query_limit.as_ref().map(ToString::to_string);
            listing.rows.push(match limits {
                false => vec![
                    string(&group.name),
                    string(rate),
                    string(group.priority.to_string()),
                    yes(group.burstable),
                ],
                true => vec![
                    string(&group.name),
                    string(limit.unwrap_or_default()),
                    string(group.background.join(",")),
                ],
            });
        }
        Some(listing)
    }
}
