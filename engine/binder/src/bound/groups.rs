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
use types::ColumnType;
use values::error::SqlResult;
use values::mysql_type::{MysqlType, NOT_FIXED};

use super::call_types::{arrow, of_arrow};
use super::scalars::{Result, Unbound};
use super::scope::Scope;
use super::tree::{AggregateCall, ColumnId, Node, Scalar};

/// Aggregates that are bound, by the names that `rewrite` gives them.
const AGGREGATES: [&str; 13] = [
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
    /// which it is grouped, too.
    pub fn over(
        &mut self,
        scalar: Scalar,
        scope: &Scope,
        next: &mut impl FnMut() -> ColumnId,
    ) -> Result<Scalar> {
        if let Some((id, key)) = self.keys.iter().find(|(_, key)| *key == scalar) {
            return Ok(Scalar { node: Node::Column(*id), ty: key.ty });
        }
        if let Node::Column(id) = scalar.node {
            if !scope.is_determined(id, |key| self.is_key(key)) {
                return Err(Unbound::NotYet);
            }
            let (of_group, ty) = (next(), scalar.ty);
            self.keys.push((of_group, scalar));
            return Ok(Scalar { node: Node::Column(of_group), ty });
        }
        scalar.try_map(&mut |part| self.over(part, scope, next))
    }

    fn is_key(&self, column: ColumnId) -> bool {
        self.keys.iter().any(|(_, key)| key.node == Node::Column(column))
    }
}
