//! Arbitrary bytes as a path and a JSON document, the one applied to the other. It must never panic or hang, and what
//! was read must be read again as the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| values::json::fuzz_json(data));
