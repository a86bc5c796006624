//! Settings of nodes that can be changed while they run, by SET CONFIG: which there are, of what kind of node, and what
//! their values may be.
//!
//! How a node acts by one is its own business.

use crate::{Error, Result};

/// Kinds of nodes, and what TiDB calls them.
const KINDS: [(&str, &str); 3] = [("row", "tikv"), ("sql", "tidb"), ("columnar", "tiflash")];

/// The kind of node of a name, TiDB's or our own.
pub fn kind_of(name: &str) -> Option<&'static str> {
    let known = |(own, theirs): &&(&str, &str)| {
        name.eq_ignore_ascii_case(own) || name.eq_ignore_ascii_case(theirs)
    };
    KINDS.iter().find(known).map(|(own, _)| *own)
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// A whole number from one to another.
    Number(u64, u64),
    /// One of some words.
    Words(&'static [&'static str]),
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, in a node's settings file as well if it stands there.
    pub name: &'static str,
    /// The kinds of nodes that have it.
    pub kinds: &'static [&'static str],
    /// Whether a change counts at once; else it does when the node starts again.
    pub at_once: bool,
    values: Values,
}

/// All of them.
pub const SETTINGS: [Setting; 4] = [
    Setting {
        name: "log_level",
        kinds: &["row", "sql", "columnar"],
        at_once: true,
        values: Values::Words(&["error", "warn", "info", "debug", "trace"]),
    },
    Setting {
        name: "max_connections",
        kinds: &["sql"],
        at_once: true,
        values: Values::Number(1, 100_000),
    },
    Setting {
        name: "query_memory_mib",
        kinds: &["columnar"],
        at_once: false,
        values: Values::Number(16, 1 << 24),
    },
    Setting {
        name: "column_cache_mib",
        kinds: &["columnar"],
        at_once: true,
        values: Values::Number(0, 1 << 24),
    },
];

impl Setting {
    /// The one of a name.
    pub fn named(name: &str) -> Option<Setting> {
        SETTINGS.into_iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }

    /// What its values may be, in words.
    pub fn values(&self) -> String {
        match self.values {
            Values::Number(least, most) => format!("a number from {least} to {most}"),
            Values::Words(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// A value in its usual form.
    ///
    /// # Errors
    ///
    /// `Invalid` with what it may be.
    pub fn value(&self, text: &str) -> Result<String> {
        let found = match self.values {
            Values::Number(least, most) => {
                let number = text.trim().parse::<u64>().ok();
                let number = number.filter(|number| (least..=most).contains(number));
                number.map(|number| number.to_string())
            }
            Values::Words(words) => {
                let known = words.iter().find(|word| word.eq_ignore_ascii_case(text.trim()));
                known.map(|word| (*word).to_owned())
            }
        };
        let wanted = self.values();
        found.ok_or_else(|| Error::Invalid(format!("{} is {wanted}, and not '{text}'", self.name)))
    }

    /// Under what name the catalog keeps it, among what is set for everybody: of a kind of node, or of a node by its number.
    pub fn key(&self, whose: &str) -> String {
        format!("config.{whose}.{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_written_alike() {
        let level = Setting::named("LOG_LEVEL").unwrap();
        assert_eq!(level.value(" DEBUG ").unwrap(), "debug");
        assert!(level.value("loud").unwrap_err().to_string().contains("error, warn, info"));
        let most = Setting::named("max_connections").unwrap();
        assert_eq!(most.value("0100").unwrap(), "100");
        for wrong in ["0", "-1", "", "many", "99999999999999999999"] {
            assert!(most.value(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Setting::named("data_dir"), None);
    }

    #[test]
    fn kinds_have_tidbs_names_too() {
        assert_eq!(
            [kind_of("TiKV"), kind_of("columnar"), kind_of("pd")],
            [Some("row"), Some("columnar"), None]
        );
    }
}
