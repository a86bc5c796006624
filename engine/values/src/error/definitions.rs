//! Errors of definitions: of tables, columns, keys, constraints, generated columns and views; and the warnings that
//! definitions give.
//!
//! It says nothing of rows, except of those that an ALTER TABLE has to convert.

super::errors! {
    /// A table without columns.
    no_columns() = 1113 "42000" "A table must have at least 1 column";
    /// DROP COLUMN of the only one.
    last_column() = 1090 "42000" "You can't delete all columns with ALTER TABLE; use DROP TABLE instead";
    /// Two AUTO_INCREMENT columns, or one that no key begins with.
    wrong_auto_increment() = 1075 "42000"
        "Incorrect table definition; there can be only one auto column and it must be defined as a key";
    /// A default that is no value of its column.
    invalid_default(column) = 1067 "42000" "Invalid default value for '{column}'";
    /// The same, of a zero date, which no column keeps here.
    invalid_default_because(column, why) = 1067 "42000" "Invalid default value for '{column}'{why}";
    /// A default of a column whose type has none.
    no_default_possible(column) = 1101 "42000"
        "BLOB, TEXT, GEOMETRY or JSON column '{column}' can't have a default value";
    /// ON UPDATE of a column that is no DATETIME or TIMESTAMP.
    invalid_on_update(column) = 1294 "HY000" "Invalid ON UPDATE clause for '{column}' column";
    /// An attribute that the column's type has not.
    wrong_specifier(column) = 1063 "42000" "Incorrect column specifier for column '{column}'";
    /// FLOAT of more bits than a DOUBLE has.
    wrong_float() = 1063 "42000" "Incorrect column specifier for column (FLOAT)";
    /// BIT(0).
    empty_bit() = 3013 "HY000" "Invalid size for column of type BIT.";
    /// BIT of more than 64 bits.
    wide_bit() = 1439 "42000" "Display width out of range for column (max = 64)";
    /// A length that the column's type has not: another type has.
    column_too_long(most, instead) = 1074 "42000" "Column length too big (max = {most}); use {instead} instead";
    /// More digits of a second's fraction than there are.
    fraction_too_long(digits) = 1426 "42000" "Too-big precision {digits} specified. Maximum is 6.";
    /// DECIMAL of more digits than there are.
    precision_too_big(precision, column, most) = 1426 "42000"
        "Too-big precision {precision} specified for '{column}'. Maximum is {most}.";
    /// DECIMAL of more digits behind the point than there are.
    scale_too_big(scale, column, most) = 1425 "42000"
        "Too big scale {scale} specified for column '{column}'. Maximum is {most}.";
    /// DECIMAL with more digits behind the point than in all.
    scale_above_precision(column) = 1427 "42000"
        "For float(M,D), double(M,D) or decimal(M,D), M must be >= D (column '{column}').";
    /// An ENUM of more labels than there can be.
    too_many_enum_labels(column) = 3504 "HY000" "Too many enumeration values for column {column}.";
    /// A SET of more labels than there can be.
    too_many_set_labels(column) = 1097 "HY000" "Too many strings for column {column} and SET";
    /// A label of more characters than it can have.
    label_too_long(column) = 3505 "HY000" "Too long enumeration/set value for column {column}.";
    /// Two labels that are the same.
    duplicate_label(column, label, kind) = 1291 "HY000" "Column '{column}' has duplicated value '{label}' in {kind}";
    /// A label of a SET with a comma.
    illegal_set_label(label) = 1367 "22007" "Illegal set '{label}' value found during parsing";
    /// A table's comment of more characters than it can have.
    table_comment_too_long(table, most) = 1628 "HY000" "Comment for table '{table}' is too long (max = {most})";
    /// A column's comment of more characters than it can have.
    column_comment_too_long(column, most) = 1629 "HY000" "Comment for field '{column}' is too long (max = {most})";
    /// A column whose type columnar replicas do not hold, in a table that has some.
    not_for_columns(column, table, kind) = 1235 "42000"
        "Column '{column}' of table '{table}' is {kind}: columnar replicas hold DECIMALs of up to 38 digits, so the table can have none (SET COLUMNAR REPLICA 0, or a narrower column)";
    /// More columnar replicas than a table can have.
    too_many_replicas(count, most) = 1210 "HY000" "{count} columnar replicas are more than {most}";
    /// More regions than a table can be split into, or none.
    wrong_region_count(most) = 1210 "HY000" "REGIONS must be between 1 and {most}";

    /// Two primary keys.
    multiple_primary_keys() = 1068 "42000" "Multiple primary key defined";
    /// A primary key that is to be INVISIBLE.
    invisible_primary() = 3522 "HY000" "A primary key index cannot be invisible";
    /// A key of a column that is not there.
    no_key_column(column) = 1072 "42000" "Key column '{column}' doesn't exist in table";
    /// A part of a key of length 0.
    empty_key_part(column) = 1391 "HY000" "Key part '{column}' length cannot be 0";
    /// A key of a BLOB or TEXT without a length.
    key_without_length(column) = 1170 "42000" "BLOB/TEXT column '{column}' used in key specification without a key length";
    /// A key of a JSON column.
    key_of_json(column) = 3152 "42000"
        "JSON column '{column}' supports indexing only via generated columns on a specified JSON path.";
    /// A prefix of a column that has none of that length.
    wrong_prefix() = 1089 "HY000"
        "Incorrect prefix key; the used key part isn't a string, the used length is longer than the key part, or the storage engine doesn't support unique prefix keys";
    /// A key of more bytes than one can have.
    key_too_long(most) = 1071 "42000" "Specified key was too long; max key length is {most} bytes";

    /// A CHECK that names a column that is not there.
    check_without_column(check, column) = CHECK_WITHOUT_COLUMN: 3820 "HY000"
        "Check constraint '{check}' refers to non-existing column '{column}'.";
    /// A CHECK of a column that names another one.
    check_of_other_column(check) = 3813 "HY000" "Column check constraint '{check}' references other column.";
    /// A CHECK that calls what has no fixed value.
    check_function(check, function) = 3814 "HY000"
        "An expression of a check constraint '{check}' contains disallowed function: {function}.";
    /// A CHECK with a subquery.
    check_subquery(check) = 3815 "HY000" "An expression of a check constraint '{check}' contains disallowed function.";
    /// A CHECK with a variable.
    check_variable(check) = 3816 "HY000"
        "An expression of a check constraint '{check}' cannot refer to a user or system variable.";
    /// A CHECK with a row of values.
    check_row_value(check) = 3817 "HY000" "Check constraint '{check}' cannot refer to a row value.";
    /// A CHECK of an AUTO_INCREMENT column.
    check_auto_increment(check) = 3818 "HY000" "Check constraint '{check}' cannot refer to an auto-increment column.";
    /// A CHECK that is no condition.
    check_not_boolean(check) = 3812 "HY000"
        "An expression of non-boolean type specified to a check constraint '{check}'.";
    /// A column that a CHECK names is to be dropped or renamed.
    column_checked(check, column) = 3959 "HY000"
        "Check constraint '{check}' uses column '{column}', hence column cannot be dropped or renamed.";
    /// A generated column that calls what has no fixed value.
    generated_function(column, function) = 3763 "HY000"
        "Expression of generated column '{column}' contains a disallowed function: {function}.";
    /// A generated column with a subquery or a variable.
    generated_subquery(column) = 3102 "HY000" "Expression of generated column '{column}' contains a disallowed function.";
    /// A generated column with a row of values.
    generated_row_value(column) = 3764 "HY000" "Expression of generated column '{column}' cannot refer to a row value.";
    /// A generated column of an AUTO_INCREMENT column.
    generated_auto_increment(column) = 3109 "HY000" "Generated column '{column}' cannot refer to auto-increment column.";
    /// A generated column that is computed from one behind it.
    generated_not_prior() = 3107 "HY000" "Generated column can refer only to generated columns defined prior to it.";
    /// What generated columns are not for.
    not_for_generated(what) = 3106 "HY000" "'{what}' is not supported for generated columns.";
    /// A column that a generated one is computed from is to be dropped or renamed.
    column_generates(column) = 3108 "HY000" "Column '{column}' has a generated column dependency.";

    /// A view that does not fit its tables any more, or reads them without a right to.
    invalid_view(database, view) = 1356 "HY000"
        "View '{database}.{view}' references invalid table(s) or column(s) or function(s) or definer/invoker of view lack rights to use them";
    /// A view that reads itself.
    view_recursion(database, view) = 1462 "HY000" "`{database}`.`{view}` contains view recursion";
    /// A list of names that is longer or shorter than the columns that it names.
    wrong_name_count() = 1353 "HY000"
        "In definition of view, derived table or common table expression, SELECT list and column names list have different column counts";
    /// A view of a variable or parameter.
    view_variable() = 1351 "HY000" "View's SELECT contains a variable or parameter";
    /// WITH CHECK OPTION of a view that takes no writes.
    check_option(view) = 1368 "HY000" "CHECK OPTION on non-updatable view '{view}'";
    /// INSERT or REPLACE into a view.
    not_insertable(target, verb) = 1471 "HY000" "The target table {target} of the {verb} is not insertable-into";
    /// UPDATE or DELETE of a view or of a query in the place of a table.
    not_updatable(target, verb) = 1288 "HY000" "The target table {target} of the {verb} is not updatable";

    /// The warning of an index by hashes, which becomes one by order.
    hash_index() = 3502 "HY000"
        "This storage engine does not support the HASH index algorithm, storage engine default was used instead.";
    /// The warning of a comment on an index.
    index_comment() = 1105 "HY000" "comments on indexes are not kept";
    /// The warning of AUTO_INCREMENT = n without such a column.
    nothing_to_number() = 1105 "HY000" "AUTO_INCREMENT = n: the table has no AUTO_INCREMENT column";
    /// The warning of AUTO_INCREMENT = n below numbers that were given.
    number_given(number, next) = 1105 "HY000"
        "AUTO_INCREMENT = {number}: numbers below {next} may have been given, so it stays there";
    /// The warning of a character set that is a part of the one that is stored.
    stored_as_utf8mb4(charset) = 3719 "HY000" "'{charset}' is stored as utf8mb4";
    /// The warning of an option that says how to store a table.
    option_ignored(option) = 1478 "HY000" "Table storage engine 'InnoDB' does not support the create option '{option}'";
    /// The warning of a table of another storage engine.
    other_engine(table) = 1266 "HY000" "Using storage engine InnoDB for table '{table}'";
    /// The warning of a table that was not filled and could not be dropped.
    may_still_be_there(table, why) = 1105 "HY000" "table {table} may still be there, empty: {why}";
    /// The warning of a table with fewer rows than places to cut it.
    fewer_regions(regions) = 1105 "HY000" "the table has {regions} regions: its rows gave no more places to cut";
}
