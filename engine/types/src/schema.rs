//! Tables, columns and indexes as the catalog knows them, at one version.
//!
//! A schema says what stored bytes mean; it never says where they are.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;
use crate::value::Value;

/// A table's number. Never reused, so a dropped and recreated table is another table.
pub type TableId = u64;
/// A column's number within its table. Never reused: stored rows are keyed by it.
pub type ColumnId = u32;
/// An index's number within its table. Never reused.
pub type IndexId = u32;
/// Version of one table's schema, raised by every change.
pub type SchemaVersion = u32;

/// Width of an integer column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IntWidth {
    /// TINYINT, 8 bits.
    Tiny,
    /// SMALLINT, 16 bits.
    Small,
    /// MEDIUMINT, 24 bits.
    Medium,
    /// INT, 32 bits.
    Int,
    /// BIGINT, 64 bits.
    Big,
}

impl IntWidth {
    /// Bits of a value.
    pub const fn bits(self) -> u32 {
        match self {
            IntWidth::Tiny => 8,
            IntWidth::Small => 16,
            IntWidth::Medium => 24,
            IntWidth::Int => 32,
            IntWidth::Big => 64,
        }
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ColumnType {
    /// TINYINT … BIGINT.
    Int {
        /// Size.
        width: IntWidth,
        /// Whether values are ≥ 0.
        unsigned: bool,
    },
    /// DOUBLE.
    Double,
    /// DECIMAL(precision, scale), at most 38 digits.
    Decimal {
        /// Digits in all, 1–38.
        precision: u8,
        /// Digits behind the point, ≤ precision and ≤ 30.
        scale: u8,
    },
    /// CHAR(n): trailing spaces are not kept. Length in characters.
    Char(u32),
    /// VARCHAR(n). Length in characters.
    Varchar(u32),
    /// TEXT of any size; the number is the most bytes a value may have.
    Text(u32),
    /// DATE.
    Date,
    /// DATETIME with 0–6 digits of a second's fraction.
    DateTime(u8),
    /// TIMESTAMP with 0–6 digits of a second's fraction.
    Timestamp(u8),
}

impl ColumnType {
    /// Smallest and largest value of an integer column.
    pub fn int_range(self) -> Option<(i128, i128)> {
        let ColumnType::Int { width, unsigned } = self else { return None };
        let span = 1i128 << width.bits();
        Some(if unsigned { (0, span - 1) } else { (-span / 2, span / 2 - 1) })
    }
}

impl fmt::Display for ColumnType {
    /// MySQL's spelling, as SHOW COLUMNS prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = |f: &mut fmt::Formatter<'_>, name: &str, digits: u8| match digits {
            0 => f.write_str(name),
            n => write!(f, "{name}({n})"),
        };
        match self {
            ColumnType::Int { width, unsigned } => {
                f.write_str(match width {
                    IntWidth::Tiny => "tinyint",
                    IntWidth::Small => "smallint",
                    IntWidth::Medium => "mediumint",
                    IntWidth::Int => "int",
                    IntWidth::Big => "bigint",
                })?;
                f.write_str(if *unsigned { " unsigned" } else { "" })
            }
            ColumnType::Double => f.write_str("double"),
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            ColumnType::Char(n) => write!(f, "char({n})"),
            ColumnType::Varchar(n) => write!(f, "varchar({n})"),
            ColumnType::Text(n) => f.write_str(match n {
                0..=255 => "tinytext",
                256..=65_535 => "text",
                65_536..=16_777_215 => "mediumtext",
                _ => "longtext",
            }),
            ColumnType::Date => f.write_str("date"),
            ColumnType::DateTime(digits) => fraction(f, "datetime", *digits),
            ColumnType::Timestamp(digits) => fraction(f, "timestamp", *digits),
        }
    }
}

/// What a column gets when an INSERT does not name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Default {
    /// A constant, possibly NULL.
    Constant(Value),
    /// CURRENT_TIMESTAMP, at the statement's time.
    CurrentTimestamp,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Number within the table.
    pub id: ColumnId,
    /// Name as declared; compared without case.
    pub name: String,
    /// Type.
    pub ty: ColumnType,
    /// Whether NULL is allowed.
    pub nullable: bool,
    /// Default; `None` means that INSERT must name the column.
    pub default: Option<Default>,
    /// AUTO_INCREMENT.
    pub auto_increment: bool,
    /// ON UPDATE CURRENT_TIMESTAMP.
    pub on_update_now: bool,
    /// Left out of `SELECT *` and of SHOW: the row number of a table without a primary key.
    pub hidden: bool,
    /// COMMENT.
    pub comment: String,
}

/// How far an index has come into being (online schema change, after F1). Writers of two versions
/// that follow each other may be at work at once, so a state only relies on what the one before it
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexState {
    /// Writers take entries away and add none: others may not know the index yet.
    DeleteOnly,
    /// Writers keep it; readers do not use it; back-fill is under way.
    WriteOnly,
    /// In use by readers of this timestamp and later ones. Entries of older rows were written just
    /// before it, so an earlier snapshot has none.
    Public {
        /// From when on.
        since: Timestamp,
    },
}

/// One secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Number within the table.
    pub id: IndexId,
    /// Name.
    pub name: String,
    /// Columns, in key order.
    pub columns: Vec<ColumnId>,
    /// Whether entries without NULLs are unique.
    pub unique: bool,
    /// State.
    pub state: IndexState,
}

impl Index {
    /// Whether a read at a timestamp finds every row through this index.
    pub fn serves(&self, ts: Timestamp) -> bool {
        matches!(self.state, IndexState::Public { since } if since <= ts)
    }

    /// Whether it is complete.
    pub fn is_public(&self) -> bool {
        matches!(self.state, IndexState::Public { .. })
    }

    /// Whether writers add entries.
    pub fn is_kept(&self) -> bool {
        self.state != IndexState::DeleteOnly
    }
}

/// One table at one schema version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Number.
    pub id: TableId,
    /// Version of this description.
    pub version: SchemaVersion,
    /// Database.
    pub database: String,
    /// Name.
    pub name: String,
    /// Columns, in declared order.
    pub columns: Vec<Column>,
    /// Columns of the clustered primary key, in key order; never empty.
    pub primary_key: Vec<ColumnId>,
    /// Secondary indexes.
    pub indexes: Vec<Index>,
    /// Columnar replicas wanted.
    pub columnar_replicas: u8,
    /// COMMENT.
    pub comment: String,
}

impl Table {
    /// The column of a number.
    pub fn column(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// The column of a name, and its position; case does not matter.
    pub fn column_named(&self, name: &str) -> Option<(usize, &Column)> {
        self.columns.iter().enumerate().find(|(_, column)| column.name.eq_ignore_ascii_case(name))
    }

    /// Position of a column within [`Table::columns`].
    pub fn position(&self, id: ColumnId) -> Option<usize> {
        self.columns.iter().position(|column| column.id == id)
    }

    /// Positions of the primary key's columns, in key order.
    pub fn key_positions(&self) -> Vec<usize> {
        self.primary_key.iter().filter_map(|id| self.position(*id)).collect()
    }

    /// The index of a name; case does not matter.
    pub fn index_named(&self, name: &str) -> Option<&Index> {
        self.indexes.iter().find(|index| index.name.eq_ignore_ascii_case(name))
    }
}
