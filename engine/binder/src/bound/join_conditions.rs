//! Conditions of joins that ask queries, for which plans have joins in WHERE alone.
//!
//! Of an inner join they stand behind it. Of an outer join, what reads one side alone is asked or computed on that side,
//! before the rows meet, and of a query that reads both the other side is made a LATERAL table: it must never decide which
//! rows of the kept side there are.

use values::error::SqlResult;

use super::dependencies;
use super::query::Binder;
use super::scope::Scope;
use super::subqueries::connected;
use super::tree::{
    BoundQuery, ColumnId, Connective, JoinKind, Node, OutputColumn, Relation, Scalar,
};

/// The conditions of which an AND is made.
pub(super) fn conjuncts(scalar: Scalar, into: &mut Vec<Scalar>) {
    match scalar.node {
        Node::Logic { connective: Connective::And, left, right } => {
            conjuncts(*left, into);
            conjuncts(*right, into);
        }
        node => into.push(Scalar { node, ty: scalar.ty }),
    }
}

fn all(conditions: Vec<Scalar>) -> Option<Scalar> {
    conditions.into_iter().reduce(|one, other| connected(one, Connective::And, other))
}

/// The rows for which a condition is true; of a LATERAL table within it, for it stays one.
fn filtered(input: Relation, condition: Option<Scalar>) -> Relation {
    let Some(condition) = condition else { return input };
    match input {
        Relation::Derived { mut query, alias, lateral: true } => {
            let input = Box::new(query.relation);
            query.relation = Relation::Filter { input, condition };
            Relation::Derived { query, alias, lateral: true }
        }
        input => Relation::Filter { input: Box::new(input), condition },
    }
}

/// One side of a join.
struct Side {
    relation: Relation,
    /// Its columns that names may mean.
    columns: Vec<(ColumnId, Scalar)>,
    /// What is computed for each of its rows.
    computed: Vec<(ColumnId, Scalar)>,
}

impl Side {
    fn of(relation: Relation, scope: &Scope) -> Side {
        let own = dependencies::columns_of(&relation);
        let columns = scope.columns().filter(|column| own.contains(&column.id));
        let columns = columns.map(|column| (column.id, column.value())).collect();
        Side { relation, columns, computed: Vec::new() }
    }

    /// Whether an expression, or a query in it, reads one of its columns.
    fn is_read(&self, scalar: &Scalar) -> bool {
        let read = scalar.columns();
        self.columns.iter().any(|(id, _)| read.contains(id))
    }

    /// Its rows with what is computed for them, as a table that may read the other side's columns. `number` is one that no
    /// other such table of the statement has.
    fn lateral(self, number: ColumnId) -> Relation {
        if matches!(self.relation, Relation::Derived { lateral: true, .. }) {
            return self.rows();
        }
        let Side { relation, mut columns, computed } = self;
        columns.extend(computed);
        let output = columns.iter().map(output).collect();
        // A relation has columns that its scope does not know, and has them in an order of its own.
        let relation = Relation::Map { input: Box::new(relation), columns };
        let query = Box::new(BoundQuery { relation, output });
        Relation::Derived { query, alias: format!("joined{number}"), lateral: true }
    }

    /// Its rows with what is computed for them.
    fn rows(self) -> Relation {
        let Side { relation, mut columns, computed } = self;
        if computed.is_empty() {
            return relation;
        }
        match relation {
            Relation::Derived { mut query, alias, lateral: true } => {
                query.output.extend(computed.iter().map(output));
                columns.extend(computed);
                query.relation = Relation::Map { input: Box::new(query.relation), columns };
                Relation::Derived { query, alias, lateral: true }
            }
            relation => {
                columns.extend(computed);
                Relation::Map { input: Box::new(relation), columns }
            }
        }
    }
}

/// A column under a name that no other has.
fn output((id, scalar): &(ColumnId, Scalar)) -> OutputColumn {
    OutputColumn { id: *id, name: id.to_string(), origin: None, ty: scalar.ty }
}

/// Whether a query within an expression reads both sides.
fn asks_of_both(scalar: &Scalar, one: &Side, other: &Side) -> bool {
    let is_of_both = |node: &Node| {
        let Node::Query(query) = node else { return false };
        let read = query.outer_columns();
        let reads = |side: &Side| side.columns.iter().any(|(id, _)| read.contains(id));
        reads(one) && reads(other)
    };
    scalar.has(&is_of_both)
}

impl Binder<'_> {
    /// A join whose condition asks queries.
    pub(super) fn join_on_queries(
        &self,
        kind: JoinKind,
        (left, right): (Relation, Relation),
        on: Scalar,
    ) -> SqlResult<Relation> {
        let mut conditions = Vec::new();
        conjuncts(on, &mut conditions);
        let (asking, mut plain): (Vec<_>, Vec<_>) =
            conditions.into_iter().partition(Scalar::has_query);
        if kind == JoinKind::Inner {
            let joined = super::from::join(kind, left, right, all(plain));
            let behind = all(asking).map(|condition| self.condition(condition)).transpose()?;
            return Ok(filtered(joined, behind));
        }
        let (mut left, mut right) = (Side::of(left, &self.scope), Side::of(right, &self.scope));
        let (kept, other) = match kind {
            JoinKind::Right => (&mut right, &mut left),
            _ => (&mut left, &mut right),
        };
        let (mut of_other, mut of_both) = (Vec::new(), Vec::new());
        for condition in asking {
            if !kept.is_read(&condition) {
                of_other.push(condition);
                continue;
            }
            let valued = self.values(condition.clone(), true)?;
            match asks_of_both(&valued, kept, other) {
                true => of_both.push(condition),
                false => plain.push(self.computed_beside(valued, kept, other)?),
            }
        }
        let of_other = all(of_other).map(|condition| self.condition(condition)).transpose()?;
        let relation = std::mem::replace(&mut other.relation, Relation::OneRow);
        other.relation = filtered(relation, of_other);
        let Some(of_both) = all(of_both).map(|asked| self.condition(asked)).transpose()? else {
            return Ok(super::from::join(kind, left.rows(), right.rows(), all(plain)));
        };
        let (kept, other) = match kind {
            JoinKind::Right => (right, left),
            _ => (left, right),
        };
        let of_kept = |id| kept.columns.iter().any(|(column, _)| *column == id);
        let of_both = of_both.seen_beside(&of_kept);
        let other = filtered(other.lateral(self.next()), Some(of_both));
        Ok(super::from::join(JoinKind::Left, kept.rows(), other, all(plain)))
    }

    /// An expression in which each query is a column of the side that it reads.
    fn computed_beside(
        &self,
        scalar: Scalar,
        kept: &mut Side,
        other: &mut Side,
    ) -> SqlResult<Scalar> {
        let scalar = scalar.try_map(&mut |part| self.computed_beside(part, kept, other))?;
        if !matches!(scalar.node, Node::Query(_)) {
            return Ok(scalar);
        }
        let side = if kept.is_read(&scalar) { kept } else { other };
        let (id, ty) = (self.next(), scalar.ty);
        side.computed.push((id, scalar));
        Ok(Scalar { node: Node::Column(id), ty })
    }
}
