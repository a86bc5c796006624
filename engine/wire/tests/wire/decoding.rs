//! Arbitrary bytes through the decoders: random ones, and real packets with damage.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use wire::fuzz_packets;

/// Inputs in all.
const ROUNDS: u64 = 100_000;

fn packet(payload: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = (payload.len() as u32).to_le_bytes();
    [&[a, b, c, 0], payload].concat()
}

/// Packets that real clients send.
fn real_packets() -> Vec<Vec<u8>> {
    let hello =
        b"\x85\xa6\xff\x19\0\0\0\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0root\0\
        \x20abcdefghijklmnopqrstuvwxyz012345shop\0caching_sha2_password\0\
        \x17\x03_os\x05Linux\x04_pid\x0242\x00\x00";
    let commands: [&[u8]; 9] = [
        hello,
        b"\x03SELECT 'a;b', \"c\\\"\" /* ; */; -- x\nSELECT 2",
        b"\x11root\0\x05abcdeshop\0\x2d\0mysql_native_password\0\x04\x01a\x01b",
        b"\x16SELECT ?",
        b"\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x08\x80\x01\0\0\0\0\0\0\0",
        b"\x17\x01\0\0\0\0\x01\0\0\0\x02\0\x01\x01\0\x02\0\x03\0\x04\0\x05\0\x0c\0\x0b\0\xfd\0\xf6\0\
          \x01\x02\0\x03\0\0\0\0\0\x80\x3f\0\0\0\0\0\0\xf0\x3f\x0b\xe8\x07\x01\x02\x03\x04\x05\x06\0\0\0\
          \x0c\0\x01\0\0\0\x02\x03\x04\x05\0\0\0\x03abc\x041.25",
        b"\x18\x01\0\0\0\x01\0data",
        b"\x04types\0%",
        b"\x1b\x01\0",
    ];
    commands.iter().map(|payload| packet(payload)).collect()
}

#[test]
fn no_bytes_make_the_decoders_panic() {
    let mut random = SmallRng::seed_from_u64(0x1507_2026);
    let real = real_packets();
    real.iter().for_each(|bytes| fuzz_packets(bytes));
    for round in 0..ROUNDS {
        let mut bytes = match round % 4 {
            0 => (0..random.random_range(0..200)).map(|_| random.random()).collect(),
            _ => real.choose(&mut random).unwrap().clone(),
        };
        for _ in 0..random.random_range(0..6) {
            damage(&mut bytes, &mut random);
        }
        fuzz_packets(&bytes);
        // Past the header, so that damage meets commands and not only framing.
        fuzz_packets(bytes.get(4..).unwrap_or_default());
    }
}

fn damage(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    if bytes.is_empty() {
        bytes.push(random.random());
        return;
    }
    let at = random.random_range(0..bytes.len());
    match random.random_range(0..5) {
        0 => bytes[at] = random.random(),
        1 => bytes[at] ^= 1 << random.random_range(0..8),
        2 => bytes.truncate(at),
        3 => bytes.insert(at, *[0, 0xfb, 0xfc, 0xfd, 0xfe, 0xff].choose(random).unwrap()),
        _ => {
            let tail = bytes[at..].to_vec();
            bytes.extend(tail);
        }
    }
}
