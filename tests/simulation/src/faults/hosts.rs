//! Faults of hosts: their processes, disks and clocks.

use std::time::Duration;

use env::{Disk, Operation};
use tokio::time::sleep;

use super::Nemesis;
use crate::network::Host;
use crate::world::Kind;

/// Longest time that a process is down, in milliseconds.
const DOWN_MS: u64 = 5_000;
/// Longest time that one is hung: longer than placement waits for a sign of life.
const HUNG_MS: u64 = 14_000;
/// Longest time that a disk is slow or full.
const SICK_MS: u64 = 6_000;
/// How far a clock is set, in microseconds.
const LEAP_MICROS: u64 = 600_000_000;

impl Nemesis {
    fn any_host(&self, kinds: &[Kind]) -> Option<Host> {
        let kind = self.pick(kinds)?;
        self.pick(&self.world.hosts(kind))
    }

    pub(super) fn meet_host(&self, name: &str) -> bool {
        let stored = [Kind::Rows, Kind::Rows, Kind::Columns];
        let host = match name {
            "kill-rows" | "empty-rows" => self.any_host(&[Kind::Rows]),
            "clock" => Some(self.odd),
            "kill-columns" | "empty-columns" => self.any_host(&[Kind::Columns]),
            "kill-client" => self.any_host(&[Kind::Client]),
            "kill-all" => return self.kill_all(),
            "hang" => self.any_host(&[Kind::Rows, Kind::Rows, Kind::Columns, Kind::Client]),
            _ => self.any_host(&stored),
        };
        let Some(host) = host.filter(|host| self.world.is_up(*host)) else { return false };
        // Two of three disks are more than a cluster survives.
        if name == "empty-rows" && !self.world.can_spare(host) {
            return false;
        }
        match name {
            "kill-rows" | "kill-columns" | "kill-client" => self.kill(host, self.up_to(DOWN_MS)),
            "empty-columns" | "empty-rows" => {
                self.world.kill(host);
                self.world.empty(host);
                self.world.start_later(host, self.up_to(DOWN_MS));
            }
            "hang" => self.hang(host),
            "clock" => self.leap(host),
            _ => self.meet_disk(name, host),
        }
        true
    }

    fn kill(&self, host: Host, down: Duration) {
        self.world.kill(host);
        self.world.start_later(host, down);
    }

    fn kill_all(&self) -> bool {
        for kind in [Kind::Rows, Kind::Columns] {
            for host in self.world.hosts(kind) {
                self.kill(host, self.up_to(1_000));
            }
        }
        true
    }

    fn hang(&self, host: Host) {
        let Some(process) = self.world.process(host) else { return };
        process.pause(true);
        let hung = self.up_to(HUNG_MS);
        tokio::spawn(async move {
            sleep(hung).await;
            process.pause(false);
        });
    }

    /// One host's clock, and no other's: the median of three must stay right, and a node that was started while its clock
    /// was wrong goes by that for a long time.
    fn leap(&self, host: Host) {
        if let Some(machine) = self.world.machine(host) {
            let leap = self.random.below(2 * LEAP_MICROS) as i64 - LEAP_MICROS as i64;
            machine.clock.set_ahead(leap);
        }
    }

    fn meet_disk(&self, name: &str, host: Host) {
        let Some(machine) = self.world.machine(host) else { return };
        let sick = self.up_to(SICK_MS);
        match name {
            "power-at-sync" => machine.disk.crash_at_sync(1 + self.random.below(12)),
            "power-at-write" => machine.disk.crash_at_write(1 + self.random.below(30)),
            "slow-disk" => {
                // Up to an election's time, or well beyond it.
                let most = if self.random.chance(0.3) { 4_000 } else { 400 };
                machine.pace.slow_down(10 + self.random.below(most));
                tokio::spawn(async move {
                    sleep(sick).await;
                    machine.pace.slow_down(0);
                });
            }
            "full-disk" => {
                let free = machine.disk.free_bytes(std::path::Path::new("/"));
                let used = u64::MAX - free.unwrap_or(u64::MAX);
                machine.disk.set_capacity(Some(used.saturating_add(self.random.below(8_192))));
                tokio::spawn(async move {
                    sleep(sick).await;
                    machine.disk.set_capacity(None);
                });
            }
            _ => {
                let write = self.random.chance(0.5);
                let operation = if write { Operation::Write } else { Operation::Sync };
                machine.disk.fail_nth(operation, 1 + self.random.below(20));
                // A log that failed to sync takes nothing more: somebody starts the node again.
                let world = self.world.clone();
                tokio::spawn(async move {
                    sleep(sick).await;
                    world.kill(host);
                    world.start_later(host, Duration::from_millis(200));
                });
            }
        }
    }
}
