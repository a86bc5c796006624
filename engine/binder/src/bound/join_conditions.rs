//! Conditions of joins that ask queries, for which plans have joins in WHERE alone.
//!
//! Of an inner join they stand behind it. Of an outer join, what reads one side alone is asked or computed on that side,
//! before the rows meet: it must never decide which rows of the kept side there are.

use std::collections::HashSet;

use values::error::{SqlResult, unsupported};

use super::query::Binder;
use super::scope::{Mark, Scope};
use super::subqueries::connected;
use super::tree::{ColumnId, Connective, JoinKind, Node, Relation, Scalar};

/// Whether a query is a part of an expression.
pub(super) fn has_query(scalar: &Scalar) -> bool {
    let is_query =
        |node: &Node| matches!(node, Node::Query(_) | Node::Exists { .. } | Node::InQuery { .. });
    scalar.has(&is_query)
}

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

fn filtered(input: Relation, condition: Option<Scalar>) -> Relation {
    match condition {
        Some(condition) => Relation::Filter { input: Box::new(input), condition },
        None => input,
    }
}

/// One side of a join.
struct Side {
    relation: Relation,
    scope: Scope,
    columns: HashSet<ColumnId>,
    /// What is computed for each of its rows.
    computed: Vec<(ColumnId, Scalar)>,
}

impl Side {
    fn of(relation: Relation, scope: Scope) -> Side {
        let columns = scope.columns().map(|column| column.id).collect();
        Side { relation, scope, columns, computed: Vec::new() }
    }

    /// Whether an expression, or a query in it, reads one of its columns.
    fn is_read(&self, scalar: &Scalar) -> bool {
        scalar.columns().iter().any(|id| self.columns.contains(id))
    }

    /// Its rows with what is computed for them.
    fn rows(self) -> Relation {
        if self.computed.is_empty() {
            return self.relation;
        }
        let own = self.scope.columns().map(|column| (column.id, column.value()));
        let columns = own.chain(self.computed).collect();
        Relation::Map { input: Box::new(self.relation), columns }
    }
}

impl Binder<'_> {
    /// A join whose condition asks queries; the scope has its left side since one mark and its right side since another.
    pub(super) fn join_on_queries(
        &self,
        kind: JoinKind,
        (left, right): (Relation, Relation),
        on: Scalar,
        (left_mark, right_mark): (Mark, Mark),
    ) -> SqlResult<Relation> {
        let mut conditions = Vec::new();
        conjuncts(on, &mut conditions);
        let (asking, mut plain): (Vec<_>, Vec<_>) = conditions.into_iter().partition(has_query);
        if kind == JoinKind::Inner {
            let joined = super::from::join(kind, left, right, all(plain));
            let behind = all(asking).map(|condition| self.condition(condition)).transpose()?;
            return Ok(filtered(joined, behind));
        }
        let mut left = Side::of(left, self.scope.between(left_mark, right_mark));
        let mut right = Side::of(right, self.scope.since(right_mark));
        let (kept, other) = match kind {
            JoinKind::Right => (&mut right, &mut left),
            _ => (&mut left, &mut right),
        };
        let mut of_other = Vec::new();
        for condition in asking {
            match kept.is_read(&condition) {
                false => of_other.push(condition),
                true => {
                    let condition = self.values(condition, true)?;
                    plain.push(self.computed_beside(condition, kept, other)?);
                }
            }
        }
        let of_other = all(of_other).map(|condition| self.condition(condition)).transpose()?;
        let relation = std::mem::replace(&mut other.relation, Relation::OneRow);
        other.relation = filtered(relation, of_other);
        Ok(super::from::join(kind, left.rows(), right.rows(), all(plain)))
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
        let side = match (kept.is_read(&scalar), other.is_read(&scalar)) {
            (true, true) => {
                let what = "a query that reads both tables in the ON of an outer join";
                return Err(unsupported(what));
            }
            (true, false) => kept,
            (false, _) => other,
        };
        let (id, ty) = (self.next(), scalar.ty);
        side.computed.push((id, scalar));
        Ok(Scalar { node: Node::Column(id), ty })
    }
}
