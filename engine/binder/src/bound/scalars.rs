//! Expressions bound: names to columns, functions and operators to their types.
//!
//! It reads expressions that `rewrite` has brought into their plain forms. What is not bound yet is said to be so, and
//! never guessed at.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::logical_expr::AggregateUDF;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList, FunctionArguments, OrderByExpr, Query,
    UnaryOperator, Value as SqlValue, ValueWithSpan,
};
use syntax::names::parts;
use types::{ColumnType, Value};
use values::error::{
    NO_COLUMN, SqlResult, ambiguous_column, no_column, syntax, unsupported, wrong_aggregate,
    wrong_argument_count, wrong_width,
};
use values::mysql_type::MysqlType;

use super::groups::{self, Groups};
use super::query::{Binder, Frame};
use super::scope::{Clause, Scope, ScopeColumn};
use super::tree::{AggregateCall, ColumnId, Comparison, Connective, Node, Scalar};
use super::windows::Windows;
use super::{arguments, call_types, literal, ranges};
use crate::forms::{BOTH, EITHER};
use crate::literal::check_digits;
use crate::result_type::TEXT_LENGTH;

/// The function that makes one text of a list of values.
const JOIN: &str = "isobar_join";

/// Binds the expressions of one clause.
#[derive(Clone, Copy)]
pub struct Scalars<'b, 'a> {
    /// The query that they are of.
    pub binder: &'b Binder<'a>,
    /// The columns that names may mean.
    pub scope: &'b Scope,
    /// What names may mean besides: items of the select list, by their names in lower case.
    pub named: &'b [(String, Scalar)],
    /// In HAVING what is grouped by: besides it, names mean items of the select list alone.
    pub keys: Option<&'b [(ColumnId, Scalar)]>,
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
    pub fn bind(&self, expr: &Expr) -> SqlResult<Scalar> {
        Ok(match expr {
            Expr::Nested(inner) => self.bind(inner)?,
            Expr::Identifier(name) => self.column(std::slice::from_ref(&name.value))?,
            Expr::CompoundIdentifier(names) => {
                let path: Vec<String> = names.iter().map(|name| name.value.clone()).collect();
                self.column(&path)?
            }
            Expr::Value(ValueWithSpan { value: SqlValue::Placeholder(mark), .. }) => {
                self.parameter(mark)?
            }
            Expr::Value(value) => constant(&value.value)?,
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
                Expr::Value(ValueWithSpan { value: SqlValue::Number(digits, _), .. }) => {
                    literal::number(digits, true)?
                }
                _ => return Err(unsupported(format!("the expression {expr}"))),
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
                let list = list.iter().map(|item| self.bind(item)).collect::<SqlResult<_>>()?;
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
                self.in_query(self.row(expr)?, subquery, *negated)?
            }
            Expr::AnyOp { left, compare_op, right, .. } => {
                self.quantified(self.row(left)?, compare_op, right, false)?
            }
            Expr::AllOp { left, compare_op, right } => {
                self.quantified(self.row(left)?, compare_op, right, true)?
            }
            Expr::Tuple(_) => return Err(wrong_width(1)),
            other => return Err(unsupported(format!("the expression {other}"))),
        })
    }

    /// A value that is given later: `?1` is the first.
    fn parameter(&self, mark: &str) -> SqlResult<Scalar> {
        let place: Option<u16> = mark.trim_start_matches('?').parse().ok();
        let place = place.and_then(|place| place.checked_sub(1));
        let ty = place.and_then(|place| self.binder.parameters.get(usize::from(place)));
        match (place, ty) {
            (Some(place), Some(ty)) => Ok(Scalar { node: Node::Parameter(place), ty: *ty }),
            _ => Err(syntax("a placeholder stands where no prepared statement is executed")),
        }
    }

    /// The values of a row; of anything else the one value.
    fn row(&self, expr: &Expr) -> SqlResult<Vec<Scalar>> {
        match expr {
            Expr::Nested(inner) => self.row(inner),
            Expr::Tuple(items) => items.iter().map(|item| self.bind(item)).collect(),
            expr => Ok(vec![self.bind(expr)?]),
        }
    }

    fn boxed(&self, expr: &Expr) -> SqlResult<Box<Scalar>> {
        self.bind(expr).map(Box::new)
    }

    fn column(&self, path: &[String]) -> SqlResult<Scalar> {
        let column = self.scope.column(path, self.clause).map(ScopeColumn::value);
        let item = match path {
            [name] => item_of(self.named, name, self.clause)?,
            _ => None,
        };
        let column = match self.keys {
            Some(keys) => match self.of_having(column, item, keys) {
                Some(value) => return Ok(value),
                None => Err(no_column(path.join("."), self.clause.name())),
            },
            None => column,
        };
        match (column, item) {
            (Ok(column), _) => Ok(column),
            (Err(error), Some(item)) if error.code == NO_COLUMN => Ok(item.clone()),
            (Err(error), None) if error.code == NO_COLUMN => match self.outer(path)? {
                Some(outer) => Ok(outer),
                None => Err(error),
            },
            (Err(error), _) => Err(error),
        }
    }

    /// What a name means in HAVING: what is grouped by, an item, a column that an item shows.
    fn of_having(
        &self,
        column: SqlResult<Scalar>,
        item: Option<&Scalar>,
        keys: &[(ColumnId, Scalar)],
    ) -> Option<Scalar> {
        let column = column.ok();
        let is_key = |column: &Scalar| keys.iter().any(|(_, key)| key == column);
        let is_shown = |column: &Scalar| self.named.iter().any(|(_, item)| item == column);
        match (column, item) {
            (Some(column), _) if is_key(&column) => Some(column),
            (_, Some(item)) => Some(item.clone()),
            (column, None) => column.filter(is_shown),
        }
    }

    /// What a name means of the queries around, the nearest first.
    fn outer(&self, path: &[String]) -> SqlResult<Option<Scalar>> {
        for Frame { scope, named } in self.binder.outer.iter().rev().map(Rc::as_ref) {
            match scope.column(path, self.clause) {
                Ok(column) => return Ok(Some(column.value().seen_within())),
                Err(error) if error.code == NO_COLUMN => {}
                Err(error) => return Err(error),
            }
            if let [name] = path
                && let Some(item) = item_of(named, name, self.clause)?
            {
                return Ok(Some(item.clone().seen_within()));
            }
        }
        Ok(None)
    }

    fn is_truth(&self, value: &Expr, is: bool, negated: bool) -> SqlResult<Scalar> {
        Ok(truth(Node::IsTruth { value: self.boxed(value)?, truth: is, negated }))
    }

    fn binary(&self, left: Scalar, operator: &BinaryOperator, right: Scalar) -> SqlResult<Scalar> {
        let (left, right) = match operator {
            BinaryOperator::Custom(name) if name == BOTH || name == EITHER => {
                ranges::alike(left, right)?
            }
            _ => (left, right),
        };
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
                None => return Err(unsupported(format!("the operator {operator}"))),
            },
        };
        let (left, right) = (number_of_bytes(*left), number_of_bytes(*right));
        arguments::call(function, arguments::taken_by(function, vec![left, right])?)
    }

    fn case(&self, conditions: &[CaseWhen], otherwise: Option<&Expr>) -> SqlResult<Scalar> {
        let branch = |when: &CaseWhen| Ok((self.bind(&when.condition)?, self.bind(&when.result)?));
        let branches = conditions.iter().map(branch).collect::<SqlResult<Vec<_>>>()?;
        let otherwise = otherwise.map(|expr| self.bind(expr)).transpose()?;
        let (conditions, mut results): (Vec<_>, Vec<_>) = branches.into_iter().unzip();
        let has_last = otherwise.is_some();
        results.extend(otherwise);
        let mut results = arguments::as_chosen(results)?;
        let otherwise = if has_last { results.pop().map(Box::new) } else { None };
        let branches: Vec<_> = conditions.into_iter().zip(results).collect();
        let results = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
        let ty = call_types::of_several(results);
        Ok(Scalar { node: Node::Case { branches, otherwise }, ty })
    }

    fn call(&self, function: &Function) -> SqlResult<Scalar> {
        let odd = || unsupported(format!("the call {function}"));
        let FunctionArguments::List(list) = &function.args else { return Err(odd()) };
        let plain = function.filter.is_none()
            && function.within_group.is_empty()
            && function.null_treatment.is_none()
            && list.clauses.is_empty();
        let [name] = &parts(&function.name)[..] else { return Err(odd()) };
        if !plain {
            return Err(odd());
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
        if !call_types::is_function(name) || list.duplicate_treatment.is_some() {
            return Err(odd());
        }
        if name == "mysql_nullif"
            && let Some(choice) = arguments::null_if_number(&args)?
        {
            return Ok(choice);
        }
        arguments::call(name, arguments::taken_by(name, args)?)
    }
}

impl Scalars<'_, '_> {
    fn args(&self, list: &FunctionArgumentList) -> SqlResult<Vec<Scalar>> {
        each_arg(list, &|expr| self.bind(expr))
    }

    /// Arguments of what is computed over several rows.
    pub(super) fn values(&self, list: &FunctionArgumentList) -> SqlResult<Vec<Scalar>> {
        each_arg(list, &|expr| self.value(expr))
    }

    /// A list of a group's values in an order, as one text.
    fn joined_list(&self, list: &FunctionArgumentList) -> SqlResult<Scalar> {
        let odd = || unsupported("a GROUP_CONCAT of this form");
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(collected))), rest @ ..] =
            &list.args[..]
        else {
            return Err(odd());
        };
        let FunctionArguments::List(values) = &collected.args else { return Err(odd()) };
        let name = parts(&collected.name).pop().unwrap_or_default();
        let function = groups::aggregate(&name).ok_or_else(odd)?;
        if collected.over.is_some() {
            return Err(unsupported("GROUP_CONCAT over a window"));
        }
        let within = Scalars { groups: None, windows: None, named: &[], keys: None, ..*self };
        let mut order = Vec::new();
        for clause in &values.clauses {
            let FunctionArgumentClause::OrderBy(by) = clause else { return Err(odd()) };
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
    pub(super) fn ordered(&self, by: &OrderByExpr) -> SqlResult<(Scalar, bool)> {
        if by.options.nulls_first.is_some() || by.with_fill.is_some() {
            return Err(syntax("ORDER BY with NULLS or WITH FILL"));
        }
        Ok((self.value(&by.expr)?, by.options.asc == Some(false)))
    }

    /// An expression of which the value counts: EXISTS and IN in it are values, too.
    pub(super) fn value(&self, expr: &Expr) -> SqlResult<Scalar> {
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
    ) -> SqlResult<Scalar> {
        let Some(groups) = self.groups else { return Err(wrong_aggregate()) };
        // What an item of the select list is called is no name within one.
        let within = Scalars { groups: None, windows: None, named: &[], keys: None, ..*self };
        let args = within.values(list)?;
        // One of columns around this query alone is one of the query around.
        let reads = |is_such: fn(&Node) -> bool| args.iter().any(|arg| arg.has(&is_such));
        let is_query = |node: &Node| matches!(node, Node::Query(_) | Node::Exists { .. });
        let own = |node: &Node| matches!(node, Node::Column(_));
        if reads(|node| matches!(node, Node::Outer(_))) && !reads(own) && !reads(is_query) {
            return Err(unsupported("an aggregate of columns around its query"));
        }
        let distinct = match list.duplicate_treatment {
            Some(DuplicateTreatment::Distinct) => true,
            Some(DuplicateTreatment::All) | None => false,
        };
        if args.is_empty() {
            return Err(wrong_argument_count(name));
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
    bind: &dyn Fn(&Expr) -> SqlResult<Scalar>,
) -> SqlResult<Vec<Scalar>> {
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => bind(expr),
        other => Err(syntax(format!("'{other}' is no argument"))),
    };
    list.args.iter().map(arg).collect()
}

/// The item of a select list that a name means; 1052 where several differ.
fn item_of<'n>(
    named: &'n [(String, Scalar)],
    name: &str,
    clause: Clause,
) -> SqlResult<Option<&'n Scalar>> {
    let called = name.to_lowercase();
    let mut items = named.iter().filter(|(known, _)| *known == called);
    let Some((_, item)) = items.next() else { return Ok(None) };
    match items.all(|(_, other)| other == item) {
        true => Ok(Some(item)),
        false => Err(ambiguous_column(name, clause.name())),
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

/// A literal of the text.
fn constant(value: &SqlValue) -> SqlResult<Scalar> {
    Ok(match value {
        SqlValue::Null => literal::of(Value::Null),
        SqlValue::Number(digits, _) => literal::number(digits, false)?,
        SqlValue::SingleQuotedString(text) => literal::of(Value::String(text.clone())),
        SqlValue::HexStringLiteral(hex) => {
            literal::of(Value::Bytes(values::bytes::bytes_of_hex(hex)?))
        }
        other => return Err(unsupported(format!("the literal {other}"))),
    })
}

/// What a number or a text of a query is bound to, if it is no more than that: `1`, `-1.5`, `'a'`.
pub fn plain_literal(expr: &Expr) -> Option<Scalar> {
    let exact = |digits: &String| !digits.contains(['e', 'E']) && check_digits(digits).is_ok();
    match expr {
        Expr::Value(value) => match &value.value {
            SqlValue::Number(digits, _) if exact(digits) => literal::number(digits, false).ok(),
            value @ SqlValue::SingleQuotedString(_) => constant(value).ok(),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(ValueWithSpan { value: SqlValue::Number(digits, _), .. })
                if exact(digits) =>
            {
                literal::number(digits, true).ok()
            }
            _ => None,
        },
        _ => None,
    }
}
