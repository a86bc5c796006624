//! Reads of the past as TiDB spells them: AS OF TIMESTAMP of the tables of a SELECT, of a transaction or of the next one,
//! and `tidb_read_staleness`.
//!
//! A time becomes the snapshot at the beginning of its millisecond, which stays readable for as long as somebody reads at
//! it. None lies in the future: what is committed meanwhile would show up in it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use placement::api::Catalog;
use placement::safe_point::LIFE_VARIABLE;
use placement::state::DEFAULT_LIFE_MS;
use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query,
    TableFactor, TableVersion, Visitor, VisitorMut,
};
use storage::Snapshot;
use syntax::names::{is_cte, parts, remember_ctes};
use syntax::scalar_query::has_query;
use syntax::walk::{finds, walk_mut};
use tokio::time::{Instant, sleep};
use types::{Table, Timestamp, Value};
use values::coerce::text;
use values::error::{
    SqlResult, columns_of_another_time, future_read, invalid_as_of, lock_as_of, no_datetime,
    unsupported, wrong_argument_count_of,
};
use values::temporal::{self, DAY_US};

use super::state::Origin;
use crate::session::Session;

/// By how much the oracle may lag behind this machine's clock for a time that this clock calls past.
const MOST_BEHIND: Duration = Duration::from_secs(1);

/// How long it is waited for until it has caught up.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(10);
/// A snapshot that is so much younger than versions live is reported to be in use long before they may be collected.
const MARGIN_MS: u64 = 5_000;
/// For so long another one is kept by a lease, until it has been reported, too.
const BRIDGE: Duration = Duration::from_secs(15);
/// The first millisecond that no timestamp holds.
const END_MS: u64 = 1 << (u64::BITS - types::time::LOGICAL_BITS);

impl Session {
    /// Before a SELECT: what it reads at unless it says so itself.
    ///
    /// # Errors
    ///
    /// A time that cannot be read at, or rows that a SELECT would lock there.
    pub(in crate::session) async fn begin_reading(&mut self, query: &Query) -> SqlResult<()> {
        self.transaction.read_statement_at(None);
        self.replica_reads = None;
        if self.in_transaction() || !self.autocommit() {
            return Ok(());
        }
        let staleness = self.variables.read_staleness();
        let of_next = self.transaction.has_next_past();
        if !of_next && (staleness == 0 || !query.locks.is_empty() || self.reads_at_token()) {
            return Ok(());
        }
        if !finds(query, &mut NamesTable) {
            return Ok(());
        }
        if !query.locks.is_empty() {
            return Err(lock_as_of());
        }
        let past = match self.transaction.take_next_past() {
            Some(past) => (past, Origin::SetTransaction),
            None => {
                let ago = i64::from(staleness).saturating_mul(1_000_000);
                (self.past_at(self.now_us.saturating_sub(ago)).await?, Origin::Staleness)
            }
        };
        self.transaction.read_statement_at(Some(past));
        Ok(())
    }

    fn reads_at_token(&self) -> bool {
        self.transaction.snapshot().is_some()
    }

    /// Has a SELECT read at the time that stands behind its tables, if one does; none stands there afterwards.
    ///
    /// # Errors
    ///
    /// 8135 unless all of its tables name one time, outside of a transaction; and a time that cannot be read at.
    pub(in crate::session) async fn read_as_of(
        &mut self,
        query: &mut Query,
        parameters: &[Value],
    ) -> SqlResult<()> {
        let times = take_times(query, self.variables.database())?;
        let Some(first) = times.named.first() else { return Ok(()) };
        if self.in_transaction() {
            return Err(invalid_as_of("as of timestamp can't be set in transaction"));
        }
        if self.transaction.reads_by(Origin::SetTransaction) {
            let why = "can't use select as of while already set transaction as of";
            return Err(invalid_as_of(why));
        }
        if !query.locks.is_empty() {
            return Err(lock_as_of());
        }
        let at = self.time_of(first.clone(), parameters).await?;
        for other in times.named.iter().skip(1) {
            if self.time_of(other.clone(), parameters).await? != at {
                return Err(invalid_as_of("can not set different time in the as of"));
            }
        }
        if times.missing {
            return Err(invalid_as_of("can not set different time in the as of"));
        }
        let past = self.past_at(at).await?;
        self.transaction.read_statement_at(Some((past, Origin::Select)));
        Ok(())
    }

    /// The snapshot of the time that stands behind READ ONLY.
    ///
    /// # Errors
    ///
    /// A time that cannot be read at.
    pub(in crate::session) async fn past_of(
        &mut self,
        time: Expr,
        parameters: &[Value],
    ) -> SqlResult<Arc<dyn Snapshot>> {
        let at = self.time_of(time, parameters).await?;
        self.past_at(at).await
    }

    /// Refuses a table whose columns are not those of the time that the statement reads, if it reads a time of the past.
    pub(in crate::session) fn check_columns_then(
        &self,
        catalog: &Catalog,
        table: &Table,
    ) -> SqlResult<()> {
        match self.transaction.past() {
            Some(past) if !catalog.had_columns_at(table.id, past.ts()) => {
                Err(columns_of_another_time(&table.database, &table.name))
            }
            _ => Ok(()),
        }
    }

    /// A time, in Unix microseconds.
    async fn time_of(&mut self, time: Expr, parameters: &[Value]) -> SqlResult<i64> {
        if let Some((earliest, latest)) = bounded_staleness(&time)? {
            let earliest = self.moment(earliest, parameters).await?;
            let latest = self.moment(latest, parameters).await?;
            // The earliest is what every replica can answer at soonest: none is known to be further.
            return match earliest <= latest {
                true => Ok(earliest),
                false => Err(invalid_as_of("as of timestamp cannot be NULL")),
            };
        }
        self.moment(time, parameters).await
    }

    async fn moment(&mut self, time: Expr, parameters: &[Value]) -> SqlResult<i64> {
        if has_query(&time) {
            return Err(unsupported("a subquery in AS OF TIMESTAMP"));
        }
        let value = self.evaluate_plain(time, parameters).await?;
        let us = self.time_of_value(value)?;
        us.ok_or_else(|| invalid_as_of("as of timestamp cannot be NULL"))
    }

    /// The time that a value is to the session, in Unix microseconds; none of NULL.
    pub(in crate::session) fn time_of_value(&self, value: Value) -> SqlResult<Option<i64>> {
        let zone = self.context().zone()?;
        Ok(match value {
            Value::Null => None,
            Value::Timestamp(us) => Some(us),
            Value::DateTime(us) => Some(zone.to_utc(us)),
            Value::Date(days) => Some(zone.to_utc(i64::from(days) * DAY_US)),
            other => {
                let written = text(other);
                let local = temporal::parse_datetime_in(&written, zone);
                Some(zone.to_utc(local.ok_or_else(|| no_datetime(&written))?))
            }
        })
    }

    /// The snapshot of a time in Unix microseconds, held readable from now on.
    async fn past_at(&mut self, at_us: i64) -> SqlResult<Arc<dyn Snapshot>> {
        let ms = u64::try_from(at_us.div_euclid(1_000)).unwrap_or(0);
        if ms >= END_MS {
            return Err(future_read());
        }
        let ts = Timestamp::pack(ms, 0);
        // It counts as in use before anybody looks whether it still can be.
        let past = self.engine.storage.past(ts);
        let now = self.present_from(ts, at_us <= self.now_us).await?;
        let life = self.life_ms().await?;
        if now.physical_ms().saturating_sub(ms).saturating_add(MARGIN_MS) > life {
            let owner = format!("{} as of timestamp", self.identity.user_and_host());
            self.engine.storage.take_lease(Some(ts), BRIDGE, &owner).await?;
        }
        Ok(past)
    }

    /// A timestamp that was given and is not less than `ts`. What this machine's clock calls past is waited for where the
    /// oracle is a little behind.
    async fn present_from(&self, ts: Timestamp, is_past_here: bool) -> SqlResult<Timestamp> {
        let begun = Instant::now();
        loop {
            let now = self.engine.storage.timestamp_from(ts).await?;
            if now >= ts {
                return Ok(now);
            }
            let behind = ts.physical_ms().saturating_sub(now.physical_ms()).saturating_add(1);
            let behind = Duration::from_millis(behind);
            if !is_past_here || behind > MOST_BEHIND || begun.elapsed() > CATCH_UP_LIMIT {
                return Err(future_read());
            }
            sleep(behind).await;
        }
    }

    /// How long versions are kept, in milliseconds.
    async fn life_ms(&self) -> SqlResult<u64> {
        let catalog = self.engine.storage.catalog().await?;
        let set = catalog.globals.get(LIFE_VARIABLE);
        let life = set.and_then(|text| values::duration::duration(text));
        let life = life.and_then(|life| u64::try_from(life.as_millis()).ok());
        Ok(life.unwrap_or(DEFAULT_LIFE_MS))
    }
}

/// Takes the times from behind the tables of a query that is only described.
pub(in crate::session) fn forget_times(query: &mut Query) {
    // What is wrong with them is found when it runs.
    _ = take_times(query, "");
}

/// The arguments of `TIDB_BOUNDED_STALENESS(earliest, latest)`.
fn bounded_staleness(time: &Expr) -> SqlResult<Option<(Expr, Expr)>> {
    let Expr::Function(Function { name, args, .. }) = time else { return Ok(None) };
    if parts(name) != ["tidb_bounded_staleness"] {
        return Ok(None);
    }
    let wrong = || wrong_argument_count_of("tidb_bounded_staleness");
    let FunctionArguments::List(list) = args else { return Err(wrong()) };
    match &list.args[..] {
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(earliest)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(latest)),
        ] => Ok(Some((earliest.clone(), latest.clone()))),
        _ => Err(wrong()),
    }
}

/// The times behind the tables of a query.
#[derive(Default)]
struct Times {
    named: Vec<Expr>,
    /// Whether a table has none.
    missing: bool,
    /// Names of WITH.
    ctes: Vec<String>,
    /// A table of which there is no past.
    pastless: Option<String>,
}

fn take_times(query: &mut Query, database: &str) -> SqlResult<Times> {
    struct Take<'a>(Times, &'a str);
    impl VisitorMut for Take<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            remember_ctes(query, &mut self.0.ctes);
            ControlFlow::Continue(())
        }

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            let TableFactor::Table { name, version, .. } = factor else {
                return ControlFlow::Continue(());
            };
            let is_named_query = is_cte(name, &self.0.ctes);
            match version.take() {
                Some(TableVersion::TimestampAsOf(time)) => {
                    let parts = parts(name);
                    let of = match &parts[..] {
                        [database, _] => database.as_str(),
                        _ => self.1,
                    };
                    if is_named_query || information_schema::is_virtual(of) {
                        self.0.pastless = Some(name.to_string());
                    }
                    self.0.named.push(time);
                }
                None => self.0.missing |= !is_named_query,
                // No clause of ours: binding says so.
                other => *version = other,
            }
            ControlFlow::Continue(())
        }
    }
    let mut take = Take(Times::default(), database);
    _ = walk_mut(query, &mut take);
    match take.0.pastless {
        Some(name) => Err(unsupported(format!("AS OF TIMESTAMP of {name}"))),
        None => Ok(take.0),
    }
}

/// Finds the name of a table.
struct NamesTable;

impl Visitor for NamesTable {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        match parts(name) == ["dual"] {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}
