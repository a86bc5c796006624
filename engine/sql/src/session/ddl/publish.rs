//! New descriptions of tables. Each is made from the one before it, and replaces that one or none:
//! placement compares their versions.
//!
//! Of two changes that begin with the same description only one takes place, and the other is made
//! anew from what the first has left. A change of the columns has two versions, and between them it
//! is the only one: others wait, and end it where its session is gone. What a change is about is
//! said elsewhere.

use std::time::Duration;

use env::Instant;
use placement::api::CatalogChange;
use sqlparser::ast::ObjectName;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use types::{ColumnId, Error, Index, LeaseId, Table};
use values::error::{SqlError, SqlResult, interrupted, no_table, table_changed};

use crate::session::{ATTEMPTS, Session, impossible};
use definitions::check_replica;

/// How long columns that are being added or dropped are waited for, before the change is taken for
/// given up; or, where rows are written anew for it, a sign of life. Who is given up too early
/// gets an error: it cannot go on.
pub(super) const GIVEN_UP: Duration = Duration::from_secs(30);
/// How long changes of others are waited for in all.
const LONGEST: Duration = Duration::from_secs(600);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(50);

/// A table whose columns somebody is adding to or dropping from, and since when it has been so.
pub(super) struct Half {
    pub table: Table,
    since: Instant,
    /// The newest sign of life of who is at it, as far as looked for.
    sign: Option<LeaseId>,
}

impl Half {
    /// One that is found now.
    pub(in crate::session) fn found(table: Table, now: Instant) -> Self {
        Half { table, since: now, sign: None }
    }
}

/// What became of a description that was to replace the one before it.
enum Replaced {
    /// It does, as placement has it now.
    Done(Table),
    /// Somebody else has changed the table since: this is newer.
    By(Table),
}

impl Session {
    /// Changes a table's description, against the newest one, and publishes it, unless it is as
    /// wanted already.
    pub(in crate::session) async fn alter(
        &self,
        table: Table,
        change: impl Fn(&mut Table),
    ) -> SqlResult<Table> {
        let mut wanted = table.clone();
        change(&mut wanted);
        if wanted == table {
            return Ok(table);
        }
        self.publish(table, |table| {
            change(table);
            Ok(())
        })
        .await
    }

    /// Publishes a new version of a table's description. The change is made anew from whatever
    /// others have published meanwhile.
    pub(super) async fn publish(
        &self,
        mut table: Table,
        change: impl Fn(&mut Table) -> SqlResult<()>,
    ) -> SqlResult<Table> {
        for _ in 0..ATTEMPTS {
            let mut altered = table.clone();
            change(&mut altered)?;
            check_replica(&altered)?;
            self.check_kept(&table, &altered).await?;
            altered.version = table.version + 1;
            match self.replace(altered).await? {
                Replaced::Done(published) => {
                    self.engine.storage.publish_schema(&published).await?;
                    return Ok(self.shut_out(&table, published).await);
                }
                Replaced::By(newer) => table = newer,
            }
        }
        Err(restless(&table))
    }

    /// Publishes a description once more if indexes went with it: regions take rows of the newest two versions, and from
    /// then on no more of one with those indexes. Entries stay until it has happened; where it fails, with the next change.
    async fn shut_out(&self, before: &Table, published: Table) -> Table {
        let has = |id| published.indexes.iter().any(|index| index.id == id);
        if before.indexes.iter().all(|index| has(index.id)) {
            return published;
        }
        let again = Table { version: published.version + 1, ..published.clone() };
        match self.replace(again).await {
            Ok(Replaced::Done(again)) => match self.engine.storage.publish_schema(&again).await {
                Ok(()) => return again,
                Err(error) => {
                    tracing::warn!(%error, "entries of a dropped index stay for now");
                    return again;
                }
            },
            // Whoever came first has published another version.
            Ok(Replaced::By(_)) => {}
            Err(error) => {
                let error = error.message;
                tracing::warn!(error, "entries of a dropped index stay for now");
            }
        }
        published
    }

    /// Replaces the version before, if that is the table's newest still.
    async fn replace(&self, altered: Table) -> SqlResult<Replaced> {
        let storage = &self.engine.storage;
        // Whether an answer was lost: the change may be there.
        let mut unsure = false;
        for attempt in 1.. {
            let change = CatalogChange::AlterTable(Box::new(altered.clone()));
            let error = match storage.change(change).await {
                Ok(Some(table)) => return Ok(Replaced::Done(table)),
                Ok(None) => return Err(impossible("a table without a description")),
                Err(error @ (Error::Invalid(_) | Error::OutcomeUnknown { .. })) => error,
                Err(Error::NotFound { kind, .. }) if kind == "table" => {
                    return Err(no_table(&altered.database, &altered.name));
                }
                Err(error) => return Err(error.into()),
            };
            unsure |= matches!(error, Error::OutcomeUnknown { .. });
            storage.timestamp().await?;
            let catalog = storage.catalog().await?;
            match catalog.table(altered.id) {
                Some(now) if unsure && is_it(now, &altered) => {
                    return Ok(Replaced::Done(now.clone()));
                }
                Some(now) if now.version + 1 != altered.version => {
                    return Ok(Replaced::By(now.clone()));
                }
                Some(_) if matches!(error, Error::OutcomeUnknown { .. }) && attempt < ATTEMPTS => {}
                _ => return Err(error.into()),
            }
        }
        Err(impossible("a change that never ended"))
    }

    /// A table whose columns nobody is adding to or dropping from. Who does is waited for; what
    /// stays as it is for too long is ended here: its session is gone.
    pub(super) async fn at_rest(
        &self,
        name: &ObjectName,
        cancel: &CancellationToken,
    ) -> SqlResult<Table> {
        let began = self.engine.clock.now();
        let mut half: Option<Half> = None;
        loop {
            self.engine.storage.timestamp().await?;
            let table = self.current(name).await?;
            if !table.is_changing() {
                return Ok(table);
            }
            let now = self.engine.clock.now();
            if now.since(began) >= LONGEST {
                return Err(restless(&table));
            }
            match half.as_mut().filter(|half| is_as(&table, &half.table)) {
                Some(half) => self.end_if_given_up(half).await?,
                None => half = Some(Half::found(table, now)),
            }
            cancel.run_until_cancelled(sleep(LOOK)).await.ok_or_else(interrupted)?;
        }
    }

    /// Ends a change of the columns that has been as it is for too long. Who writes rows anew for it
    /// gives signs of life, of which one is as good as a change.
    pub(super) async fn end_if_given_up(&self, half: &mut Half) -> SqlResult<()> {
        let now = self.engine.clock.now();
        if now.since(half.since) < GIVEN_UP {
            return Ok(());
        }
        let sign = self.sign_of_life(half.table.id).await?;
        if sign != half.sign {
            (half.sign, half.since) = (sign, now);
            return Ok(());
        }
        tracing::warn!(
            table = format!("{}.{}", half.table.database, half.table.name),
            "an ALTER TABLE was left half done: what it was adding is taken back, and what it was \
             dropping is dropped"
        );
        // Who makes an index gives the same signs, so those in the making are nobody's any more.
        self.end(&half.table, |index| !index.is_public()).await
    }

    /// Ends a change of the columns that was left half done, unless it is another one's by now: the
    /// columns that were to be added were never shown, and those that were to be dropped are hidden
    /// already, so all of them go; with them their indexes, and others that are said to.
    pub(in crate::session) async fn end(
        &self,
        half: &Table,
        goes: impl Fn(&Index) -> bool,
    ) -> SqlResult<()> {
        for _ in 0..ATTEMPTS {
            self.engine.storage.timestamp().await?;
            let catalog = self.engine.storage.catalog().await?;
            let Some(table) = catalog.table(half.id).filter(|table| is_as(table, half)) else {
                return Ok(());
            };
            let mut ended = table.clone();
            ended.columns.retain(|column| !half.is_passing(column));
            let left: Vec<ColumnId> = ended.columns.iter().map(|column| column.id).collect();
            ended.indexes.retain(|index| index.columns.iter().all(|id| left.contains(id)));
            ended.indexes.retain(|index| !goes(index));
            ended.version += 1;
            if let Replaced::Done(ended) = self.replace(ended).await? {
                self.engine.storage.publish_schema(&ended).await?;
                self.shut_out(table, ended).await;
                return Ok(());
            }
        }
        Err(restless(half))
    }
}

/// Whether a table has the very columns that a change has left it with.
pub(super) fn is_as(table: &Table, half: &Table) -> bool {
    table.id == half.id && table.columns == half.columns
}

/// Whether a description is the one that was sent, but for what placement itself has added.
fn is_it(now: &Table, sent: &Table) -> bool {
    let (database, dropped) = (now.database.clone(), now.dropped.clone());
    let sent = Table { database, dropped, ..sent.clone() };
    let numbered = |table: &Table| {
        let mut table = table.clone();
        table.indexes.iter_mut().for_each(|index| index.id = 0);
        table
    };
    numbered(now) == numbered(&sent)
}

/// Fails while others add or drop columns.
pub(super) fn check_at_rest(table: &Table) -> SqlResult<()> {
    match table.is_changing() {
        true => Err(restless(table)),
        false => Ok(()),
    }
}

/// Error 1412: others change a table again and again.
pub(in crate::session) fn restless(table: &Table) -> SqlError {
    let why = "is being changed by another statement: repeat this one";
    table_changed(&table.database, &table.name, why)
}
