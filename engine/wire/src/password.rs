//! Stored passwords and their verification.
//!
//! Holds digests only: a plaintext password passes through and is never kept, logged or printed.
//! Does no I/O, so the Flight server verifies with it too.

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Length of the random challenge that a connection begins with.
pub const NONCE_LEN: usize = 20;

/// An authentication method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthPlugin {
    /// `mysql_native_password`: SHA-1, known to every client.
    Native,
    /// `caching_sha2_password`: SHA-256, the default of MySQL 8 clients.
    CachingSha2,
}

impl AuthPlugin {
    /// The name on the wire and in `CREATE USER … IDENTIFIED WITH`.
    pub const fn name(self) -> &'static str {
        match self {
            AuthPlugin::Native => "mysql_native_password",
            AuthPlugin::CachingSha2 => "caching_sha2_password",
        }
    }

    /// The method of a name, if known.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [AuthPlugin::Native, AuthPlugin::CachingSha2]
            .into_iter()
            .find(|plugin| plugin.name().as_bytes() == name)
    }
}

/// What the server keeps of one user's password.
///
/// With neither digest the password is empty. Both digests are kept where the plaintext was seen,
/// so that a client may use either method without a full exchange.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPassword {
    /// SHA1(SHA1(password)).
    pub native: Option<[u8; 20]>,
    /// SHA256(SHA256(password)): what caching_sha2_password's fast path checks against.
    pub sha2: Option<[u8; 32]>,
    /// Method that the account was created with: asked for when the client's own is unknown.
    pub plugin: AuthPlugin,
}

impl std::fmt::Debug for StoredPassword {
    /// Digests stay out of logs: SHA1(SHA1(p)) is enough to attack a weak password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredPassword")
            .field("empty", &self.is_empty())
            .field("plugin", &self.plugin)
            .finish_non_exhaustive()
    }
}

impl StoredPassword {
    /// The empty password.
    pub const fn empty() -> Self {
        Self { native: None, sha2: None, plugin: AuthPlugin::CachingSha2 }
    }

    /// The digests of a plaintext password; of the empty one, [`StoredPassword::empty`].
    pub fn from_plaintext(password: &[u8], plugin: AuthPlugin) -> Self {
        if password.is_empty() {
            return Self { plugin, ..Self::empty() };
        }
        Self {
            native: Some(sha1(&[&sha1(&[password])])),
            sha2: Some(sha256(&[&sha256(&[password])])),
            plugin,
        }
    }

    /// Parses MySQL's printed native digest: `*` and 40 hexadecimal digits.
    pub fn from_native_hash(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('*')?.as_bytes();
        let mut native = [0; 20];
        if digits.len() != 2 * native.len() {
            return None;
        }
        for (byte, pair) in native.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self { native: Some(native), sha2: None, plugin: AuthPlugin::Native })
    }

    /// Whether the password is empty.
    pub fn is_empty(&self) -> bool {
        self.native.is_none() && self.sha2.is_none()
    }

    /// Checks a password received in plaintext (over TLS, or by the Flight server).
    pub fn verify_plaintext(&self, password: &[u8]) -> bool {
        let offered = Self::from_plaintext(password, self.plugin);
        match (self.sha2, self.native) {
            (Some(stored), _) => offered.sha2.is_some_and(|digest| same(&digest, &stored)),
            (None, Some(stored)) => offered.native.is_some_and(|digest| same(&digest, &stored)),
            (None, None) => password.is_empty(),
        }
    }

    /// Checks the answer that a client computed from the nonce by the given method.
    ///
    /// `None` means that this method's digest is not stored, so the answer proves nothing.
    pub fn verify_scramble(
        &self,
        method: AuthPlugin,
        nonce: &[u8; NONCE_LEN],
        answer: &[u8],
    ) -> Option<bool> {
        if self.is_empty() || answer.is_empty() {
            return Some(self.is_empty() && answer.is_empty());
        }
        match method {
            AuthPlugin::Native => self.native.map(|stored| verify_native(&stored, nonce, answer)),
            AuthPlugin::CachingSha2 => self.sha2.map(|stored| verify_sha2(&stored, nonce, answer)),
        }
    }
}

/// The answer is SHA1(p) xor SHA1(nonce, SHA1(SHA1(p))): undo the xor, hash, compare.
fn verify_native(stored: &[u8; 20], nonce: &[u8; NONCE_LEN], answer: &[u8]) -> bool {
    let Ok(mut stage1) = <[u8; 20]>::try_from(answer) else { return false };
    xor(&mut stage1, &sha1(&[nonce, stored]));
    same(&sha1(&[&stage1]), stored)
}

/// The answer is SHA256(p) xor SHA256(SHA256(SHA256(p)), nonce).
fn verify_sha2(stored: &[u8; 32], nonce: &[u8; NONCE_LEN], answer: &[u8]) -> bool {
    let Ok(mut stage1) = <[u8; 32]>::try_from(answer) else { return false };
    xor(&mut stage1, &sha256(&[stored, nonce]));
    same(&sha256(&[&stage1]), stored)
}

fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    parts.iter().fold(Sha1::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

fn xor(target: &mut [u8], mask: &[u8]) {
    target.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

/// Compares without revealing by its duration where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use mysql_common::auth::plugins::caching_sha2_password::scramble_sha256;
    use mysql_common::auth::plugins::mysql_native_password::scramble_native;

    use super::*;

    const NONCE: [u8; NONCE_LEN] = *b"abcdefghij0123456789";

    #[test]
    fn a_client_that_knows_the_password_passes_by_either_method() {
        let stored = StoredPassword::from_plaintext(b"secret", AuthPlugin::CachingSha2);
        let native = scramble_native(&NONCE, b"secret").unwrap();
        let sha2 = scramble_sha256(&NONCE, b"secret").unwrap();
        assert_eq!(stored.verify_scramble(AuthPlugin::Native, &NONCE, &native), Some(true));
        assert_eq!(stored.verify_scramble(AuthPlugin::CachingSha2, &NONCE, &sha2), Some(true));
        assert_eq!(stored.verify_scramble(AuthPlugin::Native, &NONCE, &sha2), Some(false));
        assert!(stored.verify_plaintext(b"secret"));
    }

    #[test]
    fn a_wrong_password_a_wrong_nonce_and_an_empty_answer_fail() {
        let stored = StoredPassword::from_plaintext(b"secret", AuthPlugin::CachingSha2);
        let wrong = scramble_sha256(&NONCE, b"Secret").unwrap();
        let old = scramble_sha256(b"ABCDEFGHIJ0123456789", b"secret").unwrap();
        let native = scramble_native(&NONCE, b"Secret").unwrap();
        for answer in [&wrong[..], &old[..], &native[..], &[], &[0; 32], &[0; 31], &[0; 20]] {
            assert_eq!(
                stored.verify_scramble(AuthPlugin::CachingSha2, &NONCE, answer),
                Some(false)
            );
            assert_eq!(stored.verify_scramble(AuthPlugin::Native, &NONCE, answer), Some(false));
        }
        assert!(!stored.verify_plaintext(b""));
        assert!(!stored.verify_plaintext(b"Secret"));
    }

    #[test]
    fn the_empty_password_admits_only_an_empty_answer() {
        let stored = StoredPassword::from_plaintext(b"", AuthPlugin::Native);
        assert!(stored.is_empty() && stored.verify_plaintext(b""));
        assert!(!stored.verify_plaintext(b"x"));
        assert_eq!(stored.verify_scramble(AuthPlugin::Native, &NONCE, b""), Some(true));
        let answer = scramble_native(&NONCE, b"x").unwrap();
        assert_eq!(stored.verify_scramble(AuthPlugin::Native, &NONCE, &answer), Some(false));
    }

    #[test]
    fn a_printed_native_digest_is_the_password_it_was_made_of() {
        // SELECT PASSWORD('password') of MySQL 5.7.
        let stored =
            StoredPassword::from_native_hash("*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19").unwrap();
        assert!(stored.verify_plaintext(b"password"));
        assert!(!stored.verify_plaintext(b"passwort"));
        assert_eq!(stored.verify_scramble(AuthPlugin::CachingSha2, &NONCE, &[1; 32]), None);
        for bad in [
            "",
            "*",
            "*24",
            "2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19",
            "*é470C0C06DEE42FD1618BB99005ADCA2EC9D1E1",
        ] {
            assert_eq!(StoredPassword::from_native_hash(bad), None);
        }
    }

    #[test]
    fn debug_output_holds_no_digest() {
        let stored = StoredPassword::from_plaintext(b"secret", AuthPlugin::Native);
        let text = format!("{stored:?}");
        assert!(!text.contains(&format!("{}", stored.native.unwrap()[0])) || !text.contains('['));
    }
}
