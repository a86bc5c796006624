//! One type for what comes from several places: the branches of a CASE and of a UNION.
//!
//! DataFusion takes the first branch's type until it optimises, and then its own idea of a common
//! one; the columns of the result are announced before that. Never touches a branch that has the
//! common type already.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Projection, Union, lit};
use functions::control::common;
use functions::kinds::{DATETIME, is_time};
use functions::trees::Tree;

use crate::caseless::is_marked;
use crate::labels::type_of_field;
use crate::operators::MysqlOperators;
use crate::quotients;
use crate::udf::call;

impl MysqlOperators {
    /// An expression whose CASEs have the types that they will have: what is compared with one asks for it.
    pub(crate) fn with_cases(&self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        if !expr.has(&|part| Ok(matches!(part, Expr::Case(_))))? {
            return Ok(expr);
        }
        let typed = expr.map_up(&mut |part| {
            let case = match &part {
                Expr::Case(case) => self.case(case, schema)?,
                _ => None,
            };
            Ok(case.map_or(Transformed::no(part), Transformed::yes))
        });
        Ok(typed?.data)
    }

    /// A CASE whose results all have the type of MySQL's aggregation; `None` if they have.
    pub(crate) fn case(&self, case: &Case, schema: &DFSchema) -> Result<Option<Expr>> {
        let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
        let types = results.map(|result| result.get_type(schema)).collect::<Result<Vec<_>>>()?;
        let ty = common(&types);
        if types.iter().all(|from| fits(from, &ty)) {
            return Ok(None);
        }
        let mut case = case.clone();
        let results = case.when_then_expr.iter_mut().map(|(_, then)| then);
        for (result, from) in results.chain(&mut case.else_expr).zip(&types) {
            **result = self.at(std::mem::take(&mut **result), from, &ty)?;
        }
        Ok(Some(Expr::Case(case)))
    }

    /// Whether a function chooses from a TIME and what has a day.
    fn mixes_times(&self, function: &ScalarFunction, schema: &DFSchema) -> Result<bool> {
        let Some(conditions) = conditions(function.name()) else { return Ok(false) };
        let results = function.args.iter().skip(conditions);
        let types = results.map(|arg| arg.get_type(schema)).collect::<Result<Vec<_>>>()?;
        Ok(types.iter().any(is_time) && common(&types) == DATETIME)
    }

    /// Such a function of datetimes alone; any other as it is.
    pub(crate) fn with_one_kind_of_time(
        &self,
        expr: Expr,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        match expr {
            Expr::ScalarFunction(function) if self.mixes_times(&function, schema)? => {
                self.datetimes(function, schema).map(Transformed::yes)
            }
            expr => Ok(Transformed::no(expr)),
        }
    }

    fn datetimes(&self, function: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
        let conditions = conditions(function.name()).unwrap_or(0);
        let args = function.args.into_iter().enumerate().map(|(at, arg)| {
            let ty = arg.get_type(schema)?;
            match at < conditions || ty == DataType::Null {
                true => self.local(arg, &ty),
                false => self.as_datetime(arg, &ty),
            }
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(function.func, args)))
    }

    /// A UNION whose inputs' columns have the types of MySQL's aggregation; `None` if they have.
    pub(crate) fn union(&self, union: &Union) -> Result<Option<LogicalPlan>> {
        let types = |column: usize| {
            let types = union.inputs.iter().map(|input| input.schema().field(column));
            common(&types.map(|field| field.data_type().clone()).collect::<Vec<_>>())
        };
        let types: Vec<_> = (0..union.schema.fields().len()).map(types).collect();
        // Of a table of information_schema and of elsewhere: the planner below keeps one mark for both, or none.
        let mixed = |column: usize| {
            let marks = union.inputs.iter().map(|input| is_marked(input.schema().field(column)));
            let marked = marks.filter(|marked| *marked).count();
            marked > 0 && marked < union.inputs.len()
        };
        let mixed: Vec<_> = (0..union.schema.fields().len()).map(mixed).collect();
        let mut changed =
            union.schema.fields().iter().zip(&types).any(|(field, ty)| field.data_type() != ty);
        let mut inputs = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let fields = input.schema().fields().iter().zip(&types).zip(&mixed);
            if fields.clone().all(|((field, ty), mixed)| is_as(field, ty, *mixed)) {
                inputs.push(input.clone());
                continue;
            }
            changed = true;
            let columns = input.schema().iter().zip(&types).zip(&mixed);
            let columns = columns.map(|(((qualifier, field), ty), mixed)| {
                let column = Expr::from((qualifier, field));
                let column = match type_of_field(field) {
                    // Of several places it is a text.
                    Some(_) => call("cast_char", vec![column])?,
                    None if *mixed && is_marked(field) => call("cast_char", vec![column])?,
                    None => self.at(column, field.data_type(), ty)?,
                };
                Ok(column.alias_qualified(qualifier.cloned(), field.name()))
            });
            let projection = Projection::try_new(columns.collect::<Result<_>>()?, input.clone())?;
            inputs.push(Arc::new(LogicalPlan::Projection(projection)));
        }
        Ok(if changed { Some(LogicalPlan::Union(Union::try_new(inputs)?)) } else { None })
    }

    /// A value of one type as the same value of a type that [`common`] gave.
    pub(super) fn at(&self, expr: Expr, from: &DataType, to: &DataType) -> Result<Expr> {
        let cast = |expr: Expr, to: &DataType| Expr::Cast(Cast::new(Box::new(expr), to.clone()));
        match to {
            _ if from == to => Ok(expr),
            _ if *from == DataType::Null => Ok(cast(expr, to)),
            DataType::Utf8 => call("cast_char", vec![self.local(expr, from)?]),
            DataType::Float64 => call("cast_double", vec![expr]),
            DataType::Binary => call("cast_binary", vec![expr]),
            to if *to == DATETIME => self.as_datetime(expr, from),
            to if *from == DataType::Boolean => Ok(cast(cast(expr, &DataType::Int64), to)),
            DataType::Decimal256(precision, scale) => {
                let digits = [lit(i64::from(*precision)), lit(i64::from(*scale))];
                call("isobar_undiminished", [vec![expr], digits.to_vec()].concat())
            }
            to if expr.has(&|part| Ok(quotients::is_quotient(part)))? => {
                quotients::rounded(expr, to)
            }
            to => Ok(cast(expr, to)),
        }
    }
}

/// Behind how many others the values stand that a function chooses from; `None` of any other function.
fn conditions(function: &str) -> Option<usize> {
    match function {
        "mysql_if" => Some(1),
        "mysql_coalesce" | "mysql_greatest" | "mysql_least" => Some(0),
        _ => None,
    }
}

/// Whether a column of a UNION's input is one of the UNION already.
fn is_as(field: &Field, ty: &DataType, mixed: bool) -> bool {
    field.data_type() == ty && type_of_field(field).is_none() && !(mixed && is_marked(field))
}

/// Whether a result needs no cast: a bare NULL takes any type.
fn fits(from: &DataType, to: &DataType) -> bool {
    from == to || *from == DataType::Null
}
