//! MySQL's syntax tree into one that DataFusion's planner reads with the same meaning.
//!
//! Names only and forms only: what depends on types is `typing`'s business.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, GroupByExpr, GroupByWithModifier, JoinConstraint, JoinOperator,
    MemberOf, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, UnaryOperator, Value, ValueWithSpan, VisitorMut,
};
use sqlparser::tokenizer::Span;
use syntax::dialect::Mysql;
use syntax::introducer::introduced;
use syntax::names::{TableName, parts, table_name};
use syntax::tree::{call, null, plain, string, value};
use syntax::walk::walk_mut;
use values::error::{
    SqlError, SqlResult, derived_without_alias, illegal_double, no_table, syntax, too_many_tables,
    unsupported, wrong_placement,
};

use crate::scopes::Scopes;
use crate::{QueryContext, ResolvedTable, calls, tuples, ungrouped, wildcards};

/// Tables that one SELECT joins at most.
pub const MOST_TABLES: usize = 61;
/// What stands between the comparisons of BETWEEN: an AND of which both sides are computed, or none.
pub const BOTH: &str = "both";
/// The same of NOT BETWEEN: an OR.
pub const EITHER: &str = "either";

struct Rewriter<'a> {
    context: &'a QueryContext,
    resolved: &'a HashMap<TableName, ResolvedTable>,
    /// Whether hidden columns are in scope.
    hidden: bool,
    /// Names of WITH, and their columns where those are known.
    ctes: HashMap<String, Option<Vec<String>>>,
    scopes: Scopes,
}

impl<'a> Rewriter<'a> {
    fn new(
        context: &'a QueryContext,
        resolved: &'a HashMap<TableName, ResolvedTable>,
        hidden: bool,
    ) -> Rewriter<'a> {
        Rewriter { context, resolved, hidden, ctes: HashMap::new(), scopes: Scopes::default() }
    }
}

/// Rewrites a whole query.
pub fn rewrite(
    mut query: Query,
    context: &QueryContext,
    resolved: &HashMap<TableName, ResolvedTable>,
    hidden: bool,
) -> SqlResult<Query> {
    crate::groups::totals_behind(&mut query);
    let mut rewriter = Rewriter::new(context, resolved, hidden);
    walk_mut(&mut query, &mut rewriter)?;
    Ok(query)
}

/// Rewrites one expression, without queries in it, of a statement of these tables.
pub fn rewrite_expr(
    mut expr: Expr,
    context: &QueryContext,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> SqlResult<Expr> {
    let mut rewriter = Rewriter::new(context, resolved, false);
    walk_mut(&mut expr, &mut rewriter)?;
    Ok(expr)
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        flow(self.query(query))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let (all, nested) = (!self.context.full_groups(), self.scopes.is_nested());
        ungrouped::order_by_any(query, all, &|name| self.shown(name), nested);
        self.scopes.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        let is_with = |name: &str| self.ctes.contains_key(name);
        self.scopes.enter(select, &self.context.database, is_with);
        flow(self.select_before(select))
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        crate::natural_joins::name_shared(select, &|name| self.shown(name), &self.scopes);
        if !self.context.full_groups() {
            ungrouped::take_any(select, &|name| self.shown(name), self.scopes.is_nested());
        }
        self.scopes.leave();
        flow(select_after(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        flow(self.table_factor(factor))
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<SqlError> {
        flow(self.relation(relation))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        // Before its literal is read as one without an introducer.
        if let Expr::Prefixed { prefix, value } = expr {
            match introduced(prefix, (**value).clone()) {
                Ok(text) => *expr = text,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        crate::json::mark_truths(expr);
        flow(calls::before(expr).and_then(|()| tuples::before(expr)))
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
                let named = &cte.alias.columns;
                let columns = match named.is_empty() {
                    true => crate::counted::columns(&cte.query.body, &|name| self.shown(name)),
                    false => Some(named.iter().map(|column| column.name.value.clone()).collect()),
                };
                self.ctes.insert(cte.alias.name.value.clone(), columns);
            }
        }
        crate::ordering::of_set(query)?;
        crate::limits::within_reach(query);
        crate::distinct::ordered(query, self.context.full_groups());
        crate::counted::write_out(&mut query.body, &|name| self.shown(name))?;
        crate::membership::spread_order(query)?;
        // Locks are taken by whoever runs the query; a plan only reads.
        query.locks.clear();
        let is_with = |name: &str| self.ctes.contains_key(name);
        self.scopes.enter_body(&query.body, &self.context.database, is_with);
        Ok(())
    }

    /// The columns of a stored table, or of a name of WITH, that `*` shows.
    fn shown(&self, name: &ObjectName) -> Option<Vec<String>> {
        if let [one] = &parts(name)[..]
            && let Some(columns) = self.ctes.get(one)
        {
            return columns.clone();
        }
        let name = table_name(name, &self.context.database).ok()?;
        let table = self.resolved.get(&name)?.table.as_ref()?;
        let shown = table.columns.iter().filter(|column| !column.hidden);
        Some(shown.map(|column| column.name.clone()).collect())
    }

    /// The columns of a stored table's primary key.
    fn key(&self, name: &ObjectName) -> Option<Vec<String>> {
        if matches!(&parts(name)[..], [one] if self.ctes.contains_key(one)) {
            return None;
        }
        let name = table_name(name, &self.context.database).ok()?;
        let table = self.resolved.get(&name)?.table.as_ref()?;
        let column = |id: &types::ColumnId| {
            Some(table.columns.iter().find(|c| c.id == *id)?.name.to_lowercase())
        };
        table.primary_key.iter().map(column).collect()
    }

    fn select_before(&mut self, select: &mut Select) -> SqlResult<()> {
        if select.into.is_some() {
            return Err(unsupported("SELECT … INTO"));
        }
        let tables: usize = select.from.iter().map(|from| 1 + from.joins.len()).sum();
        if tables > MOST_TABLES {
            return Err(too_many_tables(MOST_TABLES));
        }
        select.optimizer_hints.clear();
        if select.select_modifiers.take().is_some_and(|modifiers| modifiers.sql_calc_found_rows) {
            return Err(wrong_placement("SQL_CALC_FOUND_ROWS"));
        }
        if let [only] = &select.from[..]
            && only.joins.is_empty()
            && matches!(&only.relation, TableFactor::Table { name, .. } if parts(name) == ["dual"])
        {
            select.from.clear();
        }
        crate::scopes::unique(select, &self.context.database)?;
        crate::windows::misplaced(select)?;
        crate::windows::write_out(select)?;
        crate::windows::bounds(select)?;
        crate::groups::having_without_groups(select);
        if self.context.full_groups() {
            crate::groups::mixed(select)?;
        }
        if self.hidden {
            crate::natural_joins::name_joined(select, &|name| self.shown(name))?;
        }
        crate::natural_joins::write_out(select, &|name| self.shown(name));
        if !self.context.full_groups() {
            ungrouped::spell_out(select, &|name| self.shown(name), &|name| self.key(name));
        }
        crate::repeats::make_distinct(select, &|name| self.shown(name));
        wildcards::write_out(select, &|name: &ObjectName| self.hidden_of(name));
        crate::duplicate_names::name_columns(select);
        crate::membership::spread(select)?;
        crate::groups::having_of_all_rows(select);
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) = item
            {
                *name = self.scopes.table(name);
            }
        }
        if let GroupByExpr::Expressions(exprs, modifiers) = &mut select.group_by
            && modifiers.iter().any(|m| matches!(m, GroupByWithModifier::Rollup))
        {
            let columns = std::mem::take(exprs).into_iter().map(|e| vec![e]).collect();
            exprs.push(Expr::Rollup(columns));
            modifiers.clear();
            select.having = Some(crate::groups::of_rows(select.having.take()));
            crate::windows::with_ties(select)?;
        }
        Ok(())
    }

    /// What plans call a table of a FROM, and those of its hidden columns that are in scope.
    fn hidden_of(&self, name: &ObjectName) -> wildcards::Shown {
        let written = parts(name);
        let is_cte = matches!(&written[..], [one] if self.ctes.contains_key(one));
        match table_name(name, &self.context.database) {
            Ok(name) if !is_cte => {
                let table = self.resolved.get(&name).and_then(|r| r.table.as_ref());
                let columns = table.map(|t| t.columns.as_slice()).unwrap_or_default();
                let hidden = columns
                    .iter()
                    .filter(|c| self.hidden && c.hidden)
                    .map(|c| c.name.to_lowercase());
                wildcards::Shown {
                    hidden: hidden.collect(),
                    called: vec![name.database, name.table],
                }
            }
            _ => wildcards::Shown { called: written, hidden: Vec::new() },
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
                None => Err(derived_without_alias()),
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
            && self.ctes.contains_key(one)
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

    /// Under NO_BACKSLASH_ESCAPES, LIKE has no escape character unless it names one.
    fn no_escape(&self) -> Option<ValueWithSpan> {
        let plain = Mysql::of(&self.context.sql_mode).plain_backslashes;
        let none = Value::SingleQuotedString(String::new());
        plain.then(|| ValueWithSpan { value: none, span: Span::empty() })
    }

    fn rewritten(&mut self, expr: Expr) -> SqlResult<Expr> {
        Ok(match expr {
            Expr::Identifier(ident) => {
                if ident.quote_style.is_none() && ident.value.starts_with('@') {
                    return Err(unsupported(format!("variable {} in this place", ident.value)));
                }
                Expr::Identifier(plain(ident.value.to_lowercase()))
            }
            Expr::CompoundIdentifier(idents) => {
                Expr::CompoundIdentifier(self.scopes.column(idents))
            }
            Expr::Value(value) => literal(value)?,
            Expr::Nested(inner) => Expr::Nested(inner),
            Expr::Between { expr, negated, low, high } => between(*expr, negated, *low, *high),
            Expr::BinaryOp { left, op, right } => binary(*left, op, *right)?,
            Expr::UnaryOp { op, expr } => unary(op, *expr)?,
            Expr::Like { negated, expr, pattern, escape_char, .. } => {
                like(*expr, *pattern, escape_char.or_else(|| self.no_escape()), negated)
            }
            Expr::RLike { negated, expr, pattern, .. } => {
                not_if(negated, call("mysql_regexp", vec![*expr, *pattern]))
            }
            Expr::InList { expr, list, negated } if matches!(*expr, Expr::Tuple(_)) => {
                let equal = |item| tuples::compared((*expr).clone(), &BinaryOperator::Eq, item);
                let equal = list.into_iter().map(equal).collect::<SqlResult<Vec<_>>>()?;
                let any = tuples::fold(equal, BinaryOperator::Or)?;
                not_if(negated, any)
            }
            Expr::Case { operand, conditions, else_result, case_token, end_token } => {
                let when = |when: CaseWhen| CaseWhen {
                    condition: match &operand {
                        Some(operand) => {
                            crate::json::case_equal((**operand).clone(), when.condition)
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
                    crate::caseless::as_bytes(*expr, self.resolved)
                } else {
                    return Err(unsupported(format!("COLLATE {name} (only utf8mb4_bin compares)")));
                }
            }
            // The bound of a frame.
            Expr::Interval(interval) if interval.leading_field.is_none() => {
                Expr::Interval(interval)
            }
            Expr::Interval(_) => return Err(unsupported("INTERVAL outside of date arithmetic")),
            Expr::MatchAgainst { .. } => return Err(unsupported("MATCH … AGAINST")),
            Expr::MemberOf(MemberOf { value, array }) => {
                call("mysql_json_member_of", vec![*value, *array])
            }
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

/// A hexadecimal literal as the number that it is where a number is asked for; anything else as it
/// is. Behind `_binary` it is a call by now, and stays bytes.
pub fn number_of_hex(expr: Expr) -> Expr {
    match &expr {
        Expr::Nested(inner) => match number_of_hex((**inner).clone()) {
            number @ Expr::Value(ValueWithSpan { value: Value::Number(..), .. }) => number,
            _ => expr,
        },
        Expr::Value(ValueWithSpan { value: Value::HexStringLiteral(hex), .. }) => {
            let bytes = values::bytes::bytes_of_hex(hex).ok();
            match bytes.and_then(|bytes| values::numbers::number_of(&bytes)) {
                Some(n) => value(Value::Number(n.to_string(), false)),
                None => expr,
            }
        }
        _ => expr,
    }
}

fn literal(literal: ValueWithSpan) -> SqlResult<Expr> {
    Ok(match literal.value {
        Value::Boolean(truth) => value(Value::Number(i32::from(truth).to_string(), false)),
        Value::Number(text, _) if text.contains(['e', 'E']) => {
            if text.parse().is_ok_and(f64::is_infinite) {
                return Err(illegal_double(text));
            }
            call("cast_double", vec![string(text)])
        }
        Value::Number(text, long) => {
            crate::literal::check_digits(&text)?;
            value(Value::Number(text, long))
        }
        Value::DoubleQuotedString(text) | Value::NationalStringLiteral(text) => string(text),
        Value::SingleQuotedByteStringLiteral(bits) => {
            let hex =
                values::bytes::bytes_of_bits(&bits)?.iter().map(|b| format!("{b:02X}")).collect();
            value(Value::HexStringLiteral(hex))
        }
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

/// NOT of a truth value.
pub fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) }
}

fn not_if(negated: bool, expr: Expr) -> Expr {
    if negated { not(expr) } else { expr }
}

fn between(expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
    let (low_op, high_op, both) = if negated {
        (BinaryOperator::Lt, BinaryOperator::Gt, EITHER)
    } else {
        (BinaryOperator::GtEq, BinaryOperator::LtEq, BOTH)
    };
    let both = BinaryOperator::Custom(both.to_owned());
    Expr::Nested(Box::new(op(op(expr.clone(), low_op, low), both, op(expr, high_op, high))))
}

fn binary(left: Expr, operator: BinaryOperator, right: Expr) -> SqlResult<Expr> {
    let rows = matches!(left, Expr::Tuple(_)) || matches!(right, Expr::Tuple(_));
    if rows && tuples::compares(&operator) {
        return tuples::compared(left, &operator, right);
    }
    if matches!(operator, BinaryOperator::Arrow | BinaryOperator::LongArrow) {
        return crate::json::extracted(left, &operator, right);
    }
    let operator = match operator {
        BinaryOperator::StringConcat => BinaryOperator::Or,
        other => other,
    };
    Ok(Expr::BinaryOp { left: Box::new(left), op: operator, right: Box::new(right) })
}

fn unary(operator: UnaryOperator, expr: Expr) -> SqlResult<Expr> {
    Ok(match operator {
        operator if syntax::dialect::is_not(operator) => not(truth(expr)),
        UnaryOperator::Plus => expr,
        UnaryOperator::Minus => match number_of_hex(expr) {
            expr @ Expr::Value(ValueWithSpan { value: Value::Number(_, _), .. }) => {
                Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(expr) }
            }
            expr => call("mysql_neg", vec![expr]),
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
    if is_truth(&expr) { expr } else { call("mysql_truth", vec![number_of_hex(expr)]) }
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
                | BinaryOperator::Custom(_)
        ),
        Expr::UnaryOp { op, .. } => syntax::dialect::is_not(*op),
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
