//! What the columns of a result are: names, MySQL types, and the tables they come from.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Fields, Schema};
use datafusion::common::Column as PlanColumn;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, LogicalPlanBuilder};
use syntax::names::{Displayed, TableName};
use types::columns::{NOT_NULL, arrow_type};
use types::{ColumnType, Table};
use values::column::ResultColumn;
use values::error::{SqlResult, unknown};
use values::mysql_type::NOT_FIXED;

use crate::bound::{BoundQuery, OutputColumn};
use crate::result_type::result_type;
use crate::{PlannedSelect, ResolvedTable};

/// Where a column of a result comes from.
struct Origin {
    table: Arc<Table>,
    alias: String,
    position: usize,
}

/// Describes the columns of a bound query's plan, and casts those that the plan has at another type.
pub fn described(
    plan: LogicalPlan,
    output: &[OutputColumn],
    resolved: &HashMap<TableName, ResolvedTable>,
) -> SqlResult<PlannedSelect> {
    let columns = result_columns(output, resolved, plan.schema().fields());
    let mut exprs = Vec::with_capacity(columns.len());
    let mut recast = false;
    for (column, (qualifier, field)) in columns.iter().zip(plan.schema().iter()) {
        let input = Expr::Column(PlanColumn::from((qualifier, field)));
        exprs.push(match column.ty.map(arrow_type) {
            Some(ty) if ty != *field.data_type() => {
                recast = true;
                Expr::Cast(Cast::new(Box::new(input), ty))
                    .alias_qualified(qualifier.cloned(), field.name())
            }
            _ => input,
        });
    }
    let plan = if recast { LogicalPlanBuilder::from(plan).project(exprs)?.build()? } else { plan };
    Ok(PlannedSelect { plan, columns })
}

/// What the columns of a bound query are that was planned and answered elsewhere, with this schema.
///
/// # Errors
///
/// If the answer has another number of columns.
pub fn answered(
    bound: &BoundQuery,
    resolved: &HashMap<TableName, ResolvedTable>,
    answer: &Schema,
) -> SqlResult<Vec<ResultColumn>> {
    if answer.fields().len() != bound.output.len() {
        let (is, due) = (answer.fields().len(), bound.output.len());
        return Err(unknown(format!("an answer of {is} columns to a query of {due}")));
    }
    let nullable = |field: &FieldRef| {
        let is_not_null = field.metadata().contains_key(NOT_NULL);
        Arc::new(Field::clone(field).with_nullable(!is_not_null))
    };
    let fields = answer.fields().iter().map(nullable).collect();
    Ok(result_columns(&bound.output, resolved, &fields))
}

fn result_columns(
    output: &[OutputColumn],
    resolved: &HashMap<TableName, ResolvedTable>,
    fields: &Fields,
) -> Vec<ResultColumn> {
    let column = |(shown, field): (&OutputColumn, &FieldRef)| {
        let origin = shown.origin.as_ref().and_then(|origin| {
            let table = resolved.get(&origin.table)?.table.clone()?;
            Some(Origin { table, alias: origin.alias.clone(), position: origin.position })
        });
        // What is computed from quotients has its digits from the rules for them.
        let ty = match shown.ty.column {
            Some(ColumnType::Decimal { .. }) => result_type(field.data_type(), 0),
            ty => ty,
        };
        let mut column = describe(origin, ty, field.is_nullable());
        column.name.clone_from(&shown.name);
        if column.ty == Some(ColumnType::Double) && shown.ty.digits < NOT_FIXED {
            column.decimals = Some(shown.ty.digits);
        }
        column
    };
    output.iter().zip(fields).map(column).collect()
}

/// Calls the columns of a result what a select list says: for whoever planned a query with
/// literals in the place of what its client wrote.
pub fn rename(columns: &mut [ResultColumn], displayed: &[Displayed]) {
    let names = names(displayed, columns.len());
    for (column, name) in columns.iter_mut().zip(names) {
        if let Some(name) = name {
            column.name = name;
        }
    }
}

/// The displayed name of each column, where the select list says it.
fn names(displayed: &[Displayed], columns: usize) -> Vec<Option<String>> {
    let wildcards = displayed.iter().filter(|d| **d == Displayed::Wildcard).count();
    let named = displayed.len() - wildcards;
    if wildcards > 1 || columns < named || (wildcards == 0 && named != columns) {
        return vec![None; columns];
    }
    let mut names = Vec::with_capacity(columns);
    for item in displayed {
        match item {
            Displayed::Named(name) => names.push(Some(name.clone())),
            Displayed::Wildcard => names.extend(std::iter::repeat_n(None, columns - named)),
        }
    }
    names
}

fn describe(origin: Option<Origin>, ty: Option<ColumnType>, nullable: bool) -> ResultColumn {
    let mut column = ResultColumn::expression("", ty, nullable);
    let Some(origin) = origin else { return column };
    let Some(source) = origin.table.columns.get(origin.position) else { return column };
    column.name.clone_from(&source.name);
    column.org_name.clone_from(&source.name);
    column.table = origin.alias;
    column.org_table.clone_from(&origin.table.name);
    column.database.clone_from(&origin.table.database);
    column.ty = Some(source.ty);
    column.primary_key = origin.table.primary_key.contains(&source.id);
    column.auto_increment = source.auto_increment;
    for index in origin.table.indexes.iter().filter(|i| i.columns.first() == Some(&source.id)) {
        if index.unique && index.columns.len() == 1 {
            column.unique_key = true;
        } else {
            column.multiple_key = true;
        }
    }
    column
}
