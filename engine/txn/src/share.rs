//! The keys of locks that transactions hold on one key beside each other: the key and, behind it, the transaction.
//!
//! So each has a lock and an end of its own, and nobody but the row store's leader and machine needs to know more of them than
//! of other locks. No row or index entry has such a key: no key of a table begins with another one. In a table's range it stands
//! right behind the key that it is about, in the same region.

use types::Timestamp;

const SUFFIX: usize = size_of::<u64>();

/// The key of a transaction's lock on a key that others may hold, too.
pub fn share_key(key: &[u8], start_ts: Timestamp) -> Vec<u8> {
    let mut share = Vec::with_capacity(key.len() + SUFFIX);
    share.extend_from_slice(key);
    share.extend_from_slice(&start_ts.0.to_be_bytes());
    share
}

/// The key that a lock of this key is about, if it is a share of that transaction's. Of other keys some end as if they were:
/// what is given then is no key of anything.
pub fn shared_key(key: &[u8], start_ts: Timestamp) -> Option<&[u8]> {
    key.strip_suffix(&start_ts.0.to_be_bytes()[..]).filter(|shared| !shared.is_empty())
}

/// The range of all shares of a key.
pub(crate) fn shares_of(key: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = [key, &[u8::MAX; SUFFIX + 1]].concat();
    (share_key(key, Timestamp::ZERO), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stand_right_behind_their_key() {
        let key = b"key".to_vec();
        let (start, end) = shares_of(&key);
        for ts in [Timestamp::ZERO, Timestamp(7), Timestamp::MAX] {
            let share = share_key(&key, ts);
            assert!(key < share && start <= share && share < end && share < b"kez".to_vec());
            assert_eq!(shared_key(&share, ts), Some(key.as_slice()));
            assert_eq!(shared_key(&share, Timestamp(8)), None);
        }
        assert_eq!(shared_key(&Timestamp(7).0.to_be_bytes(), Timestamp(7)), None);
    }
}
