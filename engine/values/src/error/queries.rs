//! Errors of statements as they are written: their syntax, calls, groups, windows and operands; and the warnings of it.
//!
//! What fails for some rows only is not here but among the errors of values.

super::errors! {
    /// A text that is no statement.
    syntax(detail) = SYNTAX: 1064 "42000" "You have an error in your SQL syntax: {detail}";
    /// The warning of a hint that is none.
    hint_syntax(near) = 1064 "42000" "Optimizer hint syntax error near '{near} */' at line 1";
    /// A text without a statement.
    empty_query() = 1065 "42000" "Query was empty";
    /// A known statement or clause that is not supported.
    unsupported(what) = UNSUPPORTED: 1235 "42000" "This version of Isobar doesn't yet support '{what}'";
    /// A fault of ours, or an error without a number of its own.
    unknown(message) = 1105 "HY000" "{message}";
    /// More operators than the stack of a parser bears.
    too_many_operators(most, computed, line, column) = 1436 "HY000"
        "Thread stack overrun: the statement has more than {most} operators in a row, or {computed} that compute, near line {line}, column {column}; write IN (…) for many alternatives, or several statements";
    /// A statement of more bytes than a packet can have.
    statement_too_long() = 1153 "08S01" "Got a packet bigger than 'max_allowed_packet' bytes";
    /// Clauses that do not go together.
    wrong_usage(one, other) = 1221 "HY000" "Incorrect usage of {one} and {other}";
    /// A modifier where it has no place.
    wrong_placement(modifier) = 1234 "42000" "Incorrect usage/placement of '{modifier}'";
    /// A number that is infinite.
    illegal_double(text) = 1367 "22007" "Illegal double '{text}' value found during parsing";
    /// A DATE, TIME or DATETIME that is none, where a literal or an operand must be one.
    wrong_time_literal(kind, text) = 1525 "HY000" "Incorrect {kind} value: '{text}'";
    /// A call with more arguments than the function takes, or fewer.
    wrong_argument_count(function) = 1582 "42000" "Incorrect parameter count in the call to native function '{function}'";
    /// The same, of a function that only this database has.
    wrong_argument_count_of(function) = 1582 "42000" "Incorrect parameter count in the call to '{function}'";
    /// Arguments that a function or statement cannot take.
    wrong_arguments(function) = 1210 "HY000" "Incorrect arguments to {function}";
    /// The same, and why.
    wrong_arguments_because(function, why) = 1210 "HY000" "Incorrect arguments to {function}: {why}";

    /// More tables in one FROM than a join can have.
    too_many_tables(most) = 1116 "HY000" "Too many tables; MySQL can only use {most} tables in a join";
    /// `SELECT *` without FROM.
    no_tables_used() = 1096 "HY000" "No tables used";
    /// A row of values, or a subquery, with more columns than its place takes, or fewer.
    wrong_width(columns) = 1241 "21000" "Operand should contain {columns} column(s)";
    /// A subquery with more rows than its place takes.
    too_many_rows() = 1242 "21000" "Subquery returns more than 1 row";
    /// SELECT … INTO with more rows than one.
    into_several_rows() = 1172 "42000" "Result consisted of more than one row";
    /// SELECTs of one UNION, or variables of an INTO, that differ in their number.
    different_column_counts() = 1222 "21000" "The used SELECT statements have a different number of columns";
    /// A row of an INSERT with more values than columns, or fewer.
    wrong_value_count(row) = 1136 "21S01" "Column count doesn't match value count at row {row}";
    /// A table that a statement writes and reads.
    reads_target(table) = 1093 "HY000" "You can't specify target table '{table}' for update in FROM clause";
    /// A value for a column that computes its own.
    value_for_generated(column, table) = 3105 "HY000"
        "The value specified for generated column '{column}' in table '{table}' is not allowed.";

    /// An aggregate where there are no groups.
    wrong_aggregate() = 1111 "HY000" "Invalid use of group function";
    /// A column that is not grouped by, in a query with GROUP BY.
    not_grouped(clause, column) = NOT_GROUPED: 1055 "42000"
        "Expression of {clause} is not in GROUP BY clause and contains {column} which is not functionally dependent on columns in GROUP BY clause; this is incompatible with sql_mode=only_full_group_by";
    /// A column that is not grouped by, in a query that is one group.
    not_aggregated(position, column) = 1140 "42000"
        "In aggregated query without GROUP BY, expression #{position} of SELECT list contains nonaggregated column '{column}'; this is incompatible with sql_mode=only_full_group_by";
    /// GROUPING() of something that is not grouped by.
    not_of_grouping(position) = 3580 "HY000"
        "Argument #{position} of GROUPING function is not in GROUP BY";
    /// GROUP BY of an aggregate.
    group_by_aggregate(name) = 1056 "42000" "Can't group on '{name}'";
    /// DISTINCT in the order of a column that is not selected.
    order_not_selected(column) = 3065 "HY000"
        "Expression of ORDER BY clause is not in SELECT list, references column '{column}' which is not in SELECT list; this is incompatible with DISTINCT";
    /// DISTINCT in the order of something else than what is selected.
    order_not_distinct() = 3065 "HY000"
        "Expression of ORDER BY clause is not in SELECT list; this is incompatible with DISTINCT";
    /// A window function where rows are still being chosen.
    window_function_here(function) = 3593 "HY000" "You cannot use the window function '{function}' in this context.'";
    /// A name of what a window has where rows are still being grouped.
    window_alias_here(alias) = 3594 "HY000"
        "You cannot use the alias '{alias}' of an expression containing a window function in this context.'";
    /// A window that starts from another one and has partitions of its own.
    window_partitions() = 3581 "HY000" "A window which depends on another cannot define partitioning.";
    /// A window that starts from one with a frame.
    window_with_frame(window) = 3582 "HY000"
        "Window '{window}' has a frame definition, so cannot be referenced by another window.";
    /// A window with an order that starts from one with an order.
    window_ordered_twice(window) = 3583 "HY000"
        "Window cannot inherit '{window}' since both contain an ORDER BY clause.";
    /// A frame at a distance from values that have none.
    frame_without_number() = 3587 "HY000"
        "Window '<unnamed window>' with RANGE N PRECEDING/FOLLOWING frame requires exactly one ORDER BY expression, of numeric or temporal type";
    /// A frame at a number's distance from times.
    frame_of_times() = 3588 "HY000"
        "Window '<unnamed window>' with RANGE frame has ORDER BY expression of datetime type. Only INTERVAL bound value allowed.";
    /// A frame at an interval's distance from numbers.
    frame_of_numbers() = 3589 "HY000"
        "Window '<unnamed window>' with RANGE frame has ORDER BY expression of numeric type, INTERVAL bound value not allowed.";

    /// The warning of INSERT DELAYED.
    delayed(statement) = 3005 "HY000"
        "{statement} DELAYED is no longer supported. The statement was converted to {statement}.";
    /// The warning of `@a := …`.
    assignment_within_expression() = 1287 "HY000"
        "Setting user variables within expressions is deprecated and will be removed in a future release. Consider alternatives: 'SET variable=expression, ...', or 'SELECT expression(s) INTO variables(s)'.";
    /// The warning of SELECT … INTO without a row.
    no_data() = 1329 "02000" "No data - zero rows fetched, selected, or processed";
}
