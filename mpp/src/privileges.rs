//! What callers of the Flight server may read: the privileges of MySQL's users, checked where a request is
//! planned. A ticket that was issued stays good when they are taken away.

use std::sync::Arc;

use access::{Need, Rights, check_query};
use placement::api::Catalog;
use syntax::names::TableName;
use types::Privileges;
use values::error::{
    COMMAND_DENIED, DATABASE_DENIED, PRIVILEGE_NEEDED, SqlError, no_resource_group,
    privilege_needed,
};

use crate::auth::Caller;
use crate::error::{MppCode, MppError, MppResult};
use crate::exec::Engine;

fn named(database: &str, table: &str) -> TableName {
    TableName { database: database.to_lowercase(), table: table.to_lowercase() }
}

fn denied(error: &SqlError) -> MppError {
    let code = match error.code {
        DATABASE_DENIED | COMMAND_DENIED | PRIVILEGE_NEEDED => MppCode::Denied,
        _ => MppCode::Invalid,
    };
    MppError::numbered(code, error)
}

impl Engine {
    /// What a caller may do; none where its SQL node has looked already.
    async fn rights(&self, caller: &Caller) -> MppResult<Option<(Rights, Arc<Catalog>)>> {
        if caller.vouched {
            return Ok(None);
        }
        // A timestamp shows whether the catalog has changed.
        self.timestamp().await?;
        let catalog = self.placement.catalog().await?;
        Ok(Some((Rights::of(&catalog, &caller.user, &caller.host), catalog)))
    }

    /// Fails where a caller may not read every table of a query.
    pub async fn check_query(&self, query: &str, database: &str, caller: &Caller) -> MppResult<()> {
        match self.rights(caller).await? {
            Some((rights, _)) => {
                check_query(&rights, query, database).map_err(|error| denied(&error))
            }
            None => Ok(()),
        }
    }

    /// Fails where a caller may not read a table.
    pub async fn check_scan(&self, database: &str, table: &str, caller: &Caller) -> MppResult<()> {
        let need = Need::to_select(named(database, table));
        match self.rights(caller).await? {
            Some((rights, _)) => rights.check(&need).map_err(|error| denied(&error)),
            None => Ok(()),
        }
    }

    /// Fails where a caller may not know what a table is like.
    pub async fn check_known(&self, database: &str, table: &str, caller: &Caller) -> MppResult<()> {
        match self.rights(caller).await? {
            Some((rights, _)) if !rights.sees_table(database, table) => {
                let need = Need::to_select(named(database, table));
                rights.check(&need).map_err(|error| denied(&error))
            }
            _ => Ok(()),
        }
    }

    /// The resource group that pays for a caller: its own, or the one that it asks for and may use.
    pub async fn group_of(&self, caller: &Caller, asked: Option<&str>) -> MppResult<String> {
        let catalog = self.placement.catalog().await?;
        let rights = Rights::of(&catalog, &caller.user, &caller.host);
        let (user, host) = rights.account();
        let own = catalog.resources.of_user(user, host);
        let Some(asked) = asked.filter(|asked| !asked.eq_ignore_ascii_case(own)) else {
            return Ok(own.to_owned());
        };
        let Some(group) = catalog.resources.named(asked) else {
            return Err(MppError::numbered(MppCode::NotFound, &no_resource_group(asked)));
        };
        if !caller.vouched && !rights.everywhere(Privileges::SUPER.and(Privileges::DYNAMIC)) {
            let needed = "SUPER or RESOURCE_GROUP_ADMIN or RESOURCE_GROUP_USER";
            return Err(denied(&privilege_needed(needed)));
        }
        Ok(group.name.clone())
    }

    /// What a caller may see of the present catalog.
    pub async fn visible_catalog(&self, caller: &Caller) -> MppResult<Arc<Catalog>> {
        match self.rights(caller).await? {
            Some((rights, catalog)) => Ok(rights.visible(&catalog)),
            None => Ok(self.placement.catalog().await?),
        }
    }
}
