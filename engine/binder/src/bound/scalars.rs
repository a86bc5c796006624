//! Expressions bound: names to columns, functions and operators to their types.
//!
//! It reads expressions that `rewrite` has brought into their plain forms. What is not bound yet is said to be so, and
//! never guessed at.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::logical_expr::AggregateUDF;
use functions::random;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList, FunctionArguments, OrderByExpr, Query,
    UnaryOperator, Value as SqlValue, ValueWithSpan,
};
use syntax::names::parts;
use types::{ColumnType, Value};
use values::error::SqlError;
use values::mysql_type::MysqlType;

use super::groups::{self, Groups};
use super::query::{Binder, Frame};
use super::scope::{Clause, Scope, ScopeColumn};
use super::tree::{AggregateCall, Comparison, Connective, Node, Scalar};
use super::windows::Windows;
use super::{arguments, call_types, literal};
use crate::columns::TEXT_LENGTH;
use crate::rewrite::{BOTH, EITHER};

/// The function that makes one text of a list of values.
const JOIN: &str = "isobar_join";
/// Error of a name that no column has.
const NO_COLUMN: u16 = 1054;

/// Why a query is not bound.
pub enum Unbound {
    /// It has a form that is planned from its syntax tree so far.
    NotYet,
    /// It is wrong.
    Wrong(SqlError),
}

impl From<SqlError> for Unbound {
    fn from(error: SqlError) -> Self {
        Unbound::Wrong(error)
    }
}

/// What is bound, or why it is not.
pub type Result<T> = std::result::Result<T, Unbound>;

/// Binds the expressions of one clause.
#[derive(Clone, Copy)]
pub struct Scalars<'b, 'a> {
    /// The query that they are of.
    pub binder: &'b Binder<'a>,
    /// The columns that names may mean.
    pub scope: &'b Scope,
    /// What names may mean besides: items of the select list, by their names in lower case.
    pub named: &'b [(String, Scalar)],
    /// Where the expressions stand.
    pub clause: Clause,
    /// Where aggregates are collected; `None` where there may be none.
    pub groups: Option<&'b RefCell<Groups>>,
    /// Where window functions are collected; `None` where there may be none.
    pub windows: Option<&'b RefCell<Windows>>,
    /// The queries that stood in the expressions.
    pub queries: &'b [Query],
}

impl Scalars<'_, '_> {
    /// Binds an expression in its plain form.
    ///
    /// # Errors
    ///
    /// MySQL's where a name means nothing or several things, or a function is called wrongly.
    pub fn bind(&self, expr: &Expr) -> Result<Scalar> {
        Ok(match expr {
            Expr::Nested(inner) => self.bind(inner)?,
            Expr::Identifier(name) => self.column(std::slice::from_ref(&name.value))?,
            Expr::CompoundIdentifier(names) => {
                let path: Vec<String> = names.iter().map(|name| name.value.clone()).collect();
                self.column(&path)?
            }
            Expr::Value(value) => constant(&value.value)?,
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
                Expr::Value(ValueWithSpan { value: SqlValue::Number(digits, _), .. }) => {
                    literal::number(digits, true)?
                }
                _ => return Err(Unbound::NotYet),
            },
            Expr::UnaryOp { op, expr } if syntax::dialect::is_not(*op) => {
                truth(Node::Not(self.boxed(expr)?))
            }
            Expr::BinaryOp { left, op, right } => {
                self.binary(self.bind(left)?, op, self.bind(right)?)?
            }
            Expr::IsNull(value) => {
                truth(Node::IsNull { value: self.boxed(value)?, negated: false })
            }
            Expr::IsNotNull(value) => {
                truth(Node::IsNull { value: self.boxed(value)?, negated: true })
            }
            Expr::IsTrue(value) => self.is_truth(value, true, false)?,
            Expr::IsNotTrue(value) => self.is_truth(value, true, true)?,
            Expr::IsFalse(value) => self.is_truth(value, false, false)?,
            Expr::IsNotFalse(value) => self.is_truth(value, false, true)?,
            Expr::InList { expr, list, negated } => {
                let list = list.iter().map(|item| self.bind(item)).collect::<Result<_>>()?;
                truth(Node::In { value: self.boxed(expr)?, list, negated: *negated })
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                let (text, pattern) = (self.boxed(expr)?, self.boxed(pattern)?);
                truth(Node::Like { text, pattern, negated: *negated })
            }
            Expr::Case { operand: None, conditions, else_result, .. } => {
                self.case(conditions, else_result.as_deref())?
            }
            Expr::Function(function) => self.call(function)?,
            Expr::Subquery(place) => self.query(place)?,
            Expr::Exists { subquery, negated } => self.exists(subquery, *negated)?,
            Expr::InSubquery { expr, subquery, negated } => {
                self.in_query(self.bind(expr)?, subquery, *negated)?
            }
            Expr::AnyOp { left, compare_op, right, .. } => {
                self.quantified(self.bind(left)?, compare_op, right, false)?
            }
            Expr::AllOp { left, compare_op, right } => {
                self.quantified(self.bind(left)?, compare_op, right, true)?
            }
            _ => return Err(Unbound::NotYet),
        })
    }

    fn boxed(&self, expr: &Expr) -> Result<Box<Scalar>> {
        self.bind(expr).map(Box::new)
    }

    fn column(&self, path: &[String]) -> Result<Scalar> {
        let column = self.scope.column(path, self.clause).map(ScopeColumn::value);
        let item = match path {
            [name] => item_of(self.named, &name.to_lowercase())?,
            _ => None,
        };
        match (column, item) {
            // Which of the two HAVING means depends on what is grouped by.
            (Ok(column), Some(item)) if self.clause == Clause::Having && column != *item => {
                Err(Unbound::NotYet)
            }
            (Ok(column), _) => Ok(column),
            // Items come first there, whatever columns are called.
            (Err(_), Some(item)) if self.clause == Clause::Having => Ok(item.clone()),
            (Err(error), Some(item)) if error.code == NO_COLUMN => Ok(item.clone()),
            (Err(error), None) if error.code == NO_COLUMN => match self.outer(path)? {
                Some(outer) => Ok(outer),
                None => Err(error.into()),
            },
            (Err(error), _) => Err(error.into()),
        }
    }

    /// What a name means of the queries around, the nearest first.
    fn outer(&self, path: &[String]) -> Result<Option<Scalar>> {
        for Frame { scope, named } in self.binder.outer.iter().rev().map(Rc::as_ref) {
            match scope.column(path, self.clause) {
                Ok(column) => return Ok(Some(column.value().seen_within())),
                Err(error) if error.code == NO_COLUMN => {}
                Err(error) => return Err(error.into()),
            }
            if let [name] = path
                && let Some(item) = item_of(named, &name.to_lowercase())?
            {
                return Ok(Some(item.clone().seen_within()));
            }
        }
        Ok(None)
    }

    fn is_truth(&self, value: &Expr, is: bool, negated: bool) -> Result<Scalar> {
        Ok(truth(Node::IsTruth { value: self.boxed(value)?, truth: is, negated }))
    }

    fn binary(&self, left: Scalar, operator: &BinaryOperator, right: Scalar) -> Result<Scalar> {
        let (left, right) = (Box::new(left), Box::new(right));
        let compare = |comparison, left, right| truth(Node::Compare { comparison, left, right });
        let logic = |connective, left, right| truth(Node::Logic { connective, left, right });
        let function = match operator {
            BinaryOperator::Eq => return Ok(compare(Comparison::Equal, left, right)),
            BinaryOperator::NotEq => return Ok(compare(Comparison::NotEqual, left, right)),
            BinaryOperator::Lt => return Ok(compare(Comparison::Less, left, right)),
            BinaryOperator::LtEq => return Ok(compare(Comparison::LessOrEqual, left, right)),
            BinaryOperator::Gt => return Ok(compare(Comparison::Greater, left, right)),
            BinaryOperator::GtEq => return Ok(compare(Comparison::GreaterOrEqual, left, right)),
            BinaryOperator::Spaceship => {
                return Ok(compare(Comparison::NullSafeEqual, left, right));
            }
            BinaryOperator::And => return Ok(logic(Connective::And, left, right)),
            BinaryOperator::Or => return Ok(logic(Connective::Or, left, right)),
            BinaryOperator::Xor => return Ok(logic(Connective::Xor, left, right)),
            BinaryOperator::Custom(name) if name == BOTH => {
                return Ok(logic(Connective::Both, left, right));
            }
            BinaryOperator::Custom(name) if name == EITHER => {
                return Ok(logic(Connective::Either, left, right));
            }
            operator => match crate::typing::arithmetic(operator) {
                Some(function) => function,
                None => return Err(Unbound::NotYet),
            },
        };
        let (left, right) = (number_of_bytes(*left), number_of_bytes(*right));
        Ok(arguments::call(function, arguments::taken_by(function, vec![left, right])?)?)
    }

    fn case(&self, conditions: &[CaseWhen], otherwise: Option<&Expr>) -> Result<Scalar> {
        let branch = |when: &CaseWhen| Ok((self.bind(&when.condition)?, self.bind(&when.result)?));
        let branches = conditions.iter().map(branch).collect::<Result<Vec<_>>>()?;
        let otherwise = otherwise.map(|expr| self.boxed(expr)).transpose()?;
        let results = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
        let ty = call_types::of_several(results);
        Ok(Scalar { node: Node::Case { branches, otherwise }, ty })
    }

    fn call(&self, function: &Function) -> Result<Scalar> {
        let Function { args: FunctionArguments::List(list), .. } = function else {
            return Err(Unbound::NotYet);
        };
        let plain = function.filter.is_none()
            && function.within_group.is_empty()
            && function.null_treatment.is_none();
        let [name] = &parts(&function.name)[..] else { return Err(Unbound::NotYet) };
        // Each of its calls is a function of its own.
        if !plain || name == random::SEEDED {
            return Err(Unbound::NotYet);
        }
        if !list.clauses.is_empty() {
            return Err(Unbound::NotYet);
        }
        if name == JOIN {
            return self.joined_list(list);
        }
        if let Some(over) = &function.over {
            return self.window(name, over, list);
        }
        if let Some(aggregate) = groups::aggregate(name) {
            return self.aggregate(name, &aggregate, list, &[]);
        }
        let args = self.args(list)?;
        if functions::named(name).is_none() || list.duplicate_treatment.is_some() {
            return Err(Unbound::NotYet);
        }
        if name == "mysql_nullif"
            && let Some(choice) = arguments::null_if_number(&args)?
        {
            return Ok(choice);
        }
        Ok(arguments::call(name, arguments::taken_by(name, args)?)?)
    }
}

impl Scalars<'_, '_> {
    fn args(&self, list: &FunctionArgumentList) -> Result<Vec<Scalar>> {
        each_arg(list, &|expr| self.bind(expr))
    }

    /// Arguments of what is computed over several rows.
    pub(super) fn values(&self, list: &FunctionArgumentList) -> Result<Vec<Scalar>> {
        each_arg(list, &|expr| self.value(expr))
    }

    /// A list of a group's values in an order, as one text.
    fn joined_list(&self, list: &FunctionArgumentList) -> Result<Scalar> {
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(collected))), rest @ ..] =
            &list.args[..]
        else {
            return Err(Unbound::NotYet);
        };
        let FunctionArguments::List(values) = &collected.args else { return Err(Unbound::NotYet) };
        let name = parts(&collected.name).pop().unwrap_or_default();
        let function = groups::aggregate(&name).ok_or(Unbound::NotYet)?;
        if collected.over.is_some() {
            return Err(Unbound::NotYet);
        }
        let within = Scalars { groups: None, windows: None, named: &[], ..*self };
        let mut order = Vec::new();
        for clause in &values.clauses {
            let FunctionArgumentClause::OrderBy(by) = clause else { return Err(Unbound::NotYet) };
            for by in by {
                order.push(within.ordered(by)?);
            }
        }
        let list =
            FunctionArgumentList { args: rest.to_vec(), clauses: Vec::new(), ..list.clone() };
        let mut args = vec![self.aggregate(&name, &function, values, &order)?];
        args.extend(self.args(&list)?);
        let node = Node::Call { function: JOIN.to_owned(), args };
        let ty = MysqlType::of_column(ColumnType::Varchar(TEXT_LENGTH));
        Ok(Scalar { node, ty })
    }

    /// One of the things by which a window or an aggregate takes rows, and whether the greatest comes first.
    pub(super) fn ordered(&self, by: &OrderByExpr) -> Result<(Scalar, bool)> {
        if by.options.nulls_first.is_some() || by.with_fill.is_some() {
            return Err(Unbound::NotYet);
        }
        Ok((self.value(&by.expr)?, by.options.asc == Some(false)))
    }

    /// An expression of which the value counts: EXISTS and IN in it are values, too.
    pub(super) fn value(&self, expr: &Expr) -> Result<Scalar> {
        let scalar = self.bind(expr)?;
        match self.queries.is_empty() {
            true => Ok(scalar),
            false => self.binder.values(scalar, true),
        }
    }

    /// An aggregate, as a column of the groups.
    fn aggregate(
        &self,
        name: &str,
        function: &Arc<AggregateUDF>,
        list: &FunctionArgumentList,
        order: &[(Scalar, bool)],
    ) -> Result<Scalar> {
        let Some(groups) = self.groups else { return Err(Unbound::NotYet) };
        // What an item of the select list is called is no name within one.
        let within = Scalars { groups: None, windows: None, named: &[], ..*self };
        let args = within.values(list)?;
        // One of columns around this query alone is one of the query around.
        let reads = |is_such: fn(&Node) -> bool| args.iter().any(|arg| arg.has(&is_such));
        let is_query = |node: &Node| matches!(node, Node::Query(_) | Node::Exists { .. });
        let own = |node: &Node| matches!(node, Node::Column(_));
        if reads(|node| matches!(node, Node::Outer(_))) && !reads(own) && !reads(is_query) {
            return Err(Unbound::NotYet);
        }
        let distinct = match list.duplicate_treatment {
            Some(DuplicateTreatment::Distinct) => true,
            Some(DuplicateTreatment::All) | None => false,
        };
        let json = |arg: &Scalar| arg.ty.column == Some(ColumnType::Json);
        // Of texts that compare without case MIN and MAX are, too, and no type here says so.
        let caseless = self.binder.tables.keys().any(|name| name.database == "information_schema");
        if caseless && matches!(name, "min" | "max") {
            return Err(Unbound::NotYet);
        }
        if args.is_empty() || args.iter().any(json) {
            return Err(Unbound::NotYet);
        }
        let ty = groups::type_of(name, function, &args)?;
        let call =
            AggregateCall { function: name.to_owned(), args, distinct, order: order.to_vec() };
        let id = groups.borrow_mut().add(call, || self.binder.next());
        Ok(Scalar { node: Node::Aggregate(id), ty })
    }
}

fn each_arg(
    list: &FunctionArgumentList,
    bind: &dyn Fn(&Expr) -> Result<Scalar>,
) -> Result<Vec<Scalar>> {
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => bind(expr),
        _ => Err(Unbound::NotYet),
    };
    list.args.iter().map(arg).collect()
}

/// The item of a select list that a name means.
fn item_of<'n>(named: &'n [(String, Scalar)], name: &str) -> Result<Option<&'n Scalar>> {
    let mut items = named.iter().filter(|(known, _)| known == name);
    let Some((_, item)) = items.next() else { return Ok(None) };
    match items.all(|(_, other)| other == item) {
        true => Ok(Some(item)),
        false => Err(Unbound::NotYet),
    }
}

/// A truth value.
pub(super) fn truth(node: Node) -> Scalar {
    Scalar { node, ty: MysqlType::of_truth() }
}

/// Bytes of the text as the number that they are beside numbers; anything else as it is.
fn number_of_bytes(scalar: Scalar) -> Scalar {
    match &scalar.node {
        Node::Literal(Value::Bytes(bytes)) => match values::numbers::number_of(bytes) {
            Some(n) => literal::of(Value::UInt(n)),
            None => scalar,
        },
        _ => scalar,
    }
}

fn constant(value: &SqlValue) -> Result<Scalar> {
    Ok(match value {
        SqlValue::Null => literal::of(Value::Null),
        SqlValue::Number(digits, _) => literal::number(digits, false)?,
        SqlValue::SingleQuotedString(text) => literal::of(Value::String(text.clone())),
        SqlValue::HexStringLiteral(hex) => {
            literal::of(Value::Bytes(values::bytes::bytes_of_hex(hex)?))
        }
        _ => return Err(Unbound::NotYet),
    })
}
