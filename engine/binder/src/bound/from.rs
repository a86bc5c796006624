//! FROM bound: tables, queries in their place, and joins.

use std::collections::HashSet;

use sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, ObjectName, Select, TableAlias, TableFactor, TableWithJoins,
};
use syntax::names::{parts, table_name};

use super::query::{Binder, Named};
use super::scalars::{Result, Scalars, Unbound};
use super::scope::Clause;
use super::tree::{BoundQuery, JoinKind, Relation, Scalar, Scan};
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
        let before = self.scope.len();
        let mut relation = self.factor(&from.relation)?;
        for Join { relation: right, join_operator, .. } in &from.joins {
            let right = self.factor(right)?;
            let (kind, constraint) = match join_operator {
                JoinOperator::Join(on)
                | JoinOperator::Inner(on)
                | JoinOperator::CrossJoin(on)
                | JoinOperator::StraightJoin(on) => (JoinKind::Inner, on),
                JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinKind::Left, on),
                JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinKind::Right, on),
                _ => return Err(Unbound::NotYet),
            };
            let on = match (constraint, kind) {
                (JoinConstraint::None, JoinKind::Inner) => None,
                (JoinConstraint::On(condition), _) => {
                    let plain = rewrite::truth(self.plain(condition)?);
                    let scope = self.scope.from(before);
                    Some(
                        Scalars { scope: &scope, ..self.scalars(Clause::On, &[], None) }
                            .bind(&plain)?,
                    )
                }
                _ => return Err(Unbound::NotYet),
            };
            relation = join(kind, relation, right, on);
        }
        Ok(relation)
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
        // Tables of the catalog compare texts without case.
        let table = match self.tables.get(&name).and_then(|resolved| resolved.table.as_ref()) {
            Some(table) if name.database != "information_schema" => table.clone(),
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
        let Some(Named { columns, query, .. }) = later.first().cloned() else {
            return Err(Unbound::NotYet);
        };
        let bound = self.query(query);
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

fn join(kind: JoinKind, left: Relation, right: Relation, on: Option<Scalar>) -> Relation {
    Relation::Join { kind, left: Box::new(left), right: Box::new(right), on }
}
