//! Processor time: of the machine, of this process, and of the calling thread. It decides nothing that is replayed, only what
//! work costs.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// Processor time of this process since it began, all threads together.
pub fn process_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread since it began. A system call, of up to a microsecond.
pub fn thread_time() -> Duration {
    time(ClockId::ThreadCPUTime)
}

/// The unit of time of `/proc/stat`, in microseconds: the kernel's USER_HZ is 100 wherever it shows that to programs.
const TICK_MICROS: u64 = 10_000;

/// Processors of the machine that are online, and the microseconds for which they were not idle since it began, all together;
/// none where the kernel is not Linux. What a hypervisor gave to others counts: nobody here had it.
pub fn machine() -> Option<(u32, u64)> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn parse(stat: &str) -> Option<(u32, u64)> {
    let lines = stat.lines().filter(|line| line.starts_with("cpu"));
    let count = u32::try_from(lines.count().checked_sub(1)?).ok()?;
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = all.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
    // User, nice, system, idle, waiting for a disk, interrupts, soft ones, stolen; guests are in the first two.
    let [user, nice, system, _, _, hard, soft, stolen] = *ticks.first_chunk()?;
    let busy = [user, nice, system, hard, soft, stolen].into_iter().fold(0, u64::saturating_add);
    (count > 0).then(|| (count, busy.saturating_mul(TICK_MICROS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_time_is_all_but_what_it_idles() {
        let stat = "cpu  10 20 30 1000 500 1 2 3 4 5\ncpu0 1 2 3\ncpu1 1 2 3\nintr 7\n";
        assert_eq!(parse(stat), Some((2, 660_000)));
        for odd in ["", "cpu", "cpu  1 2 3\ncpu0 1", "cpu a b c d e f g h\ncpu0", "intr 1"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
