//! The digest of a row, for rows that are read here: what servers compute in SQL (see [`crate::expr`]).

use md5::{Digest as _, Md5};

use crate::class::{Class, Rule};

/// The first 64 bits of the MD5 of a row's text: values with commas between them, text and bytes
/// with their length before them, NULL as the letter N.
pub fn row_digest(values: &[Option<String>], rules: &[Rule]) -> u64 {
    let mut line = String::new();
    for (at, (value, rule)) in values.iter().zip(rules).enumerate() {
        if at > 0 {
            line.push(',');
        }
        match value {
            None => line.push('N'),
            Some(text) => {
                let text = rule.spelled(text);
                if carries_length(rule) {
                    line.push_str(&text.len().to_string());
                    line.push(':');
                }
                line.push_str(&text);
            }
        }
    }
    let sum: [u8; 16] = Md5::digest(line.as_bytes()).into();
    sum.iter().take(8).fold(0, |high, byte| high << 8 | u64::from(*byte))
}

/// Whether values could be mistaken for several or for NULL, or are texts where others have numbers.
pub fn carries_length(rule: &Rule) -> bool {
    matches!(rule.class, Class::Text { .. } | Class::Binary | Class::Unknown)
        || rule.trim_zeros
        || rule.float_digits.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(values: &[Option<&str>]) -> u64 {
        let values: Vec<Option<String>> = values.iter().map(|v| v.map(str::to_owned)).collect();
        row_digest(&values, &vec![Rule::exact(Class::Text { padded: false }); values.len()])
    }

    #[test]
    fn no_two_rows_have_one_text() {
        let rows: [&[Option<&str>]; 8] = [
            &[Some("a"), Some("b")],
            &[Some("a,1:b")],
            &[Some("a,1:b"), None],
            &[Some("a"), None],
            &[None, Some("a")],
            &[Some("N"), Some("a")],
            &[Some(""), Some("a")],
            &[Some("a"), Some("")],
        ];
        let digests: std::collections::BTreeSet<u64> = rows.iter().map(|row| digest(row)).collect();
        assert_eq!(digests.len(), rows.len());
    }

    #[test]
    fn it_is_the_front_of_md5() {
        // md5("1:a,N"), as any tool prints it.
        let full = format!("{:x}", Md5::digest("1:a,N"));
        assert_eq!(format!("{:016x}", digest(&[Some("a"), None])), full[..16]);
        assert_eq!(digest(&[]), 0xd41d_8cd9_8f00_b204);
    }
}
