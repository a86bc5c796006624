//! LIKE with MySQL's escapes over any operand, and REGEXP: through Arrow's kernels where there is one.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray, StringBuilder};
use arrow::compute::kernels::comparison::regexp_is_match;
use arrow::compute::kernels::regexp::regexp_match;
use arrow::datatypes::DataType;
use regex::Regex;
use values::error::{SqlResult, wrong_arguments, wrong_pattern};

use super::convert::to_strings;
use super::{Function, text, truth, whole};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_like", 3..=3, truth, like),
    Function::new("mysql_regexp", 2..=3, truth, regexp),
    Function::new("mysql_regexp_substr", 2..=2, text, regexp_substr),
    Function::new("mysql_regexp_instr", 2..=2, whole, regexp_instr),
    // Under DataFusion's name, with its flags: so bound queries of the release before and for it name it.
    Function::new("regexp_replace", 4..=4, text, regexp_replace),
];

/// LIKE(text, pattern, escape).
fn like(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, patterns, escapes) =
        (to_strings(&args[0])?, to_strings(&args[1])?, to_strings(&args[2])?);
    let rows = texts.iter().zip(patterns.iter()).zip(escapes.iter());
    let matches = rows.map(|((text, pattern), escape)| {
        Some(matches(text?, pattern?, escape.and_then(|e| e.chars().next())))
    });
    Ok(Arc::new(matches.collect::<arrow::array::BooleanArray>()))
}

/// Whether a text matches a LIKE pattern; case matters (utf8mb4_bin).
pub fn matches(text: &str, pattern: &str, escape: Option<char>) -> bool {
    let text: Vec<char> = text.chars().collect();
    let pattern: Vec<char> = pattern.chars().collect();
    let (mut t, mut p) = (0, 0);
    // Where to go on if what follows the last `%` does not match here.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let literal = match pattern.get(p) {
            Some('%') if escape != Some('%') => {
                retry = Some((t, p + 1));
                p += 1;
                continue;
            }
            Some('_') if escape != Some('_') => {
                if t < text.len() {
                    t += 1;
                    p += 1;
                    continue;
                }
                None
            }
            Some(c) if Some(*c) == escape && p + 1 < pattern.len() => Some((pattern[p + 1], 2)),
            Some(c) => Some((*c, 1)),
            None if t == text.len() => return true,
            None => None,
        };
        match literal {
            Some((c, length)) if text.get(t) == Some(&c) => {
                t += 1;
                p += length;
            }
            _ => match retry {
                Some((from, after)) if from < text.len() => {
                    retry = Some((from + 1, after));
                    (t, p) = (from + 1, after);
                }
                _ => return false,
            },
        }
    }
}

/// What the first group of a pattern holds on each row; NULL where nothing matches.
fn first_group(
    texts: &StringArray,
    patterns: &StringArray,
    grouped: impl Fn(&str) -> String,
) -> SqlResult<Vec<Option<String>>> {
    let patterns: StringArray = patterns.iter().map(|p| p.map(&grouped)).collect();
    let found = regexp_match(texts, &patterns, None).map_err(wrong_pattern)?;
    let found = found.as_list::<i32>();
    let group = |row: usize| {
        let groups = found.is_valid(row).then(|| found.value(row))?;
        let groups = groups.as_string::<i32>();
        (texts.is_valid(row) && !groups.is_empty()).then(|| groups.value(0).to_owned())
    };
    Ok((0..texts.len()).map(group).collect())
}

fn regexp_substr(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, patterns) = (to_strings(&args[0])?, to_strings(&args[1])?);
    let found = first_group(&texts, &patterns, |pattern| format!("({pattern})"))?;
    Ok(Arc::new(found.into_iter().collect::<StringArray>()))
}

/// The first match's position: one more than the characters before it.
fn regexp_instr(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, patterns) = (to_strings(&args[0])?, to_strings(&args[1])?);
    let before = first_group(&texts, &patterns, |pattern| format!("^(?s:(.*?))(?:{pattern})"))?;
    let rows = before.into_iter().enumerate().map(|(row, before)| {
        let known = texts.is_valid(row) && patterns.is_valid(row);
        known.then(|| before.map_or(0, |before| before.chars().count() as i64 + 1))
    });
    Ok(Arc::new(rows.collect::<Int64Array>()))
}

/// REGEXP_REPLACE(text, pattern, replacement, flags): every match replaced. `$1` and `\1` are the pattern's groups.
fn regexp_replace(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let [texts, patterns, replacements, _] = args else {
        return Err(wrong_arguments("regexp_replace"));
    };
    let (texts, patterns, replacements) =
        (to_strings(texts)?, to_strings(patterns)?, to_strings(replacements)?);
    // Most calls have one pattern for every row.
    let mut last: Option<(&str, Regex)> = None;
    let mut replaced = StringBuilder::new();
    for row in texts.iter().zip(&patterns).zip(&replacements) {
        let ((Some(text), Some(pattern)), Some(replacement)) = row else {
            replaced.append_null();
            continue;
        };
        let regex = match last.take() {
            Some((known, regex)) if known == pattern => regex,
            _ => Regex::new(pattern).map_err(wrong_pattern)?,
        };
        replaced.append_value(regex.replace_all(text, &*groups_in_dollars(replacement)));
        last = Some((pattern, regex));
    }
    Ok(Arc::new(replaced.finish()))
}

/// A replacement as the library takes it: `\1` is `${1}`, and a character behind `\` is itself.
fn groups_in_dollars(replacement: &str) -> Cow<'_, str> {
    if !replacement.contains('\\') {
        return Cow::Borrowed(replacement);
    }
    let mut written = String::new();
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once('\\') {
        written += before;
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let group = &after[..after.len() - rest.len()];
        if !group.is_empty() {
            written += &format!("${{{group}}}");
        } else if let Some(literal) = after.chars().next() {
            written += if literal == '$' { "$" } else { "" };
            written.push(literal);
            rest = &after[literal.len_utf8()..];
        }
    }
    Cow::Owned(written + rest)
}

/// REGEXP, and REGEXP_LIKE(text, pattern[, match_type]).
fn regexp(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, mut patterns) = (to_strings(&args[0])?, to_strings(&args[1])?);
    if let Some(kinds) = args.get(2) {
        let kinds = to_strings(kinds)?;
        let flagged = patterns.iter().zip(kinds.iter()).map(|(pattern, kind)| {
            let (Some(pattern), Some(kind)) = (pattern, kind) else { return Ok(None) };
            Ok(Some(format!("{}{pattern}", flags(kind)?)))
        });
        patterns = flagged.collect::<SqlResult<StringArray>>()?;
    }
    let result = regexp_is_match(&texts, &patterns, None::<&StringArray>).map_err(wrong_pattern)?;
    // NULL in, NULL out.
    let rows = (0..texts.len())
        .map(|row| (texts.is_valid(row) && patterns.is_valid(row)).then(|| result.value(row)));
    Ok(Arc::new(rows.collect::<arrow::array::BooleanArray>()))
}

/// MySQL's match type as the flags before a pattern: `i` and `c` (the later counts), `m`, `n`.
fn flags(kind: &str) -> SqlResult<String> {
    let mut found = String::new();
    for letter in kind.chars() {
        let flag = if letter == 'n' { 's' } else { letter };
        match letter {
            'c' => found.retain(|flag| flag != 'i'),
            'i' | 'm' | 'n' if !found.contains(flag) => found.push(flag),
            'i' | 'm' | 'n' | 'u' => {}
            _ => return Err(wrong_arguments("regexp_like")),
        }
    }
    Ok(if found.is_empty() { found } else { format!("(?{found})") })
}
