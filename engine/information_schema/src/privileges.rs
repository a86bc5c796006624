//! Users' privileges as information_schema lists them, and as SHOW GRANTS writes them.

use access::Need;
use placement::api::{Level, User};
use syntax::names::TableName;
use types::Privileges;

use super::schema::CATALOG;
use super::{Listing, Source, string, yes};

/// Tables that are made of users' privileges.
pub(super) const NAMES: [&str; 3] = ["user_privileges", "schema_privileges", "table_privileges"];

impl Source<'_> {
    /// A listing of privileges, if there is one of this name.
    pub(super) fn privileges(&self, name: &str) -> Option<Listing> {
        let on: &[&str] = match name {
            "user_privileges" => &[],
            "schema_privileges" => &["TABLE_SCHEMA"],
            "table_privileges" => &["TABLE_SCHEMA", "TABLE_NAME"],
            _ => return None,
        };
        let columns: [&[&str]; 3] =
            [&["GRANTEE", "TABLE_CATALOG"], on, &["PRIVILEGE_TYPE", "IS_GRANTABLE"]];
        let mut listing = Listing::of(&columns.concat());
        for user in self.catalog.users.iter().filter(|user| self.sees(user)) {
            for (level, privileges) in levels(user) {
                let names = match (&level, on.len()) {
                    (Level::Everything, 0) => Vec::new(),
                    (Level::Database(pattern), 1) => vec![pattern.clone()],
                    (Level::Table(database, table), 2) => vec![database.clone(), table.clone()],
                    _ => continue,
                };
                let given = yes(privileges.meets(Privileges::GRANT_OPTION));
                let own: Vec<&str> = privileges.without(Privileges::GRANT_OPTION).names().collect();
                let own = if own.is_empty() { vec!["USAGE"] } else { own };
                for privilege in own {
                    let grantee = format!("'{}'@'{}'", user.name, user.host);
                    let mut row = vec![string(grantee), string(CATALOG)];
                    row.extend(names.iter().map(string));
                    row.extend([string(privilege), given.clone()]);
                    listing.rows.push(row);
                }
            }
        }
        Some(listing)
    }

    /// Others' privileges are seen by who reads `mysql.user`.
    fn sees(&self, user: &User) -> bool {
        let users = TableName { database: "mysql".into(), table: "user".into() };
        self.rights.is_own(&user.name, &user.host)
            || self.rights.check(&Need::to_select(users)).is_ok()
    }
}

/// What a user has, level by level.
fn levels(user: &User) -> Vec<(Level, Privileges)> {
    let mut levels = vec![(Level::Everything, user.grants.everywhere)];
    let databases = user.grants.databases.iter();
    levels.extend(databases.map(|(pattern, of)| (Level::Database(pattern.clone()), *of)));
    let tables = user.grants.tables.iter();
    levels.extend(
        tables.map(|((database, table), of)| (Level::Table(database.clone(), table.clone()), *of)),
    );
    levels
}

/// The GRANTs that would give a user what it has, as MySQL 8 writes them.
pub fn grants_of(user: &User) -> Vec<String> {
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    let to = format!("{}@{}", quoted(&user.name), quoted(&user.host));
    let text = |(level, privileges): (Level, Privileges)| {
        let own = privileges.without(Privileges::GRANT_OPTION);
        let (on, all) = match &level {
            // MySQL 8 writes them out, for there may be more some day.
            Level::Everything => ("*.*".to_owned(), None),
            Level::Database(pattern) => {
                (format!("{}.*", quoted(pattern)), Some(Privileges::ON_DATABASES))
            }
            Level::Table(database, table) => {
                (format!("{}.{}", quoted(database), quoted(table)), Some(Privileges::ON_TABLES))
            }
        };
        let what = match own.names().collect::<Vec<_>>().join(", ") {
            _ if all == Some(own) => "ALL PRIVILEGES".to_owned(),
            nothing if nothing.is_empty() => "USAGE".to_owned(),
            some => some,
        };
        let with = match privileges.meets(Privileges::GRANT_OPTION) {
            true => " WITH GRANT OPTION",
            false => "",
        };
        format!("GRANT {what} ON {on} TO {to}{with}")
    };
    levels(user).into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use placement::api::Grants;

    use super::*;

    #[test]
    fn grants_are_written_as_mysql_8_does() {
        let mut grants = Grants::default();
        let some = Privileges::SELECT.and(Privileges::CREATE_VIEW);
        grants.databases.insert("b`c".into(), Privileges::ON_DATABASES);
        grants.databases.insert("a\\_b".into(), some.and(Privileges::GRANT_OPTION));
        grants.tables.insert(("d".into(), "t".into()), Privileges::GRANT_OPTION);
        let user = User { name: "u".into(), host: "%".into(), credentials: vec![], grants };
        assert_eq!(
            grants_of(&user),
            [
                "GRANT USAGE ON *.* TO `u`@`%`",
                "GRANT SELECT, CREATE VIEW ON `a\\_b`.* TO `u`@`%` WITH GRANT OPTION",
                "GRANT ALL PRIVILEGES ON `b``c`.* TO `u`@`%`",
                "GRANT USAGE ON `d`.`t` TO `u`@`%` WITH GRANT OPTION",
            ]
        );
    }
}
