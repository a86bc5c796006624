//! Errors that the wire itself raises, by MySQL's numbers.
//!
//! Texts follow MySQL where clients know them; none holds a password or a row value.

use values::error::SqlError;

use crate::packet::PacketError;

/// 1040: the connection limit is reached.
pub fn too_many_connections(limit: usize) -> SqlError {
    SqlError::new(
        1040,
        b"08004",
        format!("Too many connections: the limit is {limit}. Close idle ones and connect again"),
    )
}

/// 1043: the client's first packets make no sense.
pub fn bad_handshake(why: &str) -> SqlError {
    SqlError::new(1043, b"08S01", format!("Bad handshake: {why}"))
}

/// 1045: unknown user or wrong password; which of the two stays unsaid.
pub fn access_denied(user: &str, host: &str, with_password: bool) -> SqlError {
    let with = if with_password { "YES" } else { "NO" };
    SqlError::new(
        1045,
        b"28000",
        format!("Access denied for user '{user}'@'{host}' (using password: {with})"),
    )
}

/// 1045 with a way out: the method needs the password itself, and the connection is not encrypted.
pub fn needs_tls(user: &str, host: &str) -> SqlError {
    SqlError::new(
        1045,
        b"28000",
        format!(
            "Access denied for user '{user}'@'{host}': this account cannot be checked by \
             caching_sha2_password without TLS. Connect with TLS (--ssl-mode=REQUIRED) or let the \
             client use mysql_native_password"
        ),
    )
}

/// 1047: the command byte is none that is answered here.
pub fn unknown_command(code: u8) -> SqlError {
    SqlError::new(1047, b"08S01", format!("Unknown command: 0x{code:02x}"))
}

/// 1053: the server is going down.
pub fn shutting_down() -> SqlError {
    SqlError::new(1053, b"08S01", "Server shutdown in progress")
}

/// 1064: several statements where the client allowed one.
pub fn multi_statements_off() -> SqlError {
    SqlError::new(
        1064,
        b"42000",
        "You have an error in your SQL syntax: several statements in one query need \
         CLIENT_MULTI_STATEMENTS, which this client has not asked for",
    )
}

/// 1105: the engine broke its contract with the wire.
pub fn internal(what: impl Into<String>) -> SqlError {
    SqlError::new(1105, b"HY000", what)
}

/// 1210: parameters of a prepared statement that cannot be right.
pub fn bad_arguments(why: &str) -> SqlError {
    SqlError::new(1210, b"HY000", format!("Incorrect arguments to mysqld_stmt_execute: {why}"))
}

/// 1243: no such prepared statement.
pub fn unknown_statement(id: u32, command: &str) -> SqlError {
    SqlError::new(
        1243,
        b"HY000",
        format!("Unknown prepared statement handler ({id}) given to {command}"),
    )
}

/// 1251: a client from before MySQL 4.1.
pub fn client_too_old() -> SqlError {
    SqlError::new(
        1251,
        b"08004",
        "Client does not support authentication protocol requested by server; consider upgrading \
         MySQL client",
    )
}

/// 1300: text that is not UTF-8.
pub fn not_utf8(what: &str) -> SqlError {
    SqlError::new(1300, b"HY000", format!("Invalid utf8mb4 character string in {what}"))
}

/// 1317: killed.
pub fn interrupted() -> SqlError {
    SqlError::new(1317, b"70100", "Query execution was interrupted")
}

/// A cursor more than a connection may keep open.
pub fn too_many_cursors(most: usize) -> SqlError {
    let text = format!("a connection keeps at most {most} cursors open: close one first");
    SqlError::new(1105, b"HY000", text)
}

/// 1421: COM_STMT_FETCH where no cursor is open.
pub fn no_open_cursor(id: u32) -> SqlError {
    SqlError::new(1421, b"HY000", format!("The statement ({id}) has no open cursor."))
}

/// 1461: too many prepared statements on one connection.
pub fn too_many_statements(limit: usize) -> SqlError {
    SqlError::new(
        1461,
        b"42000",
        format!(
            "Can't create more than max_prepared_stmt_count statements (current value: {limit}). \
             Close statements that are no longer needed"
        ),
    )
}

/// 1835: a packet whose content contradicts itself.
pub fn malformed(what: &str) -> SqlError {
    SqlError::new(1835, b"HY000", format!("Malformed communication packet: {what}"))
}

/// 3948: LOAD DATA LOCAL without the client's consent.
pub fn local_infile_off() -> SqlError {
    SqlError::new(
        3948,
        b"42000",
        "Loading local data is disabled; this must be enabled on both the client and server sides",
    )
}

/// 4031: idle too long.
pub fn idle() -> SqlError {
    SqlError::new(
        4031,
        b"HY000",
        "The client was disconnected by the server because of inactivity. Connect again",
    )
}

/// What to answer to a packet that failed; `None` where the peer cannot receive any more.
pub fn of_packet(error: &PacketError) -> Option<SqlError> {
    match error {
        PacketError::TooLarge { limit, .. } => Some(SqlError::new(
            1153,
            b"08S01",
            format!("Got a packet bigger than 'max_allowed_packet' bytes ({limit})"),
        )),
        PacketError::OutOfOrder { .. } => {
            Some(SqlError::new(1156, b"08S01", "Got packets out of order"))
        }
        PacketError::TimedOut(_) => {
            Some(SqlError::new(1159, b"08S01", "Got timeout reading communication packets"))
        }
        PacketError::Closed | PacketError::Truncated | PacketError::Io(_) => None,
    }
}
