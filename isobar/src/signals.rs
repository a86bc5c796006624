//! Ctrl-C and SIGTERM as something to wait for, and processes that end with their parent.
//!
//! The two system calls that no safe interface in our dependencies offers live here, and only here.
#![expect(unsafe_code, reason = "prctl and kill take plain integers and touch no memory")]

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The two signals that ask a process to stop.
pub struct Interrupt {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupt {
    /// Takes over both signals.
    pub fn new() -> Result<Self> {
        Ok(Interrupt {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
        })
    }

    /// Resolves at the next of them, to its name.
    pub async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Has the kernel kill this process when its parent `pid` is gone, however that ends.
pub fn die_with_parent(pid: u32) -> Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number by value.
    let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if done != 0 {
        return Err(std::io::Error::last_os_error())
            .context("cannot tie this process to its parent");
    }
    // The parent may have died before the request took hold.
    if std::os::unix::process::parent_id() != pid {
        bail!("the parent process {pid} is gone");
    }
    Ok(())
}

/// Asks a process to stop; it may have ended meanwhile, which is what we want.
pub fn terminate(pid: u32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: kill takes two integers by value.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}
