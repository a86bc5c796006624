//! Lists of labels: what a column of ENUM or SET may hold.
//!
//! A process keeps each list that it has met once and for ever, so that a column's type stays a
//! small value that is copied and compared without looking into the list. Lists come with
//! definitions of tables and are as few as those; nothing here may be called with lists that come
//! with rows.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Between the labels of a SET's value.
const COMMA: char = ',';

/// A list of labels. Two of the same labels are the same list.
#[derive(Clone, Copy)]
pub struct Labels(&'static List);

struct List {
    labels: Box<[String]>,
    /// Number of each label, from 1.
    numbers: HashMap<String, u32>,
}

/// What distinguishes lists.
struct ByLabels(&'static List);

impl PartialEq for ByLabels {
    fn eq(&self, other: &Self) -> bool {
        self.0.labels == other.0.labels
    }
}

impl Eq for ByLabels {}

impl Hash for ByLabels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.labels.hash(state);
    }
}

impl std::borrow::Borrow<[String]> for ByLabels {
    fn borrow(&self) -> &[String] {
        &self.0.labels
    }
}

impl Labels {
    /// The list of these labels.
    pub fn new(labels: &[String]) -> Labels {
        static LISTS: OnceLock<Mutex<HashSet<ByLabels>>> = OnceLock::new();
        let mut lists =
            LISTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lists.get(labels) {
            return Labels(known.0);
        }
        let mut numbers = HashMap::with_capacity(labels.len());
        for (number, label) in (1..).zip(labels) {
            numbers.entry(label.clone()).or_insert(number);
        }
        let list: &'static List = Box::leak(Box::new(List { labels: labels.into(), numbers }));
        lists.insert(ByLabels(list));
        Labels(list)
    }

    /// The labels, in declared order.
    pub fn all(self) -> &'static [String] {
        &self.0.labels
    }

    /// The number of a label, from 1.
    pub fn number(self, label: &str) -> Option<u32> {
        self.0.numbers.get(label).copied()
    }

    /// The label of a number, from 1.
    pub fn label(self, number: u64) -> Option<&'static str> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        self.0.labels.get(at).map(String::as_str)
    }

    /// The bits of a SET's value, and whether each of its labels is in the list.
    pub fn bits(self, value: &str) -> (u64, bool) {
        if value.is_empty() {
            return (0, true);
        }
        let one = |label: &str| self.number(label).and_then(|n| 1u64.checked_shl(n - 1));
        value
            .split(COMMA)
            .map(one)
            .fold((0, true), |(bits, whole), bit| (bits | bit.unwrap_or(0), whole && bit.is_some()))
    }

    /// The value of a SET that has these bits; bits without a label are left out.
    pub fn of_bits(self, bits: u64) -> String {
        let set = |at: &usize| bits.checked_shr(*at as u32).unwrap_or(0) & 1 == 1;
        let labels = self.0.labels.iter().enumerate().filter(|(at, _)| set(at));
        let labels: Vec<&str> = labels.map(|(_, label)| label.as_str()).collect();
        labels.join(&COMMA.to_string())
    }

    /// All bits that have a label.
    pub fn all_bits(self) -> u64 {
        let labels = self.0.labels.len() as u32;
        if labels >= u64::BITS { u64::MAX } else { (1 << labels) - 1 }
    }

    /// Characters of the longest label.
    pub fn longest(self) -> usize {
        self.0.labels.iter().map(|label| label.chars().count()).max().unwrap_or(0)
    }

    /// Characters of all labels and the commas between them.
    pub fn together(self) -> usize {
        let labels: usize = self.0.labels.iter().map(|label| label.chars().count()).sum();
        labels + self.0.labels.len().saturating_sub(1)
    }

    /// Whether the labels of this list are among the other's, in the same order.
    pub fn is_part_of(self, other: Labels) -> bool {
        let mut others = other.0.labels.iter();
        self.0.labels.iter().all(|label| others.any(|other| other == label))
    }

    /// Whether the labels of this list are among the other's, in any order.
    pub fn is_among(self, other: Labels) -> bool {
        self.0.labels.iter().all(|label| other.number(label).is_some())
    }

    /// Reads `'a','b'`, as [`Labels`] is printed.
    pub fn parse(text: &str) -> Option<Labels> {
        let mut labels = Vec::new();
        let mut chars = text.chars().peekable();
        loop {
            (chars.next()? == '\'').then_some(())?;
            let mut label = String::new();
            loop {
                match chars.next()? {
                    '\'' if chars.peek() != Some(&'\'') => break,
                    '\'' => label.extend(chars.next()),
                    '\\' => label.push(match chars.next()? {
                        'n' => '\n',
                        'r' => '\r',
                        '0' => '\0',
                        other => other,
                    }),
                    other => label.push(other),
                }
            }
            labels.push(label);
            match chars.next() {
                None => return Some(Labels::new(&labels)),
                Some(COMMA) => {}
                Some(_) => return None,
            }
        }
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Labels {}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).hash(state);
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({self})")
    }
}

impl fmt::Display for Labels {
    /// `'a','b'`, as MySQL prints it in a type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, label) in self.0.labels.iter().enumerate() {
            f.write_str(if at == 0 { "'" } else { ",'" })?;
            for c in label.chars() {
                match c {
                    '\'' => f.write_str("''")?,
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\0' => f.write_str("\\0")?,
                    c => write!(f, "{c}")?,
                }
            }
            f.write_str("'")?;
        }
        Ok(())
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.labels.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Labels::new(&Vec::<String>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;

    fn labels(all: &[&str]) -> Labels {
        Labels::new(&all.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn equal_lists_are_one() {
        assert_eq!(labels(&["a", "b"]), labels(&["a", "b"]));
        assert_ne!(labels(&["a", "b"]), labels(&["b", "a"]));
        assert_ne!(labels(&["a", "b"]), labels(&["a"]));
    }

    #[test]
    fn numbers_count_from_one() {
        let list = labels(&["low", "high"]);
        assert_eq!(
            (list.number("low"), list.number("high"), list.number("")),
            (Some(1), Some(2), None)
        );
        assert_eq!((list.label(0), list.label(2), list.label(3)), (None, Some("high"), None));
    }

    #[test]
    fn a_set_is_its_bits_in_declared_order() {
        let list = labels(&["x", "y", "z"]);
        assert_eq!(list.bits("z,x,z"), (5, true));
        assert_eq!(list.bits(""), (0, true));
        assert_eq!(list.bits("x,nope"), (1, false));
        assert_eq!(list.bits("x,"), (1, false));
        assert_eq!(list.of_bits(5), "x,z");
        assert_eq!(list.of_bits(u64::MAX), "x,y,z");
        assert_eq!(list.all_bits(), 7);
    }

    #[test]
    fn sixty_four_labels_use_all_bits() {
        let all: Vec<String> = (0..64).map(|n| format!("l{n}")).collect();
        let list = Labels::new(&all);
        assert_eq!(list.all_bits(), u64::MAX);
        for bits in [0, 1, 1 << 63, u64::MAX, 0xAAAA_5555_0000_FFFF] {
            assert_eq!(list.bits(&list.of_bits(bits)), (bits, true));
        }
    }

    #[test]
    fn a_longer_list_holds_a_shorter_one() {
        let (short, long) = (labels(&["a", "b"]), labels(&["a", "c", "b"]));
        assert!(short.is_part_of(long) && short.is_among(long) && !long.is_part_of(short));
        assert!(!labels(&["b", "a"]).is_part_of(long) && labels(&["b", "a"]).is_among(long));
    }

    #[test]
    fn what_is_printed_reads_back() {
        for all in [
            &["a"][..],
            &["", "it's", "a\\b", "line\nfeed\r", "nul\0", "(,)", "'", "''"],
            &["ä", "日本", "🦀"],
        ] {
            let list = labels(all);
            assert_eq!(Labels::parse(&list.to_string()), Some(list), "{list}");
            for ty in [ColumnType::Enum(list), ColumnType::Set(list)] {
                assert_eq!(ColumnType::labelled(&ty.to_string()), Some(ty));
                let bytes = postcard::to_allocvec(&ty).unwrap();
                assert_eq!(postcard::from_bytes::<ColumnType>(&bytes).unwrap(), ty);
            }
        }
        for text in ["", "a", "'a", "'a',", "'a'b", "'a'',"] {
            assert_eq!(Labels::parse(text), None, "{text}");
        }
    }
}
