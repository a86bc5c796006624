//! System variables: the fixed ones that clients ask for, and those a session can set.

use std::collections::{BTreeMap, BTreeSet};

use types::Value;
use values::error::{SqlError, SqlResult};
use values::temporal::Zone;

/// Whether statements are accepted that do nothing here: OFF, ON, or WARN.
pub const NOOP_FUNCTIONS: &str = "tidb_enable_noop_functions";

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
pub type Globals = BTreeMap<String, String>;

/// The variables of one session.
#[derive(Clone, Debug, Default)]
pub struct Variables {
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
        .ok_or_else(|| SqlError::new(1193, b"HY000", format!("Unknown system variable '{name}'")))
}

/// Whether a variable is one of switches: clients read it as 0 or 1.
fn is_switch(name: &str, default: &str) -> bool {
    name != NOOP_FUNCTIONS && (default == "ON" || default == "OFF")
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
            let text =
                format!("Variable '{name}' is a GLOBAL variable and should be set with SET GLOBAL");
            return Err(SqlError::new(1229, b"HY000", text));
        }
        if !writable {
            let text = format!("Variable '{name}' is a read only variable");
            return Err(SqlError::new(1238, b"HY000", text));
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
        let is_on = |name| self.get(name).is_ok_and(|text| text == "ON");
        let wanted = self.get("session_track_system_variables").unwrap_or_default();
        let is_wanted = |name: &str| {
            wanted.split(',').map(str::trim).any(|one| one == "*" || one.eq_ignore_ascii_case(name))
        };
        let tracked = touched.into_iter().filter(|name| is_wanted(name));
        let tracked = tracked.map(|name| (name.to_owned(), self.get(name).unwrap_or_default()));
        Changes {
            variables: tracked.collect(),
            tracks_schema: is_on("session_track_schema"),
            tracks_state: is_on("session_track_state_change"),
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

    /// Session time zone, as a name that [`Zone::parse`] reads.
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

/// Text that a variable may have, as it is kept.
fn checked(name: &str, default: &str, text: String) -> SqlResult<String> {
    let given = text.clone();
    let wrong = move || {
        let text = format!("Variable '{name}' can't be set to the value of '{given}'");
        SqlError::new(1231, b"42000", text)
    };
    let text = if is_switch(name, default) {
        match text.to_uppercase().as_str() {
            "1" | "ON" | "TRUE" => "ON".to_owned(),
            "0" | "OFF" | "FALSE" => "OFF".to_owned(),
            _ => return Err(wrong()),
        }
    } else {
        match name {
            "time_zone" => {
                Zone::parse(&text).map_err(|_| {
                    SqlError::new(
                        1298,
                        b"HY000",
                        format!("Unknown or incorrect time zone: '{text}'"),
                    )
                })?;
            }
            "innodb_lock_wait_timeout"
                if !text.parse::<u32>().is_ok_and(|seconds| seconds >= 1) =>
            {
                return Err(wrong());
            }
            // Empty is TiDB's word for its oldest default.
            "tidb_txn_mode"
                if !["pessimistic", "optimistic", ""].contains(&text.to_lowercase().as_str()) =>
            {
                return Err(wrong());
            }
            "transaction_isolation" | "tx_isolation"
                if !["REPEATABLE-READ", "READ-COMMITTED"]
                    .contains(&text.to_uppercase().as_str()) =>
            {
                return Err(wrong());
            }
            "isobar_fallback" if ["none", "rows"].contains(&text.to_lowercase().as_str()) => {
                return Ok(text.to_lowercase());
            }
            "tidb_allow_fallback_to_tikv"
                if ["", "tiflash"].contains(&text.to_lowercase().as_str()) =>
            {
                return Ok(text.to_lowercase());
            }
            "isobar_fallback" | "tidb_allow_fallback_to_tikv" => return Err(wrong()),
            NOOP_FUNCTIONS => return noop_functions(&text).map(Into::into).ok_or_else(wrong),
            "sql_mode" => return values::sql_mode::checked(&text),
            "sql_select_limit"
            | "max_execution_time"
            | "group_concat_max_len"
            | "max_error_count" => {
                return number(name, &text);
            }
            name if name.starts_with("character_set_") => return charset(name, text),
            name if name.starts_with("collation_")
                && !["utf8", "binary"].iter().any(|ours| text.to_lowercase().starts_with(ours)) =>
            {
                return Err(wrong());
            }
            _ => {}
        }
        text
    };
    // What these would switch is not built.
    let fixed = matches!(
        (name, text.as_str()),
        ("sql_auto_is_null" | "session_track_gtids" | "session_track_transaction_info", "ON")
            | ("sql_quote_show_create", "OFF")
    );
    if fixed { Err(wrong()) } else { Ok(text) }
}

fn noop_functions(text: &str) -> Option<&'static str> {
    match text.to_uppercase().as_str() {
        "0" | "OFF" | "FALSE" => Some("OFF"),
        "1" | "ON" | "TRUE" => Some("ON"),
        "2" | "WARN" => Some("WARN"),
        _ => None,
    }
}

/// A whole number; what is below the least of a variable, or beyond its most, becomes that, as in
/// MySQL.
fn number(name: &str, text: &str) -> SqlResult<String> {
    let least = if name == "group_concat_max_len" { 4 } else { 0 };
    let most = if name == "max_error_count" { 65_535 } else { u64::MAX };
    match (text.parse::<u64>(), text.parse::<i64>()) {
        (Ok(n), _) => Ok(n.clamp(least, most).to_string()),
        (Err(_), Ok(_)) => Ok(least.to_string()),
        _ => {
            let text = format!("Incorrect argument type to variable '{name}'");
            Err(SqlError::new(1232, b"42000", text))
        }
    }
}

/// Text is UTF-8 on every way: another character set would have to be converted.
fn charset(name: &str, text: String) -> SqlResult<String> {
    const OTHERS: [&str; 38] = [
        "armscii8", "ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852",
        "cp866", "cp932", "dec8", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "geostd8",
        "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5",
        "latin7", "macce", "macroman", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16",
        "utf16le", "utf32",
    ];
    match text.to_lowercase().as_str() {
        // No conversion of results, which are UTF-8.
        "null" if name == "character_set_results" => Ok(text),
        // The three-byte form is a part of the four-byte one.
        "utf8" | "utf8mb3" | "utf8mb4" => Ok("utf8mb4".into()),
        "binary" => Ok("binary".into()),
        other if OTHERS.contains(&other) => {
            let text = format!("Variable '{name}' can't be set to the value of '{text}'");
            Err(SqlError::new(1231, b"42000", text))
        }
        _ => Err(SqlError::new(1115, b"42000", format!("Unknown character set: '{text}'"))),
    }
}
