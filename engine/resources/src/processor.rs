//! How long work has a processor. It must cost next to nothing where it is asked for every poll: a thread's processor time is
//! a system call of up to a microsecond, the machine's clock is not.
//!
//! So work is timed by the machine's clock, and each thread compares with its processor time once in a while: on a machine
//! with more to do than it has processors, work that is timed waits for one as well, and nobody is to pay for that.

use std::cell::Cell;
use std::time::{Duration, Instant};

use env::processor::thread_time;

/// Time by the machine's clock after which a thread looks at its processor time.
const COMPARED_EVERY: Duration = Duration::from_millis(1);

/// What a thread knows of its processor time.
#[derive(Clone, Copy)]
struct Compared {
    /// Its processor time when it looked last.
    processor: Duration,
    /// What was timed since then.
    timed: Duration,
    /// The part of what is timed that it has a processor for: at most all of it.
    part: f64,
}

thread_local! {
    static THREAD: Cell<Compared> =
        const { Cell::new(Compared { processor: Duration::ZERO, timed: Duration::ZERO, part: 1.0 }) };
}

/// Work that began on this thread.
pub(crate) struct Timed(Instant);

impl Timed {
    /// Work begins.
    #[allow(clippy::disallowed_methods)] // it decides nothing but what work costs
    pub(crate) fn begin() -> Self {
        Timed(Instant::now())
    }

    /// How long it had a processor, now that it ends; on the thread where it began.
    pub(crate) fn end(self) -> Duration {
        let passed = self.0.elapsed();
        let mut thread = THREAD.get();
        thread.timed += passed;
        if thread.timed >= COMPARED_EVERY {
            let processor = thread_time();
            let used = processor.saturating_sub(thread.processor);
            let part = used.div_duration_f64(thread.timed).min(1.0);
            thread = Compared { processor, timed: Duration::ZERO, part };
        }
        THREAD.set(thread);
        passed.mul_f64(thread.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that takes a while by the machine's clock, and what of it had a processor.
    fn timed(work: impl FnOnce()) -> (Duration, Duration) {
        let (began, timed) = (Timed::begin(), Timed::begin());
        work();
        let had = timed.end();
        (began.0.elapsed(), had)
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // nothing else waits without a processor
    fn work_that_waits_for_a_processor_is_not_charged_for_it() {
        std::thread::spawn(|| {
            let (passed, had) = timed(|| std::thread::sleep(Duration::from_millis(30)));
            assert!(had < passed / 3, "{had:?} of {passed:?}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn work_that_has_a_processor_is_charged_for_all_of_it() {
        std::thread::spawn(|| {
            let began = thread_time();
            let (passed, had) = timed(|| while thread_time() - began < Duration::from_millis(5) {});
            assert!(had >= Duration::from_millis(4) && had <= passed, "{had:?} of {passed:?}");
        })
        .join()
        .unwrap();
    }
}
