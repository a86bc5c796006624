//! Walks over statements: for those who look for something in one, and those who change it.
//!
//! sqlparser writes the traversal of its whole syntax tree anew for every type of visitor, in every crate that has one:
//! that was half of what such crates took to compile. Here visitors go behind one pointer, and what is walked over behind
//! a trait of this crate, so that there are two traversals, compiled here.
//! Nothing else may call `Visit::visit`, nor sqlparser's `visit_expressions` and its kin.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Assignment, CreateTable, Delete, Expr, GroupByExpr, Insert, LimitClause, ObjectName,
    OrderByExpr, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
    Update, UpdateTableFromKind, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};

/// A part of a statement that can be walked over.
pub trait Part: Sync {
    /// Shows every node to the visitor, until it breaks off.
    fn show(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()>;

    /// Lets the visitor change every node, until it breaks off.
    fn change(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()>;
}

impl<P: Part> Part for Vec<P> {
    fn show(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
        self.iter().try_for_each(|part| part.show(visitor))
    }

    fn change(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|part| part.change(visitor))
    }
}

impl<P: Part> Part for Box<P> {
    fn show(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
        (**self).show(visitor)
    }

    fn change(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
        (**self).change(visitor)
    }
}

impl<P: Part> Part for Option<P> {
    fn show(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
        self.iter().try_for_each(|part| part.show(visitor))
    }

    fn change(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|part| part.change(visitor))
    }
}

macro_rules! parts {
    ($($part:ty)*) => {$(
        impl Part for $part {
            fn show(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
                Visit::visit(self, &mut Erased(visitor))
            }

            fn change(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
                VisitMut::visit(self, &mut ErasedMut(visitor))
            }
        }
    )*};
}

parts! {
    Statement Query SetExpr Select Insert Update Delete CreateTable
    Expr SelectItem OrderByExpr GroupByExpr LimitClause Assignment TableWithJoins UpdateTableFromKind
}

macro_rules! walker {
    ($(#[$doc:meta])* $walk:ident($part:ty, $visitor:ident) by $show:ident, $erased:ident, $capture:ident, $($hook:ident($node:ty),)*) => {
        struct $erased<'a>(&'a mut dyn $visitor<Break = ()>);

        impl $visitor for $erased<'_> {
            type Break = ();

            $(fn $hook(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$hook(node)
            })*
        }

        /// Captures what a visitor broke off with, so that all visitors break off alike.
        struct $capture<'a, B> {
            visitor: &'a mut dyn $visitor<Break = B>,
            broke: Option<B>,
        }

        impl<B> $visitor for $capture<'_, B> {
            type Break = ();

            $(fn $hook(&mut self, node: $node) -> ControlFlow<()> {
                self.visitor.$hook(node).map_break(|broke| self.broke = Some(broke))
            })*
        }

        $(#[$doc])*
        ///
        /// # Errors
        /// What the visitor broke off with.
        pub fn $walk<B>(part: $part, visitor: &mut dyn $visitor<Break = B>) -> Result<(), B> {
            let mut capture = $capture { visitor, broke: None };
            _ = part.$show(&mut capture);
            capture.broke.map_or(Ok(()), Err)
        }
    };
}

walker! {
    /// Shows every node of a part of a statement to the visitor, until it breaks off.
    walk(&dyn Part, Visitor) by show, Erased, Capture,
    pre_visit_query(&Query),
    post_visit_query(&Query),
    pre_visit_select(&Select),
    post_visit_select(&Select),
    pre_visit_relation(&ObjectName),
    post_visit_relation(&ObjectName),
    pre_visit_table_factor(&TableFactor),
    post_visit_table_factor(&TableFactor),
    pre_visit_expr(&Expr),
    post_visit_expr(&Expr),
    pre_visit_statement(&Statement),
    post_visit_statement(&Statement),
    pre_visit_value(&ValueWithSpan),
    post_visit_value(&ValueWithSpan),
}

walker! {
    /// Lets the visitor change every node of a part of a statement, until it breaks off.
    walk_mut(&mut dyn Part, VisitorMut) by change, ErasedMut, CaptureMut,
    pre_visit_query(&mut Query),
    post_visit_query(&mut Query),
    pre_visit_select(&mut Select),
    post_visit_select(&mut Select),
    pre_visit_relation(&mut ObjectName),
    post_visit_relation(&mut ObjectName),
    pre_visit_table_factor(&mut TableFactor),
    post_visit_table_factor(&mut TableFactor),
    pre_visit_expr(&mut Expr),
    post_visit_expr(&mut Expr),
    pre_visit_statement(&mut Statement),
    post_visit_statement(&mut Statement),
    pre_visit_value(&mut ValueWithSpan),
    post_visit_value(&mut ValueWithSpan),
}

/// Whether the visitor breaks off, by which it says that it has found what it looks for.
pub fn finds(part: &dyn Part, visitor: &mut dyn Visitor<Break = ()>) -> bool {
    walk(part, visitor).is_err()
}

/// Puts another expression in the place of those that a function has one for, outer ones first, until it fails. What comes
/// in a place is walked over, too.
pub fn replace_exprs<E>(
    part: &mut dyn Part,
    replacement: &mut dyn FnMut(&Expr) -> Result<Option<Expr>, E>,
) -> Result<(), E> {
    struct Replace<'a, E>(&'a mut dyn FnMut(&Expr) -> Result<Option<Expr>, E>);
    impl<E> VisitorMut for Replace<'_, E> {
        type Break = E;

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<E> {
            match (self.0)(expr) {
                Ok(Some(other)) => *expr = other,
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(error),
            }
            ControlFlow::Continue(())
        }
    }
    walk_mut(part, &mut Replace(replacement))
}

/// Lets a function change every expression of a part of a statement, inner ones first, until it fails.
pub fn each_expr<E>(
    part: &mut dyn Part,
    change: &mut dyn FnMut(&mut Expr) -> Result<(), E>,
) -> Result<(), E> {
    struct Each<'a, E>(&'a mut dyn FnMut(&mut Expr) -> Result<(), E>);
    impl<E> VisitorMut for Each<'_, E> {
        type Break = E;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<E> {
            (self.0)(expr).map_or_else(ControlFlow::Break, ControlFlow::Continue)
        }
    }
    walk_mut(part, &mut Each(change))
}
