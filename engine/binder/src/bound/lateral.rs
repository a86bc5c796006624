//! LATERAL tables as plans: the distinct values on the left that such a table reads are joined with it, and every row on
//! the left with what came of its values. Source: Neumann and Kemper, Unnesting Arbitrary Queries, 2015.

use datafusion::common::{Column, JoinType, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use values::error::{SqlResult, unsupported};

use super::lower::Lowering;
use super::tree::{BoundQuery, Scalar};
use crate::dependent_join::DependentJoin;
use crate::nullsafe;
use crate::outside::{Names, read_outside, repeats};

/// A LATERAL table.
pub(super) struct Lateral<'q> {
    pub(super) query: &'q BoundQuery,
    pub(super) alias: &'q str,
}

impl Lowering<'_> {
    /// The rows on the left with those of the table that are computed for each.
    ///
    /// # Errors
    ///
    /// 1235 where an operator of the table cannot be computed for many rows at once, or the left side not twice.
    pub(super) fn lateral_join(
        &mut self,
        kind: JoinType,
        left: LogicalPlan,
        Lateral { query, alias }: &Lateral,
        on: Option<&Scalar>,
    ) -> SqlResult<LogicalPlan> {
        let first = query.output.first().map_or(0, |column| column.id.0);
        let unique = format!("{alias}{first}");
        let table = self.within(query).query(query)?;
        let alias = self.free(TableReference::bare(*alias), first);
        let table = LogicalPlanBuilder::from(table).alias(alias)?.build()?;
        self.place(query.output.iter().map(|column| column.id), &table);
        let read = read_outside(&table)?.into_iter();
        let read: Vec<Column> = read.filter(|column| left.schema().has_column(column)).collect();
        let (table, mut conditions) = match read.is_empty() {
            true => (table, Vec::new()),
            false => applied(&left, &table, read, &unique)?,
        };
        if let Some(on) = on {
            conditions.push(self.scalar(on, &left.schema().join(table.schema())?)?);
        }
        let left = LogicalPlanBuilder::from(left);
        let plan = match conditions.is_empty() {
            true if kind == JoinType::Inner => left.cross_join(table)?.build()?,
            true => left.join_on(table, kind, [lit(true)])?.build()?,
            false => left.join_on(table, kind, conditions)?.build()?,
        };
        self.renew(&plan);
        Ok(plan)
    }
}

/// A table's rows for all values on the left that it reads, and when they are a row's.
fn applied(
    left: &LogicalPlan,
    table: &LogicalPlan,
    read: Vec<Column>,
    unique: &str,
) -> SqlResult<(LogicalPlan, Vec<Expr>)> {
    if !repeats(left)? {
        return Err(unsupported("a LATERAL table over rows that differ each time they are read"));
    }
    let mut names = Names::of(format!("lateral{unique}_"));
    let pushed = DependentJoin::new(left, read.clone(), &mut names).push_down(table, false)?;
    let pushed = pushed.ok_or_else(|| unsupported("a LATERAL table of this form"))?;
    let mut equal = Vec::new();
    for (column, key) in read.into_iter().zip(pushed.keys) {
        let (column, key) = (Expr::Column(column), Expr::Column(key));
        let pairs = nullsafe::equal((&column, left.schema()), (&key, pushed.plan.schema()))?;
        equal.extend(pairs.into_iter().map(|(column, key)| column.eq(key)));
    }
    Ok((pushed.plan, equal))
}
