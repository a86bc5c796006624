//! The two sides of a run: connected, at their snapshots, and which tables of them belong together.

use std::sync::Arc;
use std::time::Duration;

use crate::args::{Args, EngineArg};
use crate::bisect::Side;
use crate::catalog;
use crate::error::{Error, Result};
use crate::expr::{Dialect, Expressed, TableSql, name};
use crate::files::{FileTable, describe};
use crate::input::{Input, ServerTable};
use crate::location::Location;
use crate::rows::CsvForm;
use crate::schema::{Plan, Table};
use crate::server::{Engine, Server, SnapshotMode, text};
use crate::throttle::Throttle;

/// One side.
pub struct Place {
    /// Which.
    pub side: Side,
    /// Where.
    pub location: Location,
    /// The server, unless it is files.
    pub server: Option<Arc<Server>>,
}

/// A table of SOURCE and one of TARGET. `None`: TARGET has none of that name, or SOURCE.
#[derive(Clone, Debug)]
pub struct Pair {
    /// For people.
    pub label: String,
    /// SOURCE's name.
    pub source: Option<String>,
    /// TARGET's.
    pub target: Option<String>,
}

impl Place {
    /// Connects, and fixes the snapshot that it is read at: that of a token from before, that of the
    /// `other` side where both are of one cluster, or now.
    pub async fn open(
        side: Side,
        location: Location,
        args: &Args,
        token: Option<String>,
        other: Option<String>,
    ) -> Result<Place> {
        let Location::Server { opts, label, .. } = &location else {
            return Ok(Place { side, location, server: None });
        };
        let resume = match &args.checkpoint {
            Some(_) => ", with --resume",
            None => "",
        };
        let timeout = Duration::from_secs(args.timeout);
        let threads = usize::from(args.threads);
        let mut server =
            Server::connect((**opts).clone(), label.clone(), threads, timeout, resume).await?;
        let mode = match (server.dialect, args.transaction) {
            (Dialect::Isobar, _) => SnapshotMode::Token(match (token, other) {
                (Some(token), _) => token,
                (None, Some(other)) if takes(&server, &other).await => other,
                _ => take_token(&server, &args.lease).await?,
            }),
            (Dialect::Plain, true) => SnapshotMode::Transaction,
            (Dialect::Plain, false) => SnapshotMode::Each,
        };
        server.read_at(mode);
        Ok(Place { side, location, server: Some(Arc::new(server)) })
    }

    /// Its snapshot token.
    pub fn token(&self) -> Option<String> {
        match self.server.as_ref()?.snapshot_mode() {
            SnapshotMode::Token(token) => Some(token.clone()),
            _ => None,
        }
    }

    /// Whether all of it is read at one snapshot.
    pub fn is_still(&self) -> bool {
        self.server.as_ref().is_none_or(|server| *server.snapshot_mode() != SnapshotMode::Each)
    }

    /// For people: which snapshot it is read at.
    pub fn snapshot_text(&self) -> &'static str {
        match self.server.as_ref().map(|server| server.snapshot_mode()) {
            None => "files as they are",
            Some(SnapshotMode::Token(_)) => "all at one snapshot",
            Some(SnapshotMode::Transaction) => "all in one transaction with a consistent snapshot",
            Some(SnapshotMode::Each) => "each statement at its own snapshot",
        }
    }

    /// Columns and key of one table.
    pub async fn describe(&self, table: &str, args: &Args) -> Result<Table> {
        match (&self.location, &self.server) {
            (Location::Server { database, .. }, Some(server)) => {
                catalog::table(server, database, table, &args.ignore_columns).await
            }
            (Location::Files { label, files, format }, _) => {
                let (label, files, format, csv) =
                    (label.clone(), files.clone(), *format, csv_form(args, files)?);
                describe(&label, &files, format, &csv, &args.ignore_columns)
            }
            _ => Err(Error::Usage("a side is neither a server nor files".into())),
        }
    }

    /// Its way of answering for one table.
    pub async fn input(
        &self,
        table: &str,
        plan: &Arc<Plan>,
        args: &Args,
        throttle: &Arc<Throttle>,
        notes: &mut Vec<String>,
    ) -> Result<Input> {
        let column = |compared: &crate::schema::Compared| match self.side {
            Side::Source => compared.source.clone(),
            Side::Target => compared.target.clone(),
        };
        match (&self.location, &self.server) {
            (Location::Server { database, .. }, Some(server)) => {
                let expressed = plan
                    .columns
                    .iter()
                    .map(|c| Expressed::new(server.dialect, &column(c), c.rule))
                    .collect();
                let sql = TableSql {
                    dialect: server.dialect,
                    table: self.quoted(database, table),
                    columns: expressed,
                    key: plan.key.clone(),
                    condition: args.condition.clone(),
                };
                let engine = self.engine(server, database, table, args, notes).await?;
                for at in &plan.key {
                    let Some(key) = plan.columns.get(*at).map(column) else { continue };
                    self.check_key(server, &sql, &key, notes).await?;
                }
                Ok(Input::Server(ServerTable {
                    server: Arc::clone(server),
                    sql,
                    engine,
                    width: usize::from(args.threads),
                    plan: Arc::clone(plan),
                    throttle: Arc::clone(throttle),
                }))
            }
            (Location::Files { files, format, .. }, _) => Ok(Input::Files(Arc::new(FileTable {
                files: files.clone(),
                format: *format,
                csv: csv_form(args, files)?,
                names: plan.columns.iter().map(|c| column(c).name).collect(),
                plan: Arc::clone(plan),
                throttle: Arc::clone(throttle),
            }))),
            _ => Err(Error::Usage("a side is neither a server nor files".into())),
        }
    }

    /// A table's name for statements of another session.
    pub fn quoted(&self, database: &str, table: &str) -> String {
        format!("{}.{}", name(database), name(table))
    }

    async fn engine(
        &self,
        server: &Server,
        database: &str,
        table: &str,
        args: &Args,
        notes: &mut Vec<String>,
    ) -> Result<Engine> {
        if server.dialect == Dialect::Plain {
            return Ok(Engine::Any);
        }
        if args.engine == EngineArg::Rows {
            return Ok(Engine::Rows);
        }
        if catalog::has_columns(server, database, table).await? {
            return Ok(Engine::Columns);
        }
        notes.push(format!(
            "{} has no columnar replica of it, so its rows are read",
            self.side.name()
        ));
        Ok(Engine::Rows)
    }

    async fn check_key(
        &self,
        server: &Server,
        sql: &TableSql,
        key: &crate::schema::Column,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        if key.nullable {
            let statement =
                format!("SELECT COUNT(*) FROM {} WHERE {} IS NULL", sql.table, name(&key.name));
            let rows = server.query("look for NULL in the key", &statement, Engine::Any).await?;
            let count =
                text(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()));
            if count != "0" {
                return Err(Error::Schema {
                    table: sql.table.clone(),
                    cause: format!(
                        "{count} rows have NULL in the key column {}; name another --key",
                        key.name
                    ),
                });
            }
        }
        let is_text = matches!(key.class, crate::class::Class::Text { .. });
        if is_text && server.dialect == Dialect::Plain && !key.sorts_by_bytes() {
            notes.push(format!(
                "{} orders the key column {} by {}; ranges of it are compared as bytes there, without its index",
                self.side.name(),
                key.name,
                key.collation.as_deref().unwrap_or("its collation")
            ));
        }
        Ok(())
    }
}

/// Whether a token of another server is one of this server's cluster, too.
async fn takes(server: &Server, token: &str) -> bool {
    let sql = format!("SET isobar_snapshot = {}", crate::expr::quoted(token));
    server.query("share the snapshot", &sql, Engine::Any).await.is_ok()
}

/// What a comparison's lease is called in information_schema.snapshot_leases.
const OWNER: &str = "'isobar diff'";

async fn take_token(server: &Server, lease: &str) -> Result<String> {
    let sql = format!("SELECT isobar_snapshot({}, {OWNER})", crate::expr::quoted(lease));
    let rows = server.query("take a snapshot", &sql, Engine::Any).await?;
    Ok(text(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten())))
}

fn csv_form(args: &Args, files: &[std::path::PathBuf]) -> Result<CsvForm> {
    let tabs = files
        .iter()
        .any(|file| file.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("tsv")));
    let delimiter = args.csv_delimiter.unwrap_or(if tabs { '\t' } else { ',' });
    let delimiter = u8::try_from(delimiter)
        .map_err(|_| Error::Usage("--csv-delimiter takes one ASCII character".into()))?;
    Ok(CsvForm { delimiter, null: args.csv_null.clone() })
}

/// Which tables belong together.
pub async fn pairs(source: &Place, target: &Place) -> Result<Vec<Pair>> {
    let named = |place: &Place| match &place.location {
        Location::Server { table, .. } => table.clone(),
        Location::Files { label, .. } => Some(label.clone()),
    };
    let is_files = |place: &Place| matches!(place.location, Location::Files { .. });
    match (named(source), named(target)) {
        (Some(a), None) if is_files(source) => Err(Error::Usage(format!(
            "{a} is one table, and TARGET names a whole database: add /table to its address"
        ))),
        (None, Some(b)) if is_files(target) => Err(Error::Usage(format!(
            "{b} is one table, and SOURCE names a whole database: add /table to its address"
        ))),
        (None, None) => all_pairs(source, target).await,
        (a, b) => {
            let one = a.clone().or(b.clone()).unwrap_or_default();
            let label =
                if is_files(source) { b.clone().unwrap_or(one.clone()) } else { one.clone() };
            Ok(vec![Pair { label, source: a.or(Some(one.clone())), target: b.or(Some(one)) }])
        }
    }
}

async fn all_pairs(source: &Place, target: &Place) -> Result<Vec<Pair>> {
    let names = async |place: &Place| match (&place.location, &place.server) {
        (Location::Server { database, .. }, Some(server)) => {
            catalog::tables(server, database).await
        }
        _ => Ok(Vec::new()),
    };
    let (ours, theirs) = futures::try_join!(names(source), names(target))?;
    if ours.is_empty() && theirs.is_empty() {
        return Err(Error::Usage(format!(
            "{} and {} hold no table that this user may see; check the names and the grants",
            source.location.label(),
            target.location.label()
        )));
    }
    let all: std::collections::BTreeSet<&String> = ours.iter().chain(&theirs).collect();
    let pair = |label: &&String| Pair {
        label: (*label).clone(),
        source: ours.contains(label).then(|| (*label).clone()),
        target: theirs.contains(label).then(|| (*label).clone()),
    };
    Ok(all.iter().map(pair).collect())
}
