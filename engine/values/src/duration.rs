//! Lengths of time as people write them.

use std::time::Duration;

/// Reads `90s`, `10m`, `1h30m`, `10m0s`, or a number of seconds.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut seconds = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, tail) = tail.split_at(letters);
        let unit = match unit {
            "" if number == text.trim() => 1,
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(unit)?;
        seconds = seconds.checked_add(part)?;
        rest = tail;
    }
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let seconds = |text| duration(text).map(|length| length.as_secs());
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds(" 10m0s "), Some(600));
        assert_eq!(seconds("1h30m"), Some(5_400));
        assert_eq!(seconds("7"), Some(7));
        for wrong in
            ["", "x", "10x", "-1s", "1s2", "m", "99999999999999999999h", "18446744073709551615h"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
