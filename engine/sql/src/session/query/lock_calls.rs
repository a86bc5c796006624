//! GET_LOCK and its kin in statements. Calls are carried out in the order in which they are written,
//! before the statement is planned, and their values are written in their places.
//!
//! So they stand only where they are carried out exactly once: in a SELECT without a table, in SET and
//! DO, and not where MySQL might pass over them. Elsewhere they are refused by name, and describing a
//! statement carries out none.

use std::ops::ControlFlow;
use std::time::Duration;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    ObjectName, ObjectNamePart, Query, SetExpr, Visitor,
};
use syntax::constant::{expression, literal};
use syntax::names::parts;
use syntax::tree::call;
use syntax::walk::{Part, each_expr, finds, walk};
use types::Value;
use values::coerce::text;
use values::error::{
    SqlError, SqlResult, lock_name_too_long, unsupported, wrong_argument_count, wrong_lock_name,
};

use super::sleeping::sleep;
use crate::session::Session;

/// The functions, and how many arguments they take.
const FUNCTIONS: [(&str, usize); 5] = [
    ("get_lock", 2),
    ("is_free_lock", 1),
    ("is_used_lock", 1),
    ("release_all_locks", 0),
    ("release_lock", 1),
];
/// Among calls of them it keeps its place.
const SLEEP: (&str, usize) = ("sleep", 1);
/// Characters of a name.
const LONGEST_NAME: usize = 64;
/// Longest wait, in seconds, and what a negative one means.
const LONGEST_WAIT: i64 = 365 * 24 * 3600;

/// A call, and its arguments.
type Call = (&'static str, Vec<Expr>);

/// Whether an expression is a call of one of the functions.
pub(super) fn is_call(expr: &Expr) -> bool {
    let Expr::Function(Function { name, .. }) = expr else { return false };
    let [ObjectNamePart::Identifier(called)] = &name.0[..] else { return false };
    FUNCTIONS.iter().any(|(name, _)| called.value.eq_ignore_ascii_case(name))
}

/// Replaces calls by values of their type.
pub(in crate::session) fn describe(statement: &mut impl Part) {
    _ = each_expr::<()>(statement, &mut |expr| {
        if is_call(expr) {
            *expr = number(&Value::Null);
        }
        Ok(())
    });
}

impl Session {
    /// Carries out the calls of a statement that is known to have some; `once` says that its
    /// expressions are computed once.
    pub(super) async fn call_lock_functions<T: Part>(
        &mut self,
        statement: &mut T,
        once: bool,
    ) -> SqlResult<()> {
        let mut finder = Finder::default();
        walk(statement, &mut finder)?;
        if !once || finder.misplaced {
            return Err(misplaced());
        }
        let mut values = Vec::with_capacity(finder.calls.len());
        for (name, arguments) in finder.calls {
            values.push(self.call_lock_function(name, arguments).await?);
        }
        // Inner expressions first, as they were found.
        let mut values = values.into_iter();
        each_expr(statement, &mut |expr| {
            if call_of(expr)?.is_some()
                && let Some(value) = values.next()
            {
                *expr = number(&value);
            }
            Ok(())
        })
    }

    async fn call_lock_function(
        &mut self,
        function: &'static str,
        arguments: Vec<Expr>,
    ) -> SqlResult<Value> {
        let mut arguments = arguments.into_iter();
        let first = match arguments.next() {
            Some(expr) => self.assign(expr, &[]).await?,
            None => return Ok(count(self.release_all_locks().await?)),
        };
        if function == SLEEP.0 {
            return sleep(&text(first)).await;
        }
        let name = &name_of(first)?;
        Ok(match (function, arguments.next()) {
            ("get_lock", Some(seconds)) => {
                let wait = self.seconds(seconds).await?;
                Value::Int(i64::from(self.get_lock(name, wait).await?))
            }
            ("release_lock", _) => {
                let released = self.release_lock(name).await?;
                released.map_or(Value::Null, |released| Value::Int(i64::from(released)))
            }
            ("is_free_lock", _) => Value::Int(i64::from(self.lock_holder(name).await?.is_none())),
            _ => self.lock_holder(name).await?.map_or(Value::Null, Value::Int),
        })
    }

    /// How long to wait: a whole number of seconds, as CAST makes it.
    async fn seconds(&mut self, expr: Expr) -> SqlResult<Duration> {
        let value = match literal(&expr) {
            Some(value @ (Value::Int(_) | Value::Null)) => value,
            _ => self.assign(call("cast_signed", vec![expr]), &[]).await?,
        };
        let seconds = match value {
            Value::Int(seconds) if (0..LONGEST_WAIT).contains(&seconds) => seconds,
            Value::Int(_) => LONGEST_WAIT,
            _ => 0,
        };
        Ok(Duration::from_secs(seconds.unsigned_abs()))
    }
}

/// Error 1235 for a call that cannot be carried out where it stands.
fn misplaced() -> SqlError {
    unsupported(
        "GET_LOCK(), RELEASE_LOCK() and their kin but in SET, DO and a SELECT without a table, and \
         not where AND, OR, CASE, IF or the like may pass over them",
    )
}

/// The name that a value is; names are equal whatever the case of their letters.
fn name_of(value: Value) -> SqlResult<String> {
    if value.is_null() {
        return Err(wrong_lock_name("NULL"));
    }
    let name = text(value);
    if name.is_empty() {
        return Err(wrong_lock_name(&name));
    }
    if name.chars().count() > LONGEST_NAME {
        return Err(lock_name_too_long(name, LONGEST_NAME));
    }
    Ok(name.to_lowercase())
}

fn count(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A BIGINT, whatever the value.
fn number(value: &Value) -> Expr {
    call("cast_signed", vec![expression(value)])
}

/// The call that an expression is; an error if it has another number of arguments.
fn call_of(expr: &Expr) -> SqlResult<Option<Call>> {
    let Expr::Function(Function { name, args, .. }) = expr else { return Ok(None) };
    let [called] = &parts(name)[..] else { return Ok(None) };
    let mut known = FUNCTIONS.into_iter().chain([SLEEP]);
    let Some((name, takes)) = known.find(|(name, _)| name == called) else {
        return Ok(None);
    };
    let given = match args {
        FunctionArguments::List(list) => {
            let plain = |argument: &FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            };
            list.args.iter().map(plain).collect()
        }
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
    };
    match given {
        Some(given) if given.len() == takes => Ok(Some((name, given))),
        _ => Err(wrong_argument_count(name)),
    }
}

/// Finds calls, inner ones first, and what forbids them.
#[derive(Default)]
struct Finder {
    calls: Vec<Call>,
    queries: usize,
    misplaced: bool,
}

impl Visitor for Finder {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        self.queries += 1;
        self.misplaced |= self.queries > 1 || !gives_one_row(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<SqlError> {
        self.misplaced |= parts(name) != ["dual"];
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        self.misplaced |= passed_over(expr).into_iter().any(has_call);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match call_of(expr) {
            // Its arguments were written out before inner calls have values.
            Ok(Some((_, arguments))) if arguments.iter().any(has_call) => {
                ControlFlow::Break(misplaced())
            }
            Ok(found) => {
                self.calls.extend(found);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Whether an expression has calls in it, or pauses.
fn has_call(expr: &Expr) -> bool {
    struct Has;
    impl Visitor for Has {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match call_of(expr) {
                Ok(None) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        }
    }
    finds(expr, &mut Has)
}

/// Whether a query that names no table gives one row whatever its expressions are.
fn gives_one_row(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let plain = matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    plain && select.selection.is_none() && select.having.is_none() && query.order_by.is_none()
}

/// Parts of an expression that MySQL computes only if others ask for it.
fn passed_over(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, right, .. } => vec![right],
        Expr::Case { conditions, else_result, .. } => {
            let all = conditions.iter().flat_map(|when| [&when.condition, &when.result]);
            all.skip(1).chain(else_result.as_deref()).collect()
        }
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
            if chooses(name) =>
        {
            let rest = list.args.iter().skip(1);
            let plain = rest.filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            });
            plain.collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a function computes those of its arguments that the first one asks for.
fn chooses(name: &ObjectName) -> bool {
    matches!(parts(name).last().map(String::as_str), Some("coalesce" | "if" | "ifnull"))
}
