//! Tables of information_schema that clients ask for and that are empty here, because what they
//! list does not exist: routines, triggers, partitions, privileges of single
//! columns. They have every column of MySQL 8's, so that no query of a client fails; never a row.

use super::Listing;

const ROUTINE_TYPE: &[&str] = &[
    "DATA_TYPE",
    "#CHARACTER_MAXIMUM_LENGTH",
    "#CHARACTER_OCTET_LENGTH",
    "#NUMERIC_PRECISION",
    "#NUMERIC_SCALE",
    "#DATETIME_PRECISION",
    "CHARACTER_SET_NAME",
    "COLLATION_NAME",
    "DTD_IDENTIFIER",
];

/// Names, and columns as [`Listing::of`] takes them.
const TABLES: &[(&str, &[&[&str]])] = &[
    (
        "routines",
        &[
            &["SPECIFIC_NAME", "ROUTINE_CATALOG", "ROUTINE_SCHEMA", "ROUTINE_NAME", "ROUTINE_TYPE"],
            ROUTINE_TYPE,
            &[
                "ROUTINE_BODY",
                "ROUTINE_DEFINITION",
                "EXTERNAL_NAME",
                "EXTERNAL_LANGUAGE",
                "PARAMETER_STYLE",
                "IS_DETERMINISTIC",
                "SQL_DATA_ACCESS",
                "SQL_PATH",
                "SECURITY_TYPE",
                "CREATED",
                "LAST_ALTERED",
                "SQL_MODE",
                "ROUTINE_COMMENT",
                "DEFINER",
                "CHARACTER_SET_CLIENT",
                "COLLATION_CONNECTION",
                "DATABASE_COLLATION",
            ],
        ],
    ),
    (
        "parameters",
        &[
            &[
                "SPECIFIC_CATALOG",
                "SPECIFIC_SCHEMA",
                "SPECIFIC_NAME",
                "#ORDINAL_POSITION",
                "PARAMETER_MODE",
                "PARAMETER_NAME",
            ],
            ROUTINE_TYPE,
            &["ROUTINE_TYPE"],
        ],
    ),
    (
        "triggers",
        &[&[
            "TRIGGER_CATALOG",
            "TRIGGER_SCHEMA",
            "TRIGGER_NAME",
            "EVENT_MANIPULATION",
            "EVENT_OBJECT_CATALOG",
            "EVENT_OBJECT_SCHEMA",
            "EVENT_OBJECT_TABLE",
            "#ACTION_ORDER",
            "ACTION_CONDITION",
            "ACTION_STATEMENT",
            "ACTION_ORIENTATION",
            "ACTION_TIMING",
            "ACTION_REFERENCE_OLD_TABLE",
            "ACTION_REFERENCE_NEW_TABLE",
            "ACTION_REFERENCE_OLD_ROW",
            "ACTION_REFERENCE_NEW_ROW",
            "CREATED",
            "SQL_MODE",
            "DEFINER",
            "CHARACTER_SET_CLIENT",
            "COLLATION_CONNECTION",
            "DATABASE_COLLATION",
        ]],
    ),
    (
        "events",
        &[&[
            "EVENT_CATALOG",
            "EVENT_SCHEMA",
            "EVENT_NAME",
            "DEFINER",
            "TIME_ZONE",
            "EVENT_BODY",
            "EVENT_DEFINITION",
            "EVENT_TYPE",
            "EXECUTE_AT",
            "INTERVAL_VALUE",
            "INTERVAL_FIELD",
            "SQL_MODE",
            "STARTS",
            "ENDS",
            "STATUS",
            "ON_COMPLETION",
            "CREATED",
            "LAST_ALTERED",
            "LAST_EXECUTED",
            "EVENT_COMMENT",
            "#ORIGINATOR",
            "CHARACTER_SET_CLIENT",
            "COLLATION_CONNECTION",
            "DATABASE_COLLATION",
        ]],
    ),
    (
        "partitions",
        &[&[
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "PARTITION_NAME",
            "SUBPARTITION_NAME",
            "#PARTITION_ORDINAL_POSITION",
            "#SUBPARTITION_ORDINAL_POSITION",
            "PARTITION_METHOD",
            "SUBPARTITION_METHOD",
            "PARTITION_EXPRESSION",
            "SUBPARTITION_EXPRESSION",
            "PARTITION_DESCRIPTION",
            "#TABLE_ROWS",
            "#AVG_ROW_LENGTH",
            "#DATA_LENGTH",
            "#MAX_DATA_LENGTH",
            "#INDEX_LENGTH",
            "#DATA_FREE",
            "CREATE_TIME",
            "UPDATE_TIME",
            "CHECK_TIME",
            "#CHECKSUM",
            "PARTITION_COMMENT",
            "NODEGROUP",
            "TABLESPACE_NAME",
        ]],
    ),
    (
        "files",
        &[&[
            "#FILE_ID",
            "FILE_NAME",
            "FILE_TYPE",
            "TABLESPACE_NAME",
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "LOGFILE_GROUP_NAME",
            "#LOGFILE_GROUP_NUMBER",
            "ENGINE",
            "#FREE_EXTENTS",
            "#TOTAL_EXTENTS",
            "#EXTENT_SIZE",
            "#INITIAL_SIZE",
            "#MAXIMUM_SIZE",
            "#AUTOEXTEND_SIZE",
            "#DATA_FREE",
            "STATUS",
            "EXTRA",
        ]],
    ),
    (
        "column_privileges",
        &[&[
            "GRANTEE",
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "COLUMN_NAME",
            "PRIVILEGE_TYPE",
            "IS_GRANTABLE",
        ]],
    ),
    ("keywords", &[&["WORD", "#RESERVED"]]),
];

/// Their names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, _)| *name)
}

/// The empty listing of a name, if it is one of these.
pub(super) fn listing(name: &str) -> Option<Listing> {
    let (_, columns) = TABLES.iter().find(|(known, _)| *known == name)?;
    Some(Listing::of(&columns.concat()))
}
