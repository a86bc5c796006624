//! What every statement asks of its session's system variables, read from their texts once for each change of one.
//!
//! It must follow every change: a variable is set, the session begins, what is set for everybody is seen anew.

use std::sync::LazyLock;

use execution::router;
use storage::ReadFrom;
use syntax::dialect::Mysql;
use syntax::statement::Mode;

/// Seconds that a statement waits for a row where the text is no number.
const ROW_WAIT_SECONDS: u64 = 50;
/// Warnings that are kept where the text is no number.
const MOST_WARNINGS: usize = 1024;

/// The meanings of system variables.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// sql_mode, to who reads statements.
    pub dialect: Mysql,
    /// sql_mode: a value that does not fit is an error.
    pub strict: bool,
    /// sql_mode: so is a division by zero.
    pub no_division_by_zero: bool,
    pub autocommit: bool,
    pub read_only: bool,
    pub safe_updates: bool,
    pub mode: Mode,
    pub reads_committed: bool,
    pub commits_async: bool,
    pub low_resolution: bool,
    pub replica_read: Option<ReadFrom>,
    /// Engines that queries may read: rows, columns.
    pub read_engines: (bool, bool),
    pub falls_back: bool,
    pub row_wait_seconds: u64,
    pub most_warnings: usize,
    pub takes_notes: bool,
    /// Milliseconds; 0 for as long as it takes.
    pub most_milliseconds: u64,
    /// Rows of a SELECT.
    pub most_rows: u64,
    pub tracks_schema: bool,
    pub tracks_state: bool,
}

impl Settings {
    /// What variables with these texts mean; a name without one has the empty text.
    pub fn of<'a>(text: impl Fn(&str) -> &'a str) -> Self {
        let is_on = |name: &str| text(name) == "ON";
        let is = |name: &str, value: &str| text(name).eq_ignore_ascii_case(value);
        let sql_mode = text("sql_mode");
        let has = |mode: &str| sql_mode.split(',').any(|one| one.eq_ignore_ascii_case(mode));
        let ours = router::allowed(text("isobar_read_engines"));
        let tidbs = router::allowed(text("tidb_isolation_read_engines"));
        Settings {
            dialect: Mysql::of(sql_mode),
            strict: has("STRICT_TRANS_TABLES") || has("STRICT_ALL_TABLES"),
            no_division_by_zero: has("ERROR_FOR_DIVISION_BY_ZERO"),
            autocommit: is_on("autocommit"),
            read_only: is_on("transaction_read_only"),
            safe_updates: is_on("sql_safe_updates"),
            mode: match is("tidb_txn_mode", "optimistic") {
                true => Mode::Optimistic,
                false => Mode::Pessimistic,
            },
            low_resolution: is_on("tidb_low_resolution_tso"),
            commits_async: is_on("tidb_enable_async_commit"),
            reads_committed: is("transaction_isolation", "READ-COMMITTED"),
            // A replica needs its leader to answer, so that who prefers leaders is served by them alone.
            replica_read: match text("tidb_replica_read") {
                "follower" => Some(ReadFrom::Followers),
                "leader-and-follower" => Some(ReadFrom::All),
                "closest-replicas" => Some(ReadFrom::Closest),
                _ => None,
            },
            read_engines: (ours.0 && tidbs.0, ours.1 && tidbs.1),
            falls_back: is("isobar_fallback", "rows")
                || is("tidb_allow_fallback_to_tikv", "tiflash"),
            row_wait_seconds: number(text("innodb_lock_wait_timeout")).unwrap_or(ROW_WAIT_SECONDS),
            most_warnings: number(text("max_error_count")).unwrap_or(MOST_WARNINGS),
            takes_notes: is_on("sql_notes"),
            most_milliseconds: number(text("max_execution_time")).unwrap_or(0),
            most_rows: number(text("sql_select_limit")).unwrap_or(u64::MAX),
            tracks_schema: is_on("session_track_schema"),
            tracks_state: is_on("session_track_state_change"),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        static OF_DEFAULTS: LazyLock<Settings> =
            LazyLock::new(|| Settings::of(|name| super::known(name).map_or("", |one| one.default)));
        OF_DEFAULTS.clone()
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}
