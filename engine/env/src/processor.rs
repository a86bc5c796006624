//! Processor time: of this process, and of the calling thread. It decides nothing that is replayed, only what work costs.

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
