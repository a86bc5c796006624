//! Who may use the Flight server: MySQL's users by password, or a short-lived bearer token.
//!
//! Passwords and tokens are never logged.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tonic::metadata::MetadataMap;
use types::token;

use crate::error::{MppCode, MppError, MppResult};

/// Of Basic credentials: Go's Flight clients, and so ADBC's drivers, send them without padding.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How long a bearer token is good for, in milliseconds.
pub const BEARER_TTL_MS: u64 = 3_600_000;

/// Checks a user's password for a client at an address.
pub type PasswordCheck =
    Arc<dyn Fn(String, String, IpAddr) -> BoxFuture<'static, MppResult<()>> + Send + Sync>;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub user: String,
    /// Address of its client.
    pub host: String,
    /// Whether it is a SQL node, which has checked for its user what the user may do.
    pub vouched: bool,
}

#[derive(Serialize, Deserialize)]
struct Bearer {
    user: String,
    expires_ms: u64,
    /// Made by a SQL node.
    #[serde(default)]
    vouched: bool,
}

fn refused(text: &str) -> MppError {
    MppError::new(MppCode::Unauthenticated, text)
}

/// Issues a bearer token for a user that was checked.
pub fn bearer(user: &str, key: &[u8], now_ms: u64) -> MppResult<String> {
    issue(user, key, now_ms, false)
}

/// Issues a bearer token for a SQL node, whose users do here what it has let them do.
pub fn voucher(user: &str, key: &[u8], now_ms: u64) -> MppResult<String> {
    issue(user, key, now_ms, true)
}

fn issue(user: &str, key: &[u8], now_ms: u64, vouched: bool) -> MppResult<String> {
    let claim = Bearer { user: user.to_owned(), expires_ms: now_ms + BEARER_TTL_MS, vouched };
    let claim = serde_json::to_vec(&claim).map_err(|_| refused("the token cannot be written"))?;
    let tag = token::sign(key, &claim);
    Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(claim), URL_SAFE_NO_PAD.encode(tag)))
}

/// Which bearer tokens are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearers {
    /// Those that have not ended.
    Current,
    /// Those that this cluster issued, ended or not: for calls whose signed ticket is itself the
    /// permission, so that a long job outlives its log-in.
    Genuine,
}

fn open_bearer(text: &str, key: &[u8], now_ms: u64, taken: Bearers) -> MppResult<Bearer> {
    let forged = || refused("this bearer token was not issued by this cluster: log in again");
    let (claim, tag) = text.split_once('.').ok_or_else(forged)?;
    let claim = URL_SAFE_NO_PAD.decode(claim).map_err(|_| forged())?;
    let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| forged())?;
    token::verify(key, &claim, &tag).map_err(|_| forged())?;
    let claim: Bearer = serde_json::from_slice(&claim).map_err(|_| forged())?;
    if claim.expires_ms < now_ms && taken == Bearers::Current {
        return Err(refused("this bearer token has ended: log in again"));
    }
    Ok(claim)
}

/// The caller that a call's `authorization` header proves.
pub async fn authenticate(
    metadata: &MetadataMap,
    peer: Option<IpAddr>,
    key: &[u8],
    now_ms: u64,
    check: &PasswordCheck,
    taken: Bearers,
) -> MppResult<Caller> {
    let header = metadata
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .ok_or_else(|| refused("no 'authorization' header: send Basic user:password"))?;
    let (scheme, value) = header.split_once(' ').unwrap_or((header, ""));
    let host = peer.map(|peer| peer.to_string()).unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") {
        let Bearer { user, vouched, .. } = open_bearer(value.trim(), key, now_ms, taken)?;
        return Ok(Caller { user, host, vouched });
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(refused("the 'authorization' header is neither Basic nor Bearer"));
    }
    let decoded = BASIC.decode(value.trim()).map_err(|_| refused("Basic is not base64"))?;
    let decoded = String::from_utf8(decoded).map_err(|_| refused("Basic is not UTF-8"))?;
    let (user, password) = decoded.split_once(':').unwrap_or((decoded.as_str(), ""));
    let peer = peer.ok_or_else(|| refused("the client's address is not known"))?;
    check(user.to_owned(), password.to_owned(), peer).await?;
    Ok(Caller { user: user.to_owned(), host, vouched: false })
}
