//! Errors of accounts and privileges: who may not come in, or may not do what.
//!
//! None says whether a name or a password was wrong, and none holds a password.

super::errors! {
    /// An unknown user or a wrong password; which of the two stays unsaid.
    access_denied(user, host, password) = 1045 "28000" "Access denied for user '{user}'@'{host}' (using password: {password})";
    /// A method that needs the password itself, on a connection that is not encrypted.
    needs_tls(user, host) = 1045 "28000"
        "Access denied for user '{user}'@'{host}': this account cannot be checked by caching_sha2_password without TLS. Connect with TLS (--ssl-mode=REQUIRED) or let the client use mysql_native_password";
    /// A database that the user has no privilege on.
    database_denied(user, host, database) = DATABASE_DENIED: 1044 "42000"
        "Access denied for user '{user}'@'{host}' to database '{database}'";
    /// A statement on a table that the user has no privilege for.
    command_denied(command, user, host, table) = COMMAND_DENIED: 1142 "42000"
        "{command} command denied to user '{user}'@'{host}' for table '{table}'";
    /// A statement that needs a privilege of the whole server.
    privilege_needed(privileges) = PRIVILEGE_NEEDED: 1227 "42000"
        "Access denied; you need (at least one of) the {privileges} privilege(s) for this operation";
    /// KILL of another user's session.
    not_owner(thread) = 1095 "HY000" "You are not owner of thread {thread}";
    /// A view whose definer is gone.
    no_definer(user, host) = 1449 "HY000" "The user specified as a definer ('{user}'@'{host}') does not exist";
    /// CREATE, ALTER or DROP USER of one that is there, or is not.
    user_operation_failed(verb, user, host) = 1396 "HY000" "Operation {verb} USER failed for '{user}'@'{host}'";
    /// SET PASSWORD for a user that is not there.
    no_user() = 1133 "42000" "Can't find any matching row in the user table";
    /// GRANT to a user that is not there.
    no_user_by_grant() = 1410 "42000" "You are not allowed to create a user with GRANT";
    /// REVOKE ALL from a user that is not there.
    cannot_revoke_all() = 1269 "HY000" "Can't revoke all privileges for one or more of the requested users";
    /// REVOKE of what was not granted.
    no_grant(user, host) = 1141 "42000" "There is no such grant defined for user '{user}' on host '{host}'";
    /// REVOKE of what was not granted on a table.
    no_table_grant(user, host, table) = 1147 "42000"
        "There is no such grant defined for user '{user}' on host '{host}' on table '{table}'";
    /// A privilege that tables do not have.
    wrong_grant() = 1144 "42000"
        "Illegal GRANT/REVOKE command; please consult the manual to see which privileges can be used";
    /// The note of CREATE USER IF NOT EXISTS of one that is there.
    user_exists(user, host) = 3163 "HY000" "Authorization ID '{user}'@'{host}' already exists.";
    /// The note of ALTER or DROP USER IF EXISTS of one that is not there.
    user_does_not_exist(user, host) = 3162 "HY000" "Authorization ID '{user}'@'{host}' does not exist.";
}
