//! Errors of names: what a statement names and nothing has, has already, or has twice.
//!
//! It says nothing of values, and of definitions only whether their names can be used.

super::errors! {
    /// A database that is not there.
    no_database(database) = NO_DATABASE: 1049 "42000" "Unknown database '{database}'";
    /// A name without its database, in a session that uses none.
    no_database_selected() = NO_DATABASE_SELECTED: 1046 "3D000" "No database selected";
    /// CREATE DATABASE of one that is there.
    database_exists(database) = 1007 "HY000" "Can't create database '{database}'; database exists";
    /// DROP DATABASE of one that is not there.
    cannot_drop_database(database) = 1008 "HY000"
        "Can't drop database '{database}'; database doesn't exist";
    /// A table that is not there.
    no_table(database, table) = NO_TABLE: 1146 "42S02" "Table '{database}.{table}' doesn't exist";
    /// A table that placement does not know by its name.
    no_table_named(table) = 1146 "42S02" "Table '{table}' doesn't exist";
    /// CREATE or RENAME to the name of a table or view that is there.
    table_exists(table) = TABLE_EXISTS: 1050 "42S01" "Table '{table}' already exists";
    /// DROP TABLE or DROP VIEW of names that nothing has.
    unknown_tables(tables) = UNKNOWN_TABLES: 1051 "42S02" "Unknown table '{tables}'";
    /// A table that a DELETE of several tables deletes from and does not read.
    not_in_multi_delete(table) = 1109 "42S02" "Unknown table '{table}' in MULTI DELETE";
    /// Two tables of one FROM with one name.
    not_unique_alias(alias) = 1066 "42000" "Not unique table/alias: '{alias}'";
    /// A subquery in FROM without a name.
    derived_without_alias() = DERIVED_WITHOUT_ALIAS: 1248 "42000"
        "Every derived table must have its own alias";
    /// A name that is not what the statement is for: a view where a table is meant, or a table where a view is.
    not_of_kind(database, name, kind) = NOT_OF_KIND: 1347 "HY000" "'{database}.{name}' is not {kind}";
    /// A table in FOR UPDATE OF or FOR SHARE OF that the query does not read.
    unresolved_lock_table(table) = 3568 "HY000" "Unresolved table name '{table}' in locking clause.";

    /// A column that no table of the scope has.
    no_column(column, place) = NO_COLUMN: 1054 "42S22" "Unknown column '{column}' in '{place}'";
    /// A column that several tables of the scope have.
    ambiguous_column(column, place) = AMBIGUOUS_COLUMN: 1052 "23000" "Column '{column}' in {place} is ambiguous";
    /// Two columns of one table, key or view with one name.
    duplicate_column(column) = DUPLICATE_COLUMN: 1060 "42S21" "Duplicate column name '{column}'";
    /// A column that an INSERT names twice.
    column_named_twice(column) = 1110 "42000" "Column '{column}' specified twice";
    /// A name that no column can have.
    wrong_column_name(column) = 1166 "42000" "Incorrect column name '{column}'";
    /// A name of more characters than a name can have.
    name_too_long(name) = 1059 "42000" "Identifier name '{name}' is too long";

    /// A key, or index, that a table has not.
    no_key(key, table) = 1176 "42000" "Key '{key}' doesn't exist in table '{table}'";
    /// DROP of a column or index that a table has not.
    cannot_drop(name) = CANNOT_DROP: 1091 "42000" "Can't DROP '{name}'; check that column/key exists";
    /// An index that another statement dropped while it was being built.
    index_dropped_meanwhile() = 1091 "42000" "the index was dropped meanwhile";
    /// Two indexes of one table with one name.
    duplicate_index_name(index) = 1061 "42000" "Duplicate key name '{index}'";
    /// A name that no index can have.
    wrong_index_name(index) = 1280 "42000" "Incorrect index name '{index}'";
    /// A constraint that a table has not.
    no_constraint(name) = 3940 "HY000" "Constraint '{name}' does not exist.";
    /// A CHECK that a table has not.
    no_check(name) = 3821 "HY000" "Check constraint '{name}' is not found in the table.";
    /// Two CHECKs of one table with one name.
    duplicate_check(name) = 3822 "HY000" "Duplicate check constraint name '{name}'.";

    /// A function that is not there.
    no_function(name) = NO_FUNCTION: 1305 "42000" "FUNCTION {name} does not exist";
    /// A procedure or function that is to be dropped: there are none.
    no_routine(kind, database, name) = 1305 "42000" "{kind} {database}.{name} does not exist";
    /// A trigger that is to be dropped: there are none.
    no_trigger() = 1360 "HY000" "Trigger does not exist";
    /// An event that is to be dropped: there are none.
    no_event(name) = 1539 "HY000" "Unknown event '{name}'";
    /// The note of an event that is to be dropped if there is one.
    no_event_there(name) = 1305 "42000" "Event {name} does not exist";
    /// A savepoint that the transaction has not.
    no_savepoint(name) = 1305 "42000" "SAVEPOINT {name} does not exist";
    /// A window that the SELECT does not define.
    no_window(name) = 3579 "HY000" "Window name '{name}' is not defined.";
    /// A system variable that is not there.
    no_variable(name) = 1193 "HY000" "Unknown system variable '{name}'";
    /// A time zone that is not there.
    no_time_zone(zone) = 1298 "HY000" "Unknown or incorrect time zone: '{zone}'";
    /// A character set that is not there.
    no_charset(charset) = 1115 "42000" "Unknown character set: '{charset}'";
    /// A character set of a column that is not UTF-8.
    charset_not_stored(charset) = 1115 "42000"
        "Unknown character set: '{charset}' (only utf8mb4 is stored)";
    /// A collation of a column that does not compare bytes.
    no_collation(collation) = 1273 "HY000"
        "Unknown collation: '{collation}' (columns compare by utf8mb4_bin; leave COLLATE out or name that)";
    /// A storage engine that is not there.
    no_engine(engine) = 1286 "42000" "Unknown storage engine '{engine}'";
}
