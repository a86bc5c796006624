//! What only the session knows, written into a statement as literals: parameters, variables,
//! LAST_INSERT_ID() and its kin, snapshot tokens. Afterwards the text means the same anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value as SqlValue, ValueWithSpan, Visit,
    VisitMut, Visitor, VisitorMut,
};
use types::{SnapshotToken, Value};

use super::Session;
use crate::constant::{expression, literal};
use crate::error::{SqlResult, syntax};
use crate::parser::target_of;
use crate::planner::parts;
use crate::result::SqlError;
use crate::statement::Target;
use crate::variables::Variables;

/// Longest lease that a client may take.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);

struct Inliner<'a> {
    variables: &'a Variables,
    parameters: &'a [Value],
    last_insert_id: u64,
    row_count: i64,
    found_rows: u64,
    snapshots: &'a BTreeMap<String, String>,
}

impl Session {
    /// Replaces all that is the session's own.
    pub(super) async fn inline<T: Visit + VisitMut>(
        &mut self,
        statement: &mut T,
        parameters: &[Value],
    ) -> SqlResult<()> {
        let mut wanted = Snapshots(BTreeSet::new());
        _ = Visit::visit(statement, &mut wanted);
        let mut snapshots = BTreeMap::new();
        for ttl in wanted.0 {
            let token = self.take_snapshot(&ttl).await?;
            snapshots.insert(ttl, token);
        }
        let mut inliner = Inliner {
            variables: &self.variables,
            parameters,
            last_insert_id: self.last_insert_id,
            row_count: self.row_count,
            found_rows: self.found_rows.load(Ordering::Acquire),
            snapshots: &snapshots,
        };
        match VisitMut::visit(statement, &mut inliner) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// A signed token of the present, held readable for so long.
    async fn take_snapshot(&mut self, ttl: &str) -> SqlResult<String> {
        let ttl = duration(ttl)?;
        let owner = format!("{}@{}", self.info.user, self.info.host);
        let storage = &self.engine.storage;
        let ts = storage.timestamp().await?;
        let lease = storage.take_lease(Some(ts), ttl, &owner).await?;
        let key = storage.signing_key().await?;
        Ok(SnapshotToken { ts: lease.ts, lease: lease.id }.sign(&key))
    }
}

/// Reads `90s`, `10m`, `2h` or a number of seconds.
fn duration(text: &str) -> SqlResult<Duration> {
    let wrong = || {
        SqlError::new(
            1210,
            b"HY000",
            format!(
                "Incorrect arguments to isobar_snapshot: '{text}' is no time between 1s and 24h (90s, 10m, 2h)"
            ),
        )
    };
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)?;
    let length = Duration::from_secs(seconds);
    if length.is_zero() || length > LONGEST_LEASE { Err(wrong()) } else { Ok(length) }
}

/// The time that a call of `isobar_snapshot` asks for.
fn snapshot_ttl(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    if parts(&function.name) != ["isobar_snapshot"] {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return Some("10m".into()) };
    match &list.args[..] {
        [] => Some("10m".into()),
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => match literal(expr) {
            Some(value) => Some(crate::coerce::text(value)),
            None => Some(expr.to_string()),
        },
        _ => Some(String::new()),
    }
}

struct Snapshots(BTreeSet<String>);

impl Visitor for Snapshots {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.0.extend(snapshot_ttl(expr));
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Inliner<'_> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match self.replacement(expr) {
            Ok(Some(literal)) => *expr = literal,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Inliner<'_> {
    fn replacement(&self, expr: &Expr) -> SqlResult<Option<Expr>> {
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
            Expr::CompoundIdentifier(idents)
                if idents
                    .first()
                    .is_some_and(|i| i.quote_style.is_none() && i.value.starts_with("@@")) =>
            {
                Some(self.variable(&idents.clone().into())?)
            }
            Expr::Function(function) => {
                if let Some(ttl) = snapshot_ttl(expr) {
                    let token = self.snapshots.get(&ttl).cloned().unwrap_or_default();
                    return Ok(Some(expression(&Value::String(token))));
                }
                let value = match parts(&function.name).last().map(String::as_str) {
                    Some("last_insert_id") => Value::UInt(self.last_insert_id),
                    Some("row_count") => Value::Int(self.row_count),
                    Some("found_rows") => Value::UInt(self.found_rows),
                    _ => return Ok(None),
                };
                Some(expression(&value))
            }
            _ => None,
        })
    }

    fn variable(&self, name: &sqlparser::ast::ObjectName) -> SqlResult<Expr> {
        let value = match target_of(name, "") {
            Target::User(name) => self.variables.user(&name),
            Target::Session(name) => self.variables.value(&name)?,
            Target::Global(name) => Variables::default().value(&name)?,
        };
        Ok(expression(&value))
    }
}
