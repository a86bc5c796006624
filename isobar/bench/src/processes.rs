//! What processes use: processor time and writes, from /proc.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Clock ticks of /proc in a second; Linux shows 100 to every program, whatever it uses inside.
const TICKS: f64 = 100.0;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Seconds of processor time.
    pub cpu_seconds: f64,
    /// Bytes that it caused to be written to disks.
    pub written_bytes: f64,
    /// Calls of write and its like.
    pub writes: f64,
}

impl Used {
    /// What came since.
    pub fn since(self, before: Used) -> Used {
        Used {
            cpu_seconds: (self.cpu_seconds - before.cpu_seconds).max(0.0),
            written_bytes: (self.written_bytes - before.written_bytes).max(0.0),
            writes: (self.writes - before.writes).max(0.0),
        }
    }

    /// Per second of so many.
    pub fn per(self, seconds: f64) -> Used {
        let per = |what: f64| what / seconds.max(1e-9);
        Used {
            cpu_seconds: per(self.cpu_seconds),
            written_bytes: per(self.written_bytes),
            writes: per(self.writes),
        }
    }

    /// Adds what another process, or a later time, has used.
    pub fn add(&mut self, more: Used) {
        self.cpu_seconds += more.cpu_seconds;
        self.written_bytes += more.written_bytes;
        self.writes += more.writes;
    }

    /// Of a process; children are not counted.
    pub fn of(pid: u32) -> Result<Self> {
        let stat = read(pid, "stat")?;
        // The name is in parentheses and may hold anything, parentheses too.
        let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
        // Not every system lets us read it.
        let io = read(pid, "io").unwrap_or_default();
        let number = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse::<f64>().ok()).unwrap_or(0.0)
        };
        Ok(Used {
            cpu_seconds: (ticks(11) + ticks(12)) / TICKS,
            written_bytes: number("write_bytes:"),
            writes: number("syscw:"),
        })
    }
}

/// Whether a process runs: one that has ended and that nobody has waited for does not.
pub fn runs(pid: u32) -> bool {
    let stat = read(pid, "stat").unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// Processes by name.
pub type Named = BTreeMap<String, u32>;

/// Readings of processes by name; those that are gone are left out.
pub fn read_all(processes: &Named) -> BTreeMap<String, (u32, Used)> {
    let used = processes
        .iter()
        .filter_map(|(name, pid)| Used::of(*pid).ok().map(|used| (name.clone(), (*pid, used))));
    used.collect()
}

/// A process and everything that it started, and these started.
pub fn family(root: u32) -> Vec<u32> {
    let mut parents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = read(pid, "stat") else { continue };
        let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
        if let Some(parent) = rest.split_whitespace().nth(1).and_then(|p| p.parse().ok()) {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        found.extend(parents.remove(&pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// The nodes that a playground started, by the name of their folder.
pub fn nodes(playground: u32) -> Named {
    let children = family(playground).into_iter().skip(1);
    let named = children.filter_map(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let parts: Vec<String> = line
            .split(|byte| *byte == 0)
            .map(|p| String::from_utf8_lossy(p).into_owned())
            .collect();
        let at = parts.iter().position(|part| part == "--config")?;
        let folder = std::path::Path::new(parts.get(at + 1)?).parent()?;
        Some((folder.file_name()?.to_string_lossy().into_owned(), pid))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_seen_to_use_its_processor() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let started = std::time::Instant::now();
        let before = Used::of(child.id()).unwrap();
        let mut after = before;
        while after.cpu_seconds < before.cpu_seconds + 0.2 && started.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            after = Used::of(child.id()).unwrap();
        }
        assert!(family(std::process::id()).contains(&child.id()));
        assert!(runs(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!runs(child.id()));
        let rate = after.since(before).per(started.elapsed().as_secs_f64());
        assert!(rate.cpu_seconds > 0.0 && rate.cpu_seconds <= 1.1, "{rate:?}");
        assert!(Used::of(child.id()).is_err(), "it is gone");
    }
}
