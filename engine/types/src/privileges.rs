//! Sets of privileges: what users may do.
//!
//! Who has which is the catalog's; what a statement needs is `sql`'s.

use serde::{Deserialize, Serialize};

/// MySQL's static privileges, in its order, and dynamic ones of TiDB behind them: a privilege is the bit of its place.
const NAMES: [&str; STATIC + 2] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE",
    "DROP",
    "RELOAD",
    "SHUTDOWN",
    "PROCESS",
    "FILE",
    "GRANT OPTION",
    "REFERENCES",
    "INDEX",
    "ALTER",
    "SHOW DATABASES",
    "SUPER",
    "CREATE TEMPORARY TABLES",
    "LOCK TABLES",
    "EXECUTE",
    "REPLICATION SLAVE",
    "REPLICATION CLIENT",
    "CREATE VIEW",
    "SHOW VIEW",
    "CREATE ROUTINE",
    "ALTER ROUTINE",
    "CREATE USER",
    "EVENT",
    "TRIGGER",
    "CREATE TABLESPACE",
    "CREATE ROLE",
    "DROP ROLE",
    "RESOURCE_GROUP_ADMIN",
    "RESOURCE_GROUP_USER",
];

/// How many of them are static.
const STATIC: usize = 31;

/// A set of privileges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Privileges(u64);

impl Privileges {
    /// None: USAGE.
    pub const NONE: Self = Self(0);
    /// Reads rows.
    pub const SELECT: Self = Self(1);
    /// Adds rows.
    pub const INSERT: Self = Self(1 << 1);
    /// Changes rows.
    pub const UPDATE: Self = Self(1 << 2);
    /// Removes rows.
    pub const DELETE: Self = Self(1 << 3);
    /// Makes databases and tables.
    pub const CREATE: Self = Self(1 << 4);
    /// Drops them, and views.
    pub const DROP: Self = Self(1 << 5);
    /// FLUSH.
    pub const RELOAD: Self = Self(1 << 6);
    /// Sees what others run, and the cluster.
    pub const PROCESS: Self = Self(1 << 8);
    /// Gives on what it has.
    pub const GRANT_OPTION: Self = Self(1 << 10);
    /// Names tables in foreign keys.
    pub const REFERENCES: Self = Self(1 << 11);
    /// Makes and drops indexes.
    pub const INDEX: Self = Self(1 << 12);
    /// Changes tables.
    pub const ALTER: Self = Self(1 << 13);
    /// Sees the names of all databases.
    pub const SHOW_DATABASES: Self = Self(1 << 14);
    /// Sets what is set for everybody, ends what others run.
    pub const SUPER: Self = Self(1 << 15);
    /// Locks what it reads.
    pub const LOCK_TABLES: Self = Self(1 << 17);
    /// Makes views.
    pub const CREATE_VIEW: Self = Self(1 << 21);
    /// Sees how views are defined.
    pub const SHOW_VIEW: Self = Self(1 << 22);
    /// Makes, alters and drops users.
    pub const CREATE_USER: Self = Self(1 << 25);
    /// Makes, alters and drops resource groups, and leaves its own.
    pub const RESOURCE_GROUP_ADMIN: Self = Self(1 << STATIC);
    /// Leaves its own resource group.
    pub const RESOURCE_GROUP_USER: Self = Self(1 << (STATIC + 1));
    /// Those that are given by name alone, on everything.
    pub const DYNAMIC: Self = Self::RESOURCE_GROUP_ADMIN.and(Self::RESOURCE_GROUP_USER);
    /// ALL on everything; GRANT OPTION is never part of ALL, and whoever has ALL needs no dynamic one.
    pub const ALL: Self = Self(((1 << STATIC) - 1) & !Self::GRANT_OPTION.0);
    /// ALL on a table.
    pub const ON_TABLES: Self = Self(0b1111 | 0b11 << 4 | 0b111 << 11 | 0b11 << 21 | 1 << 27);
    /// ALL on a database.
    pub const ON_DATABASES: Self = Self(Self::ON_TABLES.0 | 0b111 << 16 | 0b11 << 23 | 1 << 26);

    /// The privilege of a name in upper case.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().position(|known| *known == name).map(|at| Self(1 << at))
    }

    /// Their names, in MySQL's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().enumerate().filter(move |(at, _)| self.0 >> at & 1 == 1).map(|(_, n)| n)
    }

    /// These and others.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without others.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether all of others are among these.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether any of others is among these.
    pub const fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_level_is_what_mysql_says() {
        let of = |set: Privileges| set.names().collect::<Vec<_>>().join(", ");
        assert_eq!(
            of(Privileges::ON_TABLES),
            "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE VIEW, \
             SHOW VIEW, TRIGGER"
        );
        assert_eq!(
            of(Privileges::ON_DATABASES),
            "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE \
             TEMPORARY TABLES, LOCK TABLES, EXECUTE, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER \
             ROUTINE, EVENT, TRIGGER"
        );
        assert_eq!(Privileges::ALL.names().count(), 30);
        for (name, one) in [
            ("SELECT", Privileges::SELECT),
            ("INSERT", Privileges::INSERT),
            ("UPDATE", Privileges::UPDATE),
            ("DELETE", Privileges::DELETE),
            ("CREATE", Privileges::CREATE),
            ("DROP", Privileges::DROP),
            ("RELOAD", Privileges::RELOAD),
            ("PROCESS", Privileges::PROCESS),
            ("GRANT OPTION", Privileges::GRANT_OPTION),
            ("REFERENCES", Privileges::REFERENCES),
            ("INDEX", Privileges::INDEX),
            ("ALTER", Privileges::ALTER),
            ("SHOW DATABASES", Privileges::SHOW_DATABASES),
            ("SUPER", Privileges::SUPER),
            ("LOCK TABLES", Privileges::LOCK_TABLES),
            ("CREATE VIEW", Privileges::CREATE_VIEW),
            ("SHOW VIEW", Privileges::SHOW_VIEW),
            ("CREATE USER", Privileges::CREATE_USER),
        ] {
            assert_eq!(Privileges::named(name), Some(one), "{name}");
        }
    }
}
