//! LIKE with MySQL's escapes over any operand, and REGEXP through Arrow's kernels.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::kernels::comparison::regexp_is_match;
use arrow::datatypes::DataType;

use super::convert::to_strings;
use super::{Function, truth};
use crate::error::SqlResult;
use crate::result::SqlError;

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_like", 3..=3, truth, like),
    Function::new("mysql_regexp", 2..=2, truth, regexp),
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

fn regexp(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, patterns) = (to_strings(&args[0])?, to_strings(&args[1])?);
    let result = regexp_is_match(&texts, &patterns, None::<&arrow::array::StringArray>).map_err(
        |error| SqlError::new(1139, b"42000", format!("Got error '{error}' from regexp")),
    )?;
    // NULL in, NULL out.
    let rows = (0..texts.len())
        .map(|row| (texts.is_valid(row) && patterns.is_valid(row)).then(|| result.value(row)));
    Ok(Arc::new(rows.collect::<arrow::array::BooleanArray>()))
}
