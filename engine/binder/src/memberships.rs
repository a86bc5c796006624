//! Lists of IN and chains of OR, hidden from DataFusion's simplifier where it would change what they are.
//!
//! It makes one list of two over the same value, and takes the items that differ as written for different values, and the
//! value for one that is never NULL: `a IN (1, 2) AND a IN (3, 4)` is false to it where `a` is NULL, and of
//! `a IN (b, 1) AND a NOT IN (c, 1)` it keeps `a IN (b)`. The first does no harm where only what is true counts, the
//! second never holds. So of several lists over one value, each stays in sight only where its items are literals and no
//! difference between false and NULL comes out. This must never hide the one list over a value, by which rows are looked up.

use std::collections::HashMap;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Case, Expr, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use functions::trees::{PlanTree, Tree};

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
        let repeated = Repeated::of(&expr)?;
        if repeated.0.is_empty() {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        Ok(Transformed::yes(name.restore(repeated.hidden(expr, place)?)))
    };
    match plan {
        LogicalPlan::Filter(_) | LogicalPlan::TableScan(_) => {
            plan.map_each_expression(&mut |expr| guard(expr, Place::All))
        }
        LogicalPlan::Join(mut join) => {
            let filter = join.filter.take().map(|filter| guard(filter, Place::All)).transpose()?;
            let changed = filter.as_ref().is_some_and(|filter| filter.transformed);
            join.filter = filter.map(|filter| filter.data);
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
        }
        plan => plan.map_each_expression(&mut |expr| match expr {
            // Their names are their parts'.
            Expr::GroupingSet(_) => expr.map_parts(&mut |part| guard(part, Place::Value)),
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

/// The values of which an expression says by several lists what they are, or by so many comparisons that the simplifier
/// could make several lists of them.
struct Repeated(Vec<Expr>);

impl Repeated {
    fn of(expr: &Expr) -> Result<Repeated> {
        // A list counts as two comparisons, of which the simplifier makes one.
        let mut counts: HashMap<&Expr, u32> = HashMap::new();
        expr.visit_each(&mut |part| {
            match part {
                Expr::InList(list) => *counts.entry(uncast(&list.expr)).or_default() += 2,
                Expr::BinaryExpr(BinaryExpr {
                    left,
                    op: Operator::Eq | Operator::NotEq,
                    right,
                }) => {
                    for side in [uncast(left), uncast(right)] {
                        if matches!(side, Expr::Column(_)) {
                            *counts.entry(side).or_default() += 1;
                        }
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let repeated = counts.into_iter().filter(|(_, count)| *count >= 4);
        Ok(Repeated(repeated.map(|(value, _)| value.clone()).collect()))
    }

    /// An expression, the lists in it hidden where they must be.
    fn hidden(&self, expr: Expr, place: Place) -> Result<Expr> {
        Ok(match expr {
            Expr::InList(ref list) if self.may_be_seen(list, place) => {
                self.within(expr, Place::Value)?
            }
            Expr::InList(_) => call(HIDDEN, vec![self.within(expr, Place::Value)?])?,
            Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => match place {
                Place::All | Place::Any => self.within(expr, place)?,
                Place::None | Place::Value => self.within(expr, Place::Value)?,
            },
            Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => match place {
                Place::All | Place::Any => self.within(expr, Place::Any)?,
                Place::None => self.within(expr, place)?,
                Place::Value => call(HIDDEN, vec![self.chain(expr)?])?,
            },
            Expr::Not(_) if place == Place::All => self.within(expr, Place::None)?,
            // Of `NOT (a <> 1 AND a <> 2)` it makes a list, too.
            Expr::Not(inner) if place == Place::Value && is(&inner, Operator::And) => {
                Expr::Not(Box::new(call(HIDDEN, vec![self.chain(*inner)?])?))
            }
            Expr::IsTrue(_) | Expr::IsNotTrue(_) => self.within(expr, Place::All)?,
            Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
                let branch = |(when, then): (Box<Expr>, Box<Expr>)| {
                    let when = self.hidden(*when, Place::All)?;
                    Ok((Box::new(when), Box::new(self.hidden(*then, Place::Value)?)))
                };
                let branches = when_then_expr.into_iter().map(branch).collect::<Result<_>>()?;
                let otherwise = else_expr.map(|otherwise| self.hidden(*otherwise, Place::Value));
                Expr::Case(Case::new(None, branches, otherwise.transpose()?.map(Box::new)))
            }
            Expr::ScalarFunction(mut function) if function.name() == HIDDEN => {
                let args = std::mem::take(&mut function.args).into_iter();
                function.args = args.map(|arg| self.chain(arg)).collect::<Result<_>>()?;
                Expr::ScalarFunction(function)
            }
            other => self.within(other, Place::Value)?,
        })
    }

    /// An expression whose parts stand in a place.
    fn within(&self, expr: Expr, place: Place) -> Result<Expr> {
        Ok(expr.map_parts(&mut |part| self.hidden(part, place).map(Transformed::yes))?.data)
    }

    /// What is hidden already, or a chain of AND or OR that is hidden as a whole.
    fn chain(&self, expr: Expr) -> Result<Expr> {
        let Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) = expr
        else {
            return match expr {
                Expr::InList(_) => self.within(expr, Place::Value),
                other => self.hidden(other, Place::Value),
            };
        };
        let part = |part| match is(&part, op) {
            true => self.chain(part),
            false => self.hidden(part, Place::Value),
        };
        Ok(expr.map_parts(&mut |expr| part(expr).map(Transformed::yes))?.data)
    }

    /// Whether the simplifier may make another list of this one, or has none to make it with.
    fn may_be_seen(&self, list: &InList, place: Place) -> bool {
        if !self.0.contains(uncast(&list.expr)) {
            return true;
        }
        let is_placed = match place {
            Place::All | Place::None => true,
            // Of two such, of which one must be true, it makes what is true of NULL.
            Place::Any => !list.negated,
            Place::Value => false,
        };
        let may_have_nulls = !list.negated && place != Place::None;
        let is_value = |item: &Expr| match uncast(item) {
            Expr::Literal(value, _) => may_have_nulls || !value.is_null(),
            _ => false,
        };
        is_placed && list.list.iter().all(is_value) && !list.expr.is_volatile()
    }
}

fn is(expr: &Expr, operator: Operator) -> bool {
    matches!(expr, Expr::BinaryExpr(BinaryExpr { op, .. }) if *op == operator)
}

/// What is cast: the simplifier folds casts of literals, and takes those of values away.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => uncast(&cast.expr),
        other => other,
    }
}
