//! Tables and columns as the catalog knows them, at one version.
//!
//! A schema says what stored bytes mean; it never says where they are.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::decimal::DECIMAL_MAX_PRECISION;
use crate::ids::{ColumnId, SchemaVersion, TableId};
use crate::index::{Index, IndexState};
use crate::labels::Labels;
use crate::time::Timestamp;
use crate::value::Value;

/// Longest name of a table or of what belongs to one, in characters.
const LONGEST_NAME: usize = 64;

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
    /// TINYINT(1), 8 bits: the one display width that is kept, because drivers read it as BOOL.
    Bool,
}

impl IntWidth {
    /// Bits of a value.
    pub const fn bits(self) -> u32 {
        match self {
            IntWidth::Tiny | IntWidth::Bool => 8,
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
    /// DECIMAL(precision, scale).
    Decimal {
        /// Digits in all, 1–65; beyond 38, values are [`Value::Wide`].
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
    /// BINARY(n): filled up with zero bytes. Length in bytes.
    Binary(u32),
    /// VARBINARY(n). Length in bytes.
    Varbinary(u32),
    /// TINYBLOB … LONGBLOB; the number is the most bytes a value may have.
    Blob(u32),
    /// FLOAT.
    Float,
    /// YEAR: 0 and 1901–2155.
    Year,
    /// TIME with 0–6 digits of a second's fraction, from −838:59:59 to 838:59:59.
    Time(u8),
    /// BIT(n), 1–64 bits.
    Bit(u8),
    /// JSON, as text in MySQL's normal form.
    Json,
    /// ENUM: one of the labels, or the empty text that stands for none of them. Values are texts.
    Enum(Labels),
    /// SET: labels in declared order with commas between them. Values are texts.
    Set(Labels),
}

impl ColumnType {
    /// Smallest and largest value of an integer column.
    pub fn int_range(self) -> Option<(i128, i128)> {
        let ColumnType::Int { width, unsigned } = self else { return None };
        let span = 1i128 << width.bits();
        Some(if unsigned { (0, span - 1) } else { (-span / 2, span / 2 - 1) })
    }

    /// Whether values of another type are stored, in rows and keys, as this one's are, so that a
    /// column may go from that one to this by description alone. Columnar replicas widen numbers
    /// where they read what was stored before.
    pub fn holds_all(self, from: ColumnType) -> bool {
        use ColumnType::{
            Blob, DateTime, Decimal, Enum, Int, Set, Text, Time, Timestamp, Varbinary, Varchar,
        };
        match (from, self) {
            (from, to) if from == to => true,
            (Int { width, unsigned }, Int { width: wider, unsigned: same }) => {
                unsigned == same && width.bits() <= wider.bits()
            }
            (Decimal { precision, scale }, Decimal { precision: more, scale: same }) => {
                scale == same && precision <= more && !self.is_wide()
            }
            (Varchar(from), Varchar(to))
            | (Text(from), Text(to))
            | (Varbinary(from) | Blob(from), Blob(to))
            | (Varbinary(from), Varbinary(to)) => from <= to,
            // In the worst case four bytes a character.
            (Varchar(from), Text(to)) => u64::from(from) * 4 <= u64::from(to),
            // Values are texts, so it matters which labels there are, and in a SET which come
            // first. The empty text stands for no label unless it is one.
            (Enum(from), Enum(to)) => {
                from.is_among(to) && (from.number("").is_some() || to.number("").is_none())
            }
            (Set(from), Set(to)) => from.is_part_of(to),
            (DateTime(from), DateTime(to))
            | (Timestamp(from), Timestamp(to))
            | (Time(from), Time(to)) => from <= to,
            _ => false,
        }
    }

    /// Whether values are numbers.
    pub fn is_number(self) -> bool {
        matches!(
            self,
            ColumnType::Int { .. }
                | ColumnType::Double
                | ColumnType::Float
                | ColumnType::Decimal { .. }
                | ColumnType::Bit(_)
                | ColumnType::Year
        )
    }

    /// Whether it is a DECIMAL of more digits than 128 bits, and so columns, hold.
    pub fn is_wide(self) -> bool {
        matches!(self, ColumnType::Decimal { precision, .. } if precision > DECIMAL_MAX_PRECISION)
    }

    /// Whether values are texts, JSON apart.
    pub fn is_text(self) -> bool {
        matches!(
            self,
            ColumnType::Char(_)
                | ColumnType::Varchar(_)
                | ColumnType::Text(_)
                | ColumnType::Enum(_)
                | ColumnType::Set(_)
        )
    }

    /// The labels of an ENUM or a SET.
    pub fn labels(self) -> Option<Labels> {
        match self {
            ColumnType::Enum(labels) | ColumnType::Set(labels) => Some(labels),
            _ => None,
        }
    }

    /// Reads the type of an ENUM or a SET as it is printed.
    pub fn labelled(text: &str) -> Option<ColumnType> {
        let (kind, rest) = text.split_once('(')?;
        let labels = Labels::parse(rest.strip_suffix(')')?)?;
        match kind {
            "enum" => Some(ColumnType::Enum(labels)),
            "set" => Some(ColumnType::Set(labels)),
            _ => None,
        }
    }

    /// Whether values are bytes rather than characters.
    pub fn is_binary(self) -> bool {
        matches!(self, ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_))
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
                    // MySQL 8.0.19 and later show no other width, and none of an unsigned column.
                    IntWidth::Bool if *unsigned => "tinyint",
                    IntWidth::Bool => "tinyint(1)",
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
            ColumnType::Binary(n) => write!(f, "binary({n})"),
            ColumnType::Varbinary(n) => write!(f, "varbinary({n})"),
            ColumnType::Blob(n) => f.write_str(match n {
                0..=255 => "tinyblob",
                256..=65_535 => "blob",
                65_536..=16_777_215 => "mediumblob",
                _ => "longblob",
            }),
            ColumnType::Float => f.write_str("float"),
            ColumnType::Year => f.write_str("year"),
            ColumnType::Time(digits) => fraction(f, "time", *digits),
            ColumnType::Bit(n) => write!(f, "bit({n})"),
            ColumnType::Json => f.write_str("json"),
            ColumnType::Enum(labels) => write!(f, "enum({labels})"),
            ColumnType::Set(labels) => write!(f, "set({labels})"),
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
    /// A generated column: it always has this value, whatever a statement names.
    Generated {
        /// SQL text over the row's other columns, as it is shown; means the same under any
        /// sql_mode.
        expression: String,
        /// STORED rather than VIRTUAL. Rows hold the value either way.
        stored: bool,
    },
    /// A hidden column that is about to stand in another one's place, under another type: it always
    /// has that one's value, converted as an assignment would.
    Converted {
        /// The other column.
        from: ColumnId,
        /// The time zone that converts between DATETIME and TIMESTAMP, whoever writes.
        time_zone: String,
    },
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
    /// What rows that do not hold the column read as: its default when it was added, which
    /// no later change of the default may touch. `None` where every row holds it.
    pub original: Option<Value>,
    /// AUTO_INCREMENT.
    pub auto_increment: bool,
    /// ON UPDATE CURRENT_TIMESTAMP.
    pub on_update_now: bool,
    /// Left out of `SELECT *` and of SHOW, and not to be written by name: the row number of a table
    /// without a primary key, and a column that is being added or dropped.
    pub hidden: bool,
    /// COMMENT.
    pub comment: String,
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Name, unique within the table.
    pub name: String,
    /// The condition, as SQL text that means the same under any sql_mode.
    pub expression: String,
    /// Whether rows are held against it.
    pub enforced: bool,
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
    /// Columns that the table no longer has. Rows from before still hold them, and cannot be read
    /// without their types.
    pub dropped: Vec<Column>,
    /// CHECK constraints, in declared order.
    pub checks: Vec<Check>,
}

impl Column {
    /// The expression of a generated column, and whether it is STORED.
    pub fn generated(&self) -> Option<(&str, bool)> {
        match &self.default {
            Some(Default::Generated { expression, stored }) => Some((expression, *stored)),
            _ => None,
        }
    }

    /// The column whose values this hidden one has, converted, and the time zone of that.
    pub fn converted(&self) -> Option<(ColumnId, &str)> {
        match &self.default {
            Some(Default::Converted { from, time_zone }) => Some((*from, time_zone)),
            _ => None,
        }
    }

    /// Whether a row's other columns decide its value.
    pub fn is_derived(&self) -> bool {
        self.generated().is_some() || self.converted().is_some()
    }

    /// What a row that does not hold the column reads as.
    pub fn missing(&self) -> Value {
        self.original.clone().unwrap_or(Value::Null)
    }
}

impl Table {
    /// The same description for a table without rows: nothing was ever dropped from it, no column
    /// comes or goes, and its indexes are complete.
    pub fn without_rows(&self) -> Table {
        let mut table = self.clone();
        table.dropped.clear();
        table.columns.retain(|column| !self.is_passing(column));
        table.columns.iter_mut().for_each(|column| column.original = None);
        for index in &mut table.indexes {
            index.state = IndexState::Public { since: Timestamp::ZERO };
        }
        table
    }

    /// Gives the table another name, and with it the checks that were named after it.
    pub fn rename(&mut self, name: String) {
        let made = |check: &str| {
            let number = check.strip_prefix(self.name.as_str())?.strip_prefix("_chk_")?;
            number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.to_owned())
        };
        for at in 0..self.checks.len() {
            let Some(number) = self.checks.get(at).and_then(|check| made(&check.name)) else {
                continue;
            };
            let wanted = format!("{name}_chk_{number}");
            // Where that is no name, or another's, the old one stays.
            let taken = self.check_named(&wanted).is_some();
            if let Some(check) = self.checks.get_mut(at)
                && !taken
                && wanted.chars().count() <= LONGEST_NAME
            {
                check.name = wanted;
            }
        }
        self.name = name;
    }

    /// The CHECK constraint of a name; case does not matter.
    pub fn check_named(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name.eq_ignore_ascii_case(name))
    }

    /// Whether a column is being added or dropped: it is hidden, and no row number.
    pub fn is_passing(&self, column: &Column) -> bool {
        column.hidden && !self.primary_key.contains(&column.id)
    }

    /// Whether columns are being added or dropped.
    pub fn is_changing(&self) -> bool {
        self.columns.iter().any(|column| self.is_passing(column))
    }

    /// Whether a column is about to be replaced by one of another type: the next version of the
    /// table may lack it, without its having been hidden.
    pub fn is_replaced(&self, id: ColumnId) -> bool {
        self.columns.iter().filter_map(Column::converted).any(|(from, _)| from == id)
    }

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
