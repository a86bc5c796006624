//! Errors of the cluster: nodes, regions, snapshots and the two stores. Many have numbers of our own, from 8000 on,
//! which TiDB has given to the same faults where it knows them.
//!
//! It says nothing of what a statement asks for, only of why it is not answered now.

super::errors! {
    /// A table that is not what the statement takes it for, as a sentence about it says.
    table_changed(database, table, why) = TABLE_CHANGED: 1412 "HY000"
        "Table definition has changed, please retry transaction: table '{database}.{table}' {why}";
    /// A table, its name, or the type of a column is younger than the snapshot that is read.
    younger_table(database, table) = 1412 "HY000"
        "Table definition has changed, please retry transaction: table '{database}.{table}' was created or renamed after the snapshot that is read, or a column's type was changed";
    /// A table whose columns changed since the time that AS OF TIMESTAMP or its kin names.
    columns_of_another_time(database, table) = 1412 "HY000"
        "Table definition has changed, please retry transaction: columns of table '{database}.{table}' were changed after the time that is read, and rows are not shown by columns of the past: read a later time";
    /// Another ALTER TABLE was at the same table's columns.
    columns_changed(database, table) = 1412 "HY000"
        "Table definition has changed, please retry transaction: columns of table '{database}.{table}' were changed by another statement meanwhile";
    /// A table that was altered between a query's plan and its run on columns.
    changed_since_planned(database, table) = 1412 "HY000"
        "Table definition has changed, please retry transaction: {database}.{table} is not as it was when the query was planned: plan it again";
    /// The storage below failed.
    storage_failed(why) = 1030 "HY000" "Got error from storage: {why}";
    /// Stored bytes contradict their checksum.
    corrupted(why) = 1712 "HY000" "Data is corrupted: {why}";
    /// The engines that the session or a hint allows cannot answer.
    no_engine_answers(why) = 1815 "HY000" "{why}";
    /// The warning of a query that columns failed to answer and rows did.
    answered_from_rows(why) = 1815 "HY000" "columns failed, answered from rows: {why}";

    /// A query that needs more memory than it may have.
    out_of_memory() = OUT_OF_MEMORY: 8175 "HY000" "Out of memory quota: the query needs more memory than it may have";
    /// CREATE RESOURCE GROUP of one that is there.
    resource_group_exists(name) = 8248 "HY000" "Resource group '{name}' already exists";
    /// A resource group that is not there; a warning where a hint names it.
    no_resource_group(name) = 8249 "HY000" "Unknown resource group '{name}'";
    /// A statement about resource groups where they have no effect.
    resource_control_disabled() = 8250 "HY000"
        "Resource control feature is disabled. Run `SET GLOBAL tidb_enable_resource_control='on'` to enable the feature";
    /// A statement that waited for request units of its resource group for as long as it may.
    resource_group_throttled() = 8252 "HY000" "Exceeded resource group quota limitation";
    /// A statement that its resource group's QUERY_LIMIT ended.
    runaway_killed() = 8253 "HY000" "Query execution was interrupted, identified as runaway query";
    /// A statement that is watched, and ended before it has begun.
    runaway_watched() = 8254 "HY000" "Quarantined and interrupted because of being in runaway watch list";
    /// A kind of background work that there is not.
    unknown_background_task(name) = 8255 "HY000" "Unknown background task name '{name}'";
    /// ADMIN CHECK TABLE found an index and rows that differ.
    inconsistent(database, table, fault) = 8223 "HY000" "data inconsistency in table {database}.{table}: {fault}";
    /// A commit, or a change of the catalog, that may have taken effect or not. A number that no client library and no
    /// framework knows as one after which to try again, and a state outside of the classes that they retry or reconnect
    /// by: 40 (rolled back, also 40003) and 08 (connection).
    outcome_unknown(why) = OUTCOME_UNKNOWN: 8501 "HY000" "Outcome unknown: {why}";
    /// A node that did not answer in time.
    server_timeout(why) = 9002 "HY000" "Server timeout: {why}";
    /// A region without a leader that can be reached.
    region_unavailable(why) = UNAVAILABLE: 9005 "HY000" "Region is unavailable: {why}";
    /// A columnar node that cannot read a table's regions now.
    regions_unavailable(why) = 9005 "HY000" "{why}";
    /// A snapshot whose versions are collected.
    snapshot_too_old(why) = SNAPSHOT_TOO_OLD: 9006 "HY000" "Snapshot is too old: {why}";
    /// A time to read at that has not come yet.
    future_read() = 9006 "HY000" "cannot set read timestamp to a future time";
    /// A lease that has ended.
    lease_lost(why) = 9006 "HY000" "{why}";
    /// Columnar nodes that did not answer in time.
    columns_timeout(why) = COLUMNS_TIMEOUT: 9012 "HY000" "{why}";
    /// Columnar nodes that cannot be reached, or hold no complete replica.
    columns_unavailable(why) = COLUMNS_UNAVAILABLE: 9013 "HY000" "{why}";
}
