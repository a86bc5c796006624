//! Foreign keys: which columns of a table name rows of which other one, and what becomes of rows whose row goes.
//!
//! The table that has a foreign key, the child, is known to whoever keeps it. The one that it refers to, the parent, goes
//! by its name: it may come after the key, as in dumps.

use serde::{Deserialize, Serialize};

use crate::ids::ColumnId;
use crate::index::Index;
use crate::key;
use crate::schema::{ColumnType, Table};
use crate::value::Value;

/// What becomes of a child's rows when their parent's row goes or gets another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnParent {
    /// The parent's row stays as it is, since nothing was said.
    NoAction,
    /// The parent's row stays as it is.
    Restrict,
    /// They go, or get the other key.
    Cascade,
    /// Their columns become NULL.
    SetNull,
}

impl OnParent {
    /// Whether the parent's row stays as it is. Checks are not deferred, so two of them mean the same.
    pub fn forbids(self) -> bool {
        matches!(self, OnParent::NoAction | OnParent::Restrict)
    }
}

impl std::fmt::Display for OnParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OnParent::NoAction => "NO ACTION",
            OnParent::Restrict => "RESTRICT",
            OnParent::Cascade => "CASCADE",
            OnParent::SetNull => "SET NULL",
        })
    }
}

/// A foreign key of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Name, unique within the database.
    pub name: String,
    /// The child's columns.
    pub columns: Vec<String>,
    /// The parent's database and name.
    pub parent: (String, String),
    /// The parent's columns, in the order of the child's.
    pub referenced: Vec<String>,
    /// What becomes of rows whose parent's row goes.
    pub on_delete: OnParent,
    /// What becomes of rows whose parent's row gets another key.
    pub on_update: OnParent,
    /// Whether rows that were there before it are known to keep it. Until then nothing is done to rows because of it:
    /// the parent's stay as they are.
    pub proven: bool,
}

impl ForeignKey {
    /// Whether it refers to a table; case does not matter.
    pub fn refers_to(&self, table: &Table) -> bool {
        self.parent.1.eq_ignore_ascii_case(&table.name)
            && self.parent.0.eq_ignore_ascii_case(&table.database)
    }

    /// Whether a column of the child is one of its; case does not matter.
    pub fn has_column(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.eq_ignore_ascii_case(name))
    }

    /// Positions of its columns in the child.
    pub fn positions(&self, child: &Table) -> Option<Vec<usize>> {
        positions(child, &self.columns)
    }

    /// Positions of the columns that it refers to in the parent.
    pub fn referenced_positions(&self, parent: &Table) -> Option<Vec<usize>> {
        positions(parent, &self.referenced)
    }
}

/// Positions of columns that are shown; none if one of them is not there.
fn positions(table: &Table, names: &[String]) -> Option<Vec<usize>> {
    let position = |name: &String| {
        table.column_named(name).filter(|(_, column)| !column.hidden).map(|(at, _)| at)
    };
    names.iter().map(position).collect()
}

/// Whether equal values of two types are stored alike, so that one may refer to the other. As in MySQL: lengths of texts
/// do not matter, sizes and signs of numbers do.
pub fn may_refer(child: ColumnType, parent: ColumnType) -> bool {
    use ColumnType::{
        Binary, Char, DateTime, Decimal, Enum, Int, Set, Time, Timestamp, Varbinary, Varchar,
    };
    match (child, parent) {
        (one, other) if one == other => true,
        (Int { width, unsigned }, Int { width: of, unsigned: sign }) => {
            (width.bits(), unsigned) == (of.bits(), sign)
        }
        (Decimal { .. }, Decimal { .. }) => false,
        (Char(_) | Varchar(_), Char(_) | Varchar(_))
        | (Binary(_) | Varbinary(_), Binary(_) | Varbinary(_))
        | (Enum(_), Enum(_))
        | (Set(_), Set(_))
        | (DateTime(_), DateTime(_))
        | (Timestamp(_), Timestamp(_))
        | (Time(_), Time(_)) => true,
        _ => false,
    }
}

/// How rows are found by the values of some columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By their own keys.
    Records,
    /// By the entries of an index.
    Entries(Box<Index>),
}

impl Way {
    /// How a row of the parent is found: the columns are its whole primary key, or those of a unique index.
    pub fn to_parent(parent: &Table, columns: &[ColumnId]) -> Option<Way> {
        if parent.primary_key == columns {
            return Some(Way::Records);
        }
        let is = |index: &&Index| {
            index.unique && index.is_public() && !index.has_prefix() && index.columns == columns
        };
        parent.indexes.iter().find(is).map(|index| Way::Entries(Box::new(index.clone())))
    }

    /// How a child's rows are found: a key of its begins with the columns.
    pub fn to_children(child: &Table, columns: &[ColumnId]) -> Option<Way> {
        if child.primary_key.starts_with(columns) {
            return Some(Way::Records);
        }
        let begins = |index: &&Index| {
            let cut = columns.iter().any(|column| index.prefix(*column).is_some());
            index.is_public() && !cut && index.columns.starts_with(columns)
        };
        child.indexes.iter().find(begins).map(|index| Way::Entries(Box::new(index.clone())))
    }

    /// The beginning of all keys with these values; of a parent, the key itself.
    pub fn prefix(&self, table: &Table, values: &[Value]) -> Vec<u8> {
        match self {
            Way::Records => key::record(table.id, values),
            Way::Entries(index) => key::index_prefix(table.id, index.id, values),
        }
    }
}
