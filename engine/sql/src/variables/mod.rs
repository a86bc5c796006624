//! What a session has set: its system variables, its user variables and its current database.
//!
//! What the text of a system variable means is read here and nowhere else, by a method for each
//! meaning. It asks nobody: what is set for everybody is passed to it.

mod settings;

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

use settings::Settings;

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
    /// What their texts mean.
    settings: Settings,
    /// How often they were read.
    version: u64,
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

    fn shown(&self, variable: &Variable) -> String {
        self.text(variable).to_owned()
    }

    fn text(&self, Variable { name, default, .. }: &Variable) -> &str {
        let shared = || self.shared.as_ref()?.get(name_of_both(name));
        self.set.get(name).or_else(shared).map_or(*default, String::as_str)
    }

    /// Reads what the texts mean, once one of them is another.
    fn changed(&mut self) {
        self.version += 1;
        self.settings = Settings::of(|name| known(name).map_or("", |variable| self.text(variable)));
    }

    /// Whether the session has begun with what is set for everybody.
    pub fn have_begun(&self) -> bool {
        self.shared.is_some()
    }

    /// The variables of a session that begins now.
    pub fn begin(&mut self, globals: Globals) {
        self.shared = Some(globals);
        self.changed();
    }

    /// What is set for everybody.
    pub fn of_everybody(globals: Globals) -> Self {
        let mut variables = Variables::default();
        variables.begin(globals);
        variables
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
        variables.changed();
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
        self.changed();
        Ok(())
    }

    /// Another one whenever a system variable may be another.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What was set since this was last asked.
    pub fn take_changes(&mut self) -> SessionChanges {
        let touched = std::mem::take(&mut self.touched);
        SessionChanges {
            variables: if touched.is_empty() { Vec::new() } else { self.tracked(&touched) },
            tracks_schema: self.settings.tracks_schema,
            tracks_state: self.settings.tracks_state,
            any: std::mem::take(&mut self.any_touched),
        }
    }

    /// Those variables of which the client wants to hear changes, with their values.
    fn tracked(&self, touched: &BTreeSet<&'static str>) -> Vec<(String, String)> {
        let wanted = self.get("session_track_system_variables").unwrap_or_default();
        let is_wanted = |name: &str| {
            wanted.split(',').map(str::trim).any(|one| one == "*" || one.eq_ignore_ascii_case(name))
        };
        let tracked = touched.iter().filter(|name| is_wanted(name));
        tracked.map(|name| ((*name).to_owned(), self.get(name).unwrap_or_default())).collect()
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

    /// Whether every statement outside of a transaction is one of its own.
    pub fn autocommit(&self) -> bool {
        self.settings.autocommit
    }

    /// How sql_mode has statements read.
    pub fn dialect(&self) -> Mysql {
        self.settings.dialect
    }

    /// sql_mode, as SHOW VARIABLES prints it.
    pub fn sql_mode(&self) -> String {
        self.get("sql_mode").unwrap_or_default()
    }

    /// Whether what a statement writes has to fit as it is.
    pub fn is_strict(&self) -> bool {
        self.settings.strict
    }

    /// How transactions begin unless they say so themselves.
    pub fn transaction_mode(&self) -> Mode {
        self.settings.mode
    }

    /// Whether transactions only read unless they say so themselves.
    pub fn reads_only(&self) -> bool {
        self.settings.read_only
    }

    /// Whether UPDATE and DELETE have to name rows by a key.
    pub fn updates_safely(&self) -> bool {
        self.settings.safe_updates
    }

    /// Whether transactions are READ COMMITTED unless they say so themselves.
    pub fn reads_committed(&self) -> bool {
        self.settings.reads_committed
    }

    /// Whether a commit may be answered after its first phase.
    pub fn commits_async(&self) -> bool {
        self.settings.commits_async
    }

    /// Whether a SELECT outside of a transaction reads at a timestamp that was given lately.
    pub fn low_resolution(&self) -> bool {
        self.settings.low_resolution
    }

    /// By how many seconds a SELECT outside of a transaction reads the past; 0 for the present.
    pub fn read_staleness(&self) -> u32 {
        let seconds = self.set.get("tidb_read_staleness").and_then(|text| text.parse::<i32>().ok());
        seconds.map_or(0, i32::unsigned_abs)
    }

    /// Which replicas answer reads from rows, if others than leaders.
    pub fn replica_read(&self) -> Option<ReadFrom> {
        self.settings.replica_read
    }

    /// How many seconds a statement waits for a row.
    pub fn row_wait_seconds(&self) -> u64 {
        self.settings.row_wait_seconds
    }

    /// How many warnings of a statement are kept.
    pub fn most_warnings(&self) -> usize {
        self.settings.most_warnings
    }

    /// Whether notes are kept, too.
    pub fn takes_notes(&self) -> bool {
        self.settings.takes_notes
    }

    /// How many milliseconds a SELECT may take; none for as long as it takes.
    pub fn most_milliseconds(&self) -> Option<u64> {
        Some(self.settings.most_milliseconds).filter(|most| *most > 0)
    }

    /// How many rows a SELECT without LIMIT gives; none for all.
    pub fn most_rows(&self) -> Option<u64> {
        Some(self.settings.most_rows).filter(|most| *most < u64::MAX)
    }

    /// Where warnings of a statement's expressions are to go: none are there yet.
    pub fn expr_warnings(&self) -> ExprWarnings {
        ExprWarnings::new(self.settings.most_warnings, self.settings.no_division_by_zero)
    }

    /// Engines that queries may read: rows, columns.
    pub fn read_engines(&self) -> (bool, bool) {
        self.settings.read_engines
    }

    /// Whether rows do what columns cannot: `isobar_fallback`, or TiDB's variable.
    pub fn falls_back(&self) -> bool {
        self.settings.falls_back
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
