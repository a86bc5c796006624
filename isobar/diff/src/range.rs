//! Keys, and ranges of keys: typed values in the order that all sides share.
//!
//! Numbers by size, text and bytes byte by byte. Never a server's collation.

use std::cmp::Ordering;

use arrow::datatypes::i256;
use serde::{Deserialize, Serialize};

use crate::class::Class;

/// One value of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Saved", try_from = "Saved")]
pub enum Part {
    /// A whole number.
    Int(i128),
    /// A decimal, and its text.
    Decimal(i256, String),
    /// A float.
    Float(f64),
    /// What sorts as its text does: text, bytes in hexadecimal, dates.
    Text(String),
}

/// A part in a checkpoint: numbers as text, which JSON keeps whole.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Saved {
    Int(String),
    Decimal(String, String),
    Float(String),
    Text(String),
}

impl From<Part> for Saved {
    fn from(part: Part) -> Saved {
        match part {
            Part::Int(n) => Saved::Int(n.to_string()),
            Part::Decimal(n, text) => Saved::Decimal(n.to_string(), text),
            Part::Float(n) => Saved::Float(n.to_string()),
            Part::Text(text) => Saved::Text(text),
        }
    }
}

impl TryFrom<Saved> for Part {
    type Error = String;

    fn try_from(saved: Saved) -> Result<Part, String> {
        let wrong = |text: &str| format!("'{text}' is no number");
        Ok(match saved {
            Saved::Int(text) => Part::Int(text.parse().map_err(|_| wrong(&text))?),
            Saved::Decimal(n, text) => Part::Decimal(n.parse().map_err(|_| wrong(&n))?, text),
            Saved::Float(text) => Part::Float(text.parse().map_err(|_| wrong(&text))?),
            Saved::Text(text) => Part::Text(text),
        })
    }
}

impl Part {
    /// Reads a value's plain spelling. `None`: it is none of its class.
    pub fn read(class: Class, text: &str) -> Option<Part> {
        Some(match class {
            Class::Int => Part::Int(text.parse().ok()?),
            Class::Decimal(scale) => Part::Decimal(unscaled(text, scale)?, text.to_owned()),
            Class::Float => Part::Float(text.parse().ok()?),
            _ => Part::Text(text.to_owned()),
        })
    }

    /// The plain spelling.
    pub fn text(&self) -> String {
        match self {
            Part::Int(n) => n.to_string(),
            Part::Float(n) => crate::class::float(*n),
            Part::Decimal(_, text) | Part::Text(text) => text.clone(),
        }
    }
}

/// A decimal's digits with so many of them after the point.
fn unscaled(text: &str, scale: u8) -> Option<i256> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > usize::from(scale) {
        return None;
    }
    let all = format!("{whole}{fraction:0<width$}", width = usize::from(scale));
    if !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    i256::from_string(&all).map(|n| if negative { n.wrapping_neg() } else { n })
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Part {}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Part {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Part::Int(a), Part::Int(b)) => a.cmp(b),
            (Part::Decimal(a, _), Part::Decimal(b, _)) => a.cmp(b),
            (Part::Float(a), Part::Float(b)) => a.total_cmp(b),
            (Part::Text(a), Part::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            // One column has one class, so this does not happen; an order there must be all the same.
            (a, b) => a.text().cmp(&b.text()),
        }
    }
}

/// A key, in the key's order of columns.
pub type Key = Vec<Part>;

/// Keys after `low` up to and including `high`; without one, no bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Not included.
    pub low: Option<Key>,
    /// Included.
    pub high: Option<Key>,
}

impl Range {
    /// All keys.
    pub fn all() -> Range {
        Range { low: None, high: None }
    }

    /// Whether a key lies in it.
    pub fn holds(&self, key: &Key) -> bool {
        self.low.as_ref().is_none_or(|low| key > low)
            && self.high.as_ref().is_none_or(|high| key <= high)
    }

    /// The pieces that these keys cut it into, in order. Keys that cut nothing off are left out.
    pub fn cut(&self, mut keys: Vec<Key>) -> Vec<Range> {
        keys.sort();
        keys.dedup();
        keys.retain(|key| self.holds(key) && Some(key) != self.high.as_ref());
        let mut low = self.low.clone();
        let mut pieces = Vec::with_capacity(keys.len() + 1);
        for key in keys {
            pieces.push(Range { low: low.replace(key.clone()), high: Some(key) });
        }
        pieces.push(Range { low, high: self.high.clone() });
        pieces
    }
}

/// Which of some ranges, in order and apart, holds a key.
pub fn find(ranges: &[Range], key: &Key) -> Option<usize> {
    let at = ranges.partition_point(|range| range.high.as_ref().is_some_and(|high| high < key));
    ranges.get(at).is_some_and(|range| range.holds(key)).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(n: i128) -> Key {
        vec![Part::Int(n)]
    }

    #[test]
    fn pieces_cover_a_range_once() {
        let range = Range { low: Some(int(3)), high: Some(int(10)) };
        let pieces = range.cut(vec![int(7), int(3), int(5), int(10), int(99), int(5)]);
        assert_eq!(pieces.len(), 3);
        for n in 0..20 {
            let holders = pieces.iter().filter(|piece| piece.holds(&int(n))).count();
            assert_eq!(holders, usize::from(range.holds(&int(n))), "{n}");
            assert_eq!(find(&pieces, &int(n)).is_some(), range.holds(&int(n)), "{n}");
        }
    }

    #[test]
    fn keys_sort_by_their_kind() {
        let decimal = |text: &str| Part::read(Class::Decimal(2), text).unwrap();
        assert!(decimal("-10.5") < decimal("-2"));
        assert_eq!(decimal("2.50").cmp(&decimal("2.5")), Ordering::Equal);
        let long = |first: &str| decimal(&format!("{first}{}.25", "0".repeat(62)));
        assert!(long("-2") < long("-1") && long("1") < long("2") && decimal("9") < long("1"));
        assert!(Part::read(Class::Decimal(2), &"é".repeat(30)).is_none());
        assert!(Part::read(Class::Int, "10") > Part::read(Class::Int, "9"));
        let text = |text| Part::read(Class::Text { padded: false }, text).unwrap();
        assert!(text("B") < text("a") && text("z") < text("é") && text("a") < text("a\t"));
        assert!(Part::read(Class::Int, "x").is_none());
    }
}
