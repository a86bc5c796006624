//! FROM bound: tables, queries in their place, and joins.

use std::collections::HashSet;

use sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, ObjectName, Select, TableAlias, TableFactor, TableWithJoins,
};
use syntax::names::{parts, table_name};

use super::query::{Binder, Named};
use super::scalars::{Result, Scalars, Unbound, truth};
use super::scope::{Clause, Mark};
use super::subqueries;
use super::tree::{BoundQuery, Comparison, Connective, JoinKind, Node, Relation, Scalar, Scan};
use crate::rewrite;

impl<'a> Binder<'a> {
    /// The rows of a FROM, and their columns into the scope.
    pub(super) fn from(&mut self, select: &'a Select) -> Result<Relation> {
        let Some((first, others)) = select.from.split_first() else { return Ok(Relation::OneRow) };
        let mut relation = self.joined(first)?;
        for other in others {
            let right = self.joined(other)?;
            relation = join(JoinKind::Inner, relation, right, None);
        }
        Ok(relation)
    }

    /// A table and those that are joined to it. Names in ON mean columns of these alone.
    fn joined(&mut self, from: &'a TableWithJoins) -> Result<Relation> {
        let left = self.scope.mark();
        let mut relation = self.factor(&from.relation)?;
        // What inner joins ask of subqueries, for which there are joins in WHERE alone.
        let mut behind: Vec<Scalar> = Vec::new();
        let kinds = from.joins.iter().map(|join| kind_of(&join.join_operator));
        let keeps_left =
            kinds.collect::<Result<Vec<_>>>()?.iter().all(|(kind, _)| *kind != JoinKind::Right);
        for Join { relation: factor, join_operator, .. } in &from.joins {
            let right = self.scope.mark();
            let joined = self.factor(factor)?;
            let (kind, constraint) = kind_of(join_operator)?;
            let on = self.condition_of_join(constraint, kind, (left, right))?;
            let on = match on {
                Some(on)
                    if kind == JoinKind::Inner && keeps_left && subqueries::has_predicate(&on) =>
                {
                    behind.push(on);
                    None
                }
                on => on.map(|on| self.condition(on)).transpose()?,
            };
            relation = join(kind, relation, joined, on);
        }
        for condition in behind {
            let condition = self.condition(condition)?;
            relation = Relation::Filter { input: Box::new(relation), condition };
        }
        Ok(relation)
    }

    fn condition_of_join(
        &mut self,
        constraint: &JoinConstraint,
        kind: JoinKind,
        (left, right): (Mark, Mark),
    ) -> Result<Option<Scalar>> {
        let of_right = kind == JoinKind::Right;
        let names = match constraint {
            JoinConstraint::None if kind == JoinKind::Inner => return Ok(None),
            JoinConstraint::None => return Err(Unbound::NotYet),
            JoinConstraint::On(condition) => {
                let plain = self.plain(condition)?.map(rewrite::truth);
                let scope = self.scope.since(left);
                let scalars = Scalars { scope: &scope, ..self.scalars(Clause::On, &plain) };
                return scalars.bind(&plain.expr).map(Some);
            }
            JoinConstraint::Using(names) => {
                let name = |name: &ObjectName| parts(name).pop().ok_or(Unbound::NotYet);
                names.iter().map(name).collect::<Result<Vec<_>>>()?
            }
            JoinConstraint::Natural => self.scope.common((left, right), of_right),
        };
        let pairs = self.scope.take_together(&names, (left, right), of_right)?;
        let equal = pairs.into_iter().map(|(one, other)| {
            let (left, right) = (Box::new(one.value()), Box::new(other.value()));
            truth(Node::Compare { comparison: Comparison::Equal, left, right })
        });
        Ok(equal.reduce(|one, other| {
            let (left, right) = (Box::new(one), Box::new(other));
            truth(Node::Logic { connective: Connective::And, left, right })
        }))
    }

    fn factor(&mut self, factor: &'a TableFactor) -> Result<Relation> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.joined(table_with_joins)
            }
            TableFactor::Derived { lateral: false, subquery, alias: Some(alias), .. } => {
                let bound = self.query(subquery)?;
                let columns = alias.columns.iter().map(|column| column.name.value.clone());
                self.derived(bound, &alias.name.value, &columns.collect::<Vec<_>>())
            }
            TableFactor::Table {
                name,
                alias,
                args: None,
                with_hints,
                version: None,
                with_ordinality: false,
                partitions,
                json_path: None,
                sample: None,
                ..
            } if with_hints.is_empty() && partitions.is_empty() => self.table(name, alias.as_ref()),
            _ => Err(Unbound::NotYet),
        }
    }

    fn table(&mut self, name: &'a ObjectName, alias: Option<&'a TableAlias>) -> Result<Relation> {
        let alias = match alias {
            Some(alias) if !alias.columns.is_empty() => return Err(Unbound::NotYet),
            alias => alias.map(|alias| alias.name.value.as_str()),
        };
        let written = parts(name);
        if let [one] = &written[..]
            && let Some(at) = self.named.iter().rposition(|named| named.name == *one)
        {
            return self.named_query(at, alias.unwrap_or(one));
        }
        if written == ["dual"] {
            return Ok(Relation::OneRow);
        }
        let name = table_name(name, &self.context.database)?;
        let table = match self.tables.get(&name).and_then(|resolved| resolved.table.as_ref()) {
            Some(table) => table.clone(),
            _ => return Err(Unbound::NotYet),
        };
        let mut scope = std::mem::take(&mut self.scope);
        let columns = scope.add(&name, alias, &table, self.hidden, || self.next());
        self.scope = scope;
        let alias = alias.map(str::to_lowercase);
        Ok(Relation::Scan(Scan { table: name, alias, columns }))
    }

    /// A query of WITH, which sees those before it.
    fn named_query(&mut self, at: usize, alias: &str) -> Result<Relation> {
        let later = self.named.split_off(at);
        let Some(Named { columns, query, outer, .. }) = later.first().cloned() else {
            return Err(Unbound::NotYet);
        };
        // It sees what is around its WITH, not what is around the place where it is named.
        let around = self.outer.split_off(outer.min(self.outer.len()));
        let bound = self.query(query);
        self.outer.extend(around);
        self.named.extend(later);
        self.derived(bound?, alias, &columns)
    }

    fn derived(
        &mut self,
        mut query: BoundQuery,
        alias: &str,
        columns: &[String],
    ) -> Result<Relation> {
        if !columns.is_empty() {
            if columns.len() != query.output.len() {
                return Err(Unbound::NotYet);
            }
            for (output, name) in query.output.iter_mut().zip(columns) {
                output.name.clone_from(name);
            }
        }
        let mut names = HashSet::new();
        // An error that is made elsewhere so far.
        if !query.output.iter().all(|column| names.insert(column.name.to_lowercase())) {
            return Err(Unbound::NotYet);
        }
        self.scope.add_derived(alias, &query.output);
        Ok(Relation::Derived { query: Box::new(query), alias: alias.to_lowercase() })
    }
}

/// Which rows a join keeps, and how it is made.
fn kind_of(operator: &JoinOperator) -> Result<(JoinKind, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::CrossJoin(on)
        | JoinOperator::StraightJoin(on) => (JoinKind::Inner, on),
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinKind::Left, on),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinKind::Right, on),
        _ => return Err(Unbound::NotYet),
    })
}

fn join(kind: JoinKind, left: Relation, right: Relation, on: Option<Scalar>) -> Relation {
    Relation::Join { kind, left: Box::new(left), right: Box::new(right), on }
}
