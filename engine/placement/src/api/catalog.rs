//! The catalog as data: what there is by name, look-ups in it, and the changes that can be asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::{
    ClusterVersion, Column, Error, ForeignKey, IndexId, ResourceGroup, Result, SchemaVersion,
    Table, TableId, Timestamp, version,
};

use super::foreign_keys::{ForeignKeys, Found, KeyChange};
use super::resource_groups::{GroupChange, ResourceGroups};
use super::users::{GrantChange, User};

/// Everything that names things, at one version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    /// Raised by every change.
    pub version: u64,
    /// Databases, ascending by name.
    pub databases: Vec<String>,
    /// Tables. Whoever reads or writes one shares its description.
    #[serde(with = "shared")]
    pub tables: Vec<Arc<Table>>,
    /// Since when each table is there as it is: its creation, its newest name, or the newest column
    /// that was put in another one's place. Under the complement of a table's number, which is none of
    /// a table: since when it has the columns that it has, where they have changed.
    pub created: BTreeMap<TableId, Timestamp>,
    /// Tables that an import is filling: nobody else reads or writes them.
    pub importing: BTreeMap<TableId, Import>,
    /// Users.
    pub users: Vec<User>,
    /// System variables that were set for everybody; new sessions begin with them.
    pub globals: BTreeMap<String, String>,
    /// Views.
    pub views: Vec<StoredView>,
    /// Tables of which columns have been complete since replicas were asked for. When columns are
    /// away later, that is a failure to show, and no reason to scan rows.
    pub complete_columns: BTreeSet<TableId>,
    /// Resource groups. They stand behind what holds the catalog where that is stored or sent.
    #[serde(skip)]
    pub resources: ResourceGroups,
    /// Foreign keys, which stand behind it as well.
    #[serde(skip)]
    pub foreign_keys: ForeignKeys,
}

/// A bulk import that has begun and is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Stands for what is imported: only the same goes on where this one stopped.
    pub digest: u64,
    /// When its rows become visible; none before every older writer is gone.
    pub commit_ts: Option<Timestamp>,
}

/// A change of the catalog. Names are checked and numbers are given by placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CatalogChange {
    /// CREATE DATABASE.
    CreateDatabase(String),
    /// DROP DATABASE, with its tables.
    DropDatabase(String),
    /// CREATE TABLE: `id` and `version` are given by placement, column and index numbers by the
    /// caller. Creates one region for the records and one for each index.
    CreateTable(Box<Table>),
    /// DROP TABLE.
    DropTable(TableId),
    /// Replaces the description; refused unless the stored version is `table.version - 1`.
    /// A new index gets a region; one that is gone loses its regions.
    AlterTable(Box<Table>),
    /// Begins, goes on with, or ends (none) the import of a table, as a new version of its
    /// description; refused unless the stored version is `version - 1`.
    Import {
        /// Table.
        table: TableId,
        /// Version that this change makes.
        version: SchemaVersion,
        /// The import from now on.
        import: Option<Import>,
    },
    /// CREATE USER or SET PASSWORD; a user that is there keeps what it may do.
    PutUser(User),
    /// SET GLOBAL; none for the variable's default. What a variable may be is the caller's business.
    SetGlobal {
        /// Variable.
        name: String,
        /// Its value from now on.
        value: Option<String>,
    },
    /// DROP USER.
    DropUser {
        /// Name.
        name: String,
        /// Host pattern.
        host: String,
    },
    /// TRUNCATE TABLE: the same description under a new number, so that readers of older snapshots
    /// get an error, and rows go as those of a dropped table do.
    TruncateTable(TableId),
    /// RENAME TABLE, all at once: names may be exchanged.
    RenameTables(Vec<Renamed>),
    /// CREATE VIEW, ALTER VIEW.
    PutView {
        /// The view.
        view: Box<StoredView>,
        /// Whether it may take the place of one of its name.
        replace: bool,
    },
    /// DROP VIEW.
    DropView {
        /// Database.
        database: String,
        /// Name.
        name: String,
    },
    /// GRANT, REVOKE.
    Grant {
        /// To or from whom: names and host patterns.
        accounts: Vec<(String, String)>,
        /// What.
        change: GrantChange,
    },
    /// Of resource groups.
    Groups(GroupChange),
    /// CREATE TABLE with foreign keys; otherwise as [`CatalogChange::CreateTable`].
    CreateReferring {
        /// The table.
        table: Box<Table>,
        /// Its keys.
        keys: Vec<ForeignKey>,
        /// Other tables that they refer to, as far as they are there. Transactions that write to them and know nothing of
        /// the keys cannot commit any more.
        parents: Vec<Found>,
    },
    /// Of foreign keys of tables that are there.
    ForeignKeys(KeyChange),
}

impl CatalogChange {
    /// The cluster's version from which on all nodes know of such changes.
    pub fn since(&self) -> ClusterVersion {
        match self {
            CatalogChange::Groups(_) => version::RESOURCE_GROUPS,
            CatalogChange::CreateReferring { .. } | CatalogChange::ForeignKeys(_) => {
                version::FOREIGN_KEYS
            }
            _ => version::MINIMUM,
        }
    }
}

/// A table's new name, as a new version of its description; refused unless the stored version is
/// `version - 1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// Table.
    pub table: TableId,
    /// Version that this change makes.
    pub version: SchemaVersion,
    /// Database from now on.
    pub database: String,
    /// Name from now on.
    pub name: String,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredView {
    /// Database.
    pub database: String,
    /// Name.
    pub name: String,
    /// Its columns, as they were when it was defined.
    pub columns: Vec<Column>,
    /// The query, with the database of every table in it.
    pub query: String,
    /// Tables that the query reads, and the versions it was defined by.
    pub tables: Vec<(TableId, SchemaVersion)>,
    /// Who has defined it, as `name@host`.
    pub definer: String,
    /// SQL SECURITY INVOKER.
    pub invoker: bool,
}

impl StoredView {
    /// Its columns as those of a table without keys and rows, for whoever lists them.
    pub fn described(&self) -> Table {
        Table {
            id: 0,
            version: 1,
            database: self.database.clone(),
            name: self.name.clone(),
            columns: self.columns.clone(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
            columnar_replicas: 0,
            comment: "VIEW".into(),
            dropped: Vec::new(),
            checks: Vec::new(),
        }
    }
}

impl Catalog {
    /// The database of a name, as it was spelled on creation; case does not matter.
    pub fn database_named(&self, name: &str) -> Option<&str> {
        self.databases.iter().find(|listed| listed.eq_ignore_ascii_case(name)).map(String::as_str)
    }

    /// The table of a name; case does not matter, as in TiDB.
    pub fn table_named(&self, database: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.iter().find(|table| {
            table.database.eq_ignore_ascii_case(database) && table.name.eq_ignore_ascii_case(name)
        })
    }

    /// The table of a number.
    pub fn table(&self, id: TableId) -> Option<&Table> {
        self.tables.iter().find(|table| table.id == id).map(Arc::as_ref)
    }

    /// Whether a table's import was begun anew to become visible at `ts`: a part of its rows may
    /// have been written for an earlier timestamp.
    pub fn imported_anew(&self, table: TableId, ts: Timestamp) -> bool {
        self.created.get(&table) == Some(&ts)
    }

    /// Whether a table was there at `ts`, by its name of now and with columns that older rows have a
    /// value for. Read at an earlier one, a recreated table would show no rows where its name stood
    /// for many, a renamed one another's, and a column of a new type none of its values.
    pub fn existed_at(&self, table: TableId, ts: Timestamp) -> bool {
        self.created.get(&table).is_none_or(|created| *created <= ts)
    }

    /// Whether a table had the columns that it has now at `ts` already, or nobody knows since when.
    /// Readers of an earlier one that shall see columns as they were get no answer by those of now.
    pub fn had_columns_at(&self, table: TableId, ts: Timestamp) -> bool {
        self.created.get(&!table).is_none_or(|changed| *changed <= ts)
    }

    /// Takes note that a table's columns change.
    pub(crate) fn columns_change(&mut self, table: TableId, now: Timestamp) {
        self.created.insert(!table, now);
    }

    /// Fails while an import fills the table: a part of its rows must not be taken for all.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what can be done.
    pub fn check_not_importing(&self, table: TableId) -> Result<()> {
        if !self.importing.contains_key(&table) {
            return Ok(());
        }
        let table = self.table(table);
        let name = table.map(|table| format!("{}.{}", table.database, table.name));
        Err(Error::Invalid(format!(
            "table {} is being filled by `isobar import`: wait for its end, run the same import \
             again if it was interrupted, or drop the table",
            name.unwrap_or_default()
        )))
    }

    /// Whether circles of waiting transactions are looked for.
    pub fn detects_deadlocks(&self) -> bool {
        self.globals.get("innodb_deadlock_detect").is_none_or(|value| value != "OFF")
    }

    /// Whether resource groups have an effect.
    pub fn controls_resources(&self) -> bool {
        self.globals.get("tidb_enable_resource_control").is_none_or(|value| value != "OFF")
    }

    /// The limits and priority of a resource group, while they have an effect.
    pub fn effective_group(&self, name: &str) -> Option<&ResourceGroup> {
        self.resources.named(name).filter(|_| self.controls_resources())
    }

    /// For how long a timestamp is read at that need not be new.
    pub fn low_resolution_interval(&self) -> Duration {
        let set = self.globals.get("tidb_low_resolution_tso_update_interval");
        let millis = set.and_then(|text| text.parse().ok());
        Duration::from_millis(millis.unwrap_or(2_000))
    }

    /// How long a request for timestamps waits for others to go along.
    pub fn timestamp_wait(&self) -> Duration {
        let set = self.globals.get("tidb_tso_client_batch_max_wait_time");
        let millis = set.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        Duration::try_from_secs_f64(millis / 1_000.0).unwrap_or_default()
    }

    /// Whether members of placement that do not lead are asked for timestamps.
    pub fn proxies_timestamps(&self) -> bool {
        self.globals.get("tidb_enable_tso_follower_proxy").is_some_and(|value| value == "ON")
    }

    /// Tables of a database, in order of creation.
    pub fn tables_of<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Table> {
        let tables = self.tables.iter().map(Arc::as_ref);
        tables.filter(move |table| table.database.eq_ignore_ascii_case(database))
    }

    /// The user of a name and host pattern.
    pub fn user(&self, name: &str, host: &str) -> Option<&User> {
        self.users.iter().find(|user| user.is(name, host))
    }

    /// The view of a name; case does not matter.
    pub fn view_named(&self, database: &str, name: &str) -> Option<&StoredView> {
        self.views.iter().find(|view| {
            view.database.eq_ignore_ascii_case(database) && view.name.eq_ignore_ascii_case(name)
        })
    }

    /// Views of a database.
    pub fn views_of<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a StoredView> {
        self.views.iter().filter(move |view| view.database.eq_ignore_ascii_case(database))
    }

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

/// Descriptions that are shared, in the form of those that are not.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};
    use types::Table;

    pub(super) fn serialize<S: Serializer>(
        tables: &[Arc<Table>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(tables.iter().map(Arc::as_ref))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Arc<Table>>, D::Error> {
        Ok(Vec::<Table>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
    }
}

/// Numbers that an index needs at CREATE INDEX time.
pub fn next_index_id(table: &Table) -> IndexId {
    table.indexes.iter().map(|index| index.id).max().unwrap_or(0) + 1
}
