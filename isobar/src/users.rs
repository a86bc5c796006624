//! MySQL's users as placement keeps them, for every door of the house.
//!
//! Passwords are checked against stored digests and never kept or logged.

use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use mpp::auth::PasswordCheck;
use mpp::error::{DoorCode, DoorError};
use placement::api::{Catalog, User};
use placement::client::PlacementClient;
use types::{Error, Result};

use crate::wire::StoredPassword;

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

/// The account that a user name and a client's address select: the most specific host pattern
/// wins, as in MySQL.
pub fn find<'a>(catalog: &'a Catalog, name: &str, host: IpAddr) -> Option<&'a User> {
    let rank = |user: &User| match user.host.as_str() {
        "%" => Some(2),
        "localhost" if host.is_loopback() => Some(1),
        exact if exact.parse() == Ok(host) => Some(0),
        _ => None,
    };
    catalog
        .users
        .iter()
        .filter(|user| user.name == name)
        .filter_map(|user| Some((rank(user)?, user)))
        .min_by_key(|(rank, _)| *rank)
        .map(|(_, user)| user)
}

/// How the Flight door checks a password.
pub fn password_check(placement: PlacementClient) -> PasswordCheck {
    Arc::new(move |user, password, host| {
        let placement = placement.clone();
        async move {
            let catalog = placement.catalog().await?;
            let known = find(&catalog, &user, host)
                .map(|account| decode(&account.credentials))
                .transpose()?
                .is_some_and(|stored| stored.verify_plaintext(password.as_bytes()));
            if known {
                return Ok(());
            }
            Err(DoorError::new(
                DoorCode::Unauthenticated,
                format!("access denied for user '{user}'@'{host}': wrong user name or password"),
            ))
        }
        .boxed()
    })
}
