//! Character set introducers: `_latin1'é'`, `_utf16 X'0041'`.
//!
//! An introducer says what the bytes of a literal stand for. They become the text that they stand
//! for, or the literal is refused; they are never read as something else.

use sqlparser::ast::{Expr, Ident, Value, ValueWithSpan};
use values::error::{SqlResult, unsupported, wrong_characters};

use crate::tree;

/// The text of a literal with an introducer.
pub fn introduced(prefix: &Ident, literal: Expr) -> SqlResult<Expr> {
    let charset = prefix.value.trim_start_matches('_').to_lowercase();
    let value = match literal {
        Expr::Value(value) => value,
        other => return Err(unsupported(format!("{prefix} before {other}"))),
    };
    let bytes = match &value.value {
        Value::SingleQuotedString(text)
        | Value::DoubleQuotedString(text)
        | Value::NationalStringLiteral(text) => text.clone().into_bytes(),
        Value::HexStringLiteral(hex) => bytes_of_hex(hex, &charset)?,
        other => return Err(unsupported(format!("{prefix} before {other}"))),
    };
    let invalid = || wrong_characters(&charset, &value.value);
    let text = match charset.as_str() {
        "utf8mb4" | "utf8" | "utf8mb3" => String::from_utf8(bytes).map_err(|_| invalid())?,
        "binary" => {
            let hex = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            // A hexadecimal literal alone would be a number among numbers.
            let literal = tree::value(Value::HexStringLiteral(hex));
            return Ok(tree::call("cast_binary", vec![literal]));
        }
        "ascii" if bytes.is_ascii() => String::from_utf8(bytes).map_err(|_| invalid())?,
        "ascii" => return Err(invalid()),
        // MySQL's latin1 is Windows-1252.
        "latin1" => bytes.into_iter().map(latin1).collect(),
        "ucs2" | "utf16" => utf16(&bytes, u16::from_be_bytes).ok_or_else(invalid)?,
        "utf16le" => utf16(&bytes, u16::from_le_bytes).ok_or_else(invalid)?,
        "utf32" => utf32(&bytes).ok_or_else(invalid)?,
        _ => return Err(unsupported(format!("{prefix} before a literal"))),
    };
    let value = Value::SingleQuotedString(text);
    Ok(Expr::Value(ValueWithSpan { value, span: sqlparser::tokenizer::Span::empty() }))
}

fn bytes_of_hex(hex: &str, charset: &str) -> SqlResult<Vec<u8>> {
    let digits: String = match (hex.len() % 2, charset) {
        (0, _) => hex.to_owned(),
        _ => format!("0{hex}"),
    };
    let pairs = (0..digits.len() / 2).map(|at| digits.get(at * 2..at * 2 + 2));
    pairs
        .map(|pair| pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| values::error::syntax(format!("X'{hex}' is not hexadecimal")))
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    // A unit that is cut short is filled up in front, as in MySQL.
    let padded = padded(bytes, 2);
    let units = padded.chunks_exact(2).map(|pair| match pair {
        [a, b] => unit([*a, *b]),
        _ => 0,
    });
    char::decode_utf16(units).collect::<Result<String, _>>().ok()
}

fn utf32(bytes: &[u8]) -> Option<String> {
    let padded = padded(bytes, 4);
    let chars = padded.chunks_exact(4).map(|four| match four {
        [a, b, c, d] => char::from_u32(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    });
    chars.collect()
}

fn padded(bytes: &[u8], width: usize) -> Vec<u8> {
    let missing = (width - bytes.len() % width) % width;
    let mut all = vec![0; missing];
    all.extend_from_slice(bytes);
    all
}

/// A byte of Windows-1252; the five that it leaves free are the control characters of Latin-1.
fn latin1(byte: u8) -> char {
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž',
        '\u{8f}', '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}',
        'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9f => HIGH.get(usize::from(byte - 0x80)).copied().unwrap_or('?'),
        other => char::from(other),
    }
}
