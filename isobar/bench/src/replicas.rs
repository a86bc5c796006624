//! Columnar replicas, which only Isobar has: asked for, awaited and found, by SQL.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::target::Target;

/// How long replicas may take to come or to go.
const LIMIT: Duration = Duration::from_secs(600);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Addresses of the columnar nodes' Flight servers.
pub async fn flight_addresses(target: &Target) -> Result<Vec<String>> {
    let mut conn = target.connect_and_create().await?;
    conn.query("SELECT client_address FROM information_schema.cluster_info WHERE type = 'columnar'")
        .await
        .context("the server does not list its columnar nodes; this bench needs an Isobar")
}

/// Attaches or detaches replicas of tables, and waits until that is done.
pub async fn set(target: &Target, tables: &[String], count: u8) -> Result<()> {
    let mut conn = target.connect().await.context("cannot connect")?;
    for table in tables {
        conn.query_drop(format!("ALTER TABLE {table} SET COLUMNAR REPLICA {count}"))
            .await
            .with_context(|| format!("cannot set the columnar replicas of {table} to {count}"))?;
    }
    wait(target, tables, count).await
}

/// Waits until replicas are as asked.
pub async fn wait(target: &Target, tables: &[String], count: u8) -> Result<()> {
    let mut conn = target.connect().await.context("cannot connect")?;
    let end = Instant::now() + LIMIT;
    loop {
        let pending = pending(&mut conn, target.database(), tables, count).await?;
        let Some(pending) = pending else { return Ok(()) };
        if Instant::now() > end {
            bail!("after {} s the replicas of {pending} are not as asked", LIMIT.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A table whose replicas are not yet as asked.
async fn pending(
    conn: &mut Conn,
    database: &str,
    tables: &[String],
    count: u8,
) -> Result<Option<String>> {
    let done: Vec<String> = if count == 0 {
        let regions: Vec<(String, Option<String>)> = conn
            .query(format!(
                "SELECT table_name, learners FROM information_schema.regions WHERE table_schema = '{database}'"
            ))
            .await
            .context("cannot ask for regions")?;
        let busy = |table: &&String| {
            regions.iter().any(|(name, learners)| {
                name == *table && learners.as_ref().is_some_and(|learners| !learners.is_empty())
            })
        };
        tables.iter().filter(|table| !busy(table)).cloned().collect()
    } else {
        conn.query(format!(
            "SELECT table_name FROM information_schema.columnar_replica \
             WHERE table_schema = '{database}' AND available = 1"
        ))
        .await
        .context("cannot ask for columnar replicas")?
    };
    Ok(tables.iter().find(|table| !done.contains(table)).cloned())
}
