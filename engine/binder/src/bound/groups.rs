//! Rows grouped: which expressions are groups' own, and which are computed over their rows.
//!
//! What is shown of a group is grouped by, computed over its rows, or follows from what it is grouped by; without
//! ONLY_FULL_GROUP_BY it may be any row's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema};
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable};
use types::{ColumnType, Value};
use values::error::{
    SqlError, SqlResult, no_column, not_aggregated, not_grouped, not_of_grouping, unknown,
    wrong_aggregate,
};
use values::mysql_type::{MysqlType, NOT_FIXED};

use super::call_types::{arrow, of_arrow};
use super::literal;
use super::scope::Scope;
use super::subqueries::connected;
use super::tree::{AggregateCall, ColumnId, Comparison, Connective, Node, Scalar};

/// The aggregate that takes any value: of the first row that comes.
const ANY: &str = "first_value";

/// The aggregate that tells totals from groups.
pub const GROUPING: &str = "grouping";
const COUNT: &str = "count";

/// Aggregates that are bound, by the names that `rewrite` gives them.
const AGGREGATES: [&str; 15] = [
    "array_agg",
    "bit_and",
    "bit_or",
    "bit_xor",
    COUNT,
    "first_value",
    GROUPING,
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
    /// Whether there are totals of groups.
    pub rollup: bool,
    /// Whether all rows are one group, which is there without any.
    pub of_all: bool,
    /// What is computed.
    pub aggregates: Vec<(ColumnId, AggregateCall)>,
    /// The columns of rows that are the same for all rows of a group.
    pub determined: HashSet<ColumnId>,
}

/// Where an expression over groups stands.
#[derive(Clone, Copy)]
pub enum Part {
    /// In the select list, at this place from 0.
    Item(usize),
    /// In HAVING.
    Having,
    /// In ORDER BY.
    Order,
}

/// Expressions of one part of a query.
pub struct Over<'o> {
    /// The tables of its FROM.
    pub scope: &'o Scope,
    /// Where they stand.
    pub part: Part,
    /// Of which columns any value of the group will do.
    pub any: &'o dyn Fn(&Scalar) -> bool,
    /// The numbers of new columns.
    pub next: &'o dyn Fn() -> ColumnId,
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
    /// which it is grouped, too. Of other columns it takes any value of the group where that will do.
    ///
    /// # Errors
    ///
    /// 1055 for a column that is not the same for all rows of a group, 1140 where these are all rows, 1054 in HAVING.
    pub fn over(&mut self, scalar: Scalar, over: &Over) -> SqlResult<Scalar> {
        // What a literal is does not change; functions ask for literals.
        if matches!(scalar.node, Node::Literal(_)) {
            return Ok(scalar);
        }
        if let Some((id, key)) = self.keys.iter().rev().find(|(_, key)| *key == scalar) {
            return Ok(Scalar { node: Node::Column(*id), ty: key.ty });
        }
        if let Node::Column(id) = scalar.node {
            return match self.determined.contains(&id) {
                true if !self.of_all => {
                    let (of_group, ty) = ((over.next)(), scalar.ty);
                    self.keys.push((of_group, scalar));
                    Ok(Scalar { node: Node::Column(of_group), ty })
                }
                determined if determined || (over.any)(&scalar) => {
                    let ty = scalar.ty;
                    let id = self.add(any_of(scalar), over.next);
                    Ok(Scalar { node: Node::Aggregate(id), ty })
                }
                _ => Err(self.not_one(id, over)),
            };
        }
        let Scalar { node, ty } = scalar.try_map(&mut |part| self.over(part, over))?;
        // Queries within read columns of the groups, too.
        let node = node.try_map_queries(&mut |id| match over.scope.value(id) {
            None => Ok(id),
            Some(column) => match self.over(column, over)?.node {
                Node::Column(of_group) | Node::Aggregate(of_group) => Ok(of_group),
                _ => Err(unknown("a column of a group is none")),
            },
        })?;
        Ok(Scalar { node, ty })
    }

    /// The error of a column that has several values in a group.
    fn not_one(&self, column: ColumnId, over: &Over) -> SqlError {
        let (full, name) = over.scope.name_of(column).unwrap_or_default();
        let column = || format!("nonaggregated column '{full}'");
        match over.part {
            Part::Having => no_column(name, "having clause"),
            Part::Item(at) if self.of_all => not_aggregated(at + 1, name),
            Part::Item(_) => not_grouped("SELECT list", column()),
            Part::Order => not_grouped("ORDER BY clause", column()),
        }
    }

    /// HAVING of all rows in one group, or of totals, as a condition on groups, whatever it asks: plans would make one of
    /// the rows of what reads no column, and the group would be there without them. No rows have no totals.
    ///
    /// # Errors
    ///
    /// A fault of ours.
    pub fn condition(
        &mut self,
        having: Option<Scalar>,
        next: &dyn Fn() -> ColumnId,
    ) -> SqlResult<Option<Scalar>> {
        let of_all = self.of_all;
        let left = match &having {
            _ if self.rollup => self.computed(COUNT, literal::of(Value::Int(1)), next)?,
            Some(having) if of_all && !having.has_aggregates() => {
                self.computed(COUNT, literal::of(Value::Int(1)), next)?
            }
            _ => return Ok(having),
        };
        let comparison = if self.rollup { Comparison::Greater } else { Comparison::GreaterOrEqual };
        let (left, right) = (Box::new(left), Box::new(literal::of(Value::Int(0))));
        let rows = Node::Compare { comparison, left, right };
        let rows = Scalar { node: rows, ty: MysqlType::of_truth() };
        Ok(Some(match having {
            None => rows,
            Some(having) if self.rollup => connected(having, Connective::And, rows),
            Some(having) => {
                let ty = having.ty;
                let node = Node::Case { branches: vec![(rows, having)], otherwise: None };
                Scalar { node, ty }
            }
        }))
    }

    fn computed(
        &mut self,
        name: &str,
        arg: Scalar,
        next: &dyn Fn() -> ColumnId,
    ) -> SqlResult<Scalar> {
        let function =
            aggregate(name).ok_or_else(|| unknown(format!("there is no aggregate {name}")))?;
        let call = call_of(name, arg);
        let ty = type_of(name, &function, &call.args)?;
        Ok(Scalar { node: Node::Aggregate(self.add(call, next)), ty })
    }

    /// What rows with totals are sorted by where nothing is said: each total behind its groups.
    ///
    /// # Errors
    ///
    /// A fault of ours.
    pub fn totals_behind(&mut self, next: &dyn Fn() -> ColumnId) -> SqlResult<Vec<Scalar>> {
        let mut by = Vec::with_capacity(2 * self.keys.len());
        for (_, key) in self.keys.clone() {
            by.push(self.computed(GROUPING, key.clone(), next)?);
            by.push(key);
        }
        Ok(by)
    }

    /// That GROUPING asks about what is grouped by alone.
    ///
    /// # Errors
    ///
    /// 3580 where it does not, 1111 where there are no totals.
    pub fn check_groupings(&self) -> SqlResult<()> {
        let is_key = |arg: &Scalar| self.keys.iter().any(|(_, key)| key == arg);
        for (_, call) in self.aggregates.iter().filter(|(_, call)| call.function == GROUPING) {
            if !self.rollup {
                return Err(wrong_aggregate());
            }
            if let Some(at) = call.args.iter().position(|arg| !is_key(arg)) {
                return Err(not_of_grouping(at));
            }
        }
        Ok(())
    }
}

/// Any value of a group.
pub fn any_of(arg: Scalar) -> AggregateCall {
    call_of(ANY, arg)
}

fn call_of(function: &str, arg: Scalar) -> AggregateCall {
    let (function, order) = (function.to_owned(), Vec::new());
    AggregateCall { function, args: vec![arg], distinct: false, order }
}
