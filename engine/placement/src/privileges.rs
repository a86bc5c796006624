//! Privileges: what users may do, on everything, on databases and on tables.
//!
//! They are part of a user's record. Names stand in lower case, for case does not matter in them.
//! What a statement needs, and whether a grant covers it, is `sql`'s business.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use types::{Error, Privileges, Result};

use crate::api::{Catalog, User};
use crate::catalog::{MAX_NAME, check_name};
use crate::state::State;

/// Most databases and tables that a user has privileges on: every node fetches the catalog as one
/// message.
const MAX_GRANTS: usize = 4_096;
/// First byte of a record that has privileges in it. Before there were any, the bytes were the
/// bare credentials, which begin with no such byte.
const PRIVILEGED: u8 = 0;

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

    fn set(&mut self, level: &Level, privileges: Privileges) {
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

impl Catalog {
    /// The account that a user name and a client's address select: the most specific host pattern
    /// wins, as in MySQL.
    pub fn account(&self, name: &str, host: IpAddr) -> Option<&User> {
        let rank = |user: &User| match user.host.as_str() {
            "%" => Some(2),
            "localhost" if host.is_loopback() => Some(1),
            exact if exact.parse() == Ok(host) => Some(0),
            _ => None,
        };
        self.users
            .iter()
            .filter(|user| user.name == name)
            .filter_map(|user| Some((rank(user)?, user)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, user)| user)
    }
}

/// Gives privileges to users or takes them, all or none.
pub(crate) fn change_grants(
    state: &mut State,
    accounts: &[(String, String)],
    change: &GrantChange,
) -> Result<()> {
    if let GrantChange::Give(level, _) | GrantChange::Take(level, _) = change {
        match level {
            Level::Everything => {}
            // Each character of a name may stand behind a backslash.
            Level::Database(pattern) => check_name("database", pattern, 2 * MAX_NAME)?,
            Level::Table(database, table) => {
                check_name("database", database, MAX_NAME)?;
                check_name("table", table, MAX_NAME)?;
            }
        }
    }
    let mut changed = state.catalog.users.clone();
    for (name, host) in accounts {
        let user = changed.iter_mut().find(|user| user.is(name, host));
        let user = user.ok_or_else(|| Error::not_found("user", format!("{name}@{host}")))?;
        let grants = &mut user.grants;
        match change {
            GrantChange::Give(level, privileges) => {
                let had = grants.at(level).unwrap_or_default();
                grants.set(level, had.and(*privileges));
            }
            GrantChange::Take(level, privileges) => {
                let had = grants.at(level).unwrap_or_default();
                grants.set(level, had.without(*privileges));
            }
            GrantChange::TakeAll => *grants = Grants::default(),
        }
        if grants.databases.len() + grants.tables.len() > MAX_GRANTS {
            return Err(Error::Invalid(format!(
                "user {name}@{host} would have privileges on more than {MAX_GRANTS} databases and \
                 tables: grant them on databases, or on patterns of their names"
            )));
        }
    }
    state.catalog.users = changed;
    Ok(())
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

    #[test]
    fn a_new_user_has_nothing_and_keeps_what_it_is_given() {
        let mut state = State::new();
        let (name, host) = ("a".to_owned(), "%".to_owned());
        let user = User { name, host, credentials: vec![1], grants: Grants::default() };
        state.catalog.users.push(user);
        let accounts = [("a".to_owned(), "%".to_owned())];
        let level = Level::Database("d".into());
        let mut change = |change| {
            change_grants(&mut state, &accounts, &change).map(|()| {
                let user = state.catalog.user("a", "%").unwrap();
                let bytes = postcard::to_stdvec(user).unwrap();
                postcard::from_bytes::<User>(&bytes).unwrap().grants
            })
        };
        let some = Privileges::SELECT.and(Privileges::DROP);
        let grants = change(GrantChange::Give(level.clone(), some)).unwrap();
        assert_eq!(grants.at(&level), Some(some));
        assert_eq!(grants.everywhere, Privileges::NONE);
        let grants = change(GrantChange::Take(level.clone(), Privileges::DROP)).unwrap();
        assert_eq!(grants.at(&level), Some(Privileges::SELECT));
        let grants = change(GrantChange::Take(level.clone(), Privileges::SELECT)).unwrap();
        assert_eq!(grants.at(&level), None);
        change(GrantChange::Give(Level::Everything, some)).unwrap();
        assert_eq!(change(GrantChange::TakeAll).unwrap(), Grants::default());
        let nobody = [("a".to_owned(), "%".to_owned()), ("b".to_owned(), "%".to_owned())];
        let give = GrantChange::Give(Level::Everything, some);
        assert!(change_grants(&mut state, &nobody, &give).is_err());
        let user = state.catalog.user("a", "%").unwrap();
        assert_eq!(user.grants, Grants::default(), "one of several got something");
    }

    #[test]
    fn the_most_specific_account_is_the_one() {
        let mut state = State::new();
        for host in ["%", "localhost", "10.0.0.1"] {
            let (name, host) = ("a".to_owned(), host.to_owned());
            let grants = Grants::default();
            state.catalog.users.push(User { name, host, credentials: vec![], grants });
        }
        let of = |ip: &str| state.catalog.account("a", ip.parse().unwrap()).unwrap().host.as_str();
        assert_eq!(
            [of("127.0.0.1"), of("10.0.0.1"), of("10.0.0.2")],
            ["localhost", "10.0.0.1", "%"]
        );
        assert!(state.catalog.account("b", "127.0.0.1".parse().unwrap()).is_none());
    }
}
