//! Lists of IN and chains of OR, hidden from DataFusion's simplifier where it would change what they are.
//!
//! It makes one list of two over the same value, and takes the items that differ as written for different values, and the
//! value for one that is never NULL: `a IN (1, 2) AND a IN (3, 4)` is false to it where `a` is NULL, and of
//! `a IN (b, 1) AND a NOT IN (c, 1)` it keeps `a IN (b)`. The first does no harm where only what is true counts, the
//! second never holds. So a list stays in sight where its items are literals and no difference between false and NULL
//! comes out. This must never hide the one list of a condition, by which rows are looked up.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Case, Expr, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::distinct::Rule;
use crate::udf::call;

/// What hides an expression: the truth of a truth.
const HIDDEN: &str = "mysql_truth";

/// DataFusion's simplifier, which does not see what it would make another answer of.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Rule);

impl OptimizerRule for Guarded {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        guarded(plan)?.transform_data(|plan| self.0.rewrite(plan, config))
    }
}

/// A node whose expressions hide what must be hidden, under the names that they had.
fn guarded(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let guard = |expr: Expr, place: Place| -> Result<Transformed<Expr>> {
        if !is_many(&expr)? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        Ok(Transformed::yes(name.restore(hidden(expr, place)?)))
    };
    match plan {
        LogicalPlan::Filter(_) | LogicalPlan::TableScan(_) => {
            plan.map_expressions(|expr| guard(expr, Place::All))
        }
        LogicalPlan::Join(mut join) => {
            let filter = join.filter.take().map(|filter| guard(filter, Place::All)).transpose()?;
            let changed = filter.as_ref().is_some_and(|filter| filter.transformed);
            join.filter = filter.map(|filter| filter.data);
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
        }
        plan => plan.map_expressions(|expr| match expr {
            // Their names are their parts'.
            Expr::GroupingSet(_) => expr.map_children(|part| guard(part, Place::Value)),
            expr => guard(expr, Place::Value),
        }),
    }
}

/// What comes out of an expression where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// A condition, or one of several that must all be true.
    All,
    /// One of several of which one must be true, or a part of one.
    Any,
    /// What must be false, or one of several that all must be.
    None,
    /// A value, whose NULL is not its false.
    Value,
}

/// Whether an expression has more than one list or chain of OR, so that the simplifier could make one of two.
fn is_many(expr: &Expr) -> Result<bool> {
    let (mut lists, mut continued) = (0, 0);
    expr.apply(|part| {
        match part {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                lists += 1;
                continued += usize::from(is_any(left)) + usize::from(is_any(right));
            }
            Expr::InList(_) => lists += 1,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(lists - continued > 1)
}

/// Of several `column = literal` joined by OR the simplifier makes a list.
fn is_any(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }))
}

/// An expression, the lists in it hidden where they must be.
fn hidden(expr: Expr, place: Place) -> Result<Expr> {
    Ok(match expr {
        Expr::InList(ref list) if may_be_seen(list, place) => within(expr, Place::Value)?,
        Expr::InList(_) => call(HIDDEN, vec![within(expr, Place::Value)?])?,
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => match place {
            Place::All | Place::Any => within(expr, place)?,
            Place::None | Place::Value => within(expr, Place::Value)?,
        },
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => match place {
            Place::All | Place::Any => within(expr, Place::Any)?,
            Place::None => within(expr, place)?,
            Place::Value => call(HIDDEN, vec![chain(expr)?])?,
        },
        Expr::Not(_) if place == Place::All => within(expr, Place::None)?,
        Expr::IsTrue(_) | Expr::IsNotTrue(_) => within(expr, Place::All)?,
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let branch = |(when, then): (Box<Expr>, Box<Expr>)| {
                let when = hidden(*when, Place::All)?;
                Ok((Box::new(when), Box::new(hidden(*then, Place::Value)?)))
            };
            let branches = when_then_expr.into_iter().map(branch).collect::<Result<_>>()?;
            let otherwise = else_expr.map(|otherwise| hidden(*otherwise, Place::Value));
            Expr::Case(Case::new(None, branches, otherwise.transpose()?.map(Box::new)))
        }
        Expr::ScalarFunction(mut function) if function.name() == HIDDEN => {
            let args = std::mem::take(&mut function.args).into_iter().map(chain);
            function.args = args.collect::<Result<_>>()?;
            Expr::ScalarFunction(function)
        }
        other => within(other, Place::Value)?,
    })
}

/// An expression whose parts stand in a place.
fn within(expr: Expr, place: Place) -> Result<Expr> {
    Ok(expr.map_children(|part| hidden(part, place).map(Transformed::yes))?.data)
}

/// What is hidden already, or a chain of OR that is hidden as a whole.
fn chain(expr: Expr) -> Result<Expr> {
    let part = |part| if is_any(&part) { chain(part) } else { hidden(part, Place::Value) };
    match expr {
        Expr::InList(_) => within(expr, Place::Value),
        expr if is_any(&expr) => {
            Ok(expr.map_children(|expr| part(expr).map(Transformed::yes))?.data)
        }
        other => hidden(other, Place::Value),
    }
}

/// Whether the simplifier may make another list of this one.
fn may_be_seen(list: &InList, place: Place) -> bool {
    let is_placed = match place {
        Place::All | Place::None => true,
        // Of two such, of which one must be true, it makes what is true of NULL.
        Place::Any => !list.negated,
        Place::Value => false,
    };
    let is_value = |item: &Expr| matches!(item, Expr::Literal(value, _) if !value.is_null());
    is_placed && list.list.iter().all(is_value) && !list.expr.is_volatile()
}
