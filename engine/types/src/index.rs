//! Secondary indexes as a table's description holds them.
//!
//! An index says what its entries are made of and who uses them; their bytes are [`crate::key`]'s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{ColumnId, IndexId};
use crate::time::Timestamp;
use crate::value::Value;

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

/// What is special about a column's part in an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyPart {
    /// Entries hold no more of a value than this: characters of a text, bytes of a binary column.
    pub prefix: Option<u32>,
    /// Declared DESC. Entries ascend all the same: nobody reads them for their order.
    pub descending: bool,
}

/// One secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Encoded", into = "Encoded")]
pub struct Index {
    /// Number within the table.
    pub id: IndexId,
    /// Name.
    pub name: String,
    /// Columns, in key order.
    pub columns: Vec<ColumnId>,
    /// Those of the columns that are there in part or declared DESC.
    pub parts: BTreeMap<ColumnId, KeyPart>,
    /// Whether entries without NULLs are unique.
    pub unique: bool,
    /// Whether readers may use it; writers keep it either way.
    pub visible: bool,
    /// State.
    pub state: IndexState,
}

impl Index {
    /// Whether a read at a timestamp finds every row through this index, and may.
    pub fn serves(&self, ts: Timestamp) -> bool {
        self.visible && self.is_whole_at(ts)
    }

    /// Whether it has an entry for every row at a timestamp, whoever may read them.
    pub fn is_whole_at(&self, ts: Timestamp) -> bool {
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

    /// How much of a column its entries hold, if not all.
    pub fn prefix(&self, column: ColumnId) -> Option<u32> {
        self.parts.get(&column)?.prefix
    }

    /// Whether entries hold less than the whole values: rows of different values may share them.
    pub fn has_prefix(&self) -> bool {
        self.parts.values().any(|part| part.prefix.is_some())
    }

    /// Whether a column is declared DESC.
    pub fn is_descending(&self, column: ColumnId) -> bool {
        self.parts.get(&column).is_some_and(|part| part.descending)
    }

    /// Leaves of a column's value what entries hold of it. Values in ascending order stay in
    /// ascending order, some of them become equal.
    pub fn shorten(&self, column: ColumnId, value: &mut Value) {
        let Some(length) = self.prefix(column) else { return };
        match value {
            Value::String(text) => {
                if let Some((end, _)) = text.char_indices().nth(length as usize) {
                    text.truncate(end);
                }
            }
            Value::Bytes(bytes) => bytes.truncate(length as usize),
            _ => {}
        }
    }

    /// Puts a column in another one's place.
    pub fn replace_column(&mut self, gone: ColumnId, come: ColumnId) {
        self.columns.iter_mut().filter(|id| **id == gone).for_each(|id| *id = come);
        if let Some(part) = self.parts.remove(&gone) {
            self.parts.insert(come, part);
        }
    }
}

/// An index as it is encoded. What came later stands in bits that were zero before, so descriptions
/// from before it read as they were, and plain ones still have the same bytes.
#[derive(Serialize, Deserialize)]
struct Encoded {
    id: IndexId,
    name: String,
    /// Numbers of columns; from bit 32 on the length of a prefix.
    columns: Vec<u64>,
    /// Whether it is unique; from the second bit on what else there is.
    flags: u8,
    state: IndexState,
}

const LENGTH_SHIFT: u32 = 32;
const LENGTH_MASK: u64 = 0x7FFF_FFFF;
const DESCENDING: u64 = 1 << 63;
const UNIQUE: u8 = 1;
const INVISIBLE: u8 = 2;

impl From<Encoded> for Index {
    fn from(encoded: Encoded) -> Index {
        let Encoded { id, name, columns, flags, state } = encoded;
        let part = |packed: &u64| {
            let length = ((packed >> LENGTH_SHIFT) & LENGTH_MASK) as u32;
            let prefix = (length > 0).then_some(length);
            let part = KeyPart { prefix, descending: packed & DESCENDING != 0 };
            (part != KeyPart::default()).then_some((*packed as ColumnId, part))
        };
        Index {
            id,
            name,
            parts: columns.iter().filter_map(part).collect(),
            columns: columns.iter().map(|packed| *packed as ColumnId).collect(),
            unique: flags & UNIQUE != 0,
            visible: flags & INVISIBLE == 0,
            state,
        }
    }
}

impl From<Index> for Encoded {
    fn from(index: Index) -> Encoded {
        let packed = |id: &ColumnId| {
            let part = index.parts.get(id).copied().unwrap_or_default();
            let length = u64::from(part.prefix.unwrap_or(0)) & LENGTH_MASK;
            let descending = if part.descending { DESCENDING } else { 0 };
            u64::from(*id) | length << LENGTH_SHIFT | descending
        };
        let columns = index.columns.iter().map(packed).collect();
        let flags =
            if index.unique { UNIQUE } else { 0 } | if index.visible { 0 } else { INVISIBLE };
        Encoded { id: index.id, name: index.name, columns, flags, state: index.state }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// An index as it was before it had prefixes.
    #[derive(Serialize)]
    struct Old {
        id: IndexId,
        name: String,
        columns: Vec<ColumnId>,
        unique: bool,
        state: IndexState,
    }

    fn index(columns: Vec<ColumnId>, unique: bool) -> Index {
        let (parts, state) = (BTreeMap::new(), IndexState::WriteOnly);
        Index { id: 7, name: "k".into(), columns, parts, unique, visible: true, state }
    }

    #[test]
    fn descriptions_from_before_prefixes_are_read_and_written_as_they_were() {
        for unique in [false, true] {
            let columns = vec![1, 127, 128, 70_000, u32::MAX];
            let new = index(columns.clone(), unique);
            let old = Old { id: 7, name: "k".into(), columns, unique, state: new.state };
            let bytes = postcard::to_allocvec(&old).unwrap();
            assert_eq!(postcard::from_bytes::<Index>(&bytes).unwrap(), new);
            assert_eq!(postcard::to_allocvec(&new).unwrap(), bytes);
        }
    }

    #[test]
    fn parts_and_visibility_come_back() {
        let mut index = index(vec![3, u32::MAX, 5], true);
        index.visible = false;
        index.parts.insert(3, KeyPart { prefix: Some(3_072), descending: false });
        index.parts.insert(u32::MAX, KeyPart { prefix: Some(1), descending: true });
        index.parts.insert(5, KeyPart { prefix: None, descending: true });
        let bytes = postcard::to_allocvec(&index).unwrap();
        assert_eq!(postcard::from_bytes::<Index>(&bytes).unwrap(), index);
        index.replace_column(3, 9);
        assert_eq!((index.prefix(9), index.prefix(3)), (Some(3_072), None));
        assert_eq!(index.columns, [9, u32::MAX, 5]);
    }

    #[test]
    fn characters_and_bytes_are_counted_and_nothing_else_is_cut() {
        let mut index = index(vec![1], false);
        index.parts.insert(1, KeyPart { prefix: Some(2), descending: false });
        let short = |column, mut value: Value| {
            index.shorten(column, &mut value);
            value
        };
        for (given, left) in
            [("", ""), ("a", "a"), ("äß", "äß"), ("äßx", "äß"), ("🦀🦀🦀", "🦀🦀"), ("a  ", "a ")]
        {
            assert_eq!(short(1, Value::String(given.into())), Value::String(left.into()));
        }
        assert_eq!(short(1, Value::Bytes(vec![0, 0xFF, 1])), Value::Bytes(vec![0, 0xFF]));
        assert_eq!(short(1, Value::Null), Value::Null);
        assert_eq!(short(2, Value::String("abc".into())), Value::String("abc".into()));
    }
}
