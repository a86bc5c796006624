//! Runaways: statements that take longer, or use more units, than their group's QUERY_LIMIT says, and those that are watched
//! because one like them did; and what happens to them.
//!
//! A guard goes along with its statement, and with the rows of it that are still to be pulled; it acts once. It must
//! never look at statements that only look at the session: only what is paid for can run away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use execution::BatchStream;
use execution::reply::Reply;
use futures::StreamExt;
use resources::{Account, Payer, Scheduled, Units};
use syntax::digest::digest;
use syntax::statement::WatchOrder;
use tokio::time::{Instant, sleep, sleep_until};
use types::query_watch::{QueryWatch, Runaway};
use types::resource_group::{Action, Likeness, QueryLimit};
use types::{Priority, ResourceGroup};
use values::error::{
    SqlError, SqlResult, no_resource_group, runaway_killed, runaway_watched, syntax,
};

use super::Session;
use crate::engine::Engine;

/// Pause between two looks at what a statement has used.
const LOOK: Duration = Duration::from_millis(50);

/// What is known of a statement that may run away.
pub(super) struct Guard {
    engine: Engine,
    connection: u64,
    group: String,
    limit: QueryLimit,
    /// To which it is switched, if that is what happens to it.
    other: Option<(Priority, Arc<Account>)>,
    began: Instant,
    began_ms: u64,
    payer: Arc<Payer>,
    used_before: Units,
    scheduled: Arc<Scheduled>,
    acted: AtomicBool,
}

impl Session {
    /// What watches over a statement of a group with a QUERY_LIMIT, or one that is watched; `other` is where it is switched
    /// to, if it is.
    ///
    /// # Errors
    ///
    /// 8254 for one that is watched and to be ended.
    pub(super) fn guard_of(
        &self,
        group: &ResourceGroup,
        other: impl Fn(&Action) -> Option<(Priority, Arc<Account>)>,
        payer: Arc<Payer>,
        scheduled: Arc<Scheduled>,
    ) -> SqlResult<Option<Guard>> {
        let watched = self.watched(&group.name);
        let limit = match (&watched, &group.query_limit) {
            (Some(watch), _) => {
                let action = watch.action.clone();
                QueryLimit { exec_elapsed: None, ru: None, action, watch: None }
            }
            (None, Some(limit)) => limit.clone(),
            (None, None) => return Ok(None),
        };
        let guard = Guard {
            engine: self.engine.clone(),
            connection: self.identity.connection(),
            group: group.name.clone(),
            other: other(&limit.action),
            limit,
            began: Instant::now(),
            began_ms: u64::try_from(self.now_us / 1_000).unwrap_or(0),
            used_before: payer.used(),
            payer,
            scheduled,
            acted: AtomicBool::new(false),
        };
        if watched.is_some() {
            guard.act(true)?;
        }
        Ok(Some(guard))
    }

    /// The watch that the running statement falls under.
    fn watched(&self, group: &str) -> Option<QueryWatch> {
        let now_ms = u64::try_from(self.now_us / 1_000).unwrap_or(0);
        let all = self.engine.watches()?;
        let mut ours = all.iter().filter(|watch| watch.group == group && !watch.is_over(now_ms));
        let first = ours.next()?;
        let text = self.engine.statement_of(self.identity.connection())?;
        let (text, digest) = (bare(&text), digest(&text));
        let watches = |watch: &&QueryWatch| match watch.by {
            Likeness::Exact => watch.text == text,
            Likeness::Similar | Likeness::Plan => watch.text == digest,
        };
        std::iter::once(first).chain(ours).find(watches).cloned()
    }

    /// QUERY WATCH ADD: what it asks for, and its number once that is known.
    pub(super) async fn add_watch(&self, order: WatchOrder) -> SqlResult<u64> {
        let WatchOrder { group, action, by, text } = order;
        let catalog = self.engine.storage.catalog().await?;
        let named = catalog.resources.named(&group).ok_or_else(|| no_resource_group(&group))?;
        let usual = named.query_limit.as_ref().map(|limit| limit.action.clone());
        let action = action.or(usual).ok_or_else(|| {
            syntax(format!("QUERY WATCH ADD needs an ACTION: resource group {group} has none"))
        })?;
        if let Action::Switch(to) = &action
            && catalog.resources.named(to).is_none()
        {
            return Err(no_resource_group(to));
        }
        let text = if by == Likeness::Exact { bare(&text).to_owned() } else { text };
        let since_ms = self.engine.storage.timestamp().await?.physical_ms();
        let source = "manual".to_owned();
        let mut watch =
            QueryWatch { id: 0, group, by, text, action, since_ms, until_ms: None, source };
        watch.id = self.engine.storage.watch(watch.clone()).await?;
        let id = watch.id;
        self.engine.add_watch(watch);
        Ok(id)
    }
}

/// A statement without what may stand around it.
fn bare(text: &str) -> &str {
    text.trim().trim_end_matches(';').trim_end()
}

impl Guard {
    /// Awaits a statement, or the next of its rows, and acts once it has run away.
    pub(super) async fn over<T>(&self, work: impl Future<Output = SqlResult<T>>) -> SqlResult<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.runs_away() => self.act(false)?,
            }
        }
    }

    /// The same reply, whose rows are watched, too.
    pub(super) fn over_rows(self: Arc<Self>, reply: Reply) -> Reply {
        let Reply::Rows { columns, batches, warnings } = reply else { return reply };
        let watched = futures::stream::unfold((batches, self), |(mut batches, guard)| async move {
            let next = guard.over(async { batches.next().await.transpose() }).await;
            next.transpose().map(|batch| (batch, (batches, guard)))
        });
        let batches: BatchStream = Box::pin(watched);
        Reply::Rows { columns, batches, warnings }
    }

    /// Whether the session is in another group, or has another priority, because of it.
    pub(super) fn has_moved_the_session(&self) -> bool {
        self.acted.load(Ordering::Relaxed)
            && matches!(self.limit.action, Action::Cooldown | Action::Switch(_))
    }

    /// Returns once the statement is a runaway on which nothing was done yet.
    async fn runs_away(&self) {
        if self.acted.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let late = async {
            match self.limit.exec_elapsed {
                Some(most) => sleep_until(self.began + most).await,
                None => std::future::pending().await,
            }
        };
        let dear = async {
            let Some(most) = self.limit.ru.map(Units::whole) else {
                return std::future::pending().await;
            };
            while self.used() <= most {
                sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = late => {}
            () = dear => {}
        }
    }

    fn used(&self) -> Units {
        Units(self.payer.used().0.saturating_sub(self.used_before.0))
    }

    /// Does what is to be done to a runaway.
    fn act(&self, watched: bool) -> SqlResult<()> {
        self.acted.store(true, Ordering::Relaxed);
        tracing::warn!(
            connection = self.connection,
            resource_group = self.group,
            action = %self.limit.action,
            watched,
            seconds = self.began.elapsed().as_secs_f64(),
            units = self.used().as_f64(),
            "a runaway query"
        );
        self.note(watched);
        match (&self.limit.action, &self.other) {
            (Action::Kill, _) => return Err(end(watched)),
            (Action::Cooldown, _) => self.scheduled.set_priority(Priority::Low),
            (Action::Switch(_), Some((priority, account))) => {
                self.payer.switch_to(account.clone());
                self.scheduled.set_priority(*priority);
            }
            (Action::Switch(group), None) => {
                tracing::warn!(group, "there is no group to switch a runaway query to");
            }
            (Action::DryRun, _) => {}
        }
        Ok(())
    }

    /// Has placement know of it, and what is like it watched. Nobody waits for that.
    fn note(&self, watched: bool) {
        let Some(text) = self.engine.statement_of(self.connection) else { return };
        let (at_ms, digest) =
            (self.began_ms + self.began.elapsed().as_millis() as u64, digest(&text));
        let (group, action) = (self.group.clone(), self.limit.action.clone());
        let watch = self.limit.watch.map(|watch| QueryWatch {
            id: 0,
            group: group.clone(),
            by: watch.by,
            text: match watch.by {
                Likeness::Exact => bare(&text).to_owned(),
                Likeness::Similar | Likeness::Plan => digest.clone(),
            },
            action: action.clone(),
            since_ms: at_ms,
            until_ms: watch.lasts.map(|lasts| at_ms + lasts.as_millis() as u64),
            source: self.engine.node.to_string(),
        });
        let text =
            text.get(..text.floor_char_boundary(Runaway::LONGEST)).unwrap_or(&text).to_owned();
        let met = Runaway { at_ms, group, watched, action, text, digest, node: self.engine.node };
        self.engine.note_runaway(met, watch);
    }
}

fn end(watched: bool) -> SqlError {
    if watched { runaway_watched() } else { runaway_killed() }
}
