//! Arbitrary bytes as a Flight ticket or the handle of a prepared statement, signed and behind the
//! signature. It must never panic, hang or allocate without bound.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mpp::ticket::fuzz_ticket(data);
    mpp::prepared::fuzz_prepared(data);
});
