//! Bytes in other clothes: SHA1, SHA2, FROM_BASE64, CHAR, EXPORT_SET, WEIGHT_STRING and UUIDs; and COERCIBILITY.
//!
//! Nothing here may look at bytes as characters unless it says so.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, StringArray};
use arrow::datatypes::DataType;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore;
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use values::error::{SqlResult, incorrect_for_function};

use super::convert::{to_bits, to_bytes, to_i64, to_strings};
use super::kinds::{is_binary, is_string};
use super::{Function, binary, text, truth, whole};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_sha1", 1..=1, text, |a, _| {
        let sums = to_bytes(&a[0])?;
        let sums = sums.iter().map(|bytes| Some(hexadecimal(&Sha1::digest(bytes?))));
        Ok(Arc::new(sums.collect::<StringArray>()))
    }),
    Function::new("mysql_sha2", 2..=2, text, sha2),
    Function::new("mysql_to_base64", 1..=1, text, to_base64),
    Function::new("mysql_from_base64", 1..=1, binary, from_base64),
    Function::new("mysql_char", 1..=999, binary, |a, _| Ok(Arc::new(char_bytes(a)?))),
    Function::new("mysql_char_text", 1..=1, text, char_text),
    Function::new("mysql_export_set", 3..=5, text, export_set),
    Function {
        volatile: true,
        ..Function::new("mysql_uuid", 0..=0, text, |a, _| {
            let mut random = rand::rng();
            let mut bytes = [0; 16];
            let uuids = (0..a[0].len()).map(|_| {
                random.fill_bytes(&mut bytes);
                bytes[6] = bytes[6] & 0x0F | 0x40;
                bytes[8] = bytes[8] & 0x3F | 0x80;
                Some(uuid_text(&bytes))
            });
            Ok(Arc::new(uuids.collect::<StringArray>()))
        })
    },
    Function::new("mysql_is_uuid", 1..=1, truth, |a, _| {
        let texts = to_strings(&a[0])?;
        let known = texts.iter().map(|text| Some(uuid_bytes(text?).is_some()));
        Ok(Arc::new(known.collect::<BooleanArray>()))
    }),
    Function::new("mysql_uuid_to_bin", 1..=2, binary, uuid_to_bin),
    Function::new("mysql_bin_to_uuid", 1..=2, text, bin_to_uuid),
    Function::new("mysql_weight_string", 1..=1, binary, weight_string),
    Function::new("mysql_coercibility", 2..=2, whole, coercibility),
];

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// WEIGHT_STRING: what texts compare by, which under utf8mb4_bin are their characters' numbers, in
/// three bytes each. Bytes compare by themselves; what is no text has no weights.
fn weight_string(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let from = args[0].data_type();
    if is_binary(from) {
        return Ok(Arc::new(to_bytes(&args[0])?));
    }
    if !is_string(from) {
        return Ok(Arc::new(BinaryArray::new_null(args[0].len())));
    }
    let weight = |character: char| {
        let [_, weight @ ..] = u32::from(character).to_be_bytes();
        weight
    };
    let texts = to_strings(&args[0])?;
    let weights =
        texts.iter().map(|text| Some(text?.chars().flat_map(weight).collect::<Vec<u8>>()));
    Ok(Arc::new(weights.collect::<BinaryArray>()))
}

/// COERCIBILITY of a value: that of NULL, of numbers and times, and of texts, which comes second.
fn coercibility(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let ty = args[0].data_type();
    let all = |n: i64| Ok(Arc::new(Int64Array::from(vec![n; args[0].len()])) as ArrayRef);
    match ty {
        DataType::Null => all(6),
        ty if is_string(ty) || is_binary(ty) => Ok(Arc::new(to_i64(&args[1])?)),
        _ => all(5),
    }
}

/// SHA2(text, bits); NULL for bits that no such sum has.
fn sha2(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, bits) = (to_bytes(&args[0])?, to_i64(&args[1])?);
    let sums = texts.iter().zip(bits.iter()).map(|(bytes, bits)| {
        let bytes = bytes?;
        Some(match bits? {
            224 => hexadecimal(&Sha224::digest(bytes)),
            0 | 256 => hexadecimal(&Sha256::digest(bytes)),
            384 => hexadecimal(&Sha384::digest(bytes)),
            512 => hexadecimal(&Sha512::digest(bytes)),
            _ => return None,
        })
    });
    Ok(Arc::new(sums.collect::<StringArray>()))
}

/// Lines of 76 signs, as MySQL breaks them.
fn to_base64(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let lines = |bytes: &[u8]| {
        // 57 bytes are 76 signs.
        bytes.chunks(57).map(|line| STANDARD.encode(line)).collect::<Vec<_>>().join("\n")
    };
    let texts = to_bytes(&args[0])?;
    Ok(Arc::new(texts.iter().map(|bytes| bytes.map(lines)).collect::<StringArray>()))
}

/// White space between the signs does not count; NULL where the rest is no base 64.
fn from_base64(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let texts = to_bytes(&args[0])?;
    let bytes = texts.iter().map(|signs| {
        let signs: Vec<u8> = signs?.iter().copied().filter(|c| !c.is_ascii_whitespace()).collect();
        STANDARD.decode(signs).ok()
    });
    Ok(Arc::new(bytes.collect::<BinaryArray>()))
}

/// CHAR(n, …): each number's bytes, the highest first; NULL counts as nothing.
fn char_bytes(args: &[ArrayRef]) -> SqlResult<BinaryArray> {
    let numbers = args.iter().map(to_i64).collect::<SqlResult<Vec<_>>>()?;
    let rows = (0..args[0].len()).map(|row| {
        let mut bytes = Vec::with_capacity(numbers.len());
        for column in numbers.iter().filter(|column| column.is_valid(row)) {
            let four = (column.value(row) as u32).to_be_bytes();
            let first = four.iter().position(|byte| *byte != 0).unwrap_or(3);
            bytes.extend(four.iter().skip(first));
        }
        Some(bytes)
    });
    Ok(rows.collect())
}

/// CHAR(… USING utf8mb4): NULL where the bytes are no UTF-8.
fn char_text(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let bytes = to_bytes(&args[0])?;
    let texts = bytes.iter().map(|bytes| std::str::from_utf8(bytes?).ok());
    Ok(Arc::new(texts.collect::<StringArray>()))
}

/// EXPORT_SET(bits, on, off[, separator[, count]]): a word for each bit, the lowest first.
fn export_set(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let bits = to_bits(&args[0])?;
    let (on, off) = (to_strings(&args[1])?, to_strings(&args[2])?);
    let separators = args.get(3).map(to_strings).transpose()?;
    let counts = args.get(4).map(to_i64).transpose()?;
    let rows =
        bits.iter().zip(on.iter().zip(off.iter())).enumerate().map(|(row, (bits, words))| {
            let (bits, on, off) = (bits?, words.0?, words.1?);
            let separator = match &separators {
                Some(separators) => separators.is_valid(row).then(|| separators.value(row))?,
                None => ",",
            };
            let count = match &counts {
                Some(counts) => counts.is_valid(row).then(|| counts.value(row))?,
                None => 64,
            };
            let count = if (0..=64).contains(&count) { count } else { 64 };
            let words = (0..count).map(|bit| if bits >> bit & 1 == 1 { on } else { off });
            Some(words.collect::<Vec<_>>().join(separator))
        });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = hexadecimal(bytes);
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}

/// The 16 bytes of a UUID with hyphens, without, or in braces.
fn uuid_bytes(text: &str) -> Option<Vec<u8>> {
    let braced = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let text = braced.unwrap_or(text);
    let hyphens = [8, 13, 18, 23];
    let digits: String = match text.len() {
        36 if hyphens.iter().all(|at| text.as_bytes().get(*at) == Some(&b'-')) => {
            text.chars().filter(|c| *c != '-').collect()
        }
        32 if braced.is_none() => text.to_owned(),
        _ => return None,
    };
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    values::bytes::bytes_of_hex(&digits).ok()
}

/// The times' halves changed about, so that UUIDs of one time stand side by side: `times` is
/// where the eight bytes are taken from.
fn reordered(bytes: &[u8], times: [usize; 8]) -> Vec<u8> {
    let front = times.iter().filter_map(|at| bytes.get(*at));
    front.chain(bytes.iter().skip(8)).copied().collect()
}

/// Whether each row's second argument asks for the times to be changed about.
fn swaps(args: &[ArrayRef]) -> SqlResult<Vec<bool>> {
    Ok(match args.get(1) {
        Some(swap) => to_i64(swap)?.iter().map(|n| n.is_some_and(|n| n != 0)).collect(),
        None => vec![false; args[0].len()],
    })
}

fn uuid_to_bin(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let texts = to_strings(&args[0])?;
    let rows = texts.iter().zip(swaps(args)?).map(|(text, swap)| {
        let Some(text) = text else { return Ok(None) };
        match uuid_bytes(text) {
            Some(bytes) if swap => Ok(Some(reordered(&bytes, [6, 7, 4, 5, 0, 1, 2, 3]))),
            Some(bytes) => Ok(Some(bytes)),
            None => Err(incorrect_for_function("string", text, "uuid_to_bin")),
        }
    });
    Ok(Arc::new(rows.collect::<SqlResult<BinaryArray>>()?))
}

fn bin_to_uuid(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let uuids = to_bytes(&args[0])?;
    let rows = uuids.iter().zip(swaps(args)?).map(|(bytes, swap)| {
        let Some(bytes) = bytes else { return Ok(None) };
        if bytes.len() != 16 {
            return Err(incorrect_for_function(
                "string",
                String::from_utf8_lossy(bytes),
                "bin_to_uuid",
            ));
        }
        let back = reordered(bytes, [4, 5, 6, 7, 2, 3, 0, 1]);
        Ok(Some(uuid_text(if swap { &back } else { bytes })))
    });
    Ok(Arc::new(rows.collect::<SqlResult<StringArray>>()?))
}
