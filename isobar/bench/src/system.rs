//! The system calls that no safe interface in our dependencies offers, and only these.
#![expect(
    unsafe_code,
    reason = "one call reads an array that outlives it, one writes a value of ours, the others take integers"
)]

use std::io::{Error, Result};
use std::time::Duration;

/// Keeps a thread on the processors whose bits are set; a thread that is gone needs none.
pub fn set_affinity(thread: libc::pid_t, words: &[usize]) -> Result<()> {
    // SAFETY: the kernel reads `size_of_val(words)` bytes of a live array of plain integers, which
    // is laid out as its set of processors is: words of bits, lowest first.
    let outcome = unsafe {
        libc::sched_setaffinity(thread, std::mem::size_of_val(words), words.as_ptr().cast())
    };
    let error = Error::last_os_error();
    if outcome == 0 || error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// Processor time of the calling thread; zero where the kernel does not tell.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a timespec, which is alive and ours.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    match (outcome, u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (0, Ok(seconds), Ok(nanos)) => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    }
}

/// Asks a process to stop; it may have ended meanwhile, which is what we want.
pub fn terminate(pid: u32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: kill takes two integers by value.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Stops the processes of a group where they are, or lets them go on.
pub fn hold(group: u32, held: bool) {
    if let Ok(group) = libc::pid_t::try_from(group) {
        let signal = if held { libc::SIGSTOP } else { libc::SIGCONT };
        // SAFETY: kill takes two integers by value.
        unsafe { libc::kill(-group, signal) };
    }
}

/// Ends a process at once, as a crash would; one that has ended already is as wanted.
pub fn kill(pid: u32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: kill takes two integers by value.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
