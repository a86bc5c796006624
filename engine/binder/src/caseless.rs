//! Texts of information_schema, which compare without case, as MySQL's do.
//!
//! A text column of such a table carries a mark in its field's metadata, as an ENUM carries its labels. Where a
//! comparison, a join, a sort, a group, MIN or MAX has a marked column, all its sides are put in upper case: by that
//! the collation of those columns orders, too. No column of a stored table is ever marked, and one beside a marked
//! column makes the comparison one of bytes: of two collations, MySQL takes that of utf8mb4.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, JoinConstraint, Result, TableReference};
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, FieldMetadata, InList, InSubquery, Like, NullTreatment, ScalarFunction,
    Sort, WindowFunction,
};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Join, LogicalPlan, Projection, lit,
};
use functions::cast::STATED_CHAR;
use syntax::names::TableName;

use crate::ResolvedTable;
use crate::udf::call;

/// Marks a field.
const MARK: &str = "isobar.caseless";
/// Puts a text in upper case.
const UPPER: &str = "mysql_upper";

/// A schema whose texts compare without case.
pub fn caseless(schema: &SchemaRef) -> SchemaRef {
    let marked = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8 => with_mark(field),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(marked).collect::<Vec<_>>()))
}

fn with_mark(field: &Field) -> Arc<Field> {
    let mut metadata = field.metadata().clone();
    metadata.insert(MARK.to_owned(), String::new());
    Arc::new(field.clone().with_metadata(metadata))
}

/// What COLLATE … _bin makes of a text: where no text would compare otherwise, itself.
pub(crate) fn as_bytes(
    text: sqlparser::ast::Expr,
    tables: &HashMap<TableName, ResolvedTable>,
) -> sqlparser::ast::Expr {
    match tables.keys().any(|name| name.database == "information_schema") {
        true => syntax::tree::call("cast_char", vec![text]),
        false => text,
    }
}

/// Whether a field is marked.
pub(crate) fn is_marked(field: &Field) -> bool {
    field.metadata().contains_key(MARK)
}

/// The collation by which an expression is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Collation {
    /// That of the other operand.
    Any,
    CaseInsensitive,
    Binary,
}

impl Collation {
    fn of_field(field: &Field) -> Collation {
        match field.data_type() {
            DataType::Utf8 if is_marked(field) => Collation::CaseInsensitive,
            DataType::Utf8 => Collation::Binary,
            _ => Collation::Any,
        }
    }

    fn and(self, other: Collation) -> Collation {
        match (self, other) {
            (Collation::Binary, _) | (_, Collation::Binary) => Collation::Binary,
            (Collation::CaseInsensitive, _) | (_, Collation::CaseInsensitive) => {
                Collation::CaseInsensitive
            }
            _ => Collation::Any,
        }
    }

    fn of_all<'a>(exprs: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema) -> Collation {
        exprs
            .into_iter()
            .fold(Collation::Any, |collation, expr| collation.and(Collation::of(expr, schema)))
    }

    fn of(expr: &Expr, schema: &DFSchema) -> Collation {
        match expr {
            Expr::Column(column) => match schema.qualified_field_from_column(column) {
                Ok((_, field)) => Collation::of_field(field),
                Err(_) => Collation::Any,
            },
            Expr::OuterReferenceColumn(field, _) => Collation::of_field(field),
            Expr::ScalarSubquery(query) => match query.subquery.schema().iter().next() {
                Some((_, field)) => Collation::of_field(field),
                None => Collation::Any,
            },
            Expr::Alias(alias) => Collation::of(&alias.expr, schema),
            Expr::Case(case) => {
                let results = case.when_then_expr.iter().map(|(_, then)| then);
                Collation::of_all(results.chain(&case.else_expr).map(|result| &**result), schema)
            }
            Expr::ScalarFunction(function) => Collation::of_function(function, schema),
            Expr::AggregateFunction(call) if matches!(call.func.name(), "min" | "max") => {
                Collation::of_all(&call.params.args, schema)
            }
            _ => Collation::Any,
        }
    }

    /// A function of texts has the collation of those texts; CAST, which stands for COLLATE too, the binary one.
    fn of_function(function: &ScalarFunction, schema: &DFSchema) -> Collation {
        let args = &function.args;
        match function.name() {
            "cast_char" | STATED_CHAR => Collation::Binary,
            "mysql_if" => Collation::of_all(args.iter().skip(1), schema),
            "mysql_coalesce" | "mysql_concat" | "mysql_concat_ws" | "mysql_replace" => {
                Collation::of_all(args, schema)
            }
            UPPER
            | "mysql_lower"
            | "mysql_left"
            | "mysql_right"
            | "mysql_substring"
            | "mysql_substring_index"
            | "mysql_trim"
            | "mysql_ltrim"
            | "mysql_rtrim"
            | "mysql_nullif" => Collation::of_all(args.first(), schema),
            _ => Collation::Any,
        }
    }
}

/// A text in upper case; anything else as it is.
fn upper(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let is_upper = matches!(&expr, Expr::ScalarFunction(function) if function.name() == UPPER);
    match expr.get_type(schema)? {
        DataType::Utf8 if !is_upper => call(UPPER, vec![expr]),
        _ => Ok(expr),
    }
}

/// Two operands of a comparison. A column and one of an outer query stay as they are: the planner below joins a
/// correlated count by plain columns only, and the catalog spells a name alike in all of its tables.
pub(crate) fn aligned(left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    let is_outer = |expr: &Expr| matches!(expr, Expr::OuterReferenceColumn(..));
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(_));
    let correlated =
        (is_outer(&left) && is_column(&right)) || (is_column(&left) && is_outer(&right));
    if correlated || Collation::of_all([&left, &right], schema) != Collation::CaseInsensitive {
        return Ok((left, right));
    }
    if left.get_type(schema)? != DataType::Utf8 || right.get_type(schema)? != DataType::Utf8 {
        return Ok((left, right));
    }
    Ok((upper(left, schema)?, upper(right, schema)?))
}

/// An expression that compares by itself; whether it was changed.
pub(crate) fn typed(expr: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    match expr {
        Expr::InList(list) => listed(list, schema),
        Expr::InSubquery(predicate) => member(predicate, schema),
        Expr::Like(like) => {
            let collation = Collation::of_all([&*like.expr, &*like.pattern], schema);
            let found = collation == Collation::CaseInsensitive;
            let case_insensitive = like.case_insensitive || found;
            Ok((Expr::Like(Like { case_insensitive, ..like }), found))
        }
        Expr::ScalarFunction(function) => text_search(function, schema),
        Expr::AggregateFunction(mut call) => {
            let mut found = sort(&mut call.params.order_by, schema)?;
            if call.params.distinct && call.func.name() == "count" {
                found |= all(&mut call.params.args, schema)?;
            }
            found |= extreme(&mut call, schema)?;
            Ok((Expr::AggregateFunction(call), found))
        }
        Expr::WindowFunction(mut call) => {
            let found = windowed(&mut call, schema)?;
            Ok((Expr::WindowFunction(call), found))
        }
        expr => Ok((expr, false)),
    }
}

/// An aggregate of which MIN and MAX of such texts are such, too: what is behind it compares them alike.
pub(crate) fn with_extremes(mut aggregate: Aggregate) -> Result<Aggregate> {
    let input = aggregate.input.schema();
    let first = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let insensitive = |expr: &Expr| Collation::of(expr, input) == Collation::CaseInsensitive;
    let found: Vec<bool> = aggregate.aggr_expr.iter().map(insensitive).collect();
    if !found.contains(&true) {
        return Ok(aggregate);
    }
    let field = |(at, (qualifier, field)): (usize, (Option<&TableReference>, &Arc<Field>))| {
        let is_found = at.checked_sub(first).and_then(|at| found.get(at)) == Some(&true);
        let field = if is_found { with_mark(field) } else { Arc::clone(field) };
        (qualifier.cloned(), field)
    };
    let fields = aggregate.schema.iter().enumerate().map(field).collect();
    let schema = DFSchema::new_with_metadata(fields, aggregate.schema.metadata().clone())?;
    let known = aggregate.schema.functional_dependencies().clone();
    aggregate.schema = Arc::new(schema.with_functional_dependencies(known)?);
    Ok(aggregate)
}

/// MIN and MAX: the first text in the order of upper case.
fn extreme(call: &mut AggregateFunction, schema: &DFSchema) -> Result<bool> {
    let ascending = match call.func.name() {
        "min" => true,
        "max" => false,
        _ => return Ok(false),
    };
    let [text] = &call.params.args[..] else { return Ok(false) };
    if Collation::of(text, schema) != Collation::CaseInsensitive {
        return Ok(false);
    }
    let text = text.clone();
    let by = upper(text.clone(), schema)?;
    let mut order = vec![by.clone().sort(ascending, false)];
    // Of texts that are alike, always the same one.
    if by != text {
        order.push(text.sort(ascending, false));
    }
    call.func = first_value_udaf();
    call.params.order_by = order;
    call.params.distinct = false;
    call.params.null_treatment = Some(NullTreatment::IgnoreNulls);
    Ok(true)
}

fn windowed(call: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    let sorted = sort(&mut call.params.order_by, schema)?;
    Ok(all(&mut call.params.partition_by, schema)? || sorted)
}

/// `IN` over values.
fn listed(mut list: InList, schema: &DFSchema) -> Result<(Expr, bool)> {
    let found = Collation::of_all(std::iter::once(&*list.expr).chain(&list.list), schema);
    let found =
        found == Collation::CaseInsensitive && list.expr.get_type(schema)? == DataType::Utf8;
    if found {
        *list.expr = upper(std::mem::take(&mut *list.expr), schema)?;
        for item in &mut list.list {
            *item = upper(std::mem::take(item), schema)?;
        }
    }
    Ok((Expr::InList(list), found))
}

/// `IN` over a query that reads nothing outside of it.
fn member(mut predicate: InSubquery, schema: &DFSchema) -> Result<(Expr, bool)> {
    let plan = predicate.subquery.subquery.clone();
    let Some((qualifier, field)) = plan.schema().iter().next() else {
        return Ok((Expr::InSubquery(predicate), false));
    };
    let collation = Collation::of(&predicate.expr, schema).and(Collation::of_field(field));
    let texts =
        *field.data_type() == DataType::Utf8 && predicate.expr.get_type(schema)? == DataType::Utf8;
    let found = collation == Collation::CaseInsensitive
        && texts
        && predicate.subquery.outer_ref_columns.is_empty();
    if found {
        let column = upper(Expr::from((qualifier, field)), plan.schema())?.alias(field.name());
        let plan = LogicalPlan::Projection(Projection::try_new(vec![column], plan.clone())?);
        predicate.subquery = predicate.subquery.with_plan(Arc::new(plan));
        *predicate.expr = upper(std::mem::take(&mut *predicate.expr), schema)?;
    }
    Ok((Expr::InSubquery(predicate), found))
}

/// Functions that search a text in others.
fn text_search(mut function: ScalarFunction, schema: &DFSchema) -> Result<(Expr, bool)> {
    let looks_up = matches!(
        function.name(),
        "mysql_strcmp" | "mysql_field" | "mysql_find_in_set" | "mysql_locate" | "mysql_like"
    );
    let is_regexp = function.name() == "mysql_regexp" && function.args.len() == 2;
    let found = (looks_up || is_regexp)
        && Collation::of_all(&function.args, schema) == Collation::CaseInsensitive;
    if found && is_regexp {
        let pattern = std::mem::take(&mut function.args[1]);
        function.args[1] = call("mysql_concat", vec![lit("(?i)"), pattern])?;
    } else if found {
        for arg in &mut function.args {
            *arg = upper(std::mem::take(arg), schema)?;
        }
    }
    Ok((Expr::ScalarFunction(function), found))
}

/// Each expression for itself; whether there were any.
fn all(exprs: &mut [Expr], schema: &DFSchema) -> Result<bool> {
    let mut found = false;
    for expr in exprs {
        if Collation::of(expr, schema) == Collation::CaseInsensitive {
            *expr = upper(std::mem::take(expr), schema)?;
            found = true;
        }
    }
    Ok(found)
}

fn sort(orders: &mut [Sort], schema: &DFSchema) -> Result<bool> {
    let mut found = false;
    for order in orders {
        if Collation::of(&order.expr, schema) == Collation::CaseInsensitive {
            order.expr = upper(std::mem::take(&mut order.expr), schema)?;
            found = true;
        }
    }
    Ok(found)
}

/// A plan that sorts, groups or joins, without case; `None` if it does not, or not by marked columns.
pub(crate) fn arranged(plan: &LogicalPlan, schema: &DFSchema) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(by) => {
            let mut by = by.clone();
            Ok(sort(&mut by.expr, schema)?.then_some(LogicalPlan::Sort(by)))
        }
        LogicalPlan::Join(join) => joined(join),
        LogicalPlan::Aggregate(of) => grouped(
            Group { input: &of.input, by: of.group_expr.clone(), counts: of.aggr_expr.clone() },
            &of.schema,
        ),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let by = input.schema().iter().map(Expr::from).collect();
            grouped(Group { input, by, counts: Vec::new() }, input.schema())
        }
        _ => Ok(None),
    }
}

/// A join by USING or NATURAL, or what INTERSECT and EXCEPT are. Its sides are no plain columns any more, so from here
/// on it is one by conditions.
fn joined(join: &Join) -> Result<Option<LogicalPlan>> {
    let (left, right) = (join.left.schema(), join.right.schema());
    let mut on = join.on.clone();
    let mut found = false;
    for (one, other) in &mut on {
        if Collation::of(one, left).and(Collation::of(other, right)) == Collation::CaseInsensitive {
            *one = upper(std::mem::take(one), left)?;
            *other = upper(std::mem::take(other), right)?;
            found = true;
        }
    }
    if !found {
        return Ok(None);
    }
    let join = Join { on, join_constraint: JoinConstraint::On, ..join.clone() };
    Ok(Some(LogicalPlan::Join(join)))
}

/// Rows that become one where they are equal.
struct Group<'a> {
    input: &'a Arc<LogicalPlan>,
    by: Vec<Expr>,
    counts: Vec<Expr>,
}

/// Groups by upper case, each of which shows the least text of its rows, under the names of `schema`.
fn grouped(mut group: Group, schema: &DFSchema) -> Result<Option<LogicalPlan>> {
    let inside = group.input.schema();
    let without_case = |expr: &Expr| Collation::of(expr, inside) == Collation::CaseInsensitive;
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    if !group.by.iter().any(without_case) || group.by.iter().any(is_set) {
        return Ok(None);
    }
    let mut shown: Vec<Expr> = schema.iter().map(Expr::from).collect();
    let named = group.by.iter_mut().zip(&mut shown).zip(schema.iter());
    for (at, ((by, shown), (qualifier, field))) in named.enumerate() {
        if without_case(by) {
            let name = format!("isobar_shown_{at}");
            group.counts.push(min(by.clone()).alias(&name));
            *by = upper(std::mem::take(by), inside)?;
            let metadata = Some(FieldMetadata::from(field.as_ref()));
            *shown = Expr::Column(Column::new_unqualified(name)).alias_qualified_with_metadata(
                qualifier.cloned(),
                field.name(),
                metadata,
            );
        }
    }
    let rows = Aggregate::try_new(group.input.clone(), group.by, group.counts)?;
    let rows = Arc::new(LogicalPlan::Aggregate(rows));
    Ok(Some(LogicalPlan::Projection(Projection::try_new(shown, rows)?)))
}
