//! Resource groups: for whom work is done, how much of it there may be, and what goes first.
//!
//! Descriptions alone, in TiDB's terms: who belongs to which group is the catalog's, and nothing is counted here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The group of everybody who was given no other.
pub const DEFAULT_GROUP: &str = "default";

/// Longest name of a group, in characters (TiDB's limit).
const MAX_NAME: usize = 32;

/// Kinds of work that may be done in the background, by all of their names. Those behind the first are TiDB's tools.
const TASKS: [(&str, &[&str]); 5] = [
    ("import", &["lightning"]),
    ("backup", &["br"]),
    ("ddl", &[]),
    ("replica", &[]),
    ("background", &["stats"]),
];

/// A resource group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    /// Name, in lower case.
    pub name: String,
    /// Request units that it may use in a second; none for no limit.
    pub ru_per_sec: Option<u64>,
    /// What of its work goes first where work waits.
    pub priority: Priority,
    /// Whether it may use more while there is more.
    pub burstable: bool,
    /// From when on one of its queries is a runaway, and what happens to it.
    pub query_limit: Option<QueryLimit>,
    /// Kinds of its work that give way to all other work, by their names here.
    pub background: Vec<String>,
}

impl ResourceGroup {
    /// A group as it is unless something else is said, but for its rate.
    ///
    /// # Errors
    ///
    /// `Invalid` where the name is empty or too long.
    pub fn new(name: &str) -> Result<Self> {
        if name.is_empty() || name.chars().count() > MAX_NAME {
            return Err(Error::Invalid(format!(
                "the name of a resource group has 1 to {MAX_NAME} characters"
            )));
        }
        Ok(ResourceGroup {
            name: name.to_lowercase(),
            ru_per_sec: None,
            priority: Priority::Medium,
            burstable: false,
            query_limit: None,
            background: Vec::new(),
        })
    }

    /// The group of everybody, as a cluster begins with it: without a limit.
    pub fn everybodys() -> Self {
        ResourceGroup {
            name: DEFAULT_GROUP.to_owned(),
            ru_per_sec: None,
            priority: Priority::Medium,
            burstable: true,
            query_limit: None,
            background: Vec::new(),
        }
    }

    /// Request units that it is held to in a second, if it is held to any.
    pub fn limit(&self) -> Option<u64> {
        self.ru_per_sec.filter(|_| !self.burstable)
    }
}

/// What goes first where work waits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Priority {
    /// Behind all others.
    Low,
    /// As most.
    #[default]
    Medium,
    /// Before all others.
    High,
}

impl Priority {
    /// The priority of a name in upper case.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "LOW" => Some(Priority::Low),
            "MEDIUM" => Some(Priority::Medium),
            "HIGH" => Some(Priority::High),
            _ => None,
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::Low => "LOW",
            Priority::Medium => "MEDIUM",
            Priority::High => "HIGH",
        })
    }
}

/// From when on a query is a runaway, and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryLimit {
    /// It runs for longer.
    pub exec_elapsed: Option<Duration>,
    /// It uses more request units.
    pub ru: Option<u64>,
    /// What happens to it.
    pub action: Action,
    /// How queries like it are known that come after it, if they are.
    pub watch: Option<Watch>,
}

/// What happens to a runaway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// It is noted.
    DryRun,
    /// It goes on behind all others.
    Cooldown,
    /// It is ended.
    Kill,
    /// It goes on in another group.
    Switch(String),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::DryRun => f.write_str("DRYRUN"),
            Action::Cooldown => f.write_str("COOLDOWN"),
            Action::Kill => f.write_str("KILL"),
            Action::Switch(group) => write!(f, "SWITCH_GROUP({group})"),
        }
    }
}

/// How queries like a runaway are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// By what.
    pub by: Likeness,
    /// For how long; for ever without.
    pub lasts: Option<Duration>,
}

/// By what queries are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Likeness {
    /// The text.
    Exact,
    /// The text but for its constants.
    Similar,
    /// The plan.
    Plan,
}

impl fmt::Display for Likeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Likeness::Exact => "EXACT",
            Likeness::Similar => "SIMILAR",
            Likeness::Plan => "PLAN",
        })
    }
}

/// As TiDB writes it in SHOW CREATE RESOURCE GROUP.
impl fmt::Display for QueryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(elapsed) = self.exec_elapsed {
            write!(f, "EXEC_ELAPSED='{}', ", Written(elapsed))?;
        }
        if let Some(ru) = self.ru {
            write!(f, "RU={ru}, ")?;
        }
        write!(f, "ACTION={}", self.action)?;
        match &self.watch {
            None => Ok(()),
            Some(Watch { by, lasts: None }) => write!(f, ", WATCH={by} DURATION=UNLIMITED"),
            Some(Watch { by, lasts: Some(lasts) }) => {
                write!(f, ", WATCH={by} DURATION='{}'", Written(*lasts))
            }
        }
    }
}

/// What would make the group, as TiDB writes it.
impl fmt::Display for ResourceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.replace('`', "``");
        write!(f, "CREATE RESOURCE GROUP `{name}` RU_PER_SEC=")?;
        match self.ru_per_sec {
            Some(rate) => write!(f, "{rate}")?,
            None => f.write_str("UNLIMITED")?,
        }
        write!(f, " PRIORITY={}", self.priority)?;
        if self.burstable {
            f.write_str(" BURSTABLE")?;
        }
        if let Some(limit) = &self.query_limit {
            write!(f, " QUERY_LIMIT=({limit})")?;
        }
        if !self.background.is_empty() {
            write!(f, " BACKGROUND=(TASK_TYPES='{}')", self.background.join(","))?;
        }
        Ok(())
    }
}

/// What a statement says of a group; what it says nothing of stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupOptions {
    /// RU_PER_SEC; none within for UNLIMITED.
    pub ru_per_sec: Option<Option<u64>>,
    /// PRIORITY.
    pub priority: Option<Priority>,
    /// BURSTABLE.
    pub burstable: Option<bool>,
    /// QUERY_LIMIT; none within for NULL.
    pub query_limit: Option<Option<QueryLimit>>,
    /// BACKGROUND; empty for NULL.
    pub background: Option<Vec<String>>,
}

impl GroupOptions {
    /// What a group is with them.
    pub fn of(&self, group: &ResourceGroup) -> ResourceGroup {
        ResourceGroup {
            name: group.name.clone(),
            ru_per_sec: self.ru_per_sec.unwrap_or(group.ru_per_sec),
            priority: self.priority.unwrap_or(group.priority),
            burstable: self.burstable.unwrap_or(group.burstable),
            query_limit: self.query_limit.clone().unwrap_or_else(|| group.query_limit.clone()),
            background: self.background.clone().unwrap_or_else(|| group.background.clone()),
        }
    }
}

/// The kind of background work of a name, one's own or TiDB's, in whatever case.
pub fn task_named(name: &str) -> Option<&'static str> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    let found = TASKS.iter().find(|(task, others)| is(task) || others.iter().any(is));
    found.map(|(task, _)| *task)
}

/// A duration as Go reads it, TiDB's way: numbers with units from `ns` to `h`, the largest first; none for any other text
/// and for more than a century.
pub fn duration_of(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 6] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let (mut rest, mut nanos) = (text.trim(), 0_u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at_checked(digits)?;
        let unit = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(unit)?;
        let (_, each) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanos = number.parse::<u64>().ok()?.checked_mul(*each)?.checked_add(nanos)?;
        rest = behind;
    }
    Some(Duration::from_nanos(nanos))
}

/// A duration in its largest whole unit.
struct Written(Duration);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.as_secs(), self.0.subsec_nanos()) {
            (seconds, 0) if seconds > 0 && seconds % 3_600 == 0 => {
                write!(f, "{}h", seconds / 3_600)
            }
            (seconds, 0) if seconds > 0 && seconds % 60 == 0 => write!(f, "{}m", seconds / 60),
            (seconds, 0) => write!(f, "{seconds}s"),
            _ if self.0.as_nanos().is_multiple_of(1_000_000) => {
                write!(f, "{}ms", self.0.as_millis())
            }
            _ => write!(f, "{}ns", self.0.as_nanos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_written_as_the_statement_that_makes_it() {
        let mut group = ResourceGroup::new("RG`1").unwrap();
        group.ru_per_sec = Some(100);
        assert_eq!(
            group.to_string(),
            "CREATE RESOURCE GROUP `rg``1` RU_PER_SEC=100 PRIORITY=MEDIUM"
        );
        let limit = QueryLimit {
            exec_elapsed: Some(Duration::from_secs(60)),
            ru: None,
            action: Action::Switch("rg2".into()),
            watch: Some(Watch { by: Likeness::Similar, lasts: Some(Duration::from_secs(90)) }),
        };
        let options = GroupOptions {
            priority: Some(Priority::High),
            query_limit: Some(Some(limit)),
            background: Some(vec!["import".into(), "ddl".into()]),
            ..GroupOptions::default()
        };
        assert_eq!(
            options.of(&group).to_string(),
            "CREATE RESOURCE GROUP `rg``1` RU_PER_SEC=100 PRIORITY=HIGH QUERY_LIMIT=(EXEC_ELAPSED='1m', \
             ACTION=SWITCH_GROUP(rg2), WATCH=SIMILAR DURATION='90s') BACKGROUND=(TASK_TYPES='import,ddl')"
        );
        let taken_back = GroupOptions { query_limit: Some(None), ..GroupOptions::default() };
        assert_eq!(taken_back.of(&options.of(&group)).query_limit, None);
        assert_eq!(
            ResourceGroup::everybodys().to_string(),
            "CREATE RESOURCE GROUP `default` RU_PER_SEC=UNLIMITED PRIORITY=MEDIUM BURSTABLE"
        );
        assert!(ResourceGroup::new("").is_err() && ResourceGroup::new(&"x".repeat(33)).is_err());
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in
            [("60s", 60_000), ("10m", 600_000), ("1h30m0s", 5_400_000), ("500ms", 500), ("0s", 0)]
        {
            assert_eq!(duration_of(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "5", "5 s", "1d", "-1s", "99999999999999999999s", "300y", "1.5h"] {
            assert_eq!(duration_of(text), None, "{text}");
        }
        for text in ["1h", "90s", "2m", "1500ms", "0s", "7ns"] {
            assert_eq!(Written(duration_of(text).unwrap()).to_string(), text);
        }
    }

    #[test]
    fn tasks_have_tidbs_names_too() {
        assert_eq!(task_named("BR"), Some("backup"));
        assert_eq!(task_named("lightning"), Some("import"));
        assert_eq!(task_named("replica"), Some("replica"));
        assert_eq!(task_named("ticdc"), None);
    }
}
