//! SQL's LIKE, as COM_FIELD_LIST needs it.

/// Whether a name matches a LIKE pattern, without regard to ASCII case; the empty pattern matches
/// all. Takes time in proportion to the product of both lengths: no pattern makes it explode.
pub fn like(name: &[u8], pattern: &[u8]) -> bool {
    if pattern.is_empty() {
        return true;
    }
    // Positions of the pattern that the name read so far can have reached.
    let mut reached = vec![false; pattern.len() + 1];
    let close = |reached: &mut Vec<bool>| {
        for (at, byte) in pattern.iter().enumerate() {
            if *byte == b'%'
                && reached.get(at) == Some(&true)
                && let Some(next) = reached.get_mut(at + 1)
            {
                *next = true;
            }
        }
    };
    if let Some(start) = reached.first_mut() {
        *start = true;
    }
    close(&mut reached);
    for byte in name {
        let mut next = vec![false; pattern.len() + 1];
        for (at, wanted) in pattern.iter().enumerate() {
            if reached.get(at) != Some(&true) {
                continue;
            }
            let step = match wanted {
                b'%' => at,
                b'_' => at + 1,
                wanted if wanted.eq_ignore_ascii_case(byte) => at + 1,
                _ => continue,
            };
            if let Some(slot) = next.get_mut(step) {
                *slot = true;
            }
        }
        close(&mut next);
        reached = next;
    }
    reached.last() == Some(&true)
}
