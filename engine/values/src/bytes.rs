//! Bytes that hexadecimal and bit literals spell.
//!
//! It reads digits alone: quotes and the letter before them are the parser's.

use crate::error::{SqlResult, syntax};

/// The bytes that a hexadecimal literal spells.
pub fn bytes_of_hex(hex: &str) -> SqlResult<Vec<u8>> {
    let padded = if hex.len() % 2 == 1 { format!("0{hex}") } else { hex.to_owned() };
    (0..padded.len() / 2)
        .map(|at| padded.get(at * 2..at * 2 + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| syntax(format!("X'{hex}' is not hexadecimal")))
}

/// The bytes that a bit literal spells, the highest first.
pub fn bytes_of_bits(bits: &str) -> SqlResult<Vec<u8>> {
    let wrong = || syntax(format!("b'{bits}' is not binary"));
    let padded = format!("{bits:0>width$}", width = bits.len().div_ceil(8) * 8);
    (0..padded.len() / 8)
        .map(|at| padded.get(at * 8..at * 8 + 8).and_then(|byte| u8::from_str_radix(byte, 2).ok()))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(wrong)
}
