//! A dependent join pushed down through the operators of a correlated subquery, each of which passes the
//! outer values on.
//!
//! One rule for each operator; there is no plan for what has none.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{Exists, InSubquery, Sort};
use datafusion::logical_expr::logical_plan::{FetchType, Projection, SkipType};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprFunctionExt, Filter, Join, JoinType, Limit, LogicalPlan,
    LogicalPlanBuilder, SubqueryAlias, Union, Window, lit, when,
};
use functions::trees::Tree;

use crate::outside::{Names, left_joined, read_outside, renamed};

/// A subquery's join with the outer values that it reads.
pub(crate) struct DependentJoin<'a> {
    outside: &'a LogicalPlan,
    columns: Vec<Column>,
    names: &'a mut Names,
}

/// An operator's rows for each of the values outside.
pub(crate) struct PushedDown {
    /// The operator's own columns, those values, and perhaps the row's number.
    pub(crate) plan: LogicalPlan,
    /// Where the values stand.
    pub(crate) keys: Vec<Column>,
    /// Where the row's number in the order of the subquery stands, from 1.
    number: Option<Column>,
}

impl PushedDown {
    fn keys(&self) -> impl Iterator<Item = Expr> {
        self.keys.iter().cloned().map(Expr::Column)
    }

    /// What is passed on besides an operator's own columns.
    fn besides(&self) -> Vec<Expr> {
        self.keys().chain(self.number.clone().map(Expr::Column)).collect()
    }
}

impl<'a> DependentJoin<'a> {
    /// Columns of the plan outside.
    pub(crate) fn new(
        outside: &'a LogicalPlan,
        columns: Vec<Column>,
        names: &'a mut Names,
    ) -> Self {
        DependentJoin { outside, columns, names }
    }

    /// Every combination of values outside once.
    fn values(&mut self) -> Result<(LogicalPlan, Vec<Column>)> {
        let names: Vec<String> = self.columns.iter().map(|_| self.names.next("outer")).collect();
        let column = |(column, name): (&Column, &String)| Expr::Column(column.clone()).alias(name);
        let values = LogicalPlanBuilder::from(self.outside.clone())
            .project(self.columns.iter().zip(&names).map(column))?
            .distinct()?
            .build()?;
        Ok((values, names.into_iter().map(Column::new_unqualified).collect()))
    }

    /// An operator with the values; `None` if it cannot pass them on. Rows are numbered if their order
    /// matters.
    pub(crate) fn push_down(
        &mut self,
        plan: &LogicalPlan,
        numbered: bool,
    ) -> Result<Option<PushedDown>> {
        if read_outside(plan)?.is_empty() {
            let (values, keys) = self.values()?;
            let plan = match (plan, numbered) {
                (LogicalPlan::Sort(sort), false) => sort.input.as_ref(),
                _ => plan,
            };
            let ordered = numbered && matches!(plan, LogicalPlan::Sort(_));
            if !ordered {
                let plan = LogicalPlanBuilder::from(plan.clone()).cross_join(values)?.build()?;
                return Ok(Some(PushedDown { plan, keys, number: None }));
            }
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let Some(mut below) = self.push_down(&filter.input, numbered)? else {
                    return Ok(None);
                };
                let predicate = self.inward(filter.predicate.clone(), &below)?;
                below.plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(below.plan))?);
                Ok(Some(below))
            }
            LogicalPlan::Projection(projection) => self.projection(projection, numbered),
            LogicalPlan::SubqueryAlias(alias) => {
                let Some(below) = self.push_down(&alias.input, numbered)? else { return Ok(None) };
                let name = |column: Column| Column::new(Some(alias.alias.clone()), column.name);
                Ok(Some(PushedDown {
                    keys: below.keys.into_iter().map(name).collect(),
                    number: below.number.map(name),
                    plan: LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(
                        Arc::new(below.plan),
                        alias.alias.clone(),
                    )?),
                }))
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let Some(below) = self.push_down(&sort.input, false)? else { return Ok(None) };
                if !numbered {
                    return Ok(Some(below));
                }
                let mut order = sort.expr.clone();
                for by in &mut order {
                    by.expr = self.inward(std::mem::take(&mut by.expr), &below)?;
                }
                self.numbered(below, order).map(Some)
            }
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(mut below) = self.push_down(input, false)? else { return Ok(None) };
                below.plan = LogicalPlanBuilder::from(below.plan).distinct()?.build()?;
                Ok(Some(below))
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Window(window) => self.window(window),
            _ => Ok(None),
        }
    }

    fn projection(
        &mut self,
        projection: &Projection,
        numbered: bool,
    ) -> Result<Option<PushedDown>> {
        let Some(below) = self.push_down(&projection.input, numbered)? else { return Ok(None) };
        let mut exprs = Vec::with_capacity(projection.expr.len());
        for (expr, (qualifier, field)) in projection.expr.iter().zip(projection.schema.iter()) {
            let written = self.inward(expr.clone(), &below)?;
            let same = written.qualified_name() == (qualifier.cloned(), field.name().clone());
            exprs.push(match same {
                true => written,
                false => written.unalias().alias_qualified(qualifier.cloned(), field.name()),
            });
        }
        exprs.extend(below.besides());
        let plan = Projection::try_new(exprs, Arc::new(below.plan))?;
        Ok(Some(PushedDown { plan: LogicalPlan::Projection(plan), ..below }))
    }

    /// Rows with their numbers among those of the same values.
    fn numbered(&mut self, below: PushedDown, order: Vec<Sort>) -> Result<PushedDown> {
        let number = row_number().partition_by(below.keys().collect());
        // An empty order is an error, and none is not.
        let number = if order.is_empty() { number } else { number.order_by(order) }.build()?;
        let computed = Expr::Column(Column::new_unqualified(number.schema_name().to_string()));
        let name = self.names.next("number");
        let own = below.plan.schema().columns().into_iter().map(Expr::Column);
        let shown: Vec<Expr> = own.chain([computed.alias(&name)]).collect();
        let plan =
            LogicalPlanBuilder::from(below.plan).window([number])?.project(shown)?.build()?;
        Ok(PushedDown { plan, number: Some(Column::new_unqualified(name)), keys: below.keys })
    }

    fn limit(&mut self, limit: &Limit) -> Result<Option<PushedDown>> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        let Some(mut below) = self.push_down(&limit.input, true)? else { return Ok(None) };
        if below.number.is_none() {
            below = self.numbered(below, Vec::new())?;
        }
        let Some(number) = below.number.take().map(Expr::Column) else { return Ok(None) };
        let mut within = number.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            within = within.and(number.lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        below.plan = LogicalPlan::Filter(Filter::try_new(within, Arc::new(below.plan))?);
        Ok(Some(below))
    }

    /// Grouped by the values, too. An aggregate of all rows has a row also where there are none: for
    /// every value outside, with what the functions say to nothing.
    fn aggregate(&mut self, aggregate: &Aggregate) -> Result<Option<PushedDown>> {
        let grouping_sets = aggregate.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_)));
        if grouping_sets || is_of_outside(aggregate)? {
            return Ok(None);
        }
        let Some(below) = self.push_down(&aggregate.input, false)? else { return Ok(None) };
        let mut groups: Vec<Expr> = below.keys().collect();
        for expr in &aggregate.group_expr {
            groups.push(self.inward(expr.clone(), &below)?);
        }
        let mut functions = Vec::with_capacity(aggregate.aggr_expr.len());
        for expr in &aggregate.aggr_expr {
            functions.push(self.inward(expr.clone(), &below)?);
        }
        let passed = below.keys.len();
        let grouped = Aggregate::try_new(Arc::new(below.plan), groups, functions)?;
        let computed = grouped.schema.iter().skip(passed).map(|field| Expr::Column(field.into()));
        let computed: Vec<Expr> = computed.collect();
        let plan = LogicalPlan::Aggregate(grouped);
        if aggregate.group_expr.is_empty() {
            return self.of_nothing(aggregate, plan, &below.keys, computed);
        }
        let mut shown = named(computed, aggregate);
        shown.extend(below.keys.iter().cloned().map(Expr::Column));
        let plan = LogicalPlanBuilder::from(plan).project(shown)?.build()?;
        Ok(Some(PushedDown { plan, keys: below.keys, number: None }))
    }

    fn of_nothing(
        &mut self,
        aggregate: &Aggregate,
        grouped: LogicalPlan,
        keys: &[Column],
        computed: Vec<Expr>,
    ) -> Result<Option<PushedDown>> {
        let met = self.names.next("met");
        let mut shown: Vec<Expr> = keys.iter().cloned().map(Expr::Column).collect();
        let mut values = Vec::with_capacity(computed.len());
        for (computed, (expr, field)) in
            computed.into_iter().zip(aggregate.aggr_expr.iter().zip(aggregate.schema.fields()))
        {
            let Expr::AggregateFunction(function) = expr.clone().unalias() else {
                return Ok(None);
            };
            let name = self.names.next("computed");
            shown.push(computed.alias(&name));
            let nothing = lit(function.func.default_value(field.data_type())?);
            let unmet = Expr::Column(Column::new_unqualified(&met)).is_null();
            let value = Expr::Column(Column::new_unqualified(name));
            values.push(when(unmet, nothing).otherwise(value)?);
        }
        shown.push(lit(true).alias(&met));
        let grouped = LogicalPlanBuilder::from(grouped).project(shown)?.build()?;
        let (all, every) = self.values()?;
        let mut shown = named(values, aggregate);
        shown.extend(every.iter().cloned().map(Expr::Column));
        let of = |columns: &[Column]| columns.iter().cloned().map(Expr::Column).collect();
        let joined = left_joined(all, of(&every), grouped, of(keys))?;
        let plan = LogicalPlanBuilder::from(joined).project(shown)?.build()?;
        Ok(Some(PushedDown { plan, keys: every, number: None }))
    }

    /// Each input with the values, all by the same names.
    fn union(&mut self, union: &Union) -> Result<Option<PushedDown>> {
        let names: Vec<String> = self.columns.iter().map(|_| self.names.next("outer")).collect();
        let mut whole: Option<LogicalPlanBuilder> = None;
        for input in &union.inputs {
            let Some(below) = self.push_down(input, false)? else { return Ok(None) };
            let own = input.schema().columns().into_iter().zip(union.schema.iter());
            let own = own.map(|(column, (qualifier, field))| {
                Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
            });
            let keys = below.keys().zip(&names).map(|(key, name)| key.alias(name));
            let shown: Vec<Expr> = own.chain(keys).collect();
            let input = LogicalPlanBuilder::from(below.plan).project(shown)?;
            whole = Some(match whole {
                Some(inputs) => inputs.union(input.build()?)?,
                None => input,
            });
        }
        let Some(whole) = whole else { return Ok(None) };
        let keys = names.into_iter().map(Column::new_unqualified).collect();
        Ok(Some(PushedDown { plan: whole.build()?, keys, number: None }))
    }

    /// Windows of the rows of the same values.
    fn window(&mut self, window: &Window) -> Result<Option<PushedDown>> {
        let Some(below) = self.push_down(&window.input, false)? else { return Ok(None) };
        let input = window.input.schema();
        let mut shown: Vec<Expr> = input.columns().into_iter().map(Expr::Column).collect();
        let mut exprs = Vec::with_capacity(window.window_expr.len());
        let computed = window.schema.iter().skip(input.fields().len());
        for (expr, (_, field)) in window.window_expr.iter().zip(computed) {
            let Expr::WindowFunction(mut call) = self.inward(expr.clone(), &below)? else {
                return Ok(None);
            };
            call.params.partition_by.extend(below.keys());
            let expr = Expr::WindowFunction(call);
            let name = Column::new_unqualified(expr.schema_name().to_string());
            shown.push(Expr::Column(name).alias(field.name()));
            exprs.push(expr);
        }
        shown.extend(below.keys());
        let plan = LogicalPlanBuilder::from(below.plan).window(exprs)?.project(shown)?.build()?;
        Ok(Some(PushedDown { plan, keys: below.keys, number: None }))
    }

    /// The side that reads columns outside carries their values, or the left one.
    fn join(&mut self, join: &Join) -> Result<Option<PushedDown>> {
        let (left, right) = (read_outside(&join.left)?, read_outside(&join.right)?);
        let by_right = match (join.join_type, left.is_empty(), right.is_empty()) {
            (JoinType::Inner | JoinType::Left, _, true) => false,
            (JoinType::Inner, true, false) => true,
            _ => return Ok(None),
        };
        let side = if by_right { &join.right } else { &join.left };
        let Some(below) = self.push_down(side, false)? else { return Ok(None) };
        let mut joined = join.clone();
        for (left, right) in &mut joined.on {
            *left = self.inward(std::mem::take(left), &below)?;
            *right = self.inward(std::mem::take(right), &below)?;
        }
        if let Some(filter) = joined.filter.take() {
            joined.filter = Some(self.inward(filter, &below)?);
        }
        let carrying = Arc::new(below.plan);
        if by_right {
            joined.right = carrying
        } else {
            joined.left = carrying
        }
        let plan = LogicalPlan::Join(joined).recompute_schema()?;
        Ok(Some(PushedDown { plan, keys: below.keys, number: None }))
    }

    /// An expression that reads the values where they stand now.
    fn inward(&self, expr: Expr, below: &PushedDown) -> Result<Expr> {
        let schema = below.plan.schema();
        let name = |column: &Column| {
            let at = self.columns.iter().position(|known| known == column)?;
            below.keys.get(at).cloned()
        };
        let mut inward = |expr: Expr| {
            Ok(match expr {
                Expr::OuterReferenceColumn(_, column) if name(&column).is_some() => {
                    let passed = name(&column).unwrap_or(column);
                    Transformed::yes(Expr::Column(passed))
                }
                Expr::ScalarSubquery(query) => {
                    Transformed::yes(Expr::ScalarSubquery(renamed(query, schema, &name)?))
                }
                Expr::Exists(Exists { subquery, negated }) => {
                    let subquery = renamed(subquery, schema, &name)?;
                    Transformed::yes(Expr::Exists(Exists { subquery, negated }))
                }
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    let subquery = renamed(subquery, schema, &name)?;
                    Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated }))
                }
                expr => Transformed::no(expr),
            })
        };
        Ok(expr.map_up(&mut inward)?.data)
    }
}

/// Whether an aggregate function's arguments are all from outside: in SQL, the query there computes it.
fn is_of_outside(aggregate: &Aggregate) -> Result<bool> {
    for expr in &aggregate.aggr_expr {
        let (mut own, mut outer) = (false, false);
        expr.visit_each(&mut |part| {
            own |= matches!(part, Expr::Column(_));
            outer |= matches!(part, Expr::OuterReferenceColumn(..));
            Ok(TreeNodeRecursion::Continue)
        })?;
        if outer && !own {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What an aggregate computes, by the names that it has for it.
fn named(computed: Vec<Expr>, aggregate: &Aggregate) -> Vec<Expr> {
    let named = computed.into_iter().zip(aggregate.schema.iter());
    named
        .map(|(expr, (qualifier, field))| {
            match expr.qualified_name() == (qualifier.cloned(), field.name().clone()) {
                true => expr,
                false => expr.alias_qualified(qualifier.cloned(), field.name()),
            }
        })
        .collect()
}
