//! Who a session belongs to, and what its user may do.
//!
//! Rights are those of one version of the catalog and are made anew when that changes; nothing is
//! decided here.

use std::sync::Arc;

use access::Rights;
use placement::api::Catalog;

/// Who a session belongs to.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Connection number.
    pub id: u64,
    /// User name.
    pub user: String,
    /// Client's address.
    pub host: String,
    /// CLIENT_FOUND_ROWS: UPDATE counts the rows it found, changed or not.
    pub found_rows: bool,
}

/// A session's user, with what that may do.
pub(super) struct Identity {
    info: SessionInfo,
    /// What the user may do, by a version of the catalog.
    rights: Option<(u64, Arc<Rights>)>,
}

impl Identity {
    /// A user of whom no right is known yet.
    pub(super) fn new(info: SessionInfo) -> Self {
        Identity { info, rights: None }
    }

    /// Connection number.
    pub(super) fn connection(&self) -> u64 {
        self.info.id
    }

    /// User name.
    pub(super) fn user(&self) -> &str {
        &self.info.user
    }

    /// User and address, as USER() gives them.
    pub(super) fn user_and_host(&self) -> String {
        format!("{}@{}", self.info.user, self.info.host)
    }

    /// What an UPDATE counts of rows found and rows changed: the client chooses (CLIENT_FOUND_ROWS).
    pub(super) fn counted<T>(&self, found: T, changed: T) -> T {
        if self.info.found_rows { found } else { changed }
    }

    /// What the user may do by a catalog.
    pub(super) fn rights_by(&mut self, catalog: &Catalog) -> Arc<Rights> {
        match &self.rights {
            Some((version, rights)) if *version == catalog.version => rights.clone(),
            _ => {
                let rights = Arc::new(Rights::of(catalog, &self.info.user, &self.info.host));
                self.rights = Some((catalog.version, rights.clone()));
                rights
            }
        }
    }

    /// What the user might do when the statement began.
    pub(super) fn known_rights(&self) -> Arc<Rights> {
        match &self.rights {
            Some((_, rights)) => rights.clone(),
            None => Arc::new(Rights::nobodys(&self.info.user, &self.info.host)),
        }
    }

    /// The account whose rights are known, as CURRENT_USER() gives it: nothing if none are.
    pub(super) fn account(&self) -> Option<String> {
        let (_, rights) = self.rights.as_ref()?;
        let (name, host) = rights.account();
        Some(format!("{name}@{host}"))
    }

    /// Whom a new session of the same client belongs to.
    pub(super) fn info(&self) -> &SessionInfo {
        &self.info
    }
}
