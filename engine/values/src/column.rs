//! Columns of results, as MySQL's protocol describes them.
//!
//! What the columns hold is elsewhere: nothing here knows a row.

use types::ColumnType;

/// One column of a result, with all that MySQL's column definition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// Name or alias.
    pub name: String,
    /// Name in its table; empty for expressions.
    pub org_name: String,
    /// Table or alias; empty for expressions.
    pub table: String,
    /// Name of the table; empty for expressions.
    pub org_table: String,
    /// Database of the table; empty for expressions.
    pub database: String,
    /// Type; `None` for the type of a bare NULL.
    pub ty: Option<ColumnType>,
    /// Digits behind the point that a DOUBLE is shown with; as many as it has without.
    pub decimals: Option<u8>,
    /// Whether NULL can occur.
    pub nullable: bool,
    /// Part of the primary key.
    pub primary_key: bool,
    /// First column of a unique index.
    pub unique_key: bool,
    /// First column of any other index.
    pub multiple_key: bool,
    /// AUTO_INCREMENT.
    pub auto_increment: bool,
}

impl ResultColumn {
    /// A column that is no table's.
    pub fn expression(name: impl Into<String>, ty: Option<ColumnType>, nullable: bool) -> Self {
        ResultColumn {
            name: name.into(),
            org_name: String::new(),
            table: String::new(),
            org_table: String::new(),
            database: String::new(),
            ty,
            decimals: None,
            nullable,
            primary_key: false,
            unique_key: false,
            multiple_key: false,
            auto_increment: false,
        }
    }
}
