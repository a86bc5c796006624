//! Warnings of expressions: MySQL goes on with NULL, or with the part of a text that is a number, and
//! warns.
//!
//! A function sends its warnings to the listener of its thread, if there is one. A statement listens to
//! the functions of its plan, wherever in the process they run, but not to those that other nodes run.
//! A warning changes no value. For a strict statement, one that writes in strict mode and without
//! IGNORE, it is the error of the function that gave it: a plan's constants are then computed for rows
//! only, and give no warning if there are none.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, ScalarUDF};
use parking_lot::Mutex;
use values::error::{
    SqlError, SqlResult, division_by_zero, no_datetime, time_overflow, truncated_value,
};

use super::Udf;
use crate::trees::{PlanTree, Tree};

/// Most bytes of a value that a warning shows.
const MOST_SHOWN: usize = 128;
/// Functions whose first argument decides which of the others count.
const CHOOSING: [&str; 3] = ["mysql_if", "mysql_coalesce", "mysql_elt"];

/// The warnings of one statement's expressions.
#[derive(Debug)]
pub struct ExprWarnings {
    /// How many are kept; all are counted.
    most: u64,
    /// Whether a division by zero is worth a warning (ERROR_FOR_DIVISION_BY_ZERO).
    divisions: bool,
    /// Whether a warning is the statement's error.
    strict: bool,
    count: AtomicU64,
    kept: Mutex<Vec<SqlError>>,
}

impl ExprWarnings {
    /// None yet.
    pub fn new(most: usize, divisions: bool) -> Self {
        let (count, kept) = (AtomicU64::new(0), Mutex::default());
        ExprWarnings { most: most as u64, divisions, strict: false, count, kept }
    }

    /// The same, of a statement whose warnings are errors.
    pub fn strict(self) -> Self {
        ExprWarnings { strict: true, ..self }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Those that are kept.
    pub fn kept(&self) -> Vec<SqlError> {
        self.kept.lock().clone()
    }

    /// Forgets all but the first: what gave rise to the others is done again.
    pub fn forget_from(&self, count: u64) {
        self.count.store(count, Ordering::Release);
        self.kept.lock().truncate(usize::try_from(count).unwrap_or(usize::MAX));
    }

    fn add(&self, warning: impl FnOnce() -> SqlError) {
        // Beyond what is kept, rows only count: no text is made and nobody waits.
        if self.count.fetch_add(1, Ordering::AcqRel) < self.most {
            self.kept.lock().push(warning());
        }
    }
}

thread_local! {
    static LISTENER: RefCell<Option<Arc<ExprWarnings>>> = const { RefCell::new(None) };
}

/// Computes something while a statement listens on this thread.
pub fn listen<T>(warnings: &Arc<ExprWarnings>, compute: impl FnOnce() -> T) -> T {
    struct Before(Option<Arc<ExprWarnings>>);
    impl Drop for Before {
        fn drop(&mut self) {
            LISTENER.set(self.0.take());
        }
    }
    let _before = Before(LISTENER.replace(Some(warnings.clone())));
    compute()
}

/// Awaits something while a statement listens, on whatever thread it is polled.
pub async fn listen_async<F: Future>(warnings: &Arc<ExprWarnings>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|context| listen(warnings, || work.as_mut().poll(context))).await
}

/// Computes a function that a statement listens to; for a strict one, a warning is an error.
pub(super) fn evaluate<T>(
    warnings: &Arc<ExprWarnings>,
    compute: impl FnOnce() -> SqlResult<T>,
) -> SqlResult<T> {
    if !warnings.strict {
        return listen(warnings, compute);
    }
    let own = Arc::new(ExprWarnings::new(1, warnings.divisions));
    let computed = listen(&own, compute)?;
    match own.kept().into_iter().next() {
        Some(warning) => Err(warning),
        None => Ok(computed),
    }
}

/// Whether a warning is an error to the listener of this thread.
pub fn are_errors() -> bool {
    LISTENER.with_borrow(|listener| listener.as_ref().is_some_and(|warnings| warnings.strict))
}

/// Sends a warning to the listener, if there is one.
pub(super) fn warn(warning: impl FnOnce() -> SqlError) {
    LISTENER.with_borrow(|listener| {
        if let Some(warnings) = listener {
            warnings.add(warning);
        }
    });
}

/// A division by zero.
pub(super) fn division() {
    LISTENER.with_borrow(|listener| {
        if let Some(warnings) = listener
            && warnings.divisions
        {
            warnings.add(division_by_zero);
        }
    });
}

/// A value that was taken for less than it says.
pub(super) fn truncated(kind: &str, value: &str) {
    warn(|| truncated_value(kind, shown(value)));
}

/// A value that is no date.
pub(super) fn invalid_datetime(value: &str) {
    warn(|| no_datetime(shown(value)));
}

/// A DATETIME or TIME out of its range, which is NULL.
pub(super) fn overflow<T>(kind: &str) -> Option<T> {
    warn(|| time_overflow(kind));
    None
}

/// A text that was read as the number it begins with.
pub fn read(kind: &str, text: &str, number: &str) {
    if says_more(text, number) {
        truncated(kind, text);
    }
}

/// What may stand behind a number in a text as if it were not there: MySQL's `my_isspace`.
pub(super) const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];

/// Whether a text is more than the number it begins with; blanks around that count for nothing.
pub fn says_more(text: &str, number: &str) -> bool {
    let rest = match text.trim_start().strip_prefix(number) {
        Some(rest) => rest,
        // It begins with none, and was read as 0.
        None => text,
    };
    !rest.trim_end_matches(BLANKS).is_empty()
}

/// As much of a value as a warning shows.
pub(super) fn shown(value: &str) -> String {
    let end = value.floor_char_boundary(MOST_SHOWN);
    let more = if end < value.len() { "..." } else { "" };
    format!("{}{more}", value.get(..end).unwrap_or_default())
}

/// A plan whose functions send their warnings to a statement. Below a LIMIT, rows are computed that
/// MySQL would not read: there only constants warn a strict statement.
pub fn attach_to_plan(plan: LogicalPlan, warnings: &Arc<ExprWarnings>) -> Result<LogicalPlan> {
    let mut attach = |node: LogicalPlan| {
        if !warnings.strict || !matches!(node, LogicalPlan::Limit(_)) {
            return node.map_each_expression(&mut |expr| attach(expr, warnings));
        }
        let mut constants = |node: LogicalPlan| {
            node.map_each_expression(&mut |expr| attach_to(expr, warnings, Attached::Constants))
        };
        let below = node.map_all_down(&mut constants)?;
        Ok(Transformed::new(below.data, below.transformed, TreeNodeRecursion::Jump))
    };
    Ok(plan.map_all_down(&mut attach)?.data)
}

/// An expression whose functions send their warnings to a statement. Not those that MySQL would compute
/// for some rows only: here they may be computed for the others, too.
pub fn attach(expr: Expr, warnings: &Arc<ExprWarnings>) -> Result<Transformed<Expr>> {
    attach_to(expr, warnings, Attached::All)
}

/// Which functions send warnings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attached {
    /// All.
    All,
    /// Those of constants, which are the same for any row.
    Constants,
}

fn attach_to(
    expr: Expr,
    warnings: &Arc<ExprWarnings>,
    which: Attached,
) -> Result<Transformed<Expr>> {
    expr.map_down(&mut |expr| match expr {
        Expr::Case(_) => Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump)),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let left = attach_to(*left, warnings, which)?;
            let expr = Expr::BinaryExpr(BinaryExpr::new(Box::new(left.data), op, right));
            Ok(Transformed::new(expr, left.transformed, TreeNodeRecursion::Jump))
        }
        Expr::ScalarFunction(function) => {
            let Some(ours) = function.func.inner().downcast_ref::<Udf>() else {
                return Ok(Transformed::no(Expr::ScalarFunction(function)));
            };
            let warns = which == Attached::All || function.args.iter().all(is_constant);
            let func = match warns {
                true => {
                    let attached = Udf { warnings: Some(warnings.clone()), ..ours.clone() };
                    Arc::new(ScalarUDF::new_from_impl(attached))
                }
                false => function.func.clone(),
            };
            let mut args = function.args;
            let recursion = match CHOOSING.contains(&func.name()) {
                true => {
                    if let Some(first) = args.first_mut() {
                        *first = attach_to(std::mem::take(first), warnings, which)?.data;
                    }
                    TreeNodeRecursion::Jump
                }
                false => TreeNodeRecursion::Continue,
            };
            let expr = Expr::ScalarFunction(ScalarFunction::new_udf(func, args));
            Ok(Transformed::new(expr, true, recursion))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Whether an expression is made of literals alone, as far as that is easily seen.
fn is_constant(expr: &Expr) -> bool {
    let other = |expr: &Expr| {
        let made = matches!(
            expr,
            Expr::Literal(..)
                | Expr::ScalarFunction(_)
                | Expr::Cast(_)
                | Expr::Alias(_)
                | Expr::BinaryExpr(_)
        );
        Ok(!made)
    };
    !expr.has(&other).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_are_kept() {
        let warnings = Arc::new(ExprWarnings::new(2, true));
        division();
        listen(&warnings, || {
            division();
            truncated("DOUBLE", "abc");
            read("DOUBLE", " 12 ", "12");
            read("DOUBLE", "", "0");
            read("DOUBLE", "12x", "12");
        });
        division();
        assert_eq!(warnings.count(), 3);
        let kept = warnings.kept();
        assert_eq!(kept[0], division_by_zero());
        assert_eq!(kept[1].message, "Truncated incorrect DOUBLE value: 'abc'");
        assert_eq!(kept.len(), 2);
        warnings.forget_from(1);
        assert_eq!((warnings.count(), warnings.kept().len()), (1, 1));
    }

    #[test]
    fn who_listened_before_listens_again() {
        let (outer, inner) =
            (Arc::new(ExprWarnings::new(9, false)), Arc::new(ExprWarnings::new(9, true)));
        listen(&outer, || {
            listen(&inner, division);
            division();
            truncated("DOUBLE", "x");
        });
        assert_eq!((outer.count(), inner.count()), (1, 1));
    }

    #[test]
    fn a_strict_statement_fails_with_the_first_warning() {
        let strict = Arc::new(ExprWarnings::new(9, true).strict());
        let warn_twice = || {
            division();
            truncated("DOUBLE", "x");
            Ok(1)
        };
        let error = evaluate(&strict, warn_twice).unwrap_err();
        assert_eq!((error.code, &error.sqlstate), (1365, b"22012"));
        assert_eq!(error.message, "Division by 0");
        assert_eq!(evaluate(&strict, || Ok(2)), Ok(2));
        let lenient = Arc::new(ExprWarnings::new(9, true));
        assert_eq!(evaluate(&lenient, warn_twice), Ok(1));
        assert_eq!((strict.count(), lenient.count()), (0, 2));
        // A division that is worth no warning is no error either.
        let silent = Arc::new(ExprWarnings::new(9, false).strict());
        let divided = evaluate(&silent, || {
            division();
            Ok(3)
        });
        assert_eq!(divided, Ok(3));
        assert!(listen(&strict, are_errors) && !listen(&lenient, are_errors) && !are_errors());
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let warnings = Arc::new(ExprWarnings::new(1, false));
        listen(&warnings, || truncated("DOUBLE", &"é".repeat(100)));
        let expected = format!("Truncated incorrect DOUBLE value: '{}...'", "é".repeat(64));
        assert_eq!(warnings.kept()[0].message, expected);
    }
}
