//! A MySQL-protocol server to measure: its address, and connections with bounded waits.
//!
//! It must stay true of any such server; what only Isobar has is asked for in `isolation`.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, WhiteListFsHandler};

/// How long connecting may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server and a database of it.
#[derive(Clone, Debug)]
pub struct Target {
    opts: Opts,
    database: String,
    /// Address without user and password, for messages and reports.
    pub shown: String,
}

impl Target {
    /// From `mysql://user:password@host:port/database`.
    pub fn parse(url: &str) -> Result<Self> {
        // The text may hold a password: messages do not repeat it.
        let opts = Opts::from_url(url)
            .context("the target is not of the form mysql://user:password@host:port/database")?;
        let Some(database) = opts.db_name().map(str::to_owned) else {
            bail!("the target names no database: write mysql://user@host:port/database");
        };
        if !database.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            bail!(
                "the database's name {database:?} has characters other than letters, digits and _"
            );
        }
        let shown = format!("{}:{}/{database}", opts.ip_or_hostname(), opts.tcp_port());
        let opts = OptsBuilder::from_opts(opts)
            // A socket would be quicker than what clients of other machines see.
            .prefer_socket(false)
            .tcp_nodelay(true)
            .stmt_cache_size(4096);
        Ok(Target { opts: opts.into(), database, shown })
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The same server, another database.
    #[must_use]
    pub fn with_database(&self, database: &str) -> Self {
        let opts = OptsBuilder::from_opts(self.opts.clone()).db_name(Some(database)).into();
        let shown = format!("{}/{database}", self.address());
        Target { opts, database: database.to_owned(), shown }
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.opts.ip_or_hostname(), self.opts.tcp_port())
    }

    /// The user.
    pub fn user(&self) -> &str {
        self.opts.user().unwrap_or("root")
    }

    /// The password; for programs that are started, never for messages.
    pub fn password(&self) -> &str {
        self.opts.pass().unwrap_or_default()
    }

    /// Whether the server is on this machine.
    pub fn is_local(&self) -> bool {
        self.opts.addr_is_loopback()
            || matches!(self.opts.ip_or_hostname(), "127.0.0.1" | "localhost")
    }

    /// A connection with the database selected.
    pub async fn connect(&self) -> Result<Conn, mysql_async::Error> {
        bounded(Conn::new(self.opts.clone())).await
    }

    /// A connection that gives the server one file, and no other, when LOAD DATA asks for it.
    pub async fn connect_to_load(
        &self,
        file: &std::path::Path,
    ) -> Result<Conn, mysql_async::Error> {
        let handler = WhiteListFsHandler::new([file]);
        let opts = OptsBuilder::from_opts(self.opts.clone()).local_infile_handler(Some(handler));
        bounded(Conn::new(opts)).await
    }

    /// A connection with the database made if it is missing.
    pub async fn connect_and_create(&self) -> Result<Conn> {
        let bare = OptsBuilder::from_opts(self.opts.clone()).db_name(None::<String>);
        let mut conn = bounded(Conn::new(bare))
            .await
            .with_context(|| format!("cannot connect to {}", self.shown))?;
        conn.query_drop(format!("CREATE DATABASE IF NOT EXISTS {}", self.database))
            .await
            .with_context(|| format!("cannot make database {}", self.database))?;
        conn.query_drop(format!("USE {}", self.database))
            .await
            .with_context(|| format!("cannot use database {}", self.database))?;
        Ok(conn)
    }

    /// What the server calls itself.
    pub async fn version(&self) -> Result<String> {
        let mut conn = self
            .connect_and_create()
            .await
            .with_context(|| format!("cannot ask {} for its version", self.shown))?;
        let version: Option<String> =
            conn.query_first("SELECT VERSION()").await.context("SELECT VERSION() failed")?;
        Ok(version.unwrap_or_default())
    }
}

async fn bounded(
    connecting: impl Future<Output = Result<Conn, mysql_async::Error>>,
) -> Result<Conn, mysql_async::Error> {
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(outcome) => outcome,
        Err(_) => Err(mysql_async::Error::Io(mysql_async::IoError::Io(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "the server did not answer in 10 s",
        )))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_needs_a_database_and_shows_no_password() {
        let target = Target::parse("mysql://me:secret@10.0.0.1:4000/shop").unwrap();
        assert_eq!((target.database(), target.shown.as_str()), ("shop", "10.0.0.1:4000/shop"));
        assert!(
            !target.is_local() && Target::parse("mysql://root@127.0.0.1:1/b").unwrap().is_local()
        );
        for wrong in [
            "mysql://root:secret@127.0.0.1:4000",
            "127.0.0.1:4000/secret",
            "mysql://r@h:1/a;secret",
        ] {
            let text = format!("{:#}", Target::parse(wrong).unwrap_err());
            assert!(text.contains("mysql://") || text.contains("letters"), "{text}");
            assert!(!text.contains(":secret@"), "{text}");
        }
    }
}
