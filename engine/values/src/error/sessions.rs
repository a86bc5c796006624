//! Errors of sessions: variables, transactions, locks, prepared statements, files, and time that is up.
//!
//! It says nothing of the connection that a session is reached by.

super::errors! {
    /// A value that a variable cannot have.
    wrong_variable_value(variable, value) = 1231 "42000" "Variable '{variable}' can't be set to the value of '{value}'";
    /// The same, with how to write one.
    wrong_duration(variable, value) = 1231 "42000"
        "Variable '{variable}' can't be set to the value of '{value}': write 90s, 10m or 2h";
    /// A snapshot that is no token of this cluster.
    wrong_snapshot(variable, why) = 1231 "42000" "Variable '{variable}': {why}";
    /// A text for a variable that is a number.
    wrong_variable_type(variable) = 1232 "42000" "Incorrect argument type to variable '{variable}'";
    /// SET of a variable of all sessions.
    global_variable(variable) = 1229 "HY000"
        "Variable '{variable}' is a GLOBAL variable and should be set with SET GLOBAL";
    /// SET of a variable that only says something.
    read_only_variable(variable) = 1238 "HY000" "Variable '{variable}' is a read only variable";
    /// A variable that is set for a whole transaction.
    variable_within_transaction(variable) = 1568 "25001" "Variable '{variable}' cannot be set within a transaction";
    /// SET TRANSACTION within one.
    transaction_in_progress() = 1568 "25001"
        "Transaction characteristics can't be changed while a transaction is in progress";
    /// The warning of READ UNCOMMITTED.
    stronger_isolation() = 1105 "HY000" "transactions run at READ COMMITTED, which is stronger";

    /// A write in a READ ONLY transaction.
    read_only_transaction() = 1792 "25006" "Cannot execute statement in a READ ONLY transaction.";
    /// A write while a session reads the past.
    write_in_the_past() = 1792 "25006"
        "Cannot execute statement in a READ ONLY transaction: SET isobar_snapshot = '' first";
    /// A locking read while a session reads the past.
    lock_in_the_past() = 1792 "25006"
        "Cannot lock rows at a snapshot of the past: SET isobar_snapshot = '' first";
    /// A locking read as of a time of the past.
    lock_as_of() = 1792 "25006" "Cannot lock rows as of a time of the past: read them without AS OF TIMESTAMP and its kin";
    /// AS OF TIMESTAMP that names no time, or stands where none can be named.
    invalid_as_of(why) = 8135 "HY000" "invalid as of timestamp: {why}";
    /// UPDATE or DELETE without a key while the session is to be safe from that.
    safe_updates() = 1175 "HY000"
        "You are using safe update mode and you tried to update a table without a WHERE that uses a KEY column.";
    /// A transaction that gives way to another one, and is rolled back.
    deadlock(why) = DEADLOCK: 1213 "40001" "Deadlock found when trying to get lock; try restarting transaction: {why}";
    /// Rows that changed whenever they were to be locked.
    rows_kept_changing(table, times) = 1213 "40001"
        "Deadlock found when trying to get lock; try restarting transaction: rows of '{table}' changed {times} times before they were locked";
    /// A lock that was not had in time.
    lock_wait_timeout(why) = 1205 "HY000" "Lock wait timeout exceeded; try restarting transaction: {why}";
    /// A lock that was not had at once, with NOWAIT.
    lock_not_at_once() = 3572 "HY000"
        "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set.";
    /// GET_LOCK that would wait for itself.
    advisory_deadlock() = 3058 "HY000"
        "Deadlock found when trying to get user-level lock; try rolling back transaction/releasing locks and restarting lock acquisition.";
    /// A name that no lock of GET_LOCK can have.
    wrong_lock_name(name) = 3057 "42000" "Incorrect user-level lock name '{name}'.";
    /// A name of such a lock with more characters than it can have.
    lock_name_too_long(name, most) = 4163 "HY000" "User-level lock name '{name}' should not exceed {most} characters.";

    /// A prepared statement that is not there.
    no_prepared(statement, command) = 1243 "HY000" "Unknown prepared statement handler ({statement}) given to {command}";
    /// A statement that cannot be prepared.
    not_preparable() = 1295 "HY000" "This command is not supported in the prepared statement protocol yet";
    /// More parameters than a prepared statement can have.
    too_many_parameters() = 1390 "HY000" "Prepared statement contains too many placeholders";
    /// More statements of PREPARE than a session can keep.
    too_many_prepared(most) = 1461 "42000"
        "Can't create more than max_prepared_stmt_count statements (current value: {most})";
    /// More prepared statements than a connection can keep.
    too_many_statements(most) = 1461 "42000"
        "Can't create more than max_prepared_stmt_count statements (current value: {most}). Close statements that are no longer needed";
    /// COM_STMT_FETCH where no cursor is open.
    no_open_cursor(statement) = 1421 "HY000" "The statement ({statement}) has no open cursor.";
    /// A cursor more than a connection can keep open.
    too_many_cursors(most) = 1105 "HY000" "a connection keeps at most {most} cursors open: close one first";

    /// A file that no statement asked for.
    no_file_wanted() = 1148 "42000" "no statement asked for a file";
    /// LOAD DATA LOCAL without the client's consent.
    local_infile_off() = 3948 "42000"
        "Loading local data is disabled; this must be enabled on both the client and server sides";
    /// A file of LOAD DATA that is too large for one statement.
    file_too_large(most) = 1105 "HY000" "the file is larger than {most} bytes: load it in parts";
    /// The warning of a file that was loaded by several transactions.
    several_transactions(transactions) = 1105 "HY000"
        "the file was larger than one transaction: loaded by {transactions} transactions";

    /// A statement that was killed, or whose client left.
    interrupted() = INTERRUPTED: 1317 "70100" "Query execution was interrupted";
    /// A SELECT that took longer than it may.
    too_slow() = 3024 "HY000"
        "Query execution was interrupted, maximum statement execution time exceeded";
    /// KILL of a session that is not there.
    no_thread(id) = 1094 "HY000" "Unknown thread id: {id}";
}
