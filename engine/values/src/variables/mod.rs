//! Every system variable, with what it is at first and what it does.
//!
//! The page `docs/reference/variables.md` is made of it: what is no variable here is none for clients. It knows no
//! session.

#[cfg(test)]
mod page;

use crate::sql_mode;

/// What clients take for the version of MySQL.
pub const VERSION: &str = "8.0.11-Isobar-0.1.0";

/// Whether statements are accepted that do nothing here: OFF, ON, or WARN.
pub const NOOP_FUNCTIONS: &str = "tidb_enable_noop_functions";

/// Who may set a variable, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nobody.
    Fixed,
    /// A session for itself.
    Session,
    /// A session for itself, or for all that begin from then on.
    Both,
    /// It is the same for all sessions, always.
    Everybody,
}

/// A system variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// What it is called.
    pub name: &'static str,
    /// What it is unless somebody sets it.
    pub default: &'static str,
    /// For whom it is set.
    pub scope: Scope,
    /// What it does, for the page of variables.
    pub effect: &'static str,
}

const IDLE: &str = "Accepted for clients that set it; changes nothing.";
const FIXED: &str = "Shown to clients that ask.";

const fn fixed(name: &'static str, default: &'static str, effect: &'static str) -> Variable {
    Variable { name, default, scope: Scope::Fixed, effect }
}

const fn sessions(name: &'static str, default: &'static str, effect: &'static str) -> Variable {
    Variable { name, default, scope: Scope::Session, effect }
}

const fn both(name: &'static str, default: &'static str, effect: &'static str) -> Variable {
    Variable { name, default, scope: Scope::Both, effect }
}

const fn everybodys(name: &'static str, default: &'static str, effect: &'static str) -> Variable {
    Variable { name, default, scope: Scope::Everybody, effect }
}

/// All of them, in order. Of those that are not set for everybody some would change what a statement means for clients that
/// never asked for it.
pub const VARIABLES: &[Variable] = &[
    fixed(
        "auto_increment_increment",
        "1",
        "The step between numbers of AUTO_INCREMENT; sessions take them in blocks, so gaps are usual.",
    ),
    fixed("auto_increment_offset", "1", "The first number of AUTO_INCREMENT."),
    sessions(
        "autocommit",
        "ON",
        "Whether each statement outside of BEGIN is a transaction of its own.",
    ),
    sessions("big_tables", "OFF", IDLE),
    sessions(
        "character_set_client",
        "utf8mb4",
        "What the client sends. UTF-8 and binary alone: others are refused.",
    ),
    sessions(
        "character_set_connection",
        "utf8mb4",
        "What literals are in. UTF-8 and binary alone.",
    ),
    sessions("character_set_database", "utf8mb4", "UTF-8 and binary alone."),
    sessions(
        "character_set_results",
        "utf8mb4",
        "What the client gets. UTF-8 and binary alone; NULL asks for no conversion.",
    ),
    sessions("character_set_server", "utf8mb4", "UTF-8 and binary alone."),
    fixed("character_set_system", "utf8mb3", FIXED),
    sessions(
        "collation_connection",
        "utf8mb4_bin",
        "Kept for clients. Texts compare by their bytes, whatever it says; names beginning with utf8 or binary alone.",
    ),
    sessions("collation_database", "utf8mb4_bin", "The same."),
    sessions("collation_server", "utf8mb4_bin", "The same."),
    sessions("default_storage_engine", "InnoDB", IDLE),
    fixed("event_scheduler", "DISABLED", "There are no events."),
    fixed("explicit_defaults_for_timestamp", "ON", FIXED),
    sessions(
        "foreign_key_checks",
        "ON",
        "Whether foreign keys are enforced for statements of the session, and looked for when one is added.",
    ),
    sessions(
        "group_concat_max_len",
        "1048576",
        "The most bytes of a GROUP_CONCAT; what is longer is cut, with a warning. At least 4.",
    ),
    fixed("have_openssl", "YES", FIXED),
    fixed("have_ssl", "YES", "Whether the server can speak TLS."),
    fixed("hostname", "isobar", FIXED),
    fixed("init_connect", "", FIXED),
    everybodys(
        "innodb_deadlock_detect",
        "ON",
        "Whether a statement that closes a circle of waiting ones fails at once (1213). Without, it waits for innodb_lock_wait_timeout.",
    ),
    both(
        "innodb_lock_wait_timeout",
        "50",
        "Seconds that a statement waits for a locked row before 1205. At least 1.",
    ),
    sessions("interactive_timeout", "28800", IDLE),
    both(
        "isobar_fallback",
        "none",
        "`rows`: what columns cannot answer is read from rows, with a warning. `none`: it is an error.",
    ),
    sessions(
        "isobar_read_engines",
        "rows,columns",
        "Engines that queries may read: `rows`, `columns`, or both. TiDB's `tikv` and `tiflash` mean the same.",
    ),
    sessions(
        "isobar_snapshot",
        "",
        "Reads see the state of this snapshot: a token, or nothing for the present. Writes are refused meanwhile.",
    ),
    fixed("license", "Apache-2.0", FIXED),
    fixed("local_infile", "ON", "LOAD DATA LOCAL is answered."),
    fixed("log_bin", "OFF", "There is no binlog."),
    fixed(
        "lower_case_table_names",
        "2",
        "Names of tables and databases compare without case, and are shown as they were written.",
    ),
    fixed("max_allowed_packet", "67108864", "The most bytes of a packet, in either direction."),
    sessions("max_error_count", "1024", "Warnings of a statement that are kept."),
    sessions(
        "max_execution_time",
        "0",
        "Milliseconds after which a SELECT ends with 3024; 0 for no limit.",
    ),
    fixed("net_buffer_length", "16384", FIXED),
    sessions("net_read_timeout", "30", IDLE),
    sessions("net_write_timeout", "60", IDLE),
    sessions("optimizer_switch", "", IDLE),
    fixed("performance_schema", "OFF", "There is no performance_schema."),
    fixed("port", "4000", FIXED),
    fixed("protocol_version", "10", FIXED),
    fixed("query_cache_size", "0", FIXED),
    sessions("query_cache_type", "OFF", IDLE),
    fixed("read_only", "OFF", FIXED),
    fixed("server_id", "1", FIXED),
    sessions("session_track_gtids", "OFF", "There are no GTIDs: OFF alone."),
    sessions(
        "session_track_schema",
        "ON",
        "Whether changes of the current database are sent to clients that track them.",
    ),
    sessions("session_track_state_change", "OFF", "Whether any change of the session is."),
    sessions(
        "session_track_system_variables",
        "time_zone,autocommit,character_set_client,character_set_results,character_set_connection",
        "Variables whose changes are; `*` for all.",
    ),
    sessions("session_track_transaction_info", "OFF", "OFF alone."),
    sessions("sql_auto_is_null", "OFF", "OFF alone."),
    sessions("sql_log_bin", "ON", "There is no binlog to leave statements out of."),
    sessions("sql_log_off", "OFF", IDLE),
    sessions(
        "sql_mode",
        sql_mode::DEFAULT,
        "How statements are read and what may be written: [queries](queries.md).",
    ),
    sessions("sql_notes", "ON", "Whether notes are kept among the warnings."),
    sessions("sql_quote_show_create", "ON", "ON alone."),
    sessions(
        "sql_safe_updates",
        "OFF",
        "UPDATE and DELETE without a key or a LIMIT are refused (1175).",
    ),
    sessions(
        "sql_select_limit",
        "18446744073709551615",
        "The most rows of a SELECT that has no LIMIT of its own.",
    ),
    sessions("sql_warnings", "OFF", IDLE),
    fixed("ssl_cipher", "", FIXED),
    fixed("system_time_zone", "UTC", "What the time zone SYSTEM is."),
    both("tidb_allow_fallback_to_tikv", "", "`tiflash` is what `isobar_fallback = 'rows'` is."),
    both(
        "tidb_enable_async_commit",
        "ON",
        "Whether COMMIT of a transaction that writes to several regions is answered once all of its rows are locked.",
    ),
    both(
        NOOP_FUNCTIONS,
        "OFF",
        "Whether statements that would do nothing here are accepted: OFF, ON, or WARN for a warning.",
    ),
    everybodys(
        "tidb_enable_resource_control",
        "ON",
        "Whether resource groups have an effect: without, nobody pays for anything or waits for units, all priorities are alike, and groups are neither made nor changed (8250).",
    ),
    everybodys(
        "tidb_enable_tso_follower_proxy",
        "OFF",
        "Whether SQL nodes ask members of placement that do not lead for timestamps, who ask the leader for many at once. [Timestamps](transactions.md#timestamps).",
    ),
    everybodys(
        "tidb_gc_life_time",
        "10m0s",
        "How long versions of rows are kept for readers of the past. Set for everybody alone.",
    ),
    sessions(
        "tidb_isolation_read_engines",
        "rows,columns",
        "As isobar_read_engines: a query reads what both allow.",
    ),
    sessions(
        "tidb_low_resolution_tso",
        "OFF",
        "Whether a `SELECT` outside of a transaction reads at a timestamp that the node was given lately, without asking for one. [Timestamps](transactions.md#timestamps).",
    ),
    everybodys(
        "tidb_low_resolution_tso_update_interval",
        "2000",
        "Milliseconds for which such a timestamp is used: 10 to 60000.",
    ),
    sessions(
        "tidb_read_staleness",
        "0",
        "Seconds, as a negative number: a `SELECT` outside of a transaction reads what was there so long ago; 0 for the present. [Reads of the past](transactions.md#reads-of-the-past).",
    ),
    both(
        "tidb_replica_read",
        "leader",
        "Who answers a `SELECT` outside of a transaction, or as of a time, from rows: `leader`, `follower`, `leader-and-follower`, `closest-replicas` or `prefer-leader`. [Which replica answers](transactions.md#which-replica-answers).",
    ),
    sessions("tidb_snapshot", "", "The other name of isobar_snapshot."),
    everybodys(
        "tidb_tso_client_batch_max_wait_time",
        "0",
        "Milliseconds for which a request for timestamps waits for others to go along, 0 to 10. [Timestamps](transactions.md#timestamps).",
    ),
    both(
        "tidb_txn_mode",
        "pessimistic",
        "`pessimistic`: statements lock the rows that they change. `optimistic`: COMMIT finds conflicts.",
    ),
    sessions(
        "time_zone",
        "SYSTEM",
        "In which TIMESTAMP and NOW() are shown: an offset or a name of the IANA database.",
    ),
    both("transaction_isolation", "REPEATABLE-READ", "REPEATABLE-READ or READ-COMMITTED."),
    sessions("transaction_read_only", "OFF", "Whether transactions may not write."),
    both("tx_isolation", "REPEATABLE-READ", "The other name of transaction_isolation."),
    sessions("tx_read_only", "OFF", "The other name of transaction_read_only."),
    sessions("unique_checks", "ON", "Accepted for dumps; uniqueness is always checked."),
    fixed("version", VERSION, "What clients take for the version of MySQL."),
    fixed("version_comment", "Isobar, an HTAP store that speaks MySQL", FIXED),
    fixed("version_compile_machine", "x86_64", FIXED),
    fixed("version_compile_os", "Linux", FIXED),
    sessions("wait_timeout", "28800", IDLE),
];
