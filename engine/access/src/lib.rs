//! What statements need, and whether a user has it: MySQL's errors where not.
//!
//! Of a user it knows what the catalog says. It asks nobody, and knows no session.

pub mod needs;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::sync::Arc;

use functions::regexp::matches;
use placement::api::{Catalog, Grants, Level, StoredView, User};
use sqlparser::ast::{ObjectName, Query, Statement, Visitor};
use syntax::names::{TableName, parts, table_name};
use syntax::parser::parse_sql;
use syntax::walk::{Part, walk};
use types::Privileges;
use values::error::{
    SqlError, SqlResult, access_denied, command_denied, database_denied, invalid_view, no_definer,
    privilege_needed,
};

/// Databases that everybody reads: what they show is what one may see.
const FREE: [&str; 2] = ["information_schema", "performance_schema"];
/// Tables of information_schema about the cluster, not of tables.
const OF_THE_CLUSTER: [&str; 4] =
    ["cluster_config", "cluster_info", "garbage_collection", "snapshot_leases"];

/// What a statement needs. Names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// One of some privileges on everything.
    Everywhere {
        /// Which.
        any: Privileges,
        /// What MySQL calls them.
        named: &'static str,
    },
    /// All of some privileges on a database.
    Database {
        /// Database.
        name: String,
        /// Which.
        all: Privileges,
    },
    /// Anything on a database or on a table of it.
    SomethingIn(String),
    /// All of some privileges on a table or view.
    Table {
        /// Table.
        name: TableName,
        /// Which.
        all: Privileges,
    },
    /// One of some privileges on a table or view.
    OneOn {
        /// Table.
        name: TableName,
        /// Which.
        any: Privileges,
        /// What is denied without.
        command: &'static str,
    },
}

impl Need {
    /// To read a table.
    pub fn to_select(name: TableName) -> Need {
        if !is_free(&name.database) {
            return Need::Table { name, all: Privileges::SELECT };
        }
        let private = OF_THE_CLUSTER.contains(&name.table.as_str());
        let any = if private { Privileges::PROCESS } else { Privileges::NONE };
        Need::Everywhere { any, named: "PROCESS" }
    }
}

/// Whether everybody reads a database.
fn is_free(database: &str) -> bool {
    FREE.iter().any(|free| free.eq_ignore_ascii_case(database))
}

/// Who asks, and what it may do.
#[derive(Clone, Debug)]
pub struct Rights {
    /// Whether it has every privilege, apart from GRANT OPTION.
    everything: bool,
    grants: Grants,
    user: String,
    /// Host pattern of its account.
    account: String,
    /// Its client's address.
    client: String,
}

impl Rights {
    /// What a user may do who comes from an address; nothing without an account.
    pub fn of(catalog: &Catalog, user: &str, client: &str) -> Rights {
        let address = match client {
            "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            client => client.parse().ok(),
        };
        match address.and_then(|address| catalog.account(user, address)) {
            Some(account) => Rights::of_account(account, client),
            None => Rights::nobodys(user, client),
        }
    }

    /// What an account may do.
    pub fn of_account(account: &User, client: &str) -> Rights {
        let grants = account.grants.clone();
        Rights {
            everything: grants.everywhere.contains(Privileges::ALL),
            grants,
            user: account.name.clone(),
            account: account.host.clone(),
            client: client.to_owned(),
        }
    }

    /// None at all.
    pub fn nobodys(user: &str, client: &str) -> Rights {
        Rights {
            everything: false,
            grants: Grants::default(),
            user: user.to_owned(),
            account: "%".to_owned(),
            client: client.to_owned(),
        }
    }

    /// Whether it has every privilege, apart from GRANT OPTION.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Name and host pattern of the account.
    pub fn account(&self) -> (&str, &str) {
        (&self.user, &self.account)
    }

    /// Whether an account is its own.
    pub fn is_own(&self, name: &str, host: &str) -> bool {
        self.user == name && self.account.eq_ignore_ascii_case(host)
    }

    /// Whether it has one of some privileges on everything.
    pub fn everywhere(&self, any: Privileges) -> bool {
        self.grants.everywhere.meets(any)
    }

    /// What it may do on all of a database.
    fn on_database(&self, database: &str) -> Privileges {
        let database = database.to_lowercase();
        let matching = self.grants.databases.iter();
        let matching = matching.filter(|(pattern, _)| matches(&database, pattern, Some('\\')));
        // As in MySQL one pattern counts, the most specific.
        let of = matching.max_by_key(|(pattern, _)| (**pattern == database, certain(pattern)));
        self.grants.everywhere.and(of.map(|(_, of)| *of).unwrap_or_default())
    }

    /// What it may do on a table.
    fn on_table(&self, database: &str, table: &str) -> Privileges {
        let name = (database.to_lowercase(), table.to_lowercase());
        let own = self.grants.tables.get(&name).copied().unwrap_or_default();
        self.on_database(database).and(own)
    }

    /// What it may do at a level, as GRANT checks it: at a pattern with wildcards, only privileges on that same
    /// pattern and on everything count.
    fn at(&self, level: &Level) -> Privileges {
        match level {
            Level::Everything => self.grants.everywhere,
            Level::Table(database, table) => self.on_table(database, table),
            Level::Database(pattern) => {
                let own = self.grants.databases.get(pattern).copied().unwrap_or_default();
                let found = match certain(pattern) == usize::MAX {
                    true => self.on_database(&pattern.replace('\\', "")),
                    false => self.grants.everywhere,
                };
                found.and(own)
            }
        }
    }

    fn covers(&self, need: &Need) -> bool {
        match need {
            Need::Everywhere { any, .. } => any.is_empty() || self.everywhere(*any),
            Need::Database { name, all } => self.on_database(name).contains(*all),
            Need::SomethingIn(name) => is_free(name) || self.has_something_in(name),
            Need::Table { name, all } => self.on_table(&name.database, &name.table).contains(*all),
            Need::OneOn { name, any, .. } => {
                is_free(&name.database) || self.on_table(&name.database, &name.table).meets(*any)
            }
        }
    }

    /// Fails where it has not what is needed.
    pub fn check(&self, need: &Need) -> SqlResult<()> {
        if self.everything || self.covers(need) {
            return Ok(());
        }
        Err(match need {
            Need::Everywhere { named, .. } => privilege_needed(named),
            Need::Database { name, .. } | Need::SomethingIn(name) => self.no_database(name),
            Need::Table { name, all } => {
                let missing = all.without(self.on_table(&name.database, &name.table));
                self.no_command(&commands(missing), &name.table)
            }
            Need::OneOn { name, command, .. } => self.no_command(command, &name.table),
        })
    }

    /// Fails where it may not grant or revoke privileges.
    pub fn check_grant(&self, level: &Level, privileges: Privileges) -> SqlResult<()> {
        let mut own = self.at(level);
        // SUPER stands for the dynamic ones, which are on everything.
        if *level == Level::Everything && own.meets(Privileges::SUPER) {
            own = own.and(Privileges::DYNAMIC);
        }
        let missing = privileges.and(Privileges::GRANT_OPTION).without(own);
        if missing.is_empty() {
            return Ok(());
        }
        Err(match level {
            Level::Everything => {
                let (user, host) = self.account();
                access_denied(user, host, "YES")
            }
            Level::Database(name) => self.no_database(name),
            Level::Table(_, table) => self.no_command(&commands(missing), table),
        })
    }

    fn no_database(&self, name: &str) -> SqlError {
        let (user, host) = self.account();
        database_denied(user, host, name)
    }

    fn no_command(&self, command: &str, table: &str) -> SqlError {
        let Rights { user, client, .. } = self;
        command_denied(command, user, client, table)
    }

    fn has_something_in(&self, database: &str) -> bool {
        let of_tables = self.grants.tables.iter();
        self.on_database(database).meets(Privileges::ON_DATABASES)
            || of_tables.into_iter().any(|((of, _), _)| of.eq_ignore_ascii_case(database))
    }

    /// Whether it may know that a database is there.
    pub fn sees_database(&self, name: &str) -> bool {
        is_free(name) || self.everywhere(Privileges::SHOW_DATABASES) || self.has_something_in(name)
    }

    /// Whether it may know that a table is there.
    pub fn sees_table(&self, database: &str, table: &str) -> bool {
        self.everything || self.on_table(database, table).meets(Privileges::ON_TABLES)
    }

    /// What it may do with the columns of a table, as lists of columns say it.
    pub fn on_columns(&self, database: &str, table: &str) -> String {
        let own = self.on_table(database, table);
        let of_columns =
            [Privileges::SELECT, Privileges::INSERT, Privileges::UPDATE, Privileges::REFERENCES];
        let own = of_columns.into_iter().filter(|one| own.contains(*one));
        own.flat_map(Privileges::names).collect::<Vec<_>>().join(",").to_lowercase()
    }

    /// A catalog without what it may not see.
    pub fn visible(&self, catalog: &Arc<Catalog>) -> Arc<Catalog> {
        if self.everything {
            return catalog.clone();
        }
        let mut shown = (**catalog).clone();
        shown.databases.retain(|name| self.sees_database(name));
        shown.tables.retain(|table| self.sees_table(&table.database, &table.name));
        shown.views.retain(|view| self.sees_table(&view.database, &view.name));
        Arc::new(shown)
    }
}

/// Privileges as errors name them.
fn commands(privileges: Privileges) -> String {
    privileges.names().collect::<Vec<_>>().join(", ").replace("GRANT OPTION", "GRANT")
}

/// How many characters of a pattern stand before what may be any.
fn certain(pattern: &str) -> usize {
    let mut characters = pattern.chars();
    let mut count = 0;
    while let Some(character) = characters.next() {
        match character {
            '%' | '_' => return count,
            '\\' => _ = characters.next(),
            _ => {}
        }
        count += 1;
    }
    usize::MAX
}

/// Every table that a part of a statement reads. Unlike the planner's list it minds where the name
/// of a WITH ends, so it never has less.
pub fn reads(part: &impl Part, database: &str) -> SqlResult<Vec<TableName>> {
    struct Reads<'a> {
        database: &'a str,
        ctes: Vec<String>,
        /// How many names of WITH there are outside of each query around.
        outside: Vec<usize>,
        found: Vec<TableName>,
    }
    impl Visitor for Reads<'_> {
        type Break = SqlError;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
            self.outside.push(self.ctes.len());
            let with = query.with.iter().flat_map(|with| &with.cte_tables);
            self.ctes.extend(with.map(|cte| cte.alias.name.value.to_lowercase()));
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
            self.ctes.truncate(self.outside.pop().unwrap_or_default());
            ControlFlow::Continue(())
        }

        fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<SqlError> {
            let no_table = matches!(
                &parts(relation)[..],
                [one] if self.ctes.contains(one) || one == "dual"
            );
            if no_table {
                return ControlFlow::Continue(());
            }
            match table_name(relation, self.database) {
                Ok(name) => {
                    self.found.push(name);
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        }
    }
    let (ctes, outside, found) = Default::default();
    let mut reads = Reads { database, ctes, outside, found };
    walk(part, &mut reads)?;
    Ok(reads.found)
}

/// Fails where a query's text reads what one may not.
pub fn check_query(rights: &Rights, sql: &str, database: &str) -> SqlResult<()> {
    if rights.is_everything() {
        return Ok(());
    }
    // What is no query is reported by whoever plans it.
    let Statement::Query(query) = parse_sql(sql)? else { return Ok(()) };
    reads(&*query, database)?.into_iter().try_for_each(|name| rights.check(&Need::to_select(name)))
}

/// Fails where somebody may not read a view's tables: with SQL SECURITY INVOKER who reads it, else
/// who defined it.
pub fn check_views(catalog: &Catalog, rights: &Rights, needs: &[Need]) -> SqlResult<()> {
    let mut seen = BTreeSet::new();
    for need in needs {
        if let Need::Table { name, all } = need
            && all.contains(Privileges::SELECT)
            && let Some(view) = catalog.view_named(&name.database, &name.table)
        {
            check_view(catalog, rights, view, &mut seen)?;
        }
    }
    Ok(())
}

fn check_view(
    catalog: &Catalog,
    reader: &Rights,
    view: &StoredView,
    seen: &mut BTreeSet<[String; 4]>,
) -> SqlResult<()> {
    let definer;
    let reader = match view.invoker {
        true => reader,
        false => {
            definer = definer_of(catalog, view)?;
            &definer
        }
    };
    let (user, host) = reader.account();
    if !seen.insert([user, host, &view.database, &view.name].map(str::to_owned)) {
        return Ok(());
    }
    let Statement::Query(query) = parse_sql(&view.query)? else { return Ok(()) };
    for name in reads(&*query, "")? {
        let within = catalog.view_named(&name.database, &name.table);
        if reader.check(&Need::to_select(name)).is_err() {
            return Err(invalid_view(&view.database, &view.name));
        }
        if let Some(within) = within {
            check_view(catalog, reader, within, seen)?;
        }
    }
    Ok(())
}

/// What the definer of a view may do.
fn definer_of(catalog: &Catalog, view: &StoredView) -> SqlResult<Rights> {
    let (name, host) = view.definer.rsplit_once('@').unwrap_or((&view.definer, "%"));
    if let Some(account) = catalog.user(name, host) {
        return Ok(Rights::of_account(account, host));
    }
    // Views name the address that their definer came from.
    let account = host.parse().ok().and_then(|address| catalog.account(name, address));
    match account {
        Some(account) => Ok(Rights::of_account(account, host)),
        None => Err(no_definer(name, host)),
    }
}
