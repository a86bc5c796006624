//! A MariaDB of its own, to read beside: started in a temporary directory, and gone with the bench.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::target::Target;

/// How long it may take to be installed, to start, and to stop.
const INSTALL: Duration = Duration::from_secs(120);
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(30);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A running server.
pub struct MariaDb {
    /// Where it listens, and a database of it.
    pub target: Target,
    child: Child,
    _folder: TempDir,
}

impl MariaDb {
    /// Starts one on a port of loopback.
    pub async fn start(port: u16) -> Result<Self> {
        let missing = "MariaDB is not installed: apt-get install mariadb-server";
        let server = found("mariadbd").context(missing)?;
        let install = found("mariadb-install-db").context(missing)?;
        let folder = tempfile::Builder::new().prefix("isobar-mariadb-").tempdir();
        let folder = folder.context("cannot make a folder for MariaDB")?;
        let at =
            |name: &str, file: &str| format!("--{name}={}", folder.path().join(file).display());
        let user =
            format!("--user={}", std::env::var("USER").unwrap_or_else(|_| "root".to_owned()));
        let mut installing = Command::new(install);
        installing.args([
            "--no-defaults",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ]);
        // A MariaDB that starts clears its temporary directory of others' tables, so each has its own.
        let folders = [at("datadir", "data"), format!("--tmpdir={}", folder.path().display())];
        installing.args(&folders).arg(&user).stdin(Stdio::null()).kill_on_drop(true);
        let done = tokio::time::timeout(INSTALL, installing.output()).await;
        let done = done.context("MariaDB took too long to make its data directory")??;
        if !done.status.success() {
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            bail!("MariaDB could not make its data directory: {}", text.trim());
        }
        let child = Command::new(server)
            .args([
                "--no-defaults",
                "--bind-address=127.0.0.1",
                "--skip-log-bin",
                "--local-infile=1",
            ])
            .args(["--innodb-buffer-pool-size=4G", "--innodb-log-file-size=1G"])
            .arg(format!("--port={port}"))
            .args(&folders)
            .args([at("socket", "s"), at("pid-file", "pid")])
            .arg(&user)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start MariaDB")?;
        let target = Target::parse(&format!("mysql://root@127.0.0.1:{port}/tpch"))?;
        let mut server = MariaDb { target, child, _folder: folder };
        server.wait().await?;
        Ok(server)
    }

    async fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + START;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("MariaDB ended at once: {status}");
            }
            match self.target.connect_and_create().await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(error.context("MariaDB did not come up"));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Stops it.
    pub async fn stop(mut self) {
        if let Some(pid) = self.child.id() {
            crate::system::terminate(pid);
        }
        if tokio::time::timeout(STOP, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// A program on the path, or where Debian keeps servers.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
