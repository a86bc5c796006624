//! FROM bound: tables, queries in their place, and joins.

use std::collections::HashSet;
use std::rc::Rc;

use sqlparser::ast::{
    Join, JoinConstraint, JoinOperator, ObjectName, TableAlias, TableFactor, TableWithJoins,
};
use syntax::names::{parts, table_name};
use values::error::{
    SqlError, SqlResult, derived_without_alias, duplicate_column, no_table, syntax, unknown,
    unsupported, wrong_name_count,
};

use super::query::{Binder, Frame, Named};
use super::scalars::{Scalars, truth};
use super::scope::{Clause, Mark};
use super::tree::{BoundQuery, Comparison, Connective, JoinKind, Node, Relation, Scalar, Scan};
use crate::{rewrite, scopes};

impl<'a> Binder<'a> {
    /// The rows of a FROM, and their columns into the scope.
    pub(super) fn from(&mut self, from: &'a [TableWithJoins]) -> SqlResult<Relation> {
        scopes::unique(from, &self.context.database)?;
        let Some((first, others)) = from.split_first() else { return Ok(Relation::OneRow) };
        let mut relation = self.joined(first)?;
        for other in others {
            // What reads the tables before it has them on its left.
            let kinds = other.joins.iter().map(|join| kind_of(&join.join_operator));
            let kinds = kinds.collect::<SqlResult<Vec<_>>>()?;
            let keeps_left = kinds.iter().all(|(kind, _)| *kind != JoinKind::Right);
            let lateral = other.joins.iter().any(|join| is_lateral(&join.relation));
            relation = match is_lateral(&other.relation) || lateral && keeps_left {
                true => {
                    let left = self.scope.mark();
                    let right = self.factor(&other.relation)?;
                    let relation = join(JoinKind::Inner, relation, right, None);
                    self.joins(relation, left, other)?
                }
                false => join(JoinKind::Inner, relation, self.joined(other)?, None),
            };
        }
        Ok(relation)
    }

    /// A table and those that are joined to it. Names in ON mean columns of these alone.
    fn joined(&mut self, from: &'a TableWithJoins) -> SqlResult<Relation> {
        let left = self.scope.mark();
        let relation = self.factor(&from.relation)?;
        self.joins(relation, left, from)
    }

    /// The tables that are joined to the first one, in the scope since a mark.
    fn joins(
        &mut self,
        mut relation: Relation,
        left: Mark,
        from: &'a TableWithJoins,
    ) -> SqlResult<Relation> {
        for Join { relation: factor, join_operator, .. } in &from.joins {
            let right = self.scope.mark();
            let joined = self.factor(factor)?;
            let (kind, constraint) = kind_of(join_operator)?;
            if kind == JoinKind::Right && is_lateral(factor) {
                return Err(unsupported("RIGHT JOIN of a LATERAL table"));
            }
            let on = self.condition_of_join(constraint, kind, (left, right))?;
            relation = match on {
                Some(on) if on.has_query() => self.join_on_queries(kind, (relation, joined), on)?,
                on => join(kind, relation, joined, on),
            };
        }
        Ok(relation)
    }

    fn condition_of_join(
        &mut self,
        constraint: &JoinConstraint,
        kind: JoinKind,
        (left, right): (Mark, Mark),
    ) -> SqlResult<Option<Scalar>> {
        let of_right = kind == JoinKind::Right;
        let names = match constraint {
            JoinConstraint::None if kind == JoinKind::Inner => return Ok(None),
            JoinConstraint::None => return Err(syntax("an outer join without ON")),
            JoinConstraint::On(condition) => {
                let plain = self.plain(condition)?.map(rewrite::truth);
                let scope = self.scope.since(left);
                let scalars = Scalars { scope: &scope, ..self.scalars(Clause::On, &plain) };
                return scalars.bind(&plain.expr).map(Some);
            }
            JoinConstraint::Using(names) => {
                names.iter().filter_map(|name| parts(name).pop()).collect()
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

    fn factor(&mut self, factor: &'a TableFactor) -> SqlResult<Relation> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.joined(table_with_joins)
            }
            TableFactor::Derived { lateral, subquery, alias: Some(alias), .. } => {
                let bound = match lateral {
                    true => {
                        let frame = Frame { scope: self.scope.clone(), named: Vec::new() };
                        let mut outer = self.outer.clone();
                        outer.push(Rc::new(frame));
                        self.within(outer).query(subquery)?
                    }
                    false => self.query(subquery)?,
                };
                let columns = alias.columns.iter().map(|column| column.name.value.clone());
                self.derived(bound, &alias.name.value, &columns.collect::<Vec<_>>(), *lateral)
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
            other => Err(wrong_factor(other)),
        }
    }

    fn table(
        &mut self,
        name: &'a ObjectName,
        alias: Option<&'a TableAlias>,
    ) -> SqlResult<Relation> {
        let alias = match alias {
            Some(alias) if !alias.columns.is_empty() => {
                return Err(syntax("names of columns behind a table's"));
            }
            alias => alias.map(|alias| alias.name.value.as_str()),
        };
        let written = parts(name);
        if let [one] = &written[..]
            && let Some(at) = self.named.iter().rposition(|named| named.name() == one)
        {
            return self.named_query(at, alias.unwrap_or(one));
        }
        if written == ["dual"] {
            return Ok(Relation::OneRow);
        }
        let name = table_name(name, &self.context.database)?;
        let table = match self.tables.get(&name).and_then(|resolved| resolved.table.as_ref()) {
            Some(table) => table.clone(),
            _ => return Err(no_table(&name.database, &name.table)),
        };
        let mut scope = std::mem::take(&mut self.scope);
        let columns = scope.add(&name, alias, &table, self.hidden, || self.next());
        self.scope = scope;
        let alias = alias.map(str::to_lowercase);
        Ok(Relation::Scan(Scan { table: name, alias, columns }))
    }

    /// A query of WITH, which sees those before it.
    fn named_query(&mut self, at: usize, alias: &str) -> SqlResult<Relation> {
        let later = self.named.split_off(at);
        let (bound, columns) = match later.first().cloned() {
            Some(Named::Query { name, columns, query, outer, recursive }) => {
                // It sees what is around its WITH, not what is around the place where it is named.
                let around = self.outer.split_off(outer.min(self.outer.len()));
                let bound = match recursive {
                    true => self.recursive(&name, &columns, query),
                    false => self.query(query),
                };
                self.outer.extend(around);
                (bound, columns)
            }
            Some(Named::Last { unique, output, .. }) => {
                (Ok(self.last_rows(unique, output)), Vec::new())
            }
            None => return Err(unknown("a query of WITH is missing")),
        };
        self.named.extend(later);
        self.derived(bound?, alias, &columns, false)
    }

    fn derived(
        &mut self,
        mut query: BoundQuery,
        alias: &str,
        columns: &[String],
        lateral: bool,
    ) -> SqlResult<Relation> {
        if !columns.is_empty() {
            if columns.len() != query.output.len() {
                return Err(wrong_name_count());
            }
            for (output, name) in query.output.iter_mut().zip(columns) {
                output.name.clone_from(name);
            }
        }
        let mut names = HashSet::new();
        for column in &query.output {
            if !names.insert(column.name.to_lowercase()) {
                return Err(duplicate_column(&column.name));
            }
        }
        self.scope.add_derived(alias, &query.output);
        let (query, alias) = (Box::new(query), alias.to_lowercase());
        Ok(Relation::Derived { query, alias, lateral })
    }
}

fn is_lateral(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Derived { lateral: true, .. })
}

/// Which rows a join keeps, and how it is made.
fn kind_of(operator: &JoinOperator) -> SqlResult<(JoinKind, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::CrossJoin(on)
        | JoinOperator::StraightJoin(on) => (JoinKind::Inner, on),
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinKind::Left, on),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinKind::Right, on),
        other => return Err(unsupported(format!("{other:?} join"))),
    })
}

pub(super) fn join(
    kind: JoinKind,
    left: Relation,
    right: Relation,
    on: Option<Scalar>,
) -> Relation {
    Relation::Join { kind, left: Box::new(left), right: Box::new(right), on }
}

/// Why a table of a FROM is none that is bound.
fn wrong_factor(factor: &TableFactor) -> SqlError {
    match factor {
        TableFactor::Table { args: Some(_), .. } => unsupported("table functions"),
        TableFactor::Table { version: Some(_), .. } => unsupported("AS OF TIMESTAMP"),
        TableFactor::Table { partitions, .. } if !partitions.is_empty() => unsupported("PARTITION"),
        TableFactor::Table { sample: Some(_), .. } => unsupported("TABLESAMPLE"),
        TableFactor::Derived { alias: None, .. } => derived_without_alias(),
        other => unsupported(format!("FROM {other}")),
    }
}
