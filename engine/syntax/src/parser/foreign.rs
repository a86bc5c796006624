//! Statements of MySQL and TiDB that are not built: they are named, so that who sends one does not
//! look for a mistake in it.
//!
//! Only first words that begin nothing of ours stand here.

/// Statements whose first word says what they are.
const FIRST: [&str; 31] = [
    "ADMIN",
    "BACKUP",
    "BATCH",
    "BINLOG",
    "CACHE",
    "CALL",
    "CANCEL",
    "CHANGE",
    "CHECKSUM",
    "CLONE",
    "FLASHBACK",
    "GET",
    "HANDLER",
    "HELP",
    "IMPORT",
    "INSTALL",
    "PLAN",
    "PURGE",
    "QUERY",
    "RECOVER",
    "REPAIR",
    "RESET",
    "RESIGNAL",
    "RESTART",
    "RESTORE",
    "SHUTDOWN",
    "SIGNAL",
    "STOP",
    "TRACE",
    "UNINSTALL",
    "XA",
];

/// Statements that their second word distinguishes from ours.
const BOTH: [(&str, &str); 9] = [
    ("ALTER", "INSTANCE"),
    ("ALTER", "PLACEMENT"),
    ("CREATE", "BINDING"),
    ("CREATE", "PLACEMENT"),
    ("DROP", "BINDING"),
    ("DROP", "PLACEMENT"),
    ("RENAME", "USER"),
    ("SPLIT", "REGION"),
    ("START", "REPLICA"),
];

/// The name of a statement that is not built, by its first two words in upper case.
pub fn named(first: &str, second: &str) -> Option<String> {
    let both = BOTH.contains(&(first, second));
    // One of them takes a table next: two words say it better.
    let table = matches!(second, "TABLE" | "TABLES" | "PRIVILEGES");
    match FIRST.contains(&first) {
        _ if both => Some(format!("{first} {second}")),
        true if table => Some(format!("{first} {second}")),
        true => Some(first.to_owned()),
        false => None,
    }
}
