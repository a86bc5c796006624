//! Resource groups and who belongs to which, as stored and sent.
//!
//! They stand behind the catalog where that is stored or sent, for programs that knew of none. What a group may use is
//! counted elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::resource_group::DEFAULT_GROUP;
use types::{GroupOptions, ResourceGroup};

/// All groups, and users that were given one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroups {
    /// By name; the default one is always among them.
    pub groups: BTreeMap<String, ResourceGroup>,
    /// Names of groups by name and host pattern of users.
    pub users: BTreeMap<(String, String), String>,
}

impl Default for ResourceGroups {
    fn default() -> Self {
        let everybodys = ResourceGroup::everybodys();
        let groups = BTreeMap::from([(everybodys.name.clone(), everybodys)]);
        ResourceGroups { groups, users: BTreeMap::new() }
    }
}

impl ResourceGroups {
    /// The group of a name, whatever its case.
    pub fn named(&self, name: &str) -> Option<&ResourceGroup> {
        self.groups.get(&name.to_lowercase())
    }

    /// The group that does work of this kind in the background; the first by name, if several do.
    pub fn in_background(&self, task: &str) -> Option<&ResourceGroup> {
        self.groups.values().find(|group| group.background.iter().any(|does| does == task))
    }

    /// The name of a user's group; the default one's if that is not there any more.
    pub fn of_user(&self, name: &str, host: &str) -> &str {
        let given = self.given(name, host);
        given.filter(|group| self.groups.contains_key(*group)).unwrap_or(DEFAULT_GROUP)
    }

    /// The name of the group that a user was given, if any.
    pub fn given(&self, name: &str, host: &str) -> Option<&str> {
        self.users.get(&(name.to_owned(), host.to_lowercase())).map(String::as_str)
    }
}

/// A change of groups, or of who belongs to them. Names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupChange {
    /// CREATE RESOURCE GROUP.
    Create(String, GroupOptions),
    /// ALTER RESOURCE GROUP.
    Alter(String, GroupOptions),
    /// DROP RESOURCE GROUP.
    Drop(String),
    /// CREATE or ALTER USER … RESOURCE GROUP, for all of these users or none.
    Assign {
        /// Names and host patterns.
        accounts: Vec<(String, String)>,
        /// To which.
        group: String,
    },
}
