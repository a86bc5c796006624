//! MySQL's syntax tree into one that DataFusion's planner reads with the same meaning.
//!
//! Names only and forms only: what depends on types is `typing`'s business.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, GroupByExpr, GroupByWithModifier, Ident, JoinConstraint,
    JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectItem, TableFactor,
    UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use sqlparser::tokenizer::Span;

use super::calls::{call, string};
use super::names::{TableName, parts, table_name};
use super::{QueryContext, ResolvedTable, calls};
use crate::error::{SqlResult, no_table, syntax, unsupported};
use crate::result::SqlError;

/// What is appended to an alias that another column of the same list has too; cut off again in
/// results.
pub const TWIN: char = '\u{1}';

struct Rewriter<'a> {
    context: &'a QueryContext,
    resolved: &'a HashMap<TableName, ResolvedTable>,
    ctes: HashSet<String>,
}

/// Rewrites a whole query.
pub fn rewrite(
    mut query: Query,
    context: &QueryContext,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> SqlResult<Query> {
    let mut rewriter = Rewriter { context, resolved, ctes: HashSet::new() };
    match query.visit(&mut rewriter) {
        ControlFlow::Continue(()) => Ok(query),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Rewrites one expression that stands outside of a query.
pub fn rewrite_expr(mut expr: Expr, context: &QueryContext) -> SqlResult<Expr> {
    let resolved = HashMap::new();
    let mut rewriter = Rewriter { context, resolved: &resolved, ctes: HashSet::new() };
    match expr.visit(&mut rewriter) {
        ControlFlow::Continue(()) => Ok(expr),
        ControlFlow::Break(error) => Err(error),
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        flow(self.query(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        flow(self.select_before(select))
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        flow(select_after(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        flow(self.table_factor(factor))
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<SqlError> {
        flow(self.relation(relation))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        flow(calls::before(expr))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        flow(self.expr(expr))
    }
}

fn flow(result: SqlResult<()>) -> ControlFlow<SqlError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl Rewriter<'_> {
    fn query(&mut self, query: &mut Query) -> SqlResult<()> {
        if let Some(with) = &mut query.with {
            for cte in &mut with.cte_tables {
                lower_alias(&mut cte.alias);
                self.ctes.insert(cte.alias.name.value.clone());
            }
        }
        // Locks are taken by whoever runs the query; a plan only reads.
        query.locks.clear();
        Ok(())
    }

    fn select_before(&mut self, select: &mut Select) -> SqlResult<()> {
        if select.into.is_some() {
            return Err(unsupported("SELECT … INTO"));
        }
        select.optimizer_hints.clear();
        select.select_modifiers = None;
        if let [only] = &select.from[..]
            && only.joins.is_empty()
            && matches!(&only.relation, TableFactor::Table { name, .. } if parts(name) == ["dual"])
        {
            select.from.clear();
        }
        super::groups::having_without_groups(select);
        if !self.context.sql_mode.to_uppercase().contains("ONLY_FULL_GROUP_BY") {
            super::groups::any_of_group(select);
        }
        self.hide_columns(select);
        name_columns(select);
        if let GroupByExpr::Expressions(exprs, modifiers) = &mut select.group_by
            && modifiers.iter().any(|m| matches!(m, GroupByWithModifier::Rollup))
        {
            let columns = std::mem::take(exprs).into_iter().map(|e| vec![e]).collect();
            exprs.push(Expr::Rollup(columns));
            modifiers.clear();
        }
        Ok(())
    }

    /// `SELECT *` leaves the row numbers of tables without a primary key out.
    fn hide_columns(&self, select: &mut Select) {
        let mut hidden: Vec<String> = Vec::new();
        for from in &select.from {
            let factors =
                std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation));
            for factor in factors {
                let TableFactor::Table { name, .. } = factor else { continue };
                let Ok(name) = table_name(name, &self.context.database) else { continue };
                let table = self.resolved.get(&name).and_then(|r| r.table.as_ref());
                let columns = table.map(|t| t.columns.as_slice()).unwrap_or_default();
                hidden.extend(columns.iter().filter(|c| c.hidden).map(|c| c.name.to_lowercase()));
            }
        }
        hidden.sort();
        hidden.dedup();
        if hidden.is_empty() {
            return;
        }
        let names: Vec<ObjectName> =
            hidden.into_iter().map(|name| vec![plain(name)].into()).collect();
        for item in &mut select.projection {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item
            {
                *options = WildcardAdditionalOptions {
                    opt_exclude: Some(sqlparser::ast::ExcludeSelectItem::Multiple(names.clone())),
                    ..WildcardAdditionalOptions::default()
                };
            }
        }
    }

    fn table_factor(&mut self, factor: &mut TableFactor) -> SqlResult<()> {
        match factor {
            TableFactor::Table {
                alias, args, version, partitions, sample, index_hints, ..
            } => {
                if let Some(alias) = alias {
                    lower_alias(alias);
                }
                if args.is_some() {
                    return Err(unsupported("table functions"));
                }
                if version.is_some() {
                    return Err(unsupported("AS OF TIMESTAMP"));
                }
                if !partitions.is_empty() {
                    return Err(unsupported("PARTITION"));
                }
                if sample.is_some() {
                    return Err(unsupported("TABLESAMPLE"));
                }
                index_hints.clear();
                Ok(())
            }
            TableFactor::Derived { alias, .. } => match alias {
                Some(alias) => {
                    lower_alias(alias);
                    Ok(())
                }
                None => Err(SqlError::new(
                    1248,
                    b"42000",
                    "Every derived table must have its own alias",
                )),
            },
            TableFactor::NestedJoin { alias, .. } => {
                if let Some(alias) = alias {
                    lower_alias(alias);
                }
                Ok(())
            }
            other => Err(unsupported(format!("FROM {other}"))),
        }
    }

    fn relation(&mut self, relation: &mut ObjectName) -> SqlResult<()> {
        let names = parts(relation);
        if let [one] = &names[..]
            && self.ctes.contains(one)
        {
            *relation = vec![plain(one.clone())].into();
            return Ok(());
        }
        let name = table_name(relation, &self.context.database)?;
        if !self.resolved.contains_key(&name) {
            return Err(no_table(&name.database, &name.table));
        }
        *relation = vec![plain(name.database), plain(name.table)].into();
        Ok(())
    }

    fn expr(&mut self, expr: &mut Expr) -> SqlResult<()> {
        let taken = std::mem::replace(expr, null());
        *expr = self.rewritten(taken)?;
        Ok(())
    }

    fn rewritten(&mut self, expr: Expr) -> SqlResult<Expr> {
        Ok(match expr {
            Expr::Identifier(ident) => {
                if ident.quote_style.is_none() && ident.value.starts_with('@') {
                    return Err(unsupported(format!("variable {} in this place", ident.value)));
                }
                Expr::Identifier(plain(ident.value.to_lowercase()))
            }
            Expr::CompoundIdentifier(idents) => Expr::CompoundIdentifier(
                idents.into_iter().map(|ident| plain(ident.value.to_lowercase())).collect(),
            ),
            Expr::Value(value) => literal(value)?,
            Expr::Nested(inner) => Expr::Nested(inner),
            Expr::Between { expr, negated, low, high } => between(*expr, negated, *low, *high),
            Expr::BinaryOp { left, op, right } => binary(*left, op, *right)?,
            Expr::UnaryOp { op, expr } => unary(op, *expr)?,
            Expr::Like { negated, expr, pattern, escape_char, .. } => {
                like(*expr, *pattern, escape_char, negated)
            }
            Expr::RLike { negated, expr, pattern, .. } => {
                not_if(negated, call("mysql_regexp", vec![*expr, *pattern]))
            }
            Expr::InList { expr, list, negated } if matches!(*expr, Expr::Tuple(_)) => {
                let equal = list.into_iter().map(|item| tuples((*expr).clone(), item));
                let any = fold(equal.collect::<SqlResult<Vec<_>>>()?, BinaryOperator::Or)?;
                not_if(negated, any)
            }
            Expr::Case { operand, conditions, else_result, case_token, end_token } => {
                let when = |when: CaseWhen| CaseWhen {
                    condition: match &operand {
                        Some(operand) => {
                            op((**operand).clone(), BinaryOperator::Eq, when.condition)
                        }
                        None => truth(when.condition),
                    },
                    result: when.result,
                };
                let conditions = conditions.into_iter().map(when).collect();
                Expr::Case { operand: None, conditions, else_result, case_token, end_token }
            }
            Expr::IsTrue(e) => Expr::IsTrue(Box::new(truth(*e))),
            Expr::IsNotTrue(e) => Expr::IsNotTrue(Box::new(truth(*e))),
            Expr::IsFalse(e) => Expr::IsFalse(Box::new(truth(*e))),
            Expr::IsNotFalse(e) => Expr::IsNotFalse(Box::new(truth(*e))),
            Expr::IsUnknown(e) => Expr::IsNull(e),
            Expr::IsNotUnknown(e) => Expr::IsNotNull(e),
            Expr::Collate { expr, collation } => {
                let name = collation.to_string().to_lowercase();
                if name.contains("_bin") || name == "binary" {
                    *expr
                } else {
                    return Err(unsupported(format!("COLLATE {name} (only utf8mb4_bin compares)")));
                }
            }
            Expr::Prefixed { value, .. } => *value,
            Expr::Interval(_) => return Err(unsupported("INTERVAL outside of date arithmetic")),
            Expr::MatchAgainst { .. } => return Err(unsupported("MATCH … AGAINST")),
            Expr::MemberOf(_) => return Err(unsupported("MEMBER OF")),
            other => calls::rewritten(other, self.context)?,
        })
    }
}

/// WHERE, HAVING and ON are truth values.
fn select_after(select: &mut Select) -> SqlResult<()> {
    for condition in [&mut select.selection, &mut select.having].into_iter().flatten() {
        let taken = std::mem::replace(condition, null());
        *condition = truth(taken);
    }
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        join_constraint(&mut join.join_operator)?;
    }
    Ok(())
}

/// No two columns of a list share a name; an expression is called by its text, as in MySQL.
fn name_columns(select: &mut Select) {
    let mut seen = HashSet::new();
    for item in &mut select.projection {
        let taken = std::mem::replace(item, SelectItem::UnnamedExpr(null()));
        *item = match taken {
            SelectItem::ExprWithAlias { expr, alias } => {
                let name = unique(&mut seen, alias.value.to_lowercase());
                SelectItem::ExprWithAlias { expr, alias: plain(name) }
            }
            SelectItem::UnnamedExpr(expr) => {
                let name = match &expr {
                    Expr::Identifier(ident) => ident.value.to_lowercase(),
                    Expr::CompoundIdentifier(idents) => {
                        let names = idents.iter().map(|i| i.value.to_lowercase());
                        names.collect::<Vec<_>>().join(".")
                    }
                    other => other.to_string().to_lowercase(),
                };
                if is_column(&expr) && seen.insert(name.clone()) {
                    SelectItem::UnnamedExpr(expr)
                } else {
                    let name = unique(&mut seen, name);
                    SelectItem::ExprWithAlias { expr, alias: plain(name) }
                }
            }
            other => other,
        };
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

fn unique(seen: &mut HashSet<String>, name: String) -> String {
    let mut candidate = name.clone();
    let mut n = 1;
    while !seen.insert(candidate.clone()) {
        n += 1;
        candidate = format!("{name}{TWIN}{n}");
    }
    candidate
}

fn join_constraint(operator: &mut JoinOperator) -> SqlResult<()> {
    let constraint = match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::CrossJoin(c)
        | JoinOperator::StraightJoin(c) => c,
        other => return Err(unsupported(format!("{other:?} join"))),
    };
    if let JoinConstraint::On(condition) = constraint {
        let taken = std::mem::replace(condition, null());
        *condition = truth(taken);
    }
    if let JoinConstraint::Using(columns) = constraint {
        for column in columns {
            let lower = parts(column).into_iter().map(plain).collect::<Vec<_>>();
            *column = lower.into();
        }
    }
    // JOIN without ON is a cross join in MySQL; STRAIGHT_JOIN only fixes an order.
    let constraint = constraint.clone();
    *operator = match (&operator, constraint) {
        (
            JoinOperator::Join(_)
            | JoinOperator::Inner(_)
            | JoinOperator::CrossJoin(_)
            | JoinOperator::StraightJoin(_),
            JoinConstraint::None,
        ) => JoinOperator::CrossJoin(JoinConstraint::None),
        (JoinOperator::CrossJoin(_) | JoinOperator::StraightJoin(_), on) => JoinOperator::Inner(on),
        _ => return Ok(()),
    };
    Ok(())
}

fn lower_alias(alias: &mut sqlparser::ast::TableAlias) {
    alias.name = plain(alias.name.value.to_lowercase());
    for column in &mut alias.columns {
        column.name = plain(column.name.value.to_lowercase());
    }
}

/// An identifier that needs no further normalising.
pub fn plain(name: String) -> Ident {
    Ident { value: name, quote_style: None, span: Span::empty() }
}

/// NULL.
pub fn null() -> Expr {
    value(Value::Null)
}

/// A literal.
pub fn value(value: Value) -> Expr {
    Expr::Value(ValueWithSpan { value, span: Span::empty() })
}

fn literal(literal: ValueWithSpan) -> SqlResult<Expr> {
    Ok(match literal.value {
        Value::Boolean(truth) => value(Value::Number(i32::from(truth).to_string(), false)),
        Value::Number(text, _) if text.contains(['e', 'E']) => {
            call("cast_double", vec![string(text)])
        }
        Value::DoubleQuotedString(text) | Value::NationalStringLiteral(text) => string(text),
        Value::HexStringLiteral(hex) => string(calls::text_of_hex(&hex)?),
        Value::Placeholder(_) => {
            return Err(syntax("a placeholder stands where no prepared statement is executed"));
        }
        other => value(other),
    })
}

/// `left op right`.
pub fn op(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(left))),
        op,
        right: Box::new(Expr::Nested(Box::new(right))),
    }
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) }
}

fn not_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

fn between(expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
    let (low_op, high_op, both) = if negated {
        (BinaryOperator::Lt, BinaryOperator::Gt, BinaryOperator::Or)
    } else {
        (BinaryOperator::GtEq, BinaryOperator::LtEq, BinaryOperator::And)
    };
    Expr::Nested(Box::new(op(op(expr.clone(), low_op, low), both, op(expr, high_op, high))))
}

fn binary(left: Expr, operator: BinaryOperator, right: Expr) -> SqlResult<Expr> {
    if matches!(operator, BinaryOperator::Eq) && matches!(left, Expr::Tuple(_)) {
        return tuples(left, right);
    }
    let operator = match operator {
        BinaryOperator::StringConcat => BinaryOperator::Or,
        other => other,
    };
    Ok(Expr::BinaryOp { left: Box::new(left), op: operator, right: Box::new(right) })
}

/// `(a, b) = (c, d)` column by column.
fn tuples(left: Expr, right: Expr) -> SqlResult<Expr> {
    let unwrap = |expr: Expr| match expr {
        Expr::Tuple(items) => Ok(items),
        _ => Err(SqlError::new(1241, b"21000", "Operand should contain 2 column(s)")),
    };
    let (left, right) = (unwrap(left)?, unwrap(right)?);
    if left.len() != right.len() {
        let text = format!("Operand should contain {} column(s)", left.len());
        return Err(SqlError::new(1241, b"21000", text));
    }
    let pairs = left.into_iter().zip(right).map(|(l, r)| op(l, BinaryOperator::Eq, r));
    fold(pairs.collect(), BinaryOperator::And)
}

fn fold(exprs: Vec<Expr>, operator: BinaryOperator) -> SqlResult<Expr> {
    let all = exprs.into_iter().reduce(|a, b| op(a, operator.clone(), b));
    all.map(|e| Expr::Nested(Box::new(e))).ok_or_else(|| syntax("an empty list"))
}

fn unary(operator: UnaryOperator, expr: Expr) -> SqlResult<Expr> {
    Ok(match operator {
        operator if crate::dialect::is_not(operator) => not(truth(expr)),
        UnaryOperator::Plus => expr,
        UnaryOperator::Minus => match &expr {
            Expr::Value(ValueWithSpan { value: Value::Number(_, _), .. }) => {
                Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(expr) }
            }
            _ => call("mysql_neg", vec![expr]),
        },
        UnaryOperator::BitwiseNot => {
            call("mysql_bit_xor", vec![expr, value(Value::Number(u64::MAX.to_string(), false))])
        }
        other => return Err(unsupported(format!("operator {other}"))),
    })
}

fn like(expr: Expr, pattern: Expr, escape: Option<ValueWithSpan>, negated: bool) -> Expr {
    let escape = escape.map(|e| match e.value {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text,
        other => other.to_string(),
    });
    match escape {
        Some(text) if text != "\\" => {
            not_if(negated, call("mysql_like", vec![expr, pattern, string(text)]))
        }
        _ => Expr::Like {
            negated,
            any: false,
            expr: Box::new(expr),
            pattern: Box::new(pattern),
            escape_char: None,
        },
    }
}

/// The expression as a truth value.
pub fn truth(expr: Expr) -> Expr {
    if is_truth(&expr) { expr } else { call("mysql_truth", vec![expr]) }
}

fn is_truth(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_truth(inner),
        Expr::BinaryOp { op, .. } => matches!(
            op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
                | BinaryOperator::Spaceship
                | BinaryOperator::And
                | BinaryOperator::Or
                | BinaryOperator::Xor
        ),
        Expr::UnaryOp { op, .. } => crate::dialect::is_not(*op),
        Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::Like { .. }
        | Expr::Exists { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. } => true,
        Expr::Function(function) => match &function.name.0[..] {
            [ObjectNamePart::Identifier(name)] => {
                matches!(name.value.as_str(), "mysql_truth" | "mysql_like" | "mysql_regexp")
            }
            _ => false,
        },
        _ => false,
    }
}
