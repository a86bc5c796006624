//! Which columns of tables the conditions of a query may restrict to some values, by the bound query alone.
//!
//! What has no restricted column that a key begins with is read as a whole, whatever plan is made: nobody needs a plan to
//! know. So it must never leave out a column that a planner could find a condition on; one too many costs a plan.

use std::collections::{BTreeMap, BTreeSet};

use syntax::names::TableName;

use super::tree::{BoundQuery, ColumnId, Comparison, Connective, Node, Relation, Scalar, Scan};

/// Columns by what they are equal to, and what is known of some.
#[derive(Default)]
struct Classes {
    /// Another column of the same class; the last of a chain stands for all.
    parent: BTreeMap<ColumnId, ColumnId>,
    restricted: BTreeSet<ColumnId>,
    /// Whether columns are the same in a way that is not looked into.
    has_recursion: bool,
}

impl BoundQuery {
    /// Whether a plan may find rows of a table by a key: whether conditions may restrict the first column of one. `keys`
    /// gives the positions of these columns, hidden ones counted.
    pub fn may_restrict(&self, keys: &dyn Fn(&TableName) -> Vec<usize>) -> bool {
        let mut classes = Classes::default();
        let mut scans = Vec::new();
        classes.query(self, &mut scans);
        let restricted: BTreeSet<_> =
            classes.restricted.iter().map(|id| classes.root(*id)).collect();
        classes.has_recursion
            || scans.into_iter().any(|scan| {
                let places = keys(&scan.table);
                let mut first_columns =
                    scan.columns.iter().filter(|(place, _)| places.contains(place));
                first_columns.any(|(_, id)| restricted.contains(&classes.root(*id)))
            })
    }
}

impl Classes {
    fn root(&self, mut column: ColumnId) -> ColumnId {
        while let Some(parent) = self.parent.get(&column) {
            column = *parent;
        }
        column
    }

    fn equate(&mut self, one: ColumnId, other: ColumnId) {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.parent.insert(one, other);
        }
    }

    fn query<'q>(&mut self, query: &'q BoundQuery, scans: &mut Vec<&'q Scan>) {
        query.relation.for_each(&mut |relation| {
            self.relation(relation);
            if let Relation::Scan(scan) = relation {
                scans.push(scan);
            }
            for scalar in relation.scalars() {
                scalar.for_each(&mut |part| {
                    if let Node::InQuery { values, query, .. } = &part.node {
                        values.iter().zip(&query.output).for_each(|(value, column)| {
                            self.link(column.id, value);
                        });
                    }
                    if let Some(query) = part.query() {
                        self.query(query, scans);
                    }
                });
            }
        });
    }

    fn relation(&mut self, relation: &Relation) {
        match relation {
            Relation::Filter { condition, .. } => self.condition(condition),
            Relation::Join { on, .. } => on.iter().for_each(|on| self.condition(on)),
            Relation::Map { columns, .. } | Relation::Group { keys: columns, .. } => {
                columns.iter().for_each(|(id, scalar)| self.link(*id, scalar));
            }
            Relation::Set { left, right, columns, .. } => {
                for side in [left, right] {
                    let ids = side.output.iter().map(|column| column.id);
                    columns.iter().zip(ids).for_each(|(one, other)| self.equate(*one, other));
                }
            }
            Relation::Recursive { .. } => self.has_recursion = true,
            Relation::OneRow
            | Relation::Scan(_)
            | Relation::Windows { .. }
            | Relation::Distinct { .. }
            | Relation::Derived { .. }
            | Relation::Last { .. }
            | Relation::Sort { .. }
            | Relation::Limit { .. } => {}
        }
    }

    /// A column that is computed: a condition on it may be one on what it is computed from.
    fn link(&mut self, id: ColumnId, scalar: &Scalar) {
        let columns = scalar.columns();
        if columns.is_empty() {
            self.restricted.insert(id);
        }
        columns.into_iter().for_each(|column| self.equate(id, column));
    }

    /// What is true of rows. But for equal columns, all that it reads is restricted by it.
    fn condition(&mut self, condition: &Scalar) {
        match &condition.node {
            Node::Logic { connective: Connective::And | Connective::Both, left, right } => {
                self.condition(left);
                self.condition(right);
            }
            // What is true of the rows of a query is looked at where that is.
            Node::Exists { .. } => {}
            Node::InQuery { values, negated: false, .. }
                if values.iter().all(|value| column(value).is_some()) => {}
            _ => match equal_columns(condition) {
                Some((left, right)) => self.equate(left, right),
                None => self.restricted.extend(condition.columns()),
            },
        }
    }
}

fn equal_columns(condition: &Scalar) -> Option<(ColumnId, ColumnId)> {
    match &condition.node {
        Node::Compare {
            comparison: Comparison::Equal | Comparison::NullSafeEqual,
            left,
            right,
        } => Some((column(left)?, column(right)?)),
        _ => None,
    }
}

fn column(scalar: &Scalar) -> Option<ColumnId> {
    match scalar.node {
        Node::Column(id) | Node::Outer(id) => Some(id),
        _ => None,
    }
}
