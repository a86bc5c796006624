//! What only the session knows, written into a statement as literals: parameters, variables,
//! LAST_INSERT_ID() and its kin, what snapshot functions give; and views. Afterwards the text means the same anywhere.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use binder::KEEP_INSERT_ID;
use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value as SqlValue,
    ValueWithSpan, VisitorMut,
};
use syntax::constant::expression;
use syntax::names::parts;
use syntax::parser::target_of;
use syntax::statement::Target;
use syntax::tree::call;
use syntax::walk::{Part, walk_mut};
use types::Value;
use values::error::{SqlError, SqlResult, syntax, wrong_argument_count, wrong_arguments};

use super::user_variables::misplaced;
use crate::session::Session;
use crate::session::diagnostics::Diagnostics;
use crate::session::identity::Identity;
use crate::variables::{Globals, Variables};

struct Inliner<'a> {
    variables: &'a Variables,
    /// What is set for everybody, once a statement has asked for it.
    globals: Option<&'a Globals>,
    parameters: &'a [Value],
    /// Of the statement before.
    diagnostics: &'a Diagnostics,
    identity: &'a Identity,
    /// The resource group of the statement.
    group: &'a str,
    /// Whether a LAST_INSERT_ID(expr) is left to be computed.
    keeps: &'a AtomicBool,
}

impl Session {
    /// Replaces all that is the session's own.
    pub(in crate::session) async fn inline<T: Part>(
        &mut self,
        statement: &mut T,
        parameters: &[Value],
    ) -> SqlResult<()> {
        self.inline_values(statement, parameters).await?;
        self.call_functions(statement, true).await
    }

    /// As [`Session::inline`], for a statement whose expressions are computed for each row.
    pub(in crate::session) async fn inline_for_rows<T: Part>(
        &mut self,
        statement: &mut T,
        parameters: &[Value],
    ) -> SqlResult<()> {
        self.inline_values(statement, parameters).await?;
        self.call_functions(statement, false).await
    }

    /// Replaces what is the session's own by values that it has: nothing is carried out.
    pub(super) async fn inline_values<T: Part>(
        &mut self,
        statement: &mut T,
        parameters: &[Value],
    ) -> SqlResult<()> {
        self.expand_views(statement).await?;
        let mut globals = None;
        let keeps = AtomicBool::new(false);
        loop {
            let mut inliner = Inliner {
                variables: &self.variables,
                globals: globals.as_ref(),
                parameters,
                diagnostics: &self.diagnostics,
                identity: &self.identity,
                group: self.group.running(),
                keeps: &keeps,
            };
            match walk_mut(statement, &mut inliner) {
                Ok(()) => break,
                Err(Unfinished::Wrong(error)) => return Err(error),
                // What has been replaced already is left alone the second time.
                Err(Unfinished::Globals) => globals = Some(self.globals().await?),
            }
        }
        if keeps.load(Ordering::Acquire) {
            self.register_last_insert_id();
        }
        Ok(())
    }
}

impl VisitorMut for Inliner<'_> {
    type Break = Unfinished;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Unfinished> {
        match expr {
            Expr::BinaryOp { op: BinaryOperator::Assignment, .. } => {
                ControlFlow::Break(Unfinished::Wrong(misplaced()))
            }
            // No expression to the parser, so that it is not walked over.
            Expr::Like { escape_char: Some(escape), .. }
                if matches!(escape.value, SqlValue::Placeholder(_)) =>
            {
                match self.replacement(&Expr::Value(escape.clone())) {
                    Ok(Some(Expr::Value(value))) => *escape = value,
                    Ok(_) => {
                        let wrong = wrong_arguments("ESCAPE");
                        return ControlFlow::Break(Unfinished::Wrong(wrong));
                    }
                    Err(unfinished) => return ControlFlow::Break(unfinished),
                }
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Unfinished> {
        match self.replacement(expr) {
            Ok(Some(literal)) => *expr = literal,
            Ok(None) => {}
            Err(unfinished) => return ControlFlow::Break(unfinished),
        }
        ControlFlow::Continue(())
    }
}

/// Why not everything was replaced.
enum Unfinished {
    /// It cannot be.
    Wrong(SqlError),
    /// What is set for everybody has to be known.
    Globals,
}

impl From<SqlError> for Unfinished {
    fn from(error: SqlError) -> Self {
        Unfinished::Wrong(error)
    }
}

impl Inliner<'_> {
    fn replacement(&self, expr: &Expr) -> Result<Option<Expr>, Unfinished> {
        Ok(match expr {
            Expr::Value(ValueWithSpan { value: SqlValue::Placeholder(mark), .. }) => {
                let at = mark.trim_start_matches('?').parse::<usize>().unwrap_or(0);
                let value = at.checked_sub(1).and_then(|at| self.parameters.get(at));
                let value =
                    value.ok_or_else(|| syntax("a '?' stands outside of a prepared statement"))?;
                Some(expression(value))
            }
            Expr::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.starts_with('@') =>
            {
                Some(self.variable(&vec![ident.clone()].into())?)
            }
            // A reserved word, which the parser takes for a name.
            Expr::Identifier(ident)
                if ident.quote_style.is_none()
                    && ident.value.eq_ignore_ascii_case("current_user") =>
            {
                self.account()
            }
            Expr::CompoundIdentifier(idents)
                if idents
                    .first()
                    .is_some_and(|i| i.quote_style.is_none() && i.value.starts_with("@@")) =>
            {
                Some(self.variable(&idents.clone().into())?)
            }
            Expr::Function(function) => {
                if let Some(cut) = self.cut_of_group(expr, function) {
                    return Ok(Some(cut));
                }
                let name = parts(&function.name).pop();
                if name.as_deref() == Some("last_insert_id")
                    && let FunctionArguments::List(list) = &function.args
                    && let [argument, others @ ..] = &list.args[..]
                {
                    let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
                        return Err(syntax("LAST_INSERT_ID() takes an expression").into());
                    };
                    if !others.is_empty() {
                        return Err(wrong_argument_count("last_insert_id").into());
                    }
                    self.keeps.store(true, Ordering::Release);
                    let number = call("cast_unsigned", vec![argument.clone()]);
                    return Ok(Some(call(KEEP_INSERT_ID, vec![number])));
                }
                let value = match name.as_deref() {
                    Some("last_insert_id") => Value::UInt(self.diagnostics.last_insert_id()),
                    Some("row_count") => Value::Int(self.diagnostics.row_count()),
                    Some("found_rows") => Value::UInt(self.diagnostics.found_rows()),
                    Some("current_user") => return Ok(self.account()),
                    Some("current_resource_group") => Value::String(self.group.to_owned()),
                    _ => return Ok(None),
                };
                Some(expression(&value))
            }
            _ => None,
        })
    }

    /// CURRENT_USER().
    fn account(&self) -> Option<Expr> {
        Some(expression(&Value::String(self.identity.account()?)))
    }

    /// GROUP_CONCAT within group_concat_max_len, if the session has set that.
    fn cut_of_group(&self, expr: &Expr, function: &sqlparser::ast::Function) -> Option<Expr> {
        const DEFAULT: &str = "1048576";
        if parts(&function.name) != ["group_concat"] {
            return None;
        }
        let most = self.variables.get("group_concat_max_len").ok()?;
        let limit = || Expr::value(SqlValue::Number(most.clone(), false));
        (most != DEFAULT).then(|| syntax::tree::call("isobar_cut", vec![expr.clone(), limit()]))
    }

    fn variable(&self, name: &sqlparser::ast::ObjectName) -> Result<Expr, Unfinished> {
        let now = || self.globals.ok_or(Unfinished::Globals);
        let value = match target_of(name, "") {
            Target::User(name) => self.variables.user(&name),
            Target::Session(name) if name == "warning_count" => {
                Value::UInt(self.diagnostics.counted_before().0)
            }
            Target::Session(name) if name == "error_count" => {
                Value::UInt(self.diagnostics.counted_before().1)
            }
            Target::Session(name) if Variables::is_global(&name) => {
                self.variables.with_globals(now()?).value(&name)?
            }
            Target::Session(name) => self.variables.value(&name)?,
            Target::Global(name) => Variables::of_everybody(now()?.clone()).value(&name)?,
        };
        Ok(expression(&value))
    }
}
