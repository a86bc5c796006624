//! Walks over DataFusion's trees that are compiled once.
//!
//! DataFusion's own are generic over what they call: each call of one compiles the whole walk again, for every kind of
//! node that there is, which was a third of the binder's code. These take any closure by reference and do the same;
//! nothing here decides anything.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;

/// What a walk makes of a node.
type Mapped<T> = Result<Transformed<T>>;

/// Walks over expressions, logical and physical plans.
pub trait Tree: Sized {
    /// Visits a node, then what is below it ([`TreeNode::apply`]).
    ///
    /// # Errors
    ///
    /// The first of the visitor's.
    fn visit_each<'n>(
        &'n self,
        visitor: &mut dyn FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Whether a node or one below it is what is looked for ([`TreeNode::exists`]).
    ///
    /// # Errors
    ///
    /// The first of the test's.
    fn has(&self, is: &dyn Fn(&Self) -> Result<bool>) -> Result<bool>;

    /// Maps what is below a node, then the node ([`TreeNode::transform_up`]).
    ///
    /// # Errors
    ///
    /// The first of the map's.
    fn map_up(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self>;

    /// Maps a node, then what is below what it became ([`TreeNode::transform_down`]).
    ///
    /// # Errors
    ///
    /// The first of the map's.
    fn map_down(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self>;

    /// Maps the nodes right below one ([`TreeNode::map_children`]).
    ///
    /// # Errors
    ///
    /// The first of the map's.
    fn map_parts(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self>;
}

macro_rules! trees {
    ($($node:ty),*) => { $(
        impl Tree for $node {
            fn visit_each<'n>(
                &'n self,
                visitor: &mut dyn FnMut(&'n Self) -> Result<TreeNodeRecursion>,
            ) -> Result<TreeNodeRecursion> {
                self.apply(visitor)
            }

            fn has(&self, is: &dyn Fn(&Self) -> Result<bool>) -> Result<bool> {
                self.exists(is)
            }

            fn map_up(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self> {
                self.transform_up(map)
            }

            fn map_down(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self> {
                self.transform_down(map)
            }

            fn map_parts(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self> {
                self.map_children(map)
            }
        }
    )* };
}

trees!(Expr, LogicalPlan, Arc<dyn ExecutionPlan>);

/// Walks over logical plans that go into their subqueries, and over their expressions.
pub trait PlanTree: Sized {
    /// Visits a plan, then what is below it ([`LogicalPlan::apply_with_subqueries`]).
    ///
    /// # Errors
    ///
    /// The first of the visitor's.
    fn visit_all(
        &self,
        visitor: &mut dyn FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Maps what is below a plan, then the plan ([`LogicalPlan::transform_up_with_subqueries`]).
    ///
    /// # Errors
    ///
    /// The first of the map's.
    fn map_all_up(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self>;

    /// Maps a plan, then what is below what it became ([`LogicalPlan::transform_down_with_subqueries`]).
    ///
    /// # Errors
    ///
    /// The first of the map's.
    fn map_all_down(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self>;

    /// Visits the expressions of one node ([`LogicalPlan::apply_expressions`]).
    ///
    /// # Errors
    ///
    /// The first of the visitor's.
    fn visit_expressions(
        &self,
        visitor: &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion>;

    /// Maps the expressions of one node ([`LogicalPlan::map_expressions`]).
    ///
    /// # Errors
    ///
    /// The first of the map's.
    fn map_each_expression(self, map: &mut dyn FnMut(Expr) -> Mapped<Expr>) -> Mapped<Self>;
}

impl PlanTree for LogicalPlan {
    fn visit_all(
        &self,
        visitor: &mut dyn FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_with_subqueries(visitor)
    }

    fn map_all_up(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self> {
        self.transform_up_with_subqueries(map)
    }

    fn map_all_down(self, map: &mut dyn FnMut(Self) -> Mapped<Self>) -> Mapped<Self> {
        self.transform_down_with_subqueries(map)
    }

    fn visit_expressions(
        &self,
        visitor: &mut dyn FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_expressions(visitor)
    }

    fn map_each_expression(self, map: &mut dyn FnMut(Expr) -> Mapped<Expr>) -> Mapped<Self> {
        self.map_expressions(map)
    }
}
