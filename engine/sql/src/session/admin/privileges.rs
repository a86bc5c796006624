//! Privileges of statements: each is checked here before it runs, prepared ones each time.
//!
//! Nothing is decided elsewhere, but for what is shown in lists and for whose statements KILL ends.

use std::sync::Arc;

use access::needs::{Requester, needs_no_privilege};
use access::{Rights, check_views};
use placement::api::Catalog;
use syntax::statement::Stmt;
use types::Privileges;
use values::error::{SqlResult, not_owner};

use crate::session::Session;

impl Session {
    /// What the session's user may do, by the catalog that is known here.
    pub(in crate::session) async fn rights(&mut self) -> SqlResult<(Arc<Rights>, Arc<Catalog>)> {
        let catalog = self.engine.storage.catalog().await?;
        let rights = self.identity.rights_by(&catalog);
        Ok((rights, catalog))
    }

    /// Fails where the session's user may not run a statement.
    pub(in crate::session) async fn check_privileges(&mut self, statement: &Stmt) -> SqlResult<()> {
        if needs_no_privilege(statement) {
            return Ok(());
        }
        let (rights, catalog) = self.rights().await?;
        self.take_group(statement, &rights, &catalog);
        if rights.is_everything() || self.allowed(statement, &rights, &catalog).is_ok() {
            return Ok(());
        }
        // It may have been granted by another node a moment ago.
        self.engine.storage.timestamp().await?;
        let (rights, catalog) = self.rights().await?;
        self.allowed(statement, &rights, &catalog)
    }

    fn allowed(&self, statement: &Stmt, rights: &Rights, catalog: &Catalog) -> SqlResult<()> {
        let requester = Requester { database: self.variables.database(), rights, catalog };
        let needs = requester.by(statement)?;
        needs.iter().try_for_each(|need| rights.check(need))?;
        check_views(catalog, rights, &needs)
    }

    /// Fails where another user's connection is to be ended by somebody who may not.
    pub(in crate::session) fn check_kill(&self, id: u64) -> SqlResult<()> {
        if self.identity.known_rights().everywhere(Privileges::SUPER) {
            return Ok(());
        }
        let processes = self.engine.host.as_ref().map(|host| host.processes()).unwrap_or_default();
        match processes.iter().find(|process| process.id == id) {
            Some(process) if process.user != self.identity.user() => Err(not_owner(id)),
            _ => Ok(()),
        }
    }
}
