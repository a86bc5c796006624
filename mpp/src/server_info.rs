//! What the Flight SQL server reports of itself, and of MySQL's types.
//!
//! Facts only: drivers decide by them what they send, so nothing here promises more than is done.

use arrow_flight::error::Result;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel,
    SqlSupportedCaseSensitivity, SqlSupportedGroupBy, SqlSupportedTransaction, SqlSupportedUnions,
    SqlTransactionIsolationLevel, XdbcDataType,
};

/// Longest name of a database, a table or a column, in characters.
const LONGEST_NAME: i64 = 64;
/// Longest name of a user, in characters.
const LONGEST_USER: i64 = 32;

/// Facts that are true or not.
const TRUTHS: &[(SqlInfo, bool)] = &[
    (SqlInfo::FlightSqlServerReadOnly, true),
    (SqlInfo::FlightSqlServerSql, true),
    (SqlInfo::FlightSqlServerSubstrait, false),
    (SqlInfo::FlightSqlServerCancel, false),
    (SqlInfo::FlightSqlServerBulkIngestion, false),
    (SqlInfo::FlightSqlServerIngestTransactionsSupported, false),
    (SqlInfo::SqlDdlCatalog, false),
    (SqlInfo::SqlDdlSchema, false),
    (SqlInfo::SqlDdlTable, false),
    // Those without a columnar replica, and views, are not.
    (SqlInfo::SqlAllTablesAreSelectable, false),
    (SqlInfo::SqlSupportsColumnAliasing, true),
    (SqlInfo::SqlNullPlusNullIsNull, true),
    (SqlInfo::SqlSupportsTableCorrelationNames, true),
    (SqlInfo::SqlSupportsDifferentTableCorrelationNames, false),
    (SqlInfo::SqlSupportsExpressionsInOrderBy, true),
    (SqlInfo::SqlSupportsOrderByUnrelated, true),
    (SqlInfo::SqlSupportsLikeEscapeClause, true),
    (SqlInfo::SqlSupportsNonNullableColumns, true),
    (SqlInfo::SqlCatalogAtStart, true),
    (SqlInfo::SqlSelectForUpdateSupported, false),
    (SqlInfo::SqlStoredProceduresSupported, false),
    (SqlInfo::SqlCorrelatedSubqueriesSupported, true),
    (SqlInfo::SqlTransactionsSupported, false),
    (SqlInfo::SqlBatchUpdatesSupported, false),
    (SqlInfo::SqlSavepointsSupported, false),
    (SqlInfo::SqlNamedParametersSupported, false),
    (SqlInfo::SqlSupportsIntegrityEnhancementFacility, false),
    (SqlInfo::SqlMaxRowSizeIncludesBlobs, true),
    (SqlInfo::SqlDataDefinitionCausesTransactionCommit, true),
    (SqlInfo::SqlDataDefinitionsInTransactionsIgnored, false),
    (SqlInfo::SqlLocatorsUpdateCopy, true),
    (SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported, false),
];

/// Facts that are texts.
const TEXTS: &[(SqlInfo, &str)] = &[
    (SqlInfo::FlightSqlServerName, "Isobar"),
    (SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION")),
    (SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION),
    (SqlInfo::SqlIdentifierQuoteChar, "`"),
    (SqlInfo::SqlSearchStringEscape, "\\"),
    (SqlInfo::SqlExtraNameCharacters, "$"),
    (SqlInfo::SqlSchemaTerm, "database"),
    (SqlInfo::SqlProcedureTerm, "procedure"),
    (SqlInfo::SqlCatalogTerm, "catalog"),
];

/// Facts that are one of a list, or several of it as bits.
const CHOICES: &[(SqlInfo, i32)] = &[
    (SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32),
    (SqlInfo::FlightSqlServerStatementTimeout, 0),
    (SqlInfo::FlightSqlServerTransactionTimeout, 0),
    (
        SqlInfo::SqlIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32,
    ),
    (
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i32,
    ),
    (SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedLow as i32),
    (
        SqlInfo::SqlSupportedGroupBy,
        1 << SqlSupportedGroupBy::SqlGroupByUnrelated as i32
            | 1 << SqlSupportedGroupBy::SqlGroupByBeyondSelect as i32,
    ),
    // The least of ODBC's grammar and the entry level of ANSI's.
    (SqlInfo::SqlSupportedGrammar, 1),
    (SqlInfo::SqlAnsi92SupportedLevel, 1),
    (SqlInfo::SqlOuterJoinsSupportLevel, SqlOuterJoinsSupportLevel::SqlLimitedOuterJoins as i32),
    // A name in a query has a database before it at most.
    (SqlInfo::SqlSchemasSupportedActions, 0),
    (SqlInfo::SqlCatalogsSupportedActions, 0),
    (SqlInfo::SqlSupportedPositionedCommands, 0),
    // In comparisons, EXISTS, IN, and with ANY and ALL.
    (SqlInfo::SqlSupportedSubqueries, 0b1111),
    (
        SqlInfo::SqlSupportedUnions,
        1 << SqlSupportedUnions::SqlUnion as i32 | 1 << SqlSupportedUnions::SqlUnionAll as i32,
    ),
    (
        SqlInfo::SqlDefaultTransactionIsolation,
        SqlTransactionIsolationLevel::SqlTransactionNone as i32,
    ),
    (
        SqlInfo::SqlSupportedTransactionsIsolationLevels,
        1 << SqlTransactionIsolationLevel::SqlTransactionNone as i32,
    ),
    // Forward only, to be read only.
    (SqlInfo::SqlSupportedResultSetTypes, 0b10),
    (SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly, 0b10),
];

/// Most of something; 0 where nobody has set a bound.
const BOUNDS: &[(SqlInfo, i64)] = &[
    (SqlInfo::SqlMaxBinaryLiteralLength, 0),
    (SqlInfo::SqlMaxCharLiteralLength, 0),
    (SqlInfo::SqlMaxColumnNameLength, LONGEST_NAME),
    (SqlInfo::SqlMaxColumnsInGroupBy, 0),
    (SqlInfo::SqlMaxColumnsInIndex, 0),
    (SqlInfo::SqlMaxColumnsInOrderBy, 0),
    (SqlInfo::SqlMaxColumnsInSelect, 0),
    (SqlInfo::SqlMaxColumnsInTable, 0),
    (SqlInfo::SqlMaxConnections, 0),
    (SqlInfo::SqlMaxCursorNameLength, 0),
    (SqlInfo::SqlMaxIndexLength, 0),
    (SqlInfo::SqlDbSchemaNameLength, LONGEST_NAME),
    (SqlInfo::SqlMaxProcedureNameLength, 0),
    (SqlInfo::SqlMaxCatalogNameLength, 0),
    (SqlInfo::SqlMaxRowSize, 0),
    (SqlInfo::SqlMaxStatementLength, 0),
    (SqlInfo::SqlMaxStatements, 0),
    (SqlInfo::SqlMaxTableNameLength, LONGEST_NAME),
    (SqlInfo::SqlMaxTablesInSelect, 0),
    (SqlInfo::SqlMaxUsernameLength, LONGEST_USER),
];

/// All facts.
pub fn info() -> Result<SqlInfoData> {
    let mut builder = SqlInfoDataBuilder::new();
    for &(fact, truth) in TRUTHS {
        builder.append(fact, truth);
    }
    for &(fact, text) in TEXTS {
        builder.append(fact, text);
    }
    for &(fact, choice) in CHOICES {
        builder.append(fact, choice);
    }
    for &(fact, bound) in BOUNDS {
        builder.append(fact, bound);
    }
    builder.build()
}

/// Types of numbers: name, XDBC's type, digits, whether there is an UNSIGNED of it and it counts up.
const NUMBERS: &[(&str, XdbcDataType, i32, bool)] = &[
    ("TINYINT", XdbcDataType::XdbcTinyint, 3, true),
    ("SMALLINT", XdbcDataType::XdbcSmallint, 5, true),
    ("MEDIUMINT", XdbcDataType::XdbcInteger, 7, true),
    ("INT", XdbcDataType::XdbcInteger, 10, true),
    ("BIGINT", XdbcDataType::XdbcBigint, 19, true),
    ("DECIMAL", XdbcDataType::XdbcDecimal, 65, false),
    ("FLOAT", XdbcDataType::XdbcReal, 12, false),
    ("DOUBLE", XdbcDataType::XdbcDouble, 22, false),
    ("BIT", XdbcDataType::XdbcBit, 64, false),
];

/// Types that are written in quotes: name, XDBC's type, length, and what it is declared with.
const QUOTED: &[(&str, XdbcDataType, i32, Option<&str>)] = &[
    ("CHAR", XdbcDataType::XdbcChar, 255, Some("length")),
    ("VARCHAR", XdbcDataType::XdbcVarchar, 16_383, Some("length")),
    ("TEXT", XdbcDataType::XdbcLongvarchar, 65_535, None),
    ("LONGTEXT", XdbcDataType::XdbcLongvarchar, i32::MAX, None),
    ("ENUM", XdbcDataType::XdbcChar, 65_535, None),
    ("SET", XdbcDataType::XdbcChar, 64, None),
    ("JSON", XdbcDataType::XdbcLongvarchar, i32::MAX, None),
    ("BINARY", XdbcDataType::XdbcBinary, 255, Some("length")),
    ("VARBINARY", XdbcDataType::XdbcVarbinary, 65_535, Some("length")),
    ("BLOB", XdbcDataType::XdbcLongvarbinary, 65_535, None),
    ("DATE", XdbcDataType::XdbcDate, 10, None),
    ("DATETIME", XdbcDataType::XdbcTimestamp, 26, Some("fsp")),
    ("TIMESTAMP", XdbcDataType::XdbcTimestamp, 26, Some("fsp")),
    ("TIME", XdbcDataType::XdbcTime, 17, Some("fsp")),
];

/// MySQL's types that columns have.
pub fn types() -> Result<XdbcTypeInfoData> {
    let mut builder = XdbcTypeInfoDataBuilder::new();
    let any = |name: &str, ty: XdbcDataType, size: i32| XdbcTypeInfo {
        type_name: name.to_owned(),
        data_type: ty,
        column_size: Some(size),
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Full,
        local_type_name: Some(name.to_owned()),
        sql_data_type: ty,
        ..XdbcTypeInfo::default()
    };
    for &(name, ty, digits, counts) in NUMBERS {
        let is_decimal = ty == XdbcDataType::XdbcDecimal;
        builder.append(XdbcTypeInfo {
            create_params: is_decimal.then(|| vec!["precision".to_owned(), "scale".to_owned()]),
            unsigned_attribute: Some(false),
            fixed_prec_scale: is_decimal || counts,
            auto_increment: Some(counts),
            minimum_scale: Some(0),
            maximum_scale: Some(if is_decimal { 30 } else { 0 }),
            num_prec_radix: Some(10),
            ..any(name, ty, digits)
        });
    }
    for &(name, ty, length, declared_with) in QUOTED {
        builder.append(XdbcTypeInfo {
            literal_prefix: Some("'".to_owned()),
            literal_suffix: Some("'".to_owned()),
            create_params: declared_with.map(|word| vec![word.to_owned()]),
            case_sensitive: true,
            ..any(name, ty, length)
        });
    }
    builder.build()
}
