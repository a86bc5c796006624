//! Which columns of rows follow from others, as GROUP BY asks: a table's columns from its primary key, equal ones from each
//! other, computed ones from what they are computed of.
//!
//! It must never claim what a row could break: of the side of an outer join that may have no row it knows only what holds
//! for rows of NULLs, too.

use std::collections::{HashMap, HashSet};

use arrow::datatypes::DataType;
use datafusion::logical_expr::Volatility;
use syntax::names::TableName;

use super::call_types::arrow;
use super::join_conditions::conjuncts;
use super::tree::{BoundQuery, ColumnId, Comparison, JoinKind, Node, Relation, Scalar, Scan};
use crate::ResolvedTable;

/// What follows from what.
pub struct Dependencies<'a> {
    tables: &'a HashMap<TableName, ResolvedTable>,
    /// The column follows from those before it.
    rules: Vec<(Vec<ColumnId>, ColumnId)>,
}

impl<'a> Dependencies<'a> {
    /// Those of some rows.
    pub fn of(relation: &Relation, tables: &'a HashMap<TableName, ResolvedTable>) -> Self {
        let mut found = Dependencies { tables, rules: Vec::new() };
        found.relation(relation, false);
        found
    }

    /// All columns that follow from some, these among them.
    pub fn closure(&self, known: impl Iterator<Item = ColumnId>) -> HashSet<ColumnId> {
        let mut known: HashSet<ColumnId> = known.collect();
        loop {
            let before = known.len();
            for (from, to) in &self.rules {
                if from.iter().all(|column| known.contains(column)) {
                    known.insert(*to);
                }
            }
            if known.len() == before {
                return known;
            }
        }
    }

    /// With `padded`, rows of NULLs may stand beside these.
    fn relation(&mut self, relation: &Relation, padded: bool) {
        match relation {
            Relation::OneRow
            | Relation::Set { .. }
            | Relation::Recursive { .. }
            | Relation::Last { .. } => {}
            Relation::Scan(scan) => self.scan(scan),
            Relation::Join { kind, left, right, on } => {
                self.relation(left, padded || *kind == JoinKind::Right);
                self.relation(right, padded || *kind == JoinKind::Left);
                match (kind, on) {
                    (JoinKind::Inner, Some(on)) => self.condition(on, padded),
                    (JoinKind::Left, Some(on)) if !is_lateral(right) => self.partners(on, left),
                    (JoinKind::Right, Some(on)) => self.partners(on, right),
                    _ => {}
                }
            }
            Relation::Filter { input, condition } => {
                self.relation(input, padded);
                self.condition(condition, padded);
            }
            Relation::Group { input, keys, aggregates, rollup } => {
                // A total is of several values of what is NULL in it.
                if *rollup {
                    return;
                }
                self.relation(input, padded);
                self.computed(keys, padded);
                if !padded {
                    let all: Vec<ColumnId> = keys.iter().map(|(id, _)| *id).collect();
                    self.rules.extend(aggregates.iter().map(|(id, _)| (all.clone(), *id)));
                }
            }
            Relation::Map { input, columns } => {
                self.relation(input, padded);
                self.computed(columns, padded);
            }
            Relation::Windows { input, .. }
            | Relation::Distinct { input }
            | Relation::Sort { input, .. }
            | Relation::Limit { input, .. } => self.relation(input, padded),
            Relation::Derived { query, lateral: false, .. } => {
                self.relation(&query.relation, padded);
            }
            Relation::Derived { query, lateral: true, .. } => self.lateral(query, padded),
        }
    }

    /// A LATERAL table is another one for other values around; but of its conditions only which rows it has.
    fn lateral(&mut self, query: &BoundQuery, padded: bool) {
        let (mut rows, mut conditions) = (&query.relation, Vec::new());
        while let Relation::Filter { input, condition } = rows {
            conditions.push(condition);
            rows = input;
        }
        let first = self.rules.len();
        self.relation(rows, padded);
        self.hold_for(first, &rows.outer_columns());
        let first = self.rules.len();
        conditions.into_iter().for_each(|condition| self.condition(condition, padded));
        self.hold_for(first, &query.relation.outer_columns());
    }

    /// Rules that hold where columns around are the same.
    fn hold_for(&mut self, first: usize, around: &[ColumnId]) {
        self.rules.iter_mut().skip(first).for_each(|(from, _)| from.extend(around));
    }

    fn scan(&mut self, scan: &Scan) {
        let table = self.tables.get(&scan.table).and_then(|resolved| resolved.table.as_ref());
        let Some(table) = table else { return };
        let column_of = |id: &types::ColumnId| {
            let position = table.columns.iter().position(|column| column.id == *id)?;
            scan.columns.iter().find(|(place, _)| *place == position).map(|(_, id)| *id)
        };
        let key: Option<Vec<ColumnId>> = table.primary_key.iter().map(column_of).collect();
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            self.rules.extend(scan.columns.iter().map(|(_, id)| (key.clone(), *id)));
        }
    }

    fn computed(&mut self, columns: &[(ColumnId, Scalar)], padded: bool) {
        for (id, scalar) in columns {
            if let Node::Column(of) = scalar.node {
                self.same(*id, of);
            } else if !padded && is_repeated(scalar) {
                self.rules.push((scalar.columns(), *id));
            }
        }
    }

    fn same(&mut self, one: ColumnId, other: ColumnId) {
        self.rules.extend([(vec![one], other), (vec![other], one)]);
    }

    /// What holds of rows for which a condition is true.
    fn condition(&mut self, condition: &Scalar, padded: bool) {
        // Texts of these compare without case.
        if self.tables.keys().any(|name| name.database == "information_schema") {
            return;
        }
        for (left, right) in equations(condition).into_iter().flatten() {
            match (&left.node, &right.node) {
                (Node::Column(one), Node::Column(other)) => self.same(*one, *other),
                (Node::Column(column), Node::Literal(_) | Node::Parameter(_) | Node::Outer(_))
                | (Node::Literal(_) | Node::Parameter(_) | Node::Outer(_), Node::Column(column))
                    if !padded =>
                {
                    self.rules.push((Vec::new(), *column));
                }
                _ => {}
            }
        }
    }

    /// What of the other side of an outer join follows from the kept one, whose columns alone decide whether a row has
    /// partners.
    fn partners(&mut self, on: &Scalar, kept: &Relation) {
        let kept = columns_of(kept);
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for equation in equations(on) {
            let Some((left, right)) = equation else { return };
            let (Node::Column(left), Node::Column(right)) = (left.node, right.node) else { return };
            match (kept.contains(&left), kept.contains(&right)) {
                (true, false) => (from.push(left), to.push(right)),
                (false, true) => (from.push(right), to.push(left)),
                _ => return,
            };
        }
        self.rules.extend(to.into_iter().map(|column| (from.clone(), column)));
    }
}

/// The conditions of an AND: both sides of each that says that equal values are the same value, `None` of any other.
fn equations(condition: &Scalar) -> Vec<Option<(Scalar, Scalar)>> {
    let mut conditions = Vec::new();
    conjuncts(condition.clone(), &mut conditions);
    let equation = |condition: Scalar| match condition.node {
        Node::Compare { comparison: Comparison::Equal, left, right }
            if is_same_if_equal(&left, &right) =>
        {
            Some((*left, *right))
        }
        _ => None,
    };
    conditions.into_iter().map(equation).collect()
}

/// Whether values of these types that are equal are the same: 0.0 and -0.0 are not, nor are documents and texts that compare
/// without case; and '1' is equal to 1 as '01' is.
fn is_same_if_equal(one: &Scalar, other: &Scalar) -> bool {
    let (one, other) = (arrow(&one.ty), arrow(&other.ty));
    let exact = !matches!(one, DataType::Float32 | DataType::Float64 | DataType::LargeUtf8);
    exact && (one == other || one.is_integer() && other.is_integer())
}

fn is_lateral(relation: &Relation) -> bool {
    matches!(relation, Relation::Derived { lateral: true, .. })
}

/// Whether an expression has the same value for the same columns.
fn is_repeated(scalar: &Scalar) -> bool {
    let varies = |node: &Node| match node {
        Node::Query(_) | Node::Exists { .. } | Node::InQuery { .. } | Node::Window(_) => true,
        Node::Call { function, .. } => functions::named(function)
            .is_none_or(|function| function.signature().volatility == Volatility::Volatile),
        _ => false,
    };
    !scalar.has(&varies)
}

/// The columns that rows have.
pub fn columns_of(relation: &Relation) -> HashSet<ColumnId> {
    match relation {
        Relation::OneRow => HashSet::new(),
        Relation::Scan(scan) => scan.columns.iter().map(|(_, id)| *id).collect(),
        Relation::Join { left, right, .. } => {
            let mut columns = columns_of(left);
            columns.extend(columns_of(right));
            columns
        }
        Relation::Filter { input, .. }
        | Relation::Distinct { input }
        | Relation::Sort { input, .. }
        | Relation::Limit { input, .. } => columns_of(input),
        Relation::Windows { input, calls } => {
            let mut columns = columns_of(input);
            columns.extend(calls.iter().map(|(id, _)| *id));
            columns
        }
        Relation::Group { keys, aggregates, .. } => {
            let keys = keys.iter().map(|(id, _)| *id);
            keys.chain(aggregates.iter().map(|(id, _)| *id)).collect()
        }
        Relation::Map { columns, .. } => columns.iter().map(|(id, _)| *id).collect(),
        Relation::Set { columns, .. }
        | Relation::Recursive { columns, .. }
        | Relation::Last { columns, .. } => columns.iter().copied().collect(),
        Relation::Derived { query, .. } => query.output.iter().map(|column| column.id).collect(),
    }
}
