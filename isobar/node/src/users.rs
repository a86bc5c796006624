//! MySQL's users as placement keeps them, for the MySQL port and the Flight server.
//!
//! Passwords are checked against stored digests and never kept or logged.

use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use mpp::auth::PasswordCheck;
use mpp::error::{MppCode, MppError};
use placement::client::PlacementClient;
use types::{Error, Result};
use wire::StoredPassword;

/// Stored digests as bytes of the catalog; an empty password is no bytes.
pub fn encode(password: &StoredPassword) -> Result<Vec<u8>> {
    if password.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::to_vec(password).map_err(|error| Error::Invalid(format!("credentials: {error}")))
}

/// Stored digests from bytes of the catalog.
pub fn decode(bytes: &[u8]) -> Result<StoredPassword> {
    if bytes.is_empty() {
        return Ok(StoredPassword::empty());
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Error::Corrupt(format!("stored credentials are unreadable: {error}")))
}

/// What a user's password is checked against, at an address; `None` if there is no such user. Every change that was
/// acknowledged before is seen: a fresh timestamp shows whether the catalog, and so a password, has changed.
pub async fn stored_password(
    placement: &PlacementClient,
    user: &str,
    host: IpAddr,
) -> Result<Option<StoredPassword>> {
    placement.timestamp().await?;
    let catalog = placement.catalog().await?;
    catalog.account(user, host).map(|account| decode(&account.credentials)).transpose()
}

/// How the Flight server checks a password.
pub fn password_check(placement: PlacementClient) -> PasswordCheck {
    Arc::new(move |user, password, host| {
        let placement = placement.clone();
        async move {
            let stored = stored_password(&placement, &user, host).await?;
            if stored.is_some_and(|stored| stored.verify_plaintext(password.as_bytes())) {
                return Ok(());
            }
            Err(MppError::new(
                MppCode::Unauthenticated,
                format!("access denied for user '{user}'@'{host}': wrong user name or password"),
            ))
        }
        .boxed()
    })
}
