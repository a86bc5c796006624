//! One entry for fuzzers: arbitrary bytes through everything that decodes what a client sends.
//!
//! No sockets, no engine. Reaching the end without a panic is all that is asked.

use bytes::BytesMut;
use mysql_common::constants::CapabilityFlags;

use crate::command::Command;
use crate::handshake::First;
use crate::packet::PacketDecoder;
use crate::params;
use crate::statements;

/// Most bytes of a payload under fuzzing: small, so that the limit itself is met often.
const LIMIT: usize = 64 * 1024;

/// Decodes bytes as a client's stream, in two ways of arriving, and every payload as a hello, a
/// command and parameters.
pub fn fuzz_packets(data: &[u8]) {
    for step in [data.len().max(1), 3] {
        let mut decoder = PacketDecoder::new(LIMIT);
        let mut input = BytesMut::new();
        for piece in data.chunks(step) {
            input.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut input) {
                    Ok(Some(payload)) => fuzz_payload(&payload),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
    }
    fuzz_payload(data);
}

fn fuzz_payload(payload: &[u8]) {
    let _ = First::decode(payload);
    for capabilities in [CapabilityFlags::empty(), CapabilityFlags::all()] {
        let Ok(command) = Command::decode(payload, capabilities) else { continue };
        match command {
            Command::Query(text) => {
                statements::split(text, true);
                statements::split(text, false);
            }
            Command::Execute(execute) => {
                for count in [0, 1, 9] {
                    let mut bound = Vec::new();
                    let _ = params::decode(execute.params, count, &mut bound, |_| None);
                }
            }
            _ => {}
        }
    }
}
