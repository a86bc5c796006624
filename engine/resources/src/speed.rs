//! How fast a processor is for a database: by a small fixed piece of such work.

use std::collections::BTreeMap;
use std::hint::black_box;

use env::processor::thread_time;

/// Keys that are put into a map.
const KEYS: u64 = 20_000;
/// How often that is done: the fastest counts, the others were disturbed.
const TIMES: usize = 5;
/// Nanoseconds that the processor took on which known loads were measured.
const REFERENCE_NANOS: u128 = 6_200_000;

/// The speed of this processor, in thousandths of the one on which known loads were measured. Takes some ten milliseconds of it.
pub fn measure() -> u32 {
    let fastest = (0..TIMES).map(|_| once()).min().unwrap_or(REFERENCE_NANOS);
    u32::try_from(REFERENCE_NANOS * 1_000 / fastest.max(1)).unwrap_or(u32::MAX).clamp(10, 100_000)
}

/// Nanoseconds to put keys into a map, and to look for them there: comparisons, copies and memory that is no cache.
fn once() -> u128 {
    let began = thread_time();
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    let map: BTreeMap<Vec<u8>, u64> = (0..KEYS).map(|number| (key(number), number)).collect();
    let found =
        (0..KEYS).filter(|number| map.contains_key(key(number + KEYS / 2).as_slice())).count();
    black_box(found);
    (thread_time() - began).as_nanos()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_processor_has_a_speed() {
        let speeds = [super::measure(), super::measure()];
        assert!(speeds[0].max(speeds[1]) < 2 * speeds[0].min(speeds[1]), "{speeds:?}");
    }
}
