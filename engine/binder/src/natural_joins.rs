//! `*` over joins by USING and NATURAL, and what a shared column is in a RIGHT JOIN and in WHERE.
//!
//! The planner below keeps the shared columns of whichever table sorts first, and of an outer join
//! that may be the side without a row. So `*` is written out as MySQL has it: the shared columns
//! first, of the side that always has a row, then what is left of that table and of the other.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select,
    SelectItem, TableFactor, TableWithJoins, VisitorMut,
};
use syntax::names::parts;
use syntax::tree::{number, plain};
use syntax::walk::walk_mut;
use values::error::{SqlResult, unsupported};

use crate::counted::{Shown, columns};
use crate::rewrite::op;
use crate::scopes::Scopes;

/// A column's name, and what stands for it in a select list.
type Column = (String, Expr);

/// Writes every `*` of a SELECT out whose tables are joined by their columns' names; where the
/// columns of a table are not known, nothing changes.
pub fn write_out(select: &mut Select, shown: Shown) {
    let [from] = &mut select.from[..] else { return };
    if !from.joins.iter().any(by_name) {
        return;
    }
    if let Some(columns) = columns_of(from, shown) {
        let items = std::mem::take(&mut select.projection);
        select.projection = items
            .into_iter()
            .flat_map(|item| match item {
                SelectItem::Wildcard(_) => {
                    columns.iter().map(|(_, e)| SelectItem::UnnamedExpr(e.clone())).collect()
                }
                item => vec![item],
            })
            .collect();
    }
    // Then the shared column is the left one's also where it stands without a table.
    if let Some(join) = from.joins.first_mut()
        && by_name(join)
        && let JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) =
            &join.join_operator
    {
        join.join_operator = JoinOperator::LeftOuter(constraint.clone());
        std::mem::swap(&mut from.relation, &mut join.relation);
    }
}

/// Names the columns of every NATURAL JOIN, where the planner below would take hidden columns for common ones.
pub fn name_joined(select: &mut Select, shown: Shown) -> SqlResult<()> {
    select.from.iter_mut().try_for_each(|from| name_joined_of(from, shown))
}

fn name_joined_of(from: &mut TableWithJoins, shown: Shown) -> SqlResult<()> {
    for at in 0..=from.joins.len() {
        let table = match at.checked_sub(1) {
            None => &mut from.relation,
            Some(join) => &mut from.joins[join].relation,
        };
        if let TableFactor::NestedJoin { table_with_joins, .. } = table {
            name_joined_of(table_with_joins, shown)?;
        }
    }
    for at in 0..from.joins.len() {
        if !matches!(constraint(&from.joins[at]), Some((JoinConstraint::Natural, _))) {
            continue;
        }
        let left =
            TableWithJoins { relation: from.relation.clone(), joins: from.joins[..at].to_vec() };
        let join = &mut from.joins[at];
        let (Some(left), Some(right)) = (columns_of(&left, shown), factor(&join.relation, shown))
        else {
            return Err(unsupported(
                "NATURAL JOIN of this form in a statement that changes or locks rows",
            ));
        };
        let common = common(&left, &right).into_iter().map(|name| vec![plain(name)].into());
        let common: Vec<ObjectName> = common.collect();
        let named = match common.is_empty() {
            true => JoinConstraint::On(op(number(1), BinaryOperator::Eq, number(1))),
            false => JoinConstraint::Using(common),
        };
        if let Some(constraint) = constraint_mut(join) {
            *constraint = named;
        }
    }
    Ok(())
}

/// Names of columns that two sides of a join have, in the order of the left one.
fn common(left: &[Column], right: &[Column]) -> Vec<String> {
    let is_there = |name: &String| right.iter().any(|(other, _)| other == name);
    left.iter().map(|(name, _)| name.clone()).filter(is_there).collect()
}

/// Puts its table before a column of such joins that stands alone in WHERE: the planner below takes a shared one for
/// ambiguous there, and of three tables everywhere. For expressions that are rewritten, so that every name is a column's.
pub fn name_shared(select: &mut Select, shown: Shown, scopes: &Scopes) {
    let [from] = &select.from[..] else { return };
    let joins = from.joins.iter().filter(|join| by_name(join)).count();
    if joins == 0 {
        return;
    }
    let Some(columns) = columns_of(from, shown) else { return };
    let mut named = Named { columns: &columns, scopes, queries: 0 };
    _ = walk_mut(&mut select.selection, &mut named);
    if joins > 1 {
        _ = walk_mut(&mut select.projection, &mut named);
        _ = walk_mut(&mut select.group_by, &mut named);
        _ = walk_mut(&mut select.having, &mut named);
    }
}

struct Named<'a> {
    columns: &'a [Column],
    scopes: &'a Scopes,
    /// How many subqueries the expression is within: there a name may mean another column.
    queries: usize,
}

impl VisitorMut for Named<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && self.queries == 0
        {
            let mut found = self.columns.iter().filter(|(column, _)| *column == name.value);
            if let (Some((_, Expr::CompoundIdentifier(full))), None) = (found.next(), found.next())
            {
                *expr = Expr::CompoundIdentifier(self.scopes.column(full.clone()));
            }
        }
        ControlFlow::Continue(())
    }
}

/// How a join is made, and whether it keeps all rows of its right side.
fn constraint(join: &Join) -> Option<(&JoinConstraint, bool)> {
    match &join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::StraightJoin(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => Some((constraint, false)),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            Some((constraint, true))
        }
        _ => None,
    }
}

/// How a join is made.
pub(crate) fn constraint_mut(join: &mut Join) -> Option<&mut JoinConstraint> {
    match &mut join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::StraightJoin(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint) => Some(constraint),
        _ => None,
    }
}

/// Whether a join's tables share columns.
pub(crate) fn by_name(join: &Join) -> bool {
    matches!(constraint(join), Some((JoinConstraint::Using(_) | JoinConstraint::Natural, _)))
}

/// The columns that `*` stands for over some joins, in order.
pub(crate) fn columns_of(from: &TableWithJoins, shown: Shown) -> Option<Vec<Column>> {
    let mut all = factor(&from.relation, shown)?;
    for join in &from.joins {
        let mut right = factor(&join.relation, shown)?;
        let (constraint, keeps_right) = constraint(join)?;
        // A RIGHT JOIN is a LEFT JOIN of the tables the other way about.
        if keeps_right && by_name(join) {
            std::mem::swap(&mut all, &mut right);
        }
        let shared: Vec<String> = match constraint {
            JoinConstraint::Using(names) => {
                names.iter().map(|name| parts(name).pop()).collect::<Option<_>>()?
            }
            JoinConstraint::Natural => common(&all, &right),
            _ => Vec::new(),
        };
        let is_shared = |(name, _): &Column| shared.contains(name);
        let (mut joined, rest): (Vec<Column>, Vec<Column>) = all.into_iter().partition(is_shared);
        joined.extend(rest);
        joined.extend(right.into_iter().filter(|column| !is_shared(column)));
        all = joined;
    }
    Some(all)
}

/// The columns of one table.
fn factor(factor: &TableFactor, shown: Shown) -> Option<Vec<Column>> {
    let (table, names) = match factor {
        TableFactor::Table { name, alias, .. } => {
            let table = match alias {
                Some(alias) => alias.name.value.clone(),
                None => parts(name).pop()?,
            };
            (table, shown(name)?)
        }
        TableFactor::Derived { subquery, alias: Some(alias), .. } => {
            let names = if alias.columns.is_empty() {
                columns(&subquery.body, shown)?
            } else {
                alias.columns.iter().map(|column| column.name.value.clone()).collect()
            };
            (alias.name.value.clone(), names)
        }
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            return columns_of(table_with_joins, shown);
        }
        _ => return None,
    };
    let table = table.to_lowercase();
    let column = |name: String| {
        let name = name.to_lowercase();
        let full = vec![plain(table.clone()), plain(name.clone())];
        (name, Expr::CompoundIdentifier(full))
    };
    Some(names.into_iter().map(column).collect())
}
