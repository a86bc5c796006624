//! Resource groups as information_schema lists them: TiDB's columns in TiDB's table, what it has not there in our own.

use types::{Privileges, Value};
use values::error::SqlResult;
use values::temporal::format_datetime;

use super::cluster::shown;
use super::{Listing, Source, int, string, yes};

/// Tables that are made of resource groups.
pub(super) const NAMES: [&str; 4] =
    ["resource_groups", "resource_group_limits", "resource_group_usage", "runaway_watches"];

impl Source<'_> {
    /// What groups have used since placement's leader began to lead, in whole units.
    pub(super) async fn resource_group_usage(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&["NAME", "#RU"]);
        for (group, used) in self.storage.units_used().await? {
            listing.rows.push(vec![string(group), int(used)]);
        }
        Ok(listing)
    }

    /// information_schema.runaway_watches, as TiDB has it.
    pub(super) async fn runaway_watches(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&[
            "#ID",
            "RESOURCE_GROUP_NAME",
            "START_TIME",
            "END_TIME",
            "WATCH",
            "WATCH_TEXT",
            "SOURCE",
            "ACTION",
        ]);
        let watches = self.storage.watches().await?;
        let now_ms = self.storage.timestamp().await?.physical_ms();
        for watch in watches.into_iter().filter(|watch| !watch.is_over(now_ms)) {
            let until = watch.until_ms.map_or_else(|| string("UNLIMITED"), time);
            listing.rows.push(vec![
                int(watch.id),
                string(watch.group),
                time(watch.since_ms),
                until,
                string(watch.by.to_string()),
                self.text_for_admins(watch.text),
                string(watch.source),
                string(watch.action.to_string()),
            ]);
        }
        Ok(listing)
    }

    /// mysql.tidb_runaway_queries. A query is known by the digest of its text: its plan has none of its own.
    pub(super) async fn runaway_queries(&self) -> SqlResult<Listing> {
        let mut listing = Listing::of(&[
            "resource_group_name",
            "time",
            "match_type",
            "action",
            "original_sql",
            "plan_digest",
            "tidb_server",
        ]);
        for met in self.storage.runaways().await? {
            listing.rows.push(vec![
                string(met.group),
                time(met.at_ms),
                string(if met.watched { "watch" } else { "identify" }),
                string(met.action.to_string()),
                self.text_for_admins(met.text),
                string(met.digest),
                string(met.node.to_string()),
            ]);
        }
        Ok(listing)
    }

    /// The text of others' statements, for those who may see such.
    fn text_for_admins(&self, text: String) -> Value {
        let any = Privileges::SUPER.and(Privileges::PROCESS).and(Privileges::RESOURCE_GROUP_ADMIN);
        match self.rights.everywhere(any) {
            true => string(shown(&text, text.len())),
            false => Value::Null,
        }
    }

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

/// A time of the clock, in UTC.
fn time(unix_ms: u64) -> Value {
    string(format_datetime(i64::try_from(unix_ms).unwrap_or(0).saturating_mul(1_000), 0))
}
