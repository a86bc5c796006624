//! Rows grouped: which expressions are groups' own, and which are computed over their rows.
//!
//! It takes only queries of which each column that is shown is grouped by, or of a table whose primary key is. Others
//! are left to the rest of the planner, which finds out whether MySQL allows them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema};
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable};
use types::{ColumnType, Value};
use values::error::{SqlResult, unknown};
use values::mysql_type::{MysqlType, NOT_FIXED};

use super::call_types::{arrow, of_arrow};
use super::literal;
use super::scalars::{Result, Unbound};
use super::scope::Scope;
use super::tree::{AggregateCall, ColumnId, Comparison, Node, Scalar};

/// The aggregate that takes any value: of the first row that comes.
const ANY: &str = "first_value";

/// Aggregates that are bound, by the names that `rewrite` gives them.
const AGGREGATES: [&str; 14] = [
    "array_agg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "count",
    "first_value",
    "max",
    "min",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "var_pop",
];

/// The aggregate of a name; `None` if there is none that is bound.
pub fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    static ALL: OnceLock<HashMap<String, Arc<AggregateUDF>>> = OnceLock::new();
    if !AGGREGATES.contains(&name) {
        return None;
    }
    let all = || {
        let functions = all_default_aggregate_functions().into_iter();
        let named = functions.flat_map(|function| {
            let names = std::iter::once(function.name())
                .chain(function.aliases().iter().map(String::as_str));
            names.map(|name| (name.to_owned(), function.clone())).collect::<Vec<_>>()
        });
        named.collect()
    };
    ALL.get_or_init(all).get(name).cloned()
}

/// The type of an aggregate's value.
///
/// # Errors
///
/// What the function says of its arguments' types.
pub fn type_of(name: &str, function: &Arc<AggregateUDF>, args: &[Scalar]) -> SqlResult<MysqlType> {
    let field = |(at, arg): (usize, &Scalar)| Field::new(at.to_string(), arrow(&arg.ty), true);
    let fields: Vec<Field> = args.iter().enumerate().map(field).collect();
    let columns = fields.iter().map(|field| Expr::Column(Column::new_unqualified(field.name())));
    let call =
        AggregateFunction::new_udf(function.clone(), columns.collect(), false, None, vec![], None);
    let schema = DFSchema::from_unqualified_fields(fields.into(), HashMap::new())?;
    let ty = Expr::AggregateFunction(call).get_type(&schema)?;
    let chosen = matches!(name, "min" | "max" | "first_value");
    if chosen && let [Scalar { ty: MysqlType { column: Some(ColumnType::Year), .. }, .. }] = args {
        return Ok(MysqlType::of_column(ColumnType::Year));
    }
    let fraction = args.iter().map(|arg| arg.ty.fraction()).max().unwrap_or(0);
    let digits = match args.first() {
        Some(arg) if matches!(name, "min" | "max" | "sum") => arg.ty.digits,
        _ => NOT_FIXED,
    };
    Ok(of_arrow(&ty, fraction, digits))
}

/// The groups of a query, and the aggregates over their rows so far.
#[derive(Default)]
pub struct Groups {
    /// What is grouped by.
    pub keys: Vec<(ColumnId, Scalar)>,
    /// What is computed.
    pub aggregates: Vec<(ColumnId, AggregateCall)>,
}

impl Groups {
    /// The column of an aggregate, the same one for the same call.
    pub fn add(&mut self, call: AggregateCall, next: impl FnOnce() -> ColumnId) -> ColumnId {
        match self.aggregates.iter().find(|(_, known)| *known == call) {
            Some((id, _)) => *id,
            None => {
                let id = next();
                self.aggregates.push((id, call));
                id
            }
        }
    }

    /// An expression over the groups' columns: what is grouped by, aggregates, and columns that these determine, by
    /// which it is grouped, too. Of other columns it takes any value of the group where `any` says so.
    pub fn over(
        &mut self,
        scalar: Scalar,
        scope: &Scope,
        any: &dyn Fn(&Scalar) -> bool,
        next: &mut dyn FnMut() -> ColumnId,
    ) -> Result<Scalar> {
        if let Some((id, key)) = self.keys.iter().find(|(_, key)| *key == scalar) {
            return Ok(Scalar { node: Node::Column(*id), ty: key.ty });
        }
        if let Node::Column(id) = scalar.node {
            if !scope.is_determined(id, |key| self.is_key(key)) {
                if !any(&scalar) || scalar.ty.column == Some(ColumnType::Json) {
                    return Err(Unbound::NotYet);
                }
                let (function, ty) = (ANY.to_owned(), scalar.ty);
                let call = AggregateCall {
                    function,
                    args: vec![scalar],
                    distinct: false,
                    order: Vec::new(),
                };
                let id = self.add(call, next);
                return Ok(Scalar { node: Node::Aggregate(id), ty });
            }
            let (of_group, ty) = (next(), scalar.ty);
            self.keys.push((of_group, scalar));
            return Ok(Scalar { node: Node::Column(of_group), ty });
        }
        let Scalar { node, ty } = scalar.try_map(&mut |part| self.over(part, scope, any, next))?;
        // Queries within read columns of the groups, too.
        let node = node.try_map_queries(&mut |id| match scope.value(id) {
            None => Ok(id),
            Some(column) => match self.over(column, scope, any, next)?.node {
                Node::Column(of_group) | Node::Aggregate(of_group) => Ok(of_group),
                _ => Err(Unbound::NotYet),
            },
        })?;
        Ok(Scalar { node, ty })
    }

    /// A HAVING of all rows in one group as a condition on that group, whatever it asks: plans would make one of the rows
    /// of what reads no column, and the group would be there without them.
    pub fn of_all_rows(
        &mut self,
        having: Scalar,
        next: impl FnOnce() -> ColumnId,
    ) -> SqlResult<Scalar> {
        if !self.keys.is_empty() || having.has_aggregates() {
            return Ok(having);
        }
        let (name, args) = ("count", vec![literal::of(Value::Int(1))]);
        let function = aggregate(name).ok_or_else(|| unknown("there is no aggregate of rows"))?;
        let ty = type_of(name, &function, &args)?;
        let id = self.add(
            AggregateCall { function: name.to_owned(), args, distinct: false, order: Vec::new() },
            next,
        );
        let left = Box::new(Scalar { node: Node::Aggregate(id), ty });
        let right = Box::new(literal::of(Value::Int(0)));
        let always = Node::Compare { comparison: Comparison::GreaterOrEqual, left, right };
        let always = Scalar { node: always, ty: MysqlType::of_truth() };
        let ty = having.ty;
        Ok(Scalar { node: Node::Case { branches: vec![(always, having)], otherwise: None }, ty })
    }

    fn is_key(&self, column: ColumnId) -> bool {
        self.keys.iter().any(|(_, key)| key.node == Node::Column(column))
    }
}
