//! GRANT, REVOKE and SHOW GRANTS: what users may do, given, taken and shown.
//!
//! One change gives or takes for all users named, or for none. Whether it is enough for a statement
//! is `privileges`' business.

use placement::api::{Catalog, CatalogChange, GrantChange, Level};
use syntax::names::table_name;
use syntax::statement::{Grant, GrantLevel, UserName};
use types::Error;
use types::Privileges;
use values::error::{
    SqlError, SqlResult, cannot_revoke_all, no_database_selected, no_grant, no_table,
    no_table_grant, no_user_by_grant, privilege_needed,
};

use crate::session::{Session, done};
use execution::reply::Reply;
use information_schema::{Listing, grants_of, is_virtual, string};

impl Session {
    /// GRANT and REVOKE.
    pub(in crate::session) async fn grant(&mut self, grant: Grant) -> SqlResult<Reply> {
        self.engine.storage.timestamp().await?;
        let (rights, catalog) = self.rights().await?;
        let own = self.own_account();
        let users = grant.users.iter().map(|user| user.clone().unwrap_or_else(|| own.clone()));
        let users: Vec<UserName> = users.collect();
        let level = grant.level.as_ref().map(|level| self.level_of(level)).transpose()?;
        let Grant { give, privileges, if_exists, ignore_unknown, .. } = grant;
        match &level {
            Some(level) => rights.check_grant(level, privileges)?,
            None if rights.everywhere(Privileges::CREATE_USER) => {}
            None => return Err(privilege_needed("CREATE USER")),
        }
        // Nothing is taken from who may do everything by who may not.
        let greater = |user: &UserName| {
            let known = catalog.user(&user.name, &user.host);
            known.is_some_and(|known| known.grants.everywhere.meets(Privileges::SUPER))
        };
        if !give && !rights.everywhere(Privileges::SUPER) && users.iter().any(greater) {
            return Err(privilege_needed("SUPER"));
        }
        if give && let Some(level) = &level {
            check_there(level, privileges, &catalog)?;
        }
        let mut accounts = Vec::new();
        for user in users {
            match missing(&user, level.as_ref(), give, &catalog) {
                None => accounts.push((user.name, user.host)),
                Some((_, error)) if if_exists => self.diagnostics.warn(error),
                Some((true, error)) if ignore_unknown => self.diagnostics.warn(error),
                Some((_, error)) => return Err(error),
            }
        }
        if accounts.is_empty() {
            return Ok(done());
        }
        let change = match level {
            Some(level) if give => GrantChange::Give(level, privileges),
            Some(level) => GrantChange::Take(level, privileges),
            None => GrantChange::TakeAll,
        };
        match self.engine.storage.change(CatalogChange::Grant { accounts, change }).await {
            Ok(_) => Ok(done()),
            // It was dropped meanwhile.
            Err(Error::NotFound { .. }) => Err(no_user_by_grant()),
            Err(error) => Err(error.into()),
        }
    }

    /// What a statement means by `*.*`, `*`, `d.*` or a table.
    fn level_of(&self, level: &GrantLevel) -> SqlResult<Level> {
        Ok(match level {
            GrantLevel::Everything => Level::Everything,
            GrantLevel::Current if self.variables.database().is_empty() => {
                return Err(no_database_selected());
            }
            GrantLevel::Current => Level::Database(self.variables.database().to_lowercase()),
            GrantLevel::Database(name) => Level::Database(name.to_lowercase()),
            GrantLevel::Table(name) => {
                let name = table_name(name, self.variables.database())?;
                Level::Table(name.database, name.table)
            }
        })
    }

    /// SHOW GRANTS, of the session's own user without another's name.
    pub(super) async fn show_grants(&mut self, of: Option<UserName>) -> SqlResult<Listing> {
        self.engine.storage.timestamp().await?;
        let (_, catalog) = self.rights().await?;
        let of = of.unwrap_or_else(|| self.own_account());
        let user = catalog.user(&of.name, &of.host).ok_or_else(|| no_such_grant(&of, None))?;
        let mut listing = Listing::of(&[&format!("Grants for {}@{}", user.name, user.host)]);
        listing.columns[0].ty = types::ColumnType::Text(u32::MAX);
        listing.rows = grants_of(user).into_iter().map(|text| vec![string(text)]).collect();
        Ok(listing)
    }
}

/// Error 1146 for a table that is not there, unless it is what is to be made.
fn check_there(level: &Level, privileges: Privileges, catalog: &Catalog) -> SqlResult<()> {
    let Level::Table(database, table) = level else { return Ok(()) };
    let there = catalog.table_named(database, table).is_some()
        || catalog.view_named(database, table).is_some()
        || is_virtual(database);
    match there || privileges.meets(Privileges::CREATE) {
        true => Ok(()),
        false => Err(no_table(database, table)),
    }
}

/// Why nothing can be given to or taken from a user, and whether that is because there is none.
fn missing(
    user: &UserName,
    level: Option<&Level>,
    give: bool,
    catalog: &Catalog,
) -> Option<(bool, SqlError)> {
    let Some(known) = catalog.user(&user.name, &user.host) else {
        return Some((
            true,
            match level {
                _ if give => no_user_by_grant(),
                None => cannot_revoke_all(),
                Some(_) => no_such_grant(user, None),
            },
        ));
    };
    match level {
        Some(level) if !give && known.grants.at(level).is_none() => {
            Some((false, no_such_grant(user, Some(level))))
        }
        _ => None,
    }
}

/// Error 1141, or 1147 for a table.
fn no_such_grant(user: &UserName, level: Option<&Level>) -> SqlError {
    let UserName { name, host } = user;
    match level {
        Some(Level::Table(_, table)) => no_table_grant(name, host, table),
        _ => no_grant(name, host),
    }
}
