//! Errors of foreign keys: of rows that break one, and of definitions that cannot be.
//!
//! A row's values are never named, as MySQL does not.

super::errors! {
    /// A row of a foreign key's table whose parent is not there.
    no_parent_row(table, key) = NO_PARENT_ROW: 1452 "23000"
        "Cannot add or update a child row: a foreign key constraint fails ({table}, {key})";
    /// A row that others refer to is to go, or to get another key.
    row_referred_to(table, key) = ROW_REFERRED_TO: 1451 "23000"
        "Cannot delete or update a parent row: a foreign key constraint fails ({table}, {key})";
    /// Rows that go with rows that go with rows, and so on.
    cascade_too_deep(most) = 3008 "HY000" "Foreign key cascade delete/update exceeds max depth of {most}.";

    /// A foreign key with more or fewer columns than it refers to.
    key_parts_differ(key) = 1239 "42000"
        "Incorrect foreign key definition for '{key}': Key reference and table reference don't match";
    /// ON DELETE or ON UPDATE SET DEFAULT.
    cannot_add_key() = 1215 "HY000" "Cannot add foreign key constraint";
    /// A foreign key to a table that is not there.
    no_parent_table(table) = 1824 "HY000" "Failed to open the referenced table '{table}'";
    /// A foreign key to a column that is not there.
    no_parent_column(column, key, table) = 3734 "HY000"
        "Failed to add the foreign key constraint. Missing column '{column}' for constraint '{key}' in the referenced table '{table}'";
    /// A foreign key to columns that no key begins with.
    no_parent_key(key, table) = 1822 "HY000"
        "Failed to add the foreign key constraint. Missing index for constraint '{key}' in the referenced table '{table}'";
    /// A foreign key to columns that are no primary or unique key.
    no_unique_parent_key(key, table) = 6125 "HY000"
        "Failed to add the foreign key constraint. Missing unique key for constraint '{key}' in the referenced table '{table}'";
    /// A foreign key between columns of types whose equal values are not stored alike.
    incompatible_columns(column, referenced, key) = 3780 "HY000"
        "Referencing column '{column}' and referenced column '{referenced}' in foreign key constraint '{key}' are incompatible.";
    /// Two foreign keys of one name in a database.
    duplicate_foreign_key(key) = 1826 "HY000" "Duplicate foreign key constraint name '{key}'";
    /// SET NULL of a column that is NOT NULL.
    set_null_of_not_null(column, key) = 1830 "HY000"
        "Column '{column}' cannot be NOT NULL: needed in a foreign key constraint '{key}' SET NULL";
    /// A foreign key that would write to a generated column.
    key_of_generated(clause) = 3104 "HY000" "Cannot define foreign key with {clause} clause on a generated column.";

    /// A column of a foreign key is to be dropped.
    column_of_key(column, key) = 1828 "HY000"
        "Cannot drop column '{column}': needed in a foreign key constraint '{key}'";
    /// A column that a foreign key refers to is to be dropped.
    column_referred_to(column, key, table) = 1829 "HY000"
        "Cannot drop column '{column}': needed in a foreign key constraint '{key}' of table '{table}'";
    /// A column of a foreign key is to get a type that does not fit the other column's.
    column_fits_key(column, key) = 1832 "HY000"
        "Cannot change column '{column}': used in a foreign key constraint '{key}'";
    /// The same of a column that a foreign key refers to.
    column_fits_child(column, key, table) = 1833 "HY000"
        "Cannot change column '{column}': used in a foreign key constraint '{key}' of table '{table}'";
    /// An index that a foreign key needs is to be dropped.
    index_of_key(index) = 1553 "HY000" "Cannot drop index '{index}': needed in a foreign key constraint";
    /// A table that others refer to is to be dropped.
    table_referred_to(table, key, child) = 3730 "HY000"
        "Cannot drop table '{table}' referenced by a foreign key constraint '{key}' on table '{child}'.";
    /// A table that others refer to is to be emptied.
    truncate_referred_to(child, key) = 1701 "42000"
        "Cannot truncate a table referenced in a foreign key constraint ({child}, CONSTRAINT `{key}`)";
}
