//! Privileges: what users may do, on everything, on databases and on tables.
//!
//! They are part of a user's record. Names stand in lower case, for case does not matter in them.
//! What a statement needs, and whether a grant covers it, is `sql`'s business.

use types::{Error, Result};

use super::descriptions::{MAX_NAME, check_name};
use crate::api::{GrantChange, Grants, Level};
use crate::state::State;

/// Most databases and tables that a user has privileges on: every node fetches the catalog as one
/// message.
const MAX_GRANTS: usize = 4_096;
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

#[cfg(test)]
mod tests {
    use types::Privileges;

    use super::*;
    use crate::api::User;

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
