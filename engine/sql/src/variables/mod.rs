//! What a session has set: its system variables, its user variables and its current database.
//!
//! What the text of a system variable means is read here and nowhere else, by a method for each
//! meaning. It asks nobody: what is set for everybody is passed to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use execution::reply::SessionChanges;
use functions::warnings::ExprWarnings;
use storage::ReadFrom;
use syntax::dialect::Mysql;
use syntax::statement::Mode;
use types::Value;
use values::accepted::{checked, is_switch};
use values::error::{SqlResult, global_variable, no_variable, read_only_variable};
use values::variables::{Scope, VARIABLES, Variable};

use execution::router;

/// What has a statement of its own.
const LIFE: &str = "tidb_gc_life_time";

/// Variables that SET GLOBAL sets here. Others would change what a statement means for clients that never asked for it.
fn shared() -> impl Iterator<Item = &'static str> {
    let is_shared = |variable: &&Variable| {
        let Variable { name, scope, .. } = variable;
        matches!(scope, Scope::Both | Scope::Everybody)
            && *name != LIFE
            && name_of_both(name) == *name
    };
    VARIABLES.iter().filter(is_shared).map(|variable| variable.name)
}

/// Variables that no session has of its own.
fn everybodys() -> impl Iterator<Item = &'static str> {
    let of_all = VARIABLES.iter().filter(|variable| variable.scope == Scope::Everybody);
    of_all.map(|variable| variable.name)
}

/// What was set for everybody.
pub(crate) type Globals = BTreeMap<String, String>;

/// The variables of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    /// The current database; empty for none.
    database: String,
    /// Of the prepared statement that runs.
    statement_database: Option<String>,
    set: BTreeMap<&'static str, String>,
    /// As of the session's beginning.
    shared: Option<Globals>,
    user: BTreeMap<String, Value>,
    /// System variables that were set since the last report to the client.
    touched: BTreeSet<&'static str>,
    /// Whether any variable was.
    any_touched: bool,
}

fn known(name: &str) -> SqlResult<&'static Variable> {
    static BY_NAME: LazyLock<HashMap<&str, &Variable>> =
        LazyLock::new(|| VARIABLES.iter().map(|variable| (variable.name, variable)).collect());
    let known = BY_NAME.get(name).or_else(|| BY_NAME.get(name.to_ascii_lowercase().as_str()));
    known.copied().ok_or_else(|| no_variable(name))
}

impl Variables {
    /// The text of a system variable, as SHOW VARIABLES prints it.
    pub fn get(&self, name: &str) -> SqlResult<String> {
        known(name).map(|variable| self.shown(variable))
    }

    fn shown(&self, Variable { name, default, .. }: &Variable) -> String {
        let shared = || self.shared.as_ref()?.get(name_of_both(name)).cloned();
        self.set.get(name).cloned().or_else(shared).unwrap_or_else(|| (*default).to_owned())
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
        for name in everybodys() {
            match globals.get(name) {
                Some(value) => _ = shared.insert(name.to_owned(), value.clone()),
                None => _ = shared.remove(name),
            }
        }
        variables
    }

    /// Whether a variable's value is not the session's.
    pub fn is_global(name: &str) -> bool {
        everybodys().any(|of_all| of_all.eq_ignore_ascii_case(name))
    }

    /// The name and text under which SET GLOBAL keeps a value; `None` is the default.
    ///
    /// # Errors
    ///
    /// A variable that is unknown or cannot be set for everybody, and a value that it cannot have.
    pub fn global(name: &str, value: Option<Value>) -> SqlResult<(String, Option<String>)> {
        let Variable { name, default, .. } = known(name)?;
        let name = name_of_both(name);
        if !shared().any(|one| one == name) {
            let shared = shared().collect::<Vec<_>>().join(", ");
            return Err(values::error::unsupported(format!(
                "SET GLOBAL {name} (only {shared} and {LIFE} are shared by sessions)"
            )));
        }
        let Some(value) = value else { return Ok((name.to_owned(), None)) };
        let text = checked(name, default, values::coerce::text(value))?;
        Ok((name.to_owned(), Some(text)))
    }

    /// The value of `@@name`.
    pub fn value(&self, name: &str) -> SqlResult<Value> {
        let Variable { name, default, .. } = known(name)?;
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
        let Variable { name, default, scope, .. } = known(name)?;
        if Self::is_global(name) {
            return Err(global_variable(name));
        }
        if *scope == Scope::Fixed {
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
    pub fn take_changes(&mut self) -> SessionChanges {
        let touched = std::mem::take(&mut self.touched);
        let any = std::mem::take(&mut self.any_touched);
        let wanted = self.get("session_track_system_variables").unwrap_or_default();
        let is_wanted = |name: &str| {
            wanted.split(',').map(str::trim).any(|one| one == "*" || one.eq_ignore_ascii_case(name))
        };
        let tracked = touched.into_iter().filter(|name| is_wanted(name));
        let tracked = tracked.map(|name| (name.to_owned(), self.get(name).unwrap_or_default()));
        SessionChanges {
            variables: tracked.collect(),
            tracks_schema: self.is_on("session_track_schema"),
            tracks_state: self.is_on("session_track_state_change"),
            any,
        }
    }

    /// Every system variable, in order.
    pub fn all(&self) -> Vec<(String, String)> {
        let shown = |variable: &Variable| (variable.name.to_owned(), self.shown(variable));
        VARIABLES.iter().map(shown).collect()
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

    /// The database that names without one mean: the current one, but a prepared statement's own; empty for none.
    pub fn database(&self) -> &str {
        self.statement_database.as_ref().unwrap_or(&self.database)
    }

    /// Has a statement run in the database in which it was prepared; `None` once it has ended.
    pub fn run_in(&mut self, database: Option<String>) {
        self.statement_database = database;
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

    /// By how many seconds a SELECT outside of a transaction reads the past; 0 for the present.
    pub fn read_staleness(&self) -> u32 {
        let seconds = self.set.get("tidb_read_staleness").and_then(|text| text.parse::<i32>().ok());
        seconds.map_or(0, i32::unsigned_abs)
    }

    /// Which replicas answer reads from rows, if others than leaders. A replica needs its leader to answer, so that who
    /// prefers leaders is served by them alone.
    pub fn replica_read(&self) -> Option<ReadFrom> {
        const NAME: &str = "tidb_replica_read";
        let shared = || self.shared.as_ref()?.get(NAME);
        match self.set.get(NAME).or_else(shared)?.as_str() {
            "follower" => Some(ReadFrom::Followers),
            "leader-and-follower" => Some(ReadFrom::All),
            "closest-replicas" => Some(ReadFrom::Closest),
            _ => None,
        }
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
