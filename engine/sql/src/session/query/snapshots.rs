//! Functions that do something: over snapshots (`isobar_snapshot`, `isobar_renew`, `isobar_release`),
//! and `SLEEP`. Each call runs once for its statement, before that is planned, and its value is
//! written in its place; preparing a statement runs none. Those of locks come first, where there are
//! some, and with them the pauses between them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Visitor,
    VisitorMut,
};
use syntax::constant::{expression, literal};
use syntax::names::parts;
use syntax::walk::{Part, walk, walk_mut};
use types::{SnapshotToken, Value};
use values::coerce::text;
use values::error::{SqlResult, unsupported, wrong_argument_count_of, wrong_arguments_because};

use super::lock_calls;
use super::sleeping::sleep;
use crate::session::Session;

/// Longest lease that a client may ask for at once.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);

/// What is asked for if no length is named.
const USUAL_LEASE: &str = "10m";

/// A call, with its arguments as text.
type Call = (&'static str, Vec<String>);

const FUNCTIONS: [&str; 4] = ["isobar_snapshot", "isobar_renew", "isobar_release", "sleep"];

impl Session {
    /// Carries out a statement's calls and replaces them by what they give. `once` says that its
    /// expressions are computed once.
    pub(super) async fn call_functions<T: Part>(
        &mut self,
        statement: &mut T,
        once: bool,
    ) -> SqlResult<()> {
        let mut calls = Calls::default();
        _ = walk(statement, &mut calls);
        if calls.locks {
            self.call_lock_functions(statement, once).await?;
            calls = Calls::default();
            _ = walk(statement, &mut calls);
        }
        if calls.found.is_empty() {
            return Ok(());
        }
        for ((name, arguments), value) in &mut calls.found {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            *value = match (*name, &arguments[..]) {
                ("isobar_snapshot", []) => self.take_snapshot(USUAL_LEASE, None).await?,
                ("isobar_snapshot", [ttl]) => self.take_snapshot(ttl, None).await?,
                ("isobar_snapshot", [ttl, owner]) => self.take_snapshot(ttl, Some(owner)).await?,
                ("isobar_renew", [token]) => self.renew_snapshot(token, USUAL_LEASE).await?,
                ("isobar_renew", [token, ttl]) => self.renew_snapshot(token, ttl).await?,
                ("isobar_release", [token]) => self.release_snapshot(token).await?,
                ("sleep", [_]) if calls.tables => {
                    return Err(unsupported("SLEEP() in a statement that names tables"));
                }
                ("sleep", [seconds]) => sleep(seconds).await?,
                (name, _) => {
                    return Err(wrong_argument_count_of(name));
                }
            };
        }
        _ = walk_mut(statement, &mut calls);
        Ok(())
    }

    /// Replaces a statement's calls by values of their types, and carries none out.
    pub(super) fn describe_calls<T: Part>(statement: &mut T) {
        let mut calls = Calls::default();
        _ = walk(statement, &mut calls);
        if calls.locks {
            lock_calls::describe(statement);
        }
        for ((name, _), value) in &mut calls.found {
            *value = match *name {
                "isobar_snapshot" => Value::String(String::new()),
                "isobar_renew" => Value::UInt(0),
                _ => Value::Int(0),
            };
        }
        _ = walk_mut(statement, &mut calls);
    }

    /// A signed token of the present, held readable for so long.
    async fn take_snapshot(&mut self, ttl: &str, program: Option<&str>) -> SqlResult<Value> {
        let ttl = lease_length("isobar_snapshot", ttl)?;
        let mut owner = self.identity.user_and_host();
        if let Some(program) = program {
            owner = format!("{owner} {program}");
        }
        let storage = &self.engine.storage;
        let ts = storage.timestamp().await?;
        let lease = storage.take_lease(Some(ts), ttl, &owner).await?;
        let key = storage.signing_key().await?;
        Ok(Value::String(SnapshotToken { ts: lease.ts, lease: lease.id }.sign(&key)))
    }

    /// Prolongs a token's lease; when it ends now, in Unix milliseconds.
    async fn renew_snapshot(&mut self, token: &str, ttl: &str) -> SqlResult<Value> {
        let ttl = lease_length("isobar_renew", ttl)?;
        let token = self.verify_token("isobar_renew", token).await?;
        Ok(Value::UInt(self.engine.storage.renew_lease(token.lease, ttl).await?.expires_ms))
    }

    /// Ends a token's lease; one that has ended already is no error.
    async fn release_snapshot(&mut self, token: &str) -> SqlResult<Value> {
        let token = self.verify_token("isobar_release", token).await?;
        self.engine.storage.release_lease(token.lease).await?;
        Ok(Value::Int(1))
    }

    async fn verify_token(&self, function: &str, token: &str) -> SqlResult<SnapshotToken> {
        let key = self.engine.storage.signing_key().await?;
        SnapshotToken::verify(token, &key).map_err(|error| wrong_arguments_because(function, error))
    }
}

fn lease_length(function: &str, text: &str) -> SqlResult<Duration> {
    let length = values::duration::duration(text)
        .filter(|length| !length.is_zero() && *length <= LONGEST_LEASE);
    length.ok_or_else(|| {
        wrong_arguments_because(
            function,
            format!("'{text}' is no time between 1s and 24h (90s, 10m, 2h)"),
        )
    })
}

/// Calls that were met and what they gave, and whether the statement names tables or locks.
#[derive(Default)]
struct Calls {
    found: BTreeMap<Call, Value>,
    tables: bool,
    locks: bool,
}

fn call(expr: &Expr) -> Option<Call> {
    let Expr::Function(Function { name, args, .. }) = expr else { return None };
    let [called] = &parts(name)[..] else { return None };
    let name = FUNCTIONS.into_iter().find(|name| name == called)?;
    let FunctionArguments::List(list) = args else { return Some((name, Vec::new())) };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
            literal(expr).map_or_else(|| expr.to_string(), text)
        }
        other => other.to_string(),
    };
    Some((name, list.args.iter().map(argument).collect()))
}

impl Visitor for Calls {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.found.extend(call(expr).map(|call| (call, Value::Null)));
        self.locks |= lock_calls::is_call(expr);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, _: &ObjectName) -> ControlFlow<()> {
        self.tables = true;
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Calls {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(value) = call(expr).and_then(|call| self.found.get(&call)) {
            *expr = expression(value);
        }
        ControlFlow::Continue(())
    }
}
