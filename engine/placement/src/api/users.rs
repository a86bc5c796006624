//! Users and what they may do, as stored and sent.
//!
//! Names stand in lower case, for case does not matter in them.

use std::collections::BTreeMap;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use types::Privileges;

/// First byte of a record that has privileges in it. Before there were any, the bytes were the
/// bare credentials, which begin with no such byte.
const PRIVILEGED: u8 = 0;

/// A user, how its password is stored, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Host pattern: `localhost`, `%` or an address.
    pub host: String,
    /// Stored credentials, opaque here (the wire's format); empty for an empty password.
    pub credentials: Vec<u8>,
    /// What it may do.
    pub grants: Grants,
}

impl User {
    /// Whether it is the user of a name and host pattern.
    pub fn is(&self, name: &str, host: &str) -> bool {
        self.name == name && self.host.eq_ignore_ascii_case(host)
    }
}

/// What privileges are on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// `*.*`.
    Everything,
    /// The databases that a LIKE pattern matches.
    Database(String),
    /// A table or view, there or not, by its database.
    Table(String, String),
}

/// What a user may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    /// On everything.
    pub everywhere: Privileges,
    /// On databases, by a LIKE pattern in lower case.
    pub databases: BTreeMap<String, Privileges>,
    /// On tables, by database and name in lower case.
    pub tables: BTreeMap<(String, String), Privileges>,
}

impl Grants {
    /// All there is, to be given on.
    pub fn everything() -> Self {
        let everywhere = Privileges::ALL.and(Privileges::GRANT_OPTION);
        Grants { everywhere, ..Grants::default() }
    }

    /// What was given at exactly this level; none where nothing was.
    pub fn at(&self, level: &Level) -> Option<Privileges> {
        match level {
            Level::Everything => Some(self.everywhere),
            Level::Database(pattern) => self.databases.get(pattern).copied(),
            Level::Table(database, table) => {
                self.tables.get(&(database.clone(), table.clone())).copied()
            }
        }
    }

    pub(crate) fn set(&mut self, level: &Level, privileges: Privileges) {
        match level {
            Level::Everything => self.everywhere = privileges,
            Level::Database(pattern) if privileges.is_empty() => {
                self.databases.remove(pattern);
            }
            Level::Database(pattern) => _ = self.databases.insert(pattern.clone(), privileges),
            Level::Table(database, table) => {
                let name = (database.clone(), table.clone());
                match privileges.is_empty() {
                    true => self.tables.remove(&name),
                    false => self.tables.insert(name, privileges),
                };
            }
        }
    }
}

/// GRANT or REVOKE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantChange {
    /// GRANT.
    Give(Level, Privileges),
    /// REVOKE; nothing need have been given.
    Take(Level, Privileges),
    /// REVOKE ALL PRIVILEGES, GRANT OPTION.
    TakeAll,
}

/// A user as it is stored and sent, since before there were privileges.
#[derive(Serialize, Deserialize)]
struct StoredUser {
    name: String,
    host: String,
    record: Vec<u8>,
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let record = postcard::to_extend(&(&self.credentials, &self.grants), vec![PRIVILEGED]);
        let record = record.map_err(S::Error::custom)?;
        StoredUser { name: self.name.clone(), host: self.host.clone(), record }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        use serde::de::Error as _;
        let StoredUser { name, host, record } = StoredUser::deserialize(deserializer)?;
        let (credentials, grants) = match record.split_first() {
            Some((&PRIVILEGED, rest)) => postcard::from_bytes(rest).map_err(D::Error::custom)?,
            // It could do everything when it was written, and goes on doing so.
            _ => (record, Grants::everything()),
        };
        Ok(User { name, host, credentials, grants })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_written_before_there_were_privileges_may_do_everything() {
        for credentials in [b"{\"sha2\":1}".to_vec(), Vec::new()] {
            let old = StoredUser { name: "a".into(), host: "%".into(), record: credentials };
            let bytes = postcard::to_stdvec(&old).unwrap();
            let user: User = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(user.credentials, old.record);
            assert_eq!(user.grants, Grants::everything());
            // Written anew it is read as what it has become.
            let bytes = postcard::to_stdvec(&user).unwrap();
            assert_eq!(postcard::from_bytes::<User>(&bytes).unwrap(), user);
        }
    }
}
