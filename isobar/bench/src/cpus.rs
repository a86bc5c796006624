//! Sets of processors, and processes that run on them only.
//!
//! It pins and never unpins: a process keeps its set for life.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// A set of processors, written as 0-1,3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(BTreeSet<usize>);

/// The highest processor that a set can name.
const MOST: usize = 1023;
/// How often a process's threads are looked through before it counts as too quick for us.
const LOOKS: usize = 20;

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no list of processors: write 0-1,3");
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last > MOST {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&list.join(","))
    }
}

impl Cpus {
    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What they have in common.
    pub fn shared(&self, other: &Cpus) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    /// Those that this process may use.
    pub fn allowed() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// Those that a process may use.
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap_or_default().parse().map_err(anyhow::Error::msg)
    }

    /// One half for online work, one for batch; nothing on a machine with one processor.
    pub fn halves(&self) -> Option<(Self, Self)> {
        let all: Vec<usize> = self.0.iter().copied().collect();
        if all.len() < 2 {
            return None;
        }
        let (online, batch) = all.split_at(all.len().div_ceil(2));
        Some((Cpus(online.iter().copied().collect()), Cpus(batch.iter().copied().collect())))
    }

    /// The first so many of them; nothing if there are fewer.
    pub fn first(&self, count: usize) -> Option<Self> {
        (self.count() >= count).then(|| Cpus(self.0.iter().copied().take(count).collect()))
    }

    /// Keeps every thread of a process on these.
    pub fn pin(&self, pid: u32) -> Result<()> {
        let path = format!("/proc/{pid}/task");
        let mut done = BTreeSet::new();
        // A thread that starts meanwhile takes after the one that started it.
        for _ in 0..LOOKS {
            let before = done.len();
            let entries =
                std::fs::read_dir(&path).with_context(|| format!("process {pid} is gone"))?;
            for entry in entries.flatten() {
                let task = entry.file_name().to_string_lossy().parse::<libc::pid_t>();
                if let Ok(task) = task
                    && done.insert(task)
                {
                    self.pin_thread(task)?;
                }
            }
            if done.len() == before {
                return Ok(());
            }
        }
        bail!("process {pid} starts threads faster than they can be pinned")
    }

    fn pin_thread(&self, task: libc::pid_t) -> Result<()> {
        const WORD: usize = usize::BITS as usize;
        let mut words = [0_usize; (MOST + 1) / WORD];
        for cpu in &self.0 {
            if let Some(word) = words.get_mut(cpu / WORD) {
                *word |= 1 << (cpu % WORD);
            }
        }
        crate::system::set_affinity(task, &words).with_context(|| {
            format!("cannot run on processors {self}; this machine may not have them all")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_or_refused() {
        assert_eq!("0-2,5".parse::<Cpus>().unwrap().to_string(), "0,1,2,5");
        for wrong in ["", "a", "2-1", "1,", "-1", "4096", "0-99999999999"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_are_as_many_as_asked_or_none() {
        let all: Cpus = "1,4-6".parse().unwrap();
        assert_eq!(all.first(2).unwrap().to_string(), "1,4");
        assert_eq!(all.first(5), None);
    }

    #[test]
    fn halves_share_nothing_and_leave_nothing_out() {
        let all: Cpus = "0-2".parse().unwrap();
        let (online, batch) = all.halves().unwrap();
        assert_eq!((online.to_string(), batch.to_string()), ("0,1".into(), "2".into()));
        assert!(!online.shared(&batch) && "4".parse::<Cpus>().unwrap().halves().is_none());
    }

    #[test]
    fn every_thread_of_a_process_is_pinned() {
        let one = Cpus([*Cpus::allowed().unwrap().0.first().unwrap()].into());
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        one.pin(child.id()).unwrap();
        let found = Cpus::of(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, one);
    }
}
