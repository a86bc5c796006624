//! Rows of one range, of both sides, value by value.

use serde::{Deserialize, Serialize};

use crate::class::Rule;
use crate::range::Key;

/// A row's values in their plain spelling, in the order of the compared columns.
pub type Values = Vec<Option<String>>;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Key.
    pub key: Key,
    /// Values, those of the key included.
    pub values: Values,
}

/// What is unlike between the sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Difference {
    /// In SOURCE only.
    Missing {
        /// SOURCE's row.
        source: Values,
    },
    /// In TARGET only.
    Extra {
        /// TARGET's row.
        target: Values,
    },
    /// In both, with other values.
    Changed {
        /// Compared columns that differ, by place.
        columns: Vec<usize>,
        /// SOURCE's row.
        source: Values,
        /// TARGET's row.
        target: Values,
    },
    /// One side holds the key more than once: which row belongs to which cannot be said.
    Repeated {
        /// SOURCE's rows of the key.
        source: Vec<Values>,
        /// TARGET's rows of the key.
        target: Vec<Values>,
    },
}

/// What is unlike, in the order of keys.
pub fn compare(mut source: Vec<Row>, mut target: Vec<Row>, rules: &[Rule]) -> Vec<Difference> {
    source.sort_by(|a, b| a.key.cmp(&b.key));
    target.sort_by(|a, b| a.key.cmp(&b.key));
    let mut found = Vec::new();
    let (mut left, mut right) =
        (groups(source).into_iter().peekable(), groups(target).into_iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return found,
        };
        let a = if order.is_le() { left.next() } else { None };
        let b = if order.is_ge() { right.next() } else { None };
        let rows =
            |side: Option<(Key, Vec<Values>)>| side.map(|(_, rows)| rows).unwrap_or_default();
        found.extend(one_key(rows(a), rows(b), rules));
    }
}

/// Rows by key.
fn groups(rows: Vec<Row>) -> Vec<(Key, Vec<Values>)> {
    let mut groups: Vec<(Key, Vec<Values>)> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some((key, values)) if *key == row.key => values.push(row.values),
            _ => groups.push((row.key, vec![row.values])),
        }
    }
    groups
}

fn one_key(mut source: Vec<Values>, mut target: Vec<Values>, rules: &[Rule]) -> Option<Difference> {
    if source.len() > 1 || target.len() > 1 {
        source.sort();
        target.sort();
        let same = source.len() == target.len()
            && source.iter().zip(&target).all(|(a, b)| unlike(a, b, rules).is_empty());
        return (!same).then_some(Difference::Repeated { source, target });
    }
    match (source.pop(), target.pop()) {
        (Some(source), None) => Some(Difference::Missing { source }),
        (None, Some(target)) => Some(Difference::Extra { target }),
        (Some(source), Some(target)) => {
            let columns = unlike(&source, &target, rules);
            (!columns.is_empty()).then_some(Difference::Changed { columns, source, target })
        }
        (None, None) => None,
    }
}

/// Places of values that differ.
fn unlike(a: &Values, b: &Values, rules: &[Rule]) -> Vec<usize> {
    let pairs = a.iter().zip(b).zip(rules).enumerate();
    pairs
        .filter(|(_, ((a, b), rule))| !rule.same(a.as_deref(), b.as_deref()))
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::range::Part;

    fn row(key: i128, value: Option<&str>) -> Row {
        Row {
            key: vec![Part::Int(key)],
            values: vec![Some(key.to_string()), value.map(str::to_owned)],
        }
    }

    #[test]
    fn rows_are_matched_by_key() {
        let rules = [Rule::exact(Class::Int), Rule::exact(Class::Text { padded: false })];
        let source = vec![row(4, Some("x")), row(1, Some("a")), row(2, None), row(10, Some("j"))];
        let target =
            vec![row(1, Some("a")), row(2, Some("")), row(3, Some("c")), row(10, Some("J"))];
        let found = compare(source, target, &rules);
        assert_eq!(found.len(), 4);
        assert!(matches!(&found[0], Difference::Changed { columns, .. } if *columns == [1]));
        assert!(
            matches!(&found[1], Difference::Extra { target } if target[0].as_deref() == Some("3"))
        );
        assert!(
            matches!(&found[2], Difference::Missing { source } if source[0].as_deref() == Some("4"))
        );
        assert!(matches!(&found[3], Difference::Changed { columns, .. } if *columns == [1]));
    }

    #[test]
    fn a_repeated_key_is_reported_as_such() {
        let rules = [Rule::exact(Class::Int), Rule::exact(Class::Text { padded: false })];
        let twice = || vec![row(1, Some("a")), row(1, Some("b"))];
        assert_eq!(compare(twice(), twice().into_iter().rev().collect(), &rules), []);
        let found = compare(twice(), vec![row(1, Some("a"))], &rules);
        assert!(
            matches!(&found[..], [Difference::Repeated { source, target }] if source.len() == 2 && target.len() == 1)
        );
    }
}
