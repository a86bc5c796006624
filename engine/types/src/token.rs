//! Snapshot tokens: a timestamp and the lease that keeps it readable, signed so that a client
//! cannot make one up.
//!
//! The signing key lives in placement; this file only signs and checks. A token is never logged.

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::error::{Error, Result};
use crate::time::Timestamp;

/// A snapshot lease's number.
pub type LeaseId = u64;

const PREFIX: &str = "isobar1";
const TAG_BYTES: usize = 16;

/// The right to read one snapshot for as long as its lease lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SnapshotToken {
    /// What to read.
    pub ts: Timestamp,
    /// What keeps it; zero where no lease does.
    pub lease: LeaseId,
}

impl SnapshotToken {
    /// For readers within the cluster, at a timestamp that a living transaction or snapshot of the
    /// asking node keeps readable.
    pub fn without_lease(ts: Timestamp) -> Self {
        SnapshotToken { ts, lease: 0 }
    }

    /// The token as text: `isobar1-<ts>-<lease>-<tag>`, safe in URLs and SQL strings.
    pub fn sign(&self, key: &[u8]) -> String {
        let body = format!("{PREFIX}-{:x}-{:x}", self.ts.0, self.lease);
        let tag: String =
            sign(key, body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{body}-{tag}")
    }

    /// Reads a token and checks its signature.
    pub fn verify(text: &str, key: &[u8]) -> Result<Self> {
        let forged = || Error::Invalid("the snapshot token is malformed or forged".into());
        let (body, tag) = text.trim().rsplit_once('-').ok_or_else(forged)?;
        if !tag.is_ascii() || tag.len() != TAG_BYTES * 2 {
            return Err(forged());
        }
        let tag: Vec<u8> = (0..tag.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&tag[at..at + 2], 16))
            .collect::<Result<_, _>>()
            .map_err(|_| forged())?;
        verify(key, body.as_bytes(), &tag).map_err(|_| forged())?;
        let mut parts = body.split('-');
        let (prefix, ts, lease) = (parts.next(), parts.next(), parts.next());
        let hex = |part: Option<&str>| {
            part.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(forged)
        };
        if prefix != Some(PREFIX) || parts.next().is_some() {
            return Err(forged());
        }
        Ok(SnapshotToken { ts: Timestamp(hex(ts)?), lease: hex(lease)? })
    }
}

/// First 128 bits of HMAC-SHA-256 over a message.
pub fn sign(key: &[u8], message: &[u8]) -> [u8; TAG_BYTES] {
    let full = mac(key, message).finalize().into_bytes();
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&full[..TAG_BYTES]);
    tag
}

/// Checks a tag made by [`sign`], in constant time.
pub fn verify(key: &[u8], message: &[u8], tag: &[u8]) -> Result<()> {
    let forged = || Error::Invalid("signature does not match".into());
    if tag.len() != TAG_BYTES {
        return Err(forged());
    }
    mac(key, message).verify_truncated_left(tag).map_err(|_| forged())
}

#[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
fn mac(key: &[u8], message: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key");
    mac.update(message);
    mac
}
