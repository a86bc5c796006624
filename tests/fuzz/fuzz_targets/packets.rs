//! Arbitrary bytes through everything that decodes what a MySQL client sends. It must never panic, hang or allocate
//! more than a packet may hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzz_packets(data));
