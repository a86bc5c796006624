//! What a session has set: its system variables, its user variables and its current database.
//!
//! What the text of a system variable means is read here and nowhere else, by a method for each
//! meaning. It asks nobody: what is set for everybody is passed to it.

mod accepted;

use std::collections::{BTreeMap, BTreeSet};

use functions::warnings::ExprWarnings;
use syntax::dialect::Mysql;
use syntax::statement::Mode;
use types::Value;
use values::error::{SqlResult, global_variable, no_variable, read_only_variable};

use accepted::{checked, is_switch};

use execution::router;

/// Whether statements are accepted that do nothing here: OFF, ON, or WARN.
pub(crate) const NOOP_FUNCTIONS: &str = "tidb_enable_noop_functions";

/// Variables and their first values. Those marked can be set.
const VARIABLES: &[(&str, &str, bool)] = &[
    ("auto_increment_increment", "1", false),
    ("auto_increment_offset", "1", false),
    ("autocommit", "ON", true),
    ("big_tables", "OFF", true),
    ("character_set_client", "utf8mb4", true),
    ("character_set_connection", "utf8mb4", true),
    ("character_set_database", "utf8mb4", true),
    ("character_set_results", "utf8mb4", true),
    ("character_set_server", "utf8mb4", true),
    ("character_set_system", "utf8mb3", false),
    ("collation_connection", "utf8mb4_bin", true),
    ("collation_database", "utf8mb4_bin", true),
    ("collation_server", "utf8mb4_bin", true),
    ("default_storage_engine", "InnoDB", true),
    ("event_scheduler", "DISABLED", false),
    ("explicit_defaults_for_timestamp", "ON", false),
    ("foreign_key_checks", "ON", true),
    ("group_concat_max_len", "1048576", true),
    ("have_openssl", "YES", false),
    ("have_ssl", "YES", false),
    ("hostname", "isobar", false),
    ("init_connect", "", false),
    ("innodb_deadlock_detect", "ON", false),
    ("innodb_lock_wait_timeout", "50", true),
    ("interactive_timeout", "28800", true),
    ("isobar_fallback", "none", true),
    ("isobar_read_engines", "rows,columns", true),
    ("isobar_snapshot", "", true),
    ("license", "Apache-2.0", false),
    ("local_infile", "ON", false),
    ("log_bin", "OFF", false),
    ("lower_case_table_names", "2", false),
    ("max_allowed_packet", "67108864", false),
    ("max_error_count", "1024", true),
    ("max_execution_time", "0", true),
    ("net_buffer_length", "16384", false),
    ("net_read_timeout", "30", true),
    ("net_write_timeout", "60", true),
    ("optimizer_switch", "", true),
    ("performance_schema", "OFF", false),
    ("port", "4000", false),
    ("protocol_version", "10", false),
    ("query_cache_size", "0", false),
    ("query_cache_type", "OFF", true),
    ("read_only", "OFF", false),
    ("server_id", "1", false),
    ("session_track_gtids", "OFF", true),
    ("session_track_schema", "ON", true),
    ("session_track_state_change", "OFF", true),
    (
        "session_track_system_variables",
        "time_zone,autocommit,character_set_client,character_set_results,character_set_connection",
        true,
    ),
    ("session_track_transaction_info", "OFF", true),
    ("sql_auto_is_null", "OFF", true),
    ("sql_log_bin", "ON", true),
    ("sql_log_off", "OFF", true),
    ("sql_mode", values::sql_mode::DEFAULT, true),
    ("sql_notes", "ON", true),
    ("sql_quote_show_create", "ON", true),
    ("sql_safe_updates", "OFF", true),
    ("sql_select_limit", "18446744073709551615", true),
    ("sql_warnings", "OFF", true),
    ("ssl_cipher", "", false),
    ("system_time_zone", "UTC", false),
    (NOOP_FUNCTIONS, "OFF", true),
    ("tidb_allow_fallback_to_tikv", "", true),
    ("tidb_gc_life_time", "10m0s", false),
    ("tidb_isolation_read_engines", "rows,columns", true),
    ("tidb_snapshot", "", true),
    ("tidb_txn_mode", "pessimistic", true),
    ("time_zone", "SYSTEM", true),
    ("transaction_isolation", "REPEATABLE-READ", true),
    ("transaction_read_only", "OFF", true),
    ("tx_isolation", "REPEATABLE-READ", true),
    ("tx_read_only", "OFF", true),
    ("unique_checks", "ON", true),
    ("version", syntax::dialect::VERSION, false),
    ("version_comment", "Isobar, an HTAP store that speaks MySQL", false),
    ("version_compile_machine", "x86_64", false),
    ("version_compile_os", "Linux", false),
    ("wait_timeout", "28800", true),
];

/// Variables that can be set for all sessions that begin from then on. Others would change what a
/// statement means for clients that never asked for it.
const SHARED: [&str; 7] = [
    "innodb_deadlock_detect",
    "innodb_lock_wait_timeout",
    "isobar_fallback",
    NOOP_FUNCTIONS,
    "tidb_allow_fallback_to_tikv",
    "tidb_txn_mode",
    "transaction_isolation",
];

/// Variables that no session has of its own.
const GLOBAL: [&str; 2] = ["innodb_deadlock_detect", "tidb_gc_life_time"];

/// What was set for everybody.
pub(crate) type Globals = BTreeMap<String, String>;

/// The variables of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    /// The current database; empty for none.
    database: String,
    set: BTreeMap<&'static str, String>,
    /// As of the session's beginning.
    shared: Option<Globals>,
    user: BTreeMap<String, Value>,
    /// System variables that were set since the last report to the client.
    touched: BTreeSet<&'static str>,
    /// Whether any variable was.
    any_touched: bool,
}

/// Changes of its session that a client is to receive, if it tracks them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Variables of session_track_system_variables that were set, with their values.
    pub variables: Vec<(String, String)>,
    /// Whether changes of the current database are tracked (session_track_schema).
    pub tracks_schema: bool,
    /// Whether it is to receive that anything has changed (session_track_state_change).
    pub tracks_state: bool,
    /// Whether any variable was set.
    pub any: bool,
}

fn known(name: &str) -> SqlResult<&'static (&'static str, &'static str, bool)> {
    VARIABLES
        .iter()
        .find(|(known, _, _)| known.eq_ignore_ascii_case(name))
        .ok_or_else(|| no_variable(name))
}

impl Variables {
    /// The text of a system variable, as SHOW VARIABLES prints it.
    pub fn get(&self, name: &str) -> SqlResult<String> {
        let (name, default, _) = known(name)?;
        Ok(self.shown(name, default))
    }

    fn shown(&self, name: &str, default: &str) -> String {
        let shared = || self.shared.as_ref()?.get(name_of_both(name)).cloned();
        self.set.get(name).cloned().or_else(shared).unwrap_or_else(|| default.to_owned())
    }

    /// Whether the session has begun with what is set for everybody.
    pub fn have_begun(&self) -> bool {
        self.shared.is_some()
    }

    /// The variables of a session that begins now.
    pub fn begin(&mut self, globals: Globals) {
        self.shared = Some(globals);
    }

    /// What is set for everybody.
    pub fn of_everybody(globals: Globals) -> Self {
        Variables { shared: Some(globals), ..Variables::default() }
    }

    /// The same with what no session has of its own as it is now.
    pub fn with_globals(&self, globals: &Globals) -> Self {
        let mut variables = self.clone();
        let shared = variables.shared.get_or_insert_default();
        for name in GLOBAL {
            match globals.get(name) {
                Some(value) => _ = shared.insert(name.to_owned(), value.clone()),
                None => _ = shared.remove(name),
            }
        }
        variables
    }

    /// Whether a variable's value is not the session's.
    pub fn is_global(name: &str) -> bool {
        GLOBAL.contains(&name.to_lowercase().as_str())
    }

    /// The name and text under which SET GLOBAL keeps a value; `None` is the default.
    ///
    /// # Errors
    ///
    /// A variable that is unknown or cannot be set for everybody, and a value that it cannot have.
    pub fn global(name: &str, value: Option<Value>) -> SqlResult<(String, Option<String>)> {
        let (name, default, _) = *known(name)?;
        let name = name_of_both(name);
        if !SHARED.contains(&name) {
            return Err(values::error::unsupported(format!(
                "SET GLOBAL {name} (only {} and tidb_gc_life_time are shared by sessions)",
                SHARED.join(", ")
            )));
        }
        let Some(value) = value else { return Ok((name.to_owned(), None)) };
        let text = checked(name, default, values::coerce::text(value))?;
        Ok((name.to_owned(), Some(text)))
    }

    /// The value of `@@name`.
    pub fn value(&self, name: &str) -> SqlResult<Value> {
        let (name, default, _) = known(name)?;
        let text = self.get(name)?;
        Ok(match (is_switch(name, default), text.parse::<i64>()) {
            (true, _) => Value::Int(i64::from(text == "ON")),
            (false, Ok(n)) => Value::Int(n),
            (false, Err(_)) => match text.parse::<u64>() {
                Ok(n) => Value::UInt(n),
                Err(_) => Value::String(text),
            },
        })
    }

    /// Sets a system variable; `None` is its default.
    pub fn set(&mut self, name: &str, value: Option<Value>) -> SqlResult<()> {
        let (name, default, writable) = *known(name)?;
        if Self::is_global(name) {
            return Err(global_variable(name));
        }
        if !writable {
            return Err(read_only_variable(name));
        }
        match value {
            Some(value) => {
                let text = checked(name, default, values::coerce::text(value))?;
                self.set.insert(name, text);
            }
            None => _ = self.set.remove(name),
        }
        self.touched.insert(name);
        self.any_touched = true;
        Ok(())
    }

    /// What was set since this was last asked.
    pub fn take_changes(&mut self) -> Changes {
        let touched = std::mem::take(&mut self.touched);
        let any = std::mem::take(&mut self.any_touched);
        let wanted = self.get("session_track_system_variables").unwrap_or_default();
        let is_wanted = |name: &str| {
            wanted.split(',').map(str::trim).any(|one| one == "*" || one.eq_ignore_ascii_case(name))
        };
        let tracked = touched.into_iter().filter(|name| is_wanted(name));
        let tracked = tracked.map(|name| (name.to_owned(), self.get(name).unwrap_or_default()));
        Changes {
            variables: tracked.collect(),
            tracks_schema: self.is_on("session_track_schema"),
            tracks_state: self.is_on("session_track_state_change"),
            any,
        }
    }

    /// Every system variable, in order.
    pub fn all(&self) -> Vec<(String, String)> {
        VARIABLES
            .iter()
            .map(|(name, default, _)| ((*name).to_owned(), self.shown(name, default)))
            .collect()
    }

    /// `@name`, NULL if it was never set.
    pub fn user(&self, name: &str) -> Value {
        self.user.get(name).cloned().unwrap_or(Value::Null)
    }

    /// Sets `@name`.
    pub fn set_user(&mut self, name: &str, value: Value) {
        self.user.insert(name.to_owned(), value);
        self.any_touched = true;
    }

    /// The current database; empty for none.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Makes a database, spelled as it is, the current one; an empty name is none.
    pub fn set_database(&mut self, name: String) {
        self.database = name;
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_ok_and(|value| value == "ON")
    }

    /// Whether every statement outside of a transaction is one of its own.
    pub fn autocommit(&self) -> bool {
        self.is_on("autocommit")
    }

    /// How sql_mode has statements read.
    pub fn dialect(&self) -> Mysql {
        Mysql::of(&self.sql_mode())
    }

    /// sql_mode, as SHOW VARIABLES prints it.
    pub fn sql_mode(&self) -> String {
        self.get("sql_mode").unwrap_or_default()
    }

    /// Whether sql_mode has a mode.
    pub fn has_mode(&self, mode: &str) -> bool {
        self.sql_mode().split(',').any(|one| one.eq_ignore_ascii_case(mode))
    }

    /// Whether what a statement writes has to fit as it is.
    pub fn is_strict(&self) -> bool {
        ["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"].iter().any(|mode| self.has_mode(mode))
    }

    /// How transactions begin unless they say so themselves.
    pub fn transaction_mode(&self) -> Mode {
        match self.get("tidb_txn_mode") {
            Ok(mode) if mode.eq_ignore_ascii_case("optimistic") => Mode::Optimistic,
            _ => Mode::Pessimistic,
        }
    }

    /// Whether transactions are READ COMMITTED unless they say so themselves.
    pub fn reads_committed(&self) -> bool {
        let level = self.get("transaction_isolation").unwrap_or_default();
        level.eq_ignore_ascii_case("READ-COMMITTED")
    }

    /// How many seconds a statement waits for a row.
    pub fn row_wait_seconds(&self) -> u64 {
        let seconds = self.get("innodb_lock_wait_timeout");
        seconds.ok().and_then(|text| text.parse().ok()).unwrap_or(50)
    }

    /// How many warnings of a statement are kept.
    pub fn most_warnings(&self) -> usize {
        let most = self.get("max_error_count").ok();
        most.and_then(|most| most.parse().ok()).unwrap_or(1024)
    }

    /// Where warnings of a statement's expressions are to go: none are there yet.
    pub fn expr_warnings(&self) -> ExprWarnings {
        ExprWarnings::new(self.most_warnings(), self.has_mode("ERROR_FOR_DIVISION_BY_ZERO"))
    }

    /// Engines that queries may read: rows, columns.
    pub fn read_engines(&self) -> (bool, bool) {
        let ours = self.get("isobar_read_engines").unwrap_or_default();
        let tidbs = self.get("tidb_isolation_read_engines").unwrap_or_default();
        let ((rows, columns), (tikv, tiflash)) = (router::allowed(&ours), router::allowed(&tidbs));
        (rows && tikv, columns && tiflash)
    }

    /// Whether rows do what columns cannot: `isobar_fallback`, or TiDB's variable.
    pub fn falls_back(&self) -> bool {
        let is =
            |name, value: &str| self.get(name).is_ok_and(|text| text.eq_ignore_ascii_case(value));
        is("isobar_fallback", "rows") || is("tidb_allow_fallback_to_tikv", "tiflash")
    }

    /// Session time zone, as a name that [`values::temporal::Zone::parse`] reads.
    pub fn time_zone(&self) -> String {
        match self.get("time_zone") {
            Ok(zone) if !zone.eq_ignore_ascii_case("SYSTEM") => zone,
            _ => "+00:00".into(),
        }
    }
}

/// The one of two names of a variable that it is kept under.
fn name_of_both(name: &str) -> &str {
    if name == "tx_isolation" { "transaction_isolation" } else { name }
}
