//! Priority of threads.

/// Of a thread that gives way: beside one that does not it gets about a quarter of a processor. Less would do, but for locks
/// that it holds and others wait for.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Lets the calling thread, and those that it starts, give way to others on a busy processor. For work that nobody waits for:
/// a merge of tables that keeps a processor for a second is a second in every online transaction. Does nothing where threads
/// have no priority of their own.
pub fn give_way() {
    // Linux takes the calling thread where others take the process. To be nicer is allowed to everybody.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICE);
}
