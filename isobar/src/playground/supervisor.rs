//! Starts a playground's processes, starts the dead ones again, and stops them all.

use std::fs::OpenOptions;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

use super::layout::{Layout, Process};

/// How long a node may take to stop after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a dead node is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

struct Running {
    process: Process,
    child: Child,
}

/// The running processes.
pub struct Supervisor {
    running: Vec<Running>,
}

impl Supervisor {
    /// Starts every process of a layout.
    pub fn start(layout: &Layout) -> Result<Self> {
        let mut running = Vec::new();
        for process in &layout.processes {
            running.push(Running { process: process.clone(), child: spawn(process)? });
        }
        Ok(Supervisor { running })
    }

    /// Resolves to the story of the first process that ends, with the end of its log.
    pub async fn first_failure(&mut self) -> anyhow::Error {
        let (at, status) = self.next_exit().await;
        let process = &self.running[at].process;
        anyhow::anyhow!("{} ended ({status}):\n{}", process.name, log_tail(process))
    }

    /// Starts again whatever dies, once its settings are there: who wants a node to stay down takes them away. Never
    /// resolves.
    pub async fn watch(&mut self) {
        loop {
            let (at, status) = self.next_exit().await;
            tokio::time::sleep(RESTART_PAUSE).await;
            let running = &mut self.running[at];
            match spawn(&running.process) {
                Ok(child) => {
                    println!("{} ended ({status}) and was started again", running.process.name);
                    running.child = child;
                }
                Err(error) => {
                    eprintln!("{} cannot be started again: {error:#}", running.process.name)
                }
            }
        }
    }

    /// Asks every process to stop, SQL first, and kills what does not.
    pub async fn stop(&mut self) {
        for running in self.running.iter_mut().rev() {
            if let Some(pid) = running.child.id() {
                crate::signals::terminate(pid);
            }
        }
        for running in self.running.iter_mut().rev() {
            if tokio::time::timeout(STOP_TIMEOUT, running.child.wait()).await.is_err() {
                eprintln!("{} did not stop in time and is killed", running.process.name);
                let _ = running.child.kill().await;
            }
        }
    }

    async fn next_exit(&mut self) -> (usize, ExitStatus) {
        loop {
            for (at, running) in self.running.iter_mut().enumerate() {
                if let Ok(Some(status)) = running.child.try_wait()
                    && running.process.config_path.exists()
                {
                    return (at, status);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn spawn(process: &Process) -> Result<Child> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&process.log_path)
        .with_context(|| format!("cannot write {}", process.log_path.display()))?;
    let binary = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new(binary);
    command.arg("serve");
    if let Some(cpus) = &process.cpus {
        command.arg("--cpus").arg(cpus.to_string());
    }
    command
        .arg("--config")
        .arg(&process.config_path)
        .arg("--parent")
        .arg(std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share the log file")?)
        .stderr(log)
        // Ctrl-C reaches this process alone, which then stops its children in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", process.name))
}

fn log_tail(process: &Process) -> String {
    let text = std::fs::read_to_string(&process.log_path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
