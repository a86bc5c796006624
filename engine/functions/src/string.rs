//! Functions of text. Positions count characters from 1.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, Int64Array, StringArray};
use arrow::datatypes::DataType;
use values::error::{SqlResult, text_too_long};

use super::convert::{to_f64, to_i64, to_strings, to_type, to_u64};
use super::kinds::number_type;
use super::math::{compared, round_double};
use super::{Function, text, warnings, whole};

/// Longest text a function may build (max_allowed_packet).
pub const LONGEST: usize = 64 << 20;

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_concat", 1..=999, text, concat),
    Function::new("mysql_concat_ws", 2..=999, text, concat_ws),
    Function::new("mysql_upper", 1..=1, text, |a, _| map(a, |s| cased(s, char::to_uppercase))),
    Function::new("mysql_lower", 1..=1, text, |a, _| map(a, |s| cased(s, char::to_lowercase))),
    Function::new("mysql_reverse", 1..=1, text, |a, _| map(a, |s| s.chars().rev().collect())),
    Function::new("mysql_hex", 1..=1, text, hex),
    Function::new("mysql_unhex", 1..=1, |_, _| Ok(DataType::Binary), unhex),
    Function::new("mysql_quote", 1..=1, text, quote),
    Function::new("mysql_length", 1..=1, whole, |a, _| count(a, |s| s.len() as i64)),
    Function::new("mysql_char_length", 1..=1, whole, |a, _| count(a, |s| s.chars().count() as i64)),
    Function::new("mysql_bit_length", 1..=1, whole, |a, _| count(a, |s| s.len() as i64 * 8)),
    Function::new("mysql_ascii", 1..=1, whole, |a, _| {
        count(a, |s| s.bytes().next().map_or(0, i64::from))
    }),
    Function::new("mysql_left", 2..=2, text, |a, _| with_int(a, |s, n| Some(head(s, n)))),
    Function::new("mysql_right", 2..=2, text, |a, _| with_int(a, |s, n| Some(tail(s, n)))),
    Function::new("mysql_repeat", 2..=2, text, repeat),
    Function::new("mysql_space", 1..=1, text, space),
    Function::new("mysql_substring", 2..=3, text, substring),
    Function::new("mysql_substring_index", 3..=3, text, |a, _| substring_index(a, false)),
    Function::new("mysql_replace", 3..=3, text, replace),
    Function::new("mysql_trim", 1..=2, text, |a, _| trim(a, true, true)),
    Function::new("mysql_ltrim", 1..=2, text, |a, _| trim(a, true, false)),
    Function::new("mysql_rtrim", 1..=2, text, |a, _| trim(a, false, true)),
    Function::new("mysql_lpad", 3..=3, text, |a, _| pad(a, true)),
    Function::new("mysql_rpad", 3..=3, text, |a, _| pad(a, false)),
    Function::new("mysql_locate", 2..=3, whole, locate),
    Function::new("mysql_strcmp", 2..=2, whole, strcmp),
    Function::new("mysql_field", 2..=999, whole, field),
    Function::new("mysql_elt", 2..=999, text, elt),
    Function::new("mysql_find_in_set", 2..=2, whole, find_in_set),
    Function::new("mysql_format", 2..=2, text, format),
];

fn strings(args: &[ArrayRef]) -> SqlResult<Vec<StringArray>> {
    args.iter().map(to_strings).collect()
}

fn of(array: &StringArray, row: usize) -> Option<&str> {
    array.is_valid(row).then(|| array.value(row))
}

fn map(args: &[ArrayRef], f: impl Fn(&str) -> String) -> SqlResult<ArrayRef> {
    Ok(Arc::new(to_strings(&args[0])?.iter().map(|s| s.map(&f)).collect::<StringArray>()))
}

fn count(args: &[ArrayRef], f: impl Fn(&str) -> i64) -> SqlResult<ArrayRef> {
    Ok(Arc::new(to_strings(&args[0])?.iter().map(|s| s.map(&f)).collect::<Int64Array>()))
}

fn with_int(args: &[ArrayRef], f: impl Fn(&str, i64) -> Option<String>) -> SqlResult<ArrayRef> {
    let (texts, numbers) = (to_strings(&args[0])?, to_i64(&args[1])?);
    let rows = texts.iter().zip(numbers.iter()).map(|(s, n)| f(s?, n?));
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn concat(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let columns = strings(args)?;
    let rows = (0..args[0].len()).map(|row| {
        let parts = columns.iter().map(|c| of(c, row)).collect::<Option<Vec<_>>>()?;
        within("concat", parts.iter().map(|part| part.len()))?;
        Some(parts.concat())
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn concat_ws(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let columns = strings(args)?;
    let rows = (0..args[0].len()).map(|row| {
        let separator = of(&columns[0], row)?;
        let parts: Vec<&str> = columns[1..].iter().filter_map(|c| of(c, row)).collect();
        within("concat_ws", parts.iter().map(|part| part.len().saturating_add(separator.len())))?;
        Some(parts.join(separator))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// Letter by letter: one that would become several letters stays, as in MySQL.
fn cased<C: ExactSizeIterator<Item = char>>(text: &str, of: fn(char) -> C) -> String {
    let letter = |c: char| {
        let mut cased = of(c);
        if cased.len() == 1 { cased.next().unwrap_or(c) } else { c }
    };
    text.chars().map(letter).collect()
}

/// The 64 bits that HEX shows of a DOUBLE: of the nearest whole number, halves away from zero, and all of them beyond the
/// integers.
fn bits_of_double(n: f64) -> u64 {
    if n <= i64::MIN as f64 || n >= u64::MAX as f64 {
        return u64::MAX;
    }
    let whole = n.round();
    if whole < 0.0 { (whole as i64).cast_unsigned() } else { whole as u64 }
}

fn hex(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    if args[0].data_type().is_floating() {
        let numbers = to_f64(&args[0])?;
        let hex = numbers.iter().map(|n| n.map(|n| format!("{:X}", bits_of_double(n))));
        return Ok(Arc::new(hex.collect::<StringArray>()));
    }
    if args[0].data_type().is_numeric() || *args[0].data_type() == DataType::Boolean {
        let numbers = to_u64(&args[0])?;
        return Ok(Arc::new(
            numbers.iter().map(|n| n.map(|n| format!("{n:X}"))).collect::<StringArray>(),
        ));
    }
    map(args, |s| s.bytes().map(|b| format!("{b:02X}")).collect())
}

/// NULL where the text is not hexadecimal.
fn unhex(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let texts = to_strings(&args[0])?;
    let bytes = texts.iter().map(|text| values::bytes::bytes_of_hex(text?).ok());
    Ok(Arc::new(bytes.collect::<BinaryArray>()))
}

/// A text as a statement spells it; the word NULL for none.
fn quote(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let quoted = |s: &str| {
        let mut quoted = String::with_capacity(s.len().saturating_add(2));
        quoted.push('\'');
        for c in s.chars() {
            match c {
                '\\' | '\'' => quoted.extend(['\\', c]),
                '\0' => quoted.push_str("\\0"),
                '\x1A' => quoted.push_str("\\Z"),
                c => quoted.push(c),
            }
        }
        quoted.push('\'');
        quoted
    };
    let texts = to_strings(&args[0])?;
    let texts = texts.iter().map(|s| s.map_or_else(|| "NULL".to_owned(), quoted));
    Ok(Arc::new(texts.map(Some).collect::<StringArray>()))
}

fn head(s: &str, n: i64) -> String {
    s.chars().take(usize::try_from(n).unwrap_or(0)).collect()
}

fn tail(s: &str, n: i64) -> String {
    let length = s.chars().count();
    s.chars().skip(length.saturating_sub(usize::try_from(n).unwrap_or(0))).collect()
}

/// Whether a text of such parts is short enough; NULL, with a warning, if not.
fn within(name: &str, parts: impl Iterator<Item = usize>) -> Option<()> {
    if parts.fold(0usize, usize::saturating_add) <= LONGEST {
        return Some(());
    }
    warnings::warn(|| text_too_long(name, LONGEST));
    None
}

fn repeat(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, numbers) = (to_strings(&args[0])?, to_i64(&args[1])?);
    let rows = texts.iter().zip(numbers.iter()).map(|(s, n)| {
        let (s, n) = (s?, usize::try_from(n?).unwrap_or(0));
        within("repeat", std::iter::once(s.len().saturating_mul(n)))?;
        Some(s.repeat(n))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn space(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let blanks: ArrayRef = Arc::new(StringArray::from(vec![" "; args[0].len()]));
    repeat(&[blanks, args[0].clone()], ty)
}

fn substring(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, starts) = (to_strings(&args[0])?, to_i64(&args[1])?);
    let lengths = args.get(2).map(to_i64).transpose()?;
    let rows = (0..texts.len()).map(|row| {
        let s = of(&texts, row)?;
        let start = starts.is_valid(row).then(|| starts.value(row))?;
        let length = match &lengths {
            Some(lengths) => lengths.is_valid(row).then(|| lengths.value(row))?,
            None => i64::MAX,
        };
        let total = s.chars().count() as i64;
        let from = match start {
            0 => return Some(String::new()),
            1.. => start - 1,
            _ => match total.checked_add(start) {
                Some(from) if from >= 0 => from,
                _ => return Some(String::new()),
            },
        };
        let take = usize::try_from(length).unwrap_or(0);
        Some(s.chars().skip(usize::try_from(from).unwrap_or(usize::MAX)).take(take).collect())
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// SUBSTRING_INDEX. From the right, the delimiters of a text are the ones found from its left; those of bytes are
/// found from the right.
pub(super) fn substring_index(args: &[ArrayRef], of_bytes: bool) -> SqlResult<ArrayRef> {
    let (texts, delimiters, counts) =
        (to_strings(&args[0])?, to_strings(&args[1])?, to_i64(&args[2])?);
    let rows = (0..texts.len()).map(|row| {
        let (s, delimiter) = (of(&texts, row)?, of(&delimiters, row)?);
        let n = counts.is_valid(row).then(|| counts.value(row))?;
        if delimiter.is_empty() || n == 0 {
            return Some("");
        }
        let count = usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
        if n > 0 {
            let end = s.match_indices(delimiter).nth(count - 1).map_or(s.len(), |(at, _)| at);
            return s.get(..end);
        }
        if of_bytes {
            let start = s.rmatch_indices(delimiter).nth(count - 1);
            return s.get(start.map_or(0, |(at, delimiter)| at + delimiter.len())..);
        }
        let delimiters = s.match_indices(delimiter).count();
        let nth = delimiters.checked_sub(count);
        let start = nth.and_then(|nth| s.match_indices(delimiter).nth(nth));
        s.get(start.map_or(0, |(at, delimiter)| at + delimiter.len())..)
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn replace(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let columns = strings(args)?;
    let rows = (0..args[0].len()).map(|row| {
        let (s, from, to) = (of(&columns[0], row)?, of(&columns[1], row)?, of(&columns[2], row)?);
        if from.is_empty() {
            return Some(s.to_owned());
        }
        if to.len() > from.len() {
            let more = to.len() - from.len();
            let grows = s.matches(from).count().saturating_mul(more);
            within("replace", [s.len(), grows].into_iter())?;
        }
        Some(s.replace(from, to))
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn trim(args: &[ArrayRef], front: bool, back: bool) -> SqlResult<ArrayRef> {
    let texts = to_strings(&args[0])?;
    let whats = args.get(1).map(to_strings).transpose()?;
    let rows = (0..texts.len()).map(|row| {
        let mut s = of(&texts, row)?;
        let what = match &whats {
            Some(whats) => of(whats, row)?,
            None => " ",
        };
        while front
            && !what.is_empty()
            && let Some(rest) = s.strip_prefix(what)
        {
            s = rest;
        }
        while back
            && !what.is_empty()
            && let Some(rest) = s.strip_suffix(what)
        {
            s = rest;
        }
        Some(s)
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn pad(args: &[ArrayRef], front: bool) -> SqlResult<ArrayRef> {
    let (texts, lengths, fills) = (to_strings(&args[0])?, to_i64(&args[1])?, to_strings(&args[2])?);
    let rows = (0..texts.len()).map(|row| {
        let (s, fill) = (of(&texts, row)?, of(&fills, row)?);
        let length = usize::try_from(lengths.is_valid(row).then(|| lengths.value(row))?).ok()?;
        let missing = length.saturating_sub(s.chars().count());
        within(if front { "lpad" } else { "rpad" }, std::iter::once(length))?;
        if missing > 0 && fill.is_empty() {
            return None;
        }
        let padding: String = fill.chars().cycle().take(missing).collect();
        let kept: String = s.chars().take(length).collect();
        Some(if front { padding + &kept } else { kept + &padding })
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

/// LOCATE(what, text[, from]).
fn locate(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (whats, texts) = (to_strings(&args[0])?, to_strings(&args[1])?);
    let starts = args.get(2).map(to_i64).transpose()?;
    let rows = (0..texts.len()).map(|row| {
        let (what, s) = (of(&whats, row)?, of(&texts, row)?);
        let start = match &starts {
            Some(starts) => starts.is_valid(row).then(|| starts.value(row))?,
            None => 1,
        };
        let skip = start.checked_sub(1).and_then(|skip| usize::try_from(skip).ok());
        let Some(skip) = skip.filter(|skip| *skip <= s.chars().count()) else { return Some(0) };
        let offset = s.char_indices().nth(skip).map_or(s.len(), |(at, _)| at);
        let rest = s.get(offset..)?;
        Some(rest.find(what).map_or(0, |at| {
            (skip + rest.get(..at).map_or(0, |front| front.chars().count()) + 1) as i64
        }))
    });
    Ok(Arc::new(rows.collect::<Int64Array>()))
}

fn strcmp(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let columns = strings(args)?;
    let rows =
        (0..args[0].len()).map(|row| Some(of(&columns[0], row)?.cmp(of(&columns[1], row)?) as i64));
    Ok(Arc::new(rows.collect::<Int64Array>()))
}

/// FIELD: texts alone compare as such; with a number among them, all are numbers.
fn field(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    if args.iter().any(|arg| arg.data_type().is_numeric()) {
        return field_of_numbers(args);
    }
    let columns = strings(args)?;
    let rows = (0..args[0].len()).map(|row| {
        let Some(what) = of(&columns[0], row) else { return Some(0) };
        let at = columns[1..].iter().position(|c| of(c, row) == Some(what));
        Some(at.map_or(0, |at| at as i64 + 1))
    });
    Ok(Arc::new(rows.collect::<Int64Array>()))
}

fn field_of_numbers(args: &[ArrayRef]) -> SqlResult<ArrayRef> {
    let compared = args[1..].iter().map(|number| compared(&args[0], number));
    let compared = compared.collect::<SqlResult<Vec<Vec<Option<Ordering>>>>>()?;
    let rows = (0..args[0].len()).map(|row| {
        let at = compared.iter().position(|numbers| numbers[row] == Some(Ordering::Equal));
        Some(at.map_or(0, |at| at as i64 + 1))
    });
    Ok(Arc::new(rows.collect::<Int64Array>()))
}

fn elt(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let numbers = to_i64(&args[0])?;
    let columns = strings(&args[1..])?;
    let rows = (0..args[0].len()).map(|row| {
        let n = usize::try_from(numbers.is_valid(row).then(|| numbers.value(row))?).ok()?;
        of(columns.get(n.checked_sub(1)?)?, row)
    });
    Ok(Arc::new(rows.collect::<StringArray>()))
}

fn find_in_set(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let columns = strings(args)?;
    let rows = (0..args[0].len()).map(|row| {
        let (what, set) = (of(&columns[0], row)?, of(&columns[1], row)?);
        if set.is_empty() {
            return Some(0);
        }
        Some(set.split(',').position(|item| item == what).map_or(0, |at| at as i64 + 1))
    });
    Ok(Arc::new(rows.collect::<Int64Array>()))
}

/// FORMAT(n, digits): rounded, with commas between thousands. Exact numbers are rounded as such.
fn format(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let digits = to_i64(&args[1])?;
    let digits = digits.iter().map(|d| u8::try_from(d?.clamp(0, 30)).ok());
    let number = number_type(args[0].data_type());
    let grouped: StringArray = match number {
        DataType::Float64 => {
            let numbers = to_f64(&args[0])?;
            let rows = numbers.iter().zip(digits).map(|(n, digits)| {
                let (n, digits) = (n?, digits?);
                let rounded = round_double(n, i64::from(digits), false);
                Some(in_thousands(&format!("{rounded:.*}", usize::from(digits))))
            });
            rows.collect()
        }
        _ => {
            let numbers = to_strings(&to_type(&args[0], &number)?)?;
            let rows = numbers.iter().zip(digits).map(|(n, digits)| {
                let (n, digits) = (n?, digits?);
                let narrow = types::Decimal::parse(n).ok().and_then(|n| n.rescale(digits));
                Some(in_thousands(&match narrow {
                    Some(n) => n.to_string(),
                    None => super::wide::with_digits(n, digits)?,
                }))
            });
            rows.collect()
        }
    };
    Ok(Arc::new(grouped))
}

/// A number's digits with commas between its thousands.
fn in_thousands(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut grouped = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}
