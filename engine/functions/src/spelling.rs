//! Less usual functions of text and of the digits of numbers: BIN, OCT, ORD, INSERT, SOUNDEX,
//! MAKE_SET, BIT_COUNT, and the cut that group_concat_max_len makes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, StringArray};
use arrow::datatypes::DataType;
use values::error::SqlResult;

use super::convert::{to_bits, to_i64, to_strings};
use super::math::converted;
use super::{Function, text, whole};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_bin", 1..=1, text, |a, _| in_base(a, 2)),
    Function::new("mysql_oct", 1..=1, text, |a, _| in_base(a, 8)),
    Function::new("mysql_bit_count", 1..=1, whole, bit_count),
    Function::new("mysql_ord", 1..=1, whole, ord),
    Function::new("mysql_insert", 4..=4, text, insert),
    Function::new("mysql_soundex", 1..=1, text, |a, _| map(a, soundex)),
    Function::new("mysql_make_set", 2..=999, text, make_set),
    Function::new("isobar_cut", 2..=2, text, cut),
];

fn map(args: &[ArrayRef], f: impl Fn(&str) -> String) -> SqlResult<ArrayRef> {
    Ok(Arc::new(to_strings(&args[0])?.iter().map(|s| s.map(&f)).collect::<StringArray>()))
}

fn in_base(args: &[ArrayRef], base: i64) -> SqlResult<ArrayRef> {
    let numbers = to_strings(&args[0])?;
    let texts = numbers.iter().map(|number| converted(number?, 10, base));
    Ok(Arc::new(texts.collect::<StringArray>()))
}

fn bit_count(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let numbers = to_bits(&args[0])?;
    let counts = numbers.iter().map(|n| n.map(|n| i64::from(n.count_ones())));
    Ok(Arc::new(counts.collect::<Int64Array>()))
}

/// The bytes of the first character as one number.
fn ord(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let ord = |text: &str| {
        let mut buffer = [0; 4];
        let first = text.chars().next()?.encode_utf8(&mut buffer);
        Some(first.bytes().fold(0, |number, byte| number * 256 + i64::from(byte)))
    };
    let numbers = to_strings(&args[0])?;
    Ok(Arc::new(numbers.iter().map(|s| s.map(|s| ord(s).unwrap_or(0))).collect::<Int64Array>()))
}

/// INSERT(text, position, length, new).
fn insert(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, news) = (to_strings(&args[0])?, to_strings(&args[3])?);
    let (positions, lengths) = (to_i64(&args[1])?, to_i64(&args[2])?);
    let rows = texts.iter().zip(news.iter()).zip(positions.iter().zip(lengths.iter()));
    let inserted = rows.map(|((text, new), (position, length))| {
        let (text, new, position, length) = (text?, new?, position?, length?);
        let chars: Vec<char> = text.chars().collect();
        let Some(from) = usize::try_from(position).ok().and_then(|p| p.checked_sub(1)) else {
            return Some(text.to_owned());
        };
        if from >= chars.len() {
            return Some(text.to_owned());
        }
        let rest = chars.len() - from;
        let length = usize::try_from(length).map_or(rest, |length| length.min(rest));
        let head = chars.iter().take(from);
        let tail = chars.iter().skip(from + length);
        Some(head.copied().chain(new.chars()).chain(tail.copied()).collect::<String>())
    });
    Ok(Arc::new(inserted.collect::<StringArray>()))
}

/// The letters' classes after the first letter; vowels and what is no letter separate nothing.
fn soundex(text: &str) -> String {
    let class = |c: char| match c.to_ascii_uppercase() {
        'B' | 'F' | 'P' | 'V' => Some('1'),
        'C' | 'G' | 'J' | 'K' | 'Q' | 'S' | 'X' | 'Z' => Some('2'),
        'D' | 'T' => Some('3'),
        'L' => Some('4'),
        'M' | 'N' => Some('5'),
        'R' => Some('6'),
        _ => None,
    };
    // Beyond ASCII all from U+00C0 on are letters, and keep their case.
    let mut letters = text.chars().filter(|c| c.is_ascii_alphabetic() || *c >= '\u{C0}');
    let Some(first) = letters.next() else { return String::new() };
    let mut out = String::from(first.to_ascii_uppercase());
    let mut last = class(first);
    for letter in letters {
        let this = class(letter);
        if let Some(digit) = this {
            if last != this {
                out.push(digit);
            }
            last = this;
        }
    }
    while out.chars().count() < 4 {
        out.push('0');
    }
    out
}

/// MAKE_SET(bits, a, b, …): the texts whose bits are set.
fn make_set(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let wanted = to_bits(&args[0])?;
    let texts = args.iter().skip(1).map(to_strings).collect::<SqlResult<Vec<_>>>()?;
    let rows = wanted.iter().enumerate().map(|(row, wanted)| {
        let wanted = wanted?;
        let texts = texts.iter().take(64).enumerate();
        let chosen = texts.filter(|(bit, texts)| wanted >> bit & 1 == 1 && texts.is_valid(row));
        Some(chosen.map(|(_, texts)| texts.value(row)).collect::<Vec<_>>().join(","))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// The text within so many bytes, whole characters only.
fn cut(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, most) = (to_strings(&args[0])?, to_i64(&args[1])?);
    let rows = texts.iter().zip(most.iter()).map(|(text, most)| {
        let (text, most) = (text?, usize::try_from(most?).unwrap_or(usize::MAX));
        Some(text.get(..text.floor_char_boundary(most)).unwrap_or(text))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}
