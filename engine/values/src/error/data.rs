//! Errors of values: what does not fit its column, has left its type, or is no value of its kind; and, of the same
//! numbers, the warnings of statements that go on with what comes nearest.
//!
//! Only what MySQL itself shows of a value stands in a message: the value that is wrong, the key of a duplicate.

super::errors! {
    /// NULL for a column that takes none.
    not_null(column) = NOT_NULL: 1048 "23000" "Column '{column}' cannot be null";
    /// NULL in a column that is to take none any more.
    null_stored() = 1138 "22004" "Invalid use of NULL value";
    /// A column without a value and without a default.
    no_default(column) = 1364 "HY000" "Field '{column}' doesn't have a default value";
    /// An imported row without the number of its AUTO_INCREMENT column.
    no_number_given(row) = 1364 "HY000" "No AUTO_INCREMENT number is given at row {row}";
    /// No number is left for an AUTO_INCREMENT column.
    no_number_left() = 1467 "HY000" "Failed to read auto-increment value from storage engine";
    /// A value that is none of its column's type, such as a text in a column of numbers.
    incorrect_value(kind, value, besides, column, row) = INCORRECT_VALUE: 1366 "HY000"
        "Incorrect {kind} value: '{value}'{besides} for column '{column}' at row {row}";
    /// A value of a column of times that is no time.
    incorrect_time(kind, value, besides, column, row) = INCORRECT_TIME: 1292 "22007"
        "Incorrect {kind} value: '{value}'{besides} for column '{column}' at row {row}";
    /// Rows that need a value for a new column whose implicit default cannot be kept.
    no_zero(column) = 1292 "22007"
        "Incorrect value '0' for column '{column}': rows that are there need one, so give it a DEFAULT or let it be NULL";
    /// A number beyond its column's range.
    out_of_column_range(column, row) = OUT_OF_COLUMN_RANGE: 1264 "22003" "Out of range value for column '{column}' at row {row}";
    /// A text, bytes or bits longer than their column.
    data_too_long(column, row) = DATA_TOO_LONG: 1406 "22001" "Data too long for column '{column}' at row {row}";
    /// A value that is no label of its column, or that was cut to fit.
    data_truncated(column, row) = DATA_TRUNCATED: 1265 "01000" "Data truncated for column '{column}' at row {row}";
    /// A line of LOAD DATA with fewer fields than columns.
    too_few_fields(row) = 1261 "01000" "Row {row} doesn't contain data for all columns";
    /// A line of LOAD DATA with more fields than columns.
    too_many_fields(row) = 1262 "01000" "Row {row} was truncated; it contained more data than there were input columns";
    /// A key that another row has.
    duplicate_entry(entry, key) = DUPLICATE_ENTRY: 1062 "23000" "Duplicate entry '{entry}' for key '{key}'";
    /// A key that another row has, where its values are not known.
    duplicate_key(key) = 1062 "23000" "Duplicate entry for key '{key}'";
    /// A row that a CHECK does not allow.
    check_violated(check) = 3819 "HY000" "Check constraint '{check}' is violated.";

    /// A number that left its type.
    out_of_range(kind, expression) = 1690 "22003" "{kind} value is out of range in '{expression}'";
    /// A division by zero.
    division_by_zero() = 1365 "22012" "Division by 0";
    /// A value that was taken for less than it says.
    truncated_value(kind, value) = 1292 "22007" "Truncated incorrect {kind} value: '{value}'";
    /// A value that is no date.
    no_datetime(value) = 1292 "22007" "Incorrect datetime value: '{value}'";
    /// A DATETIME or TIME out of its range.
    time_overflow(kind) = 1441 "22008" "Datetime function: {kind} field overflow";
    /// A logarithm of what has none.
    no_logarithm() = 3020 "2201E" "Invalid argument for logarithm";
    /// A value that a function cannot read as what it takes.
    incorrect_for_function(kind, value, function) = 1411 "HY000" "Incorrect {kind} value: '{value}' for function {function}";
    /// A text longer than a function may make.
    text_too_long(function, most) = 1301 "HY000" "Result of {function}() was larger than max_allowed_packet ({most}) - truncated";
    /// A regular expression that is none.
    wrong_pattern(why) = 1139 "42000" "Got error '{why}' from regexp";

    /// Bytes that are no UTF-8, where they are known.
    wrong_utf8(bytes) = 1300 "HY000" "Invalid utf8mb4 character string: '{bytes}'";
    /// Bytes of an introducer's character set that are not of it.
    wrong_characters(charset, text) = 1300 "HY000" "Invalid {charset} character string: '{text}'";
    /// A statement with bytes that are no UTF-8.
    wrong_utf8_at(position) = 1300 "HY000" "Invalid utf8mb4 character string at byte {position}";
    /// A name or text from a client that is no UTF-8.
    wrong_utf8_in(what) = 1300 "HY000" "Invalid utf8mb4 character string in {what}";
    /// A field of LOAD DATA that is no UTF-8.
    wrong_utf8_field(field, line) = 1300 "HY000" "Invalid utf8mb4 character string in field {field} at line {line}";
}
