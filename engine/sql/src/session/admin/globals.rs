//! What is set for everybody: SET GLOBAL, `@@global.x`, and what a session begins with.
//!
//! Kept in the catalog, so that every SQL node has the same. Never waits for long: a session that
//! cannot learn it begins with the defaults.

use std::time::Duration;

use placement::api::CatalogChange;
use types::Value;
use values::coerce::text;
use values::error::{SqlResult, unsupported, wrong_duration};

use crate::session::Session;
use crate::variables::{Globals, Variables};

/// How long a session's first statement may wait for the catalog.
const CATALOG_TIMEOUT: Duration = Duration::from_secs(1);

impl Session {
    /// Begins with what is set for everybody.
    pub(in crate::session) async fn begin_variables(&mut self) {
        if self.variables.have_begun() {
            return;
        }
        let catalog = tokio::time::timeout(CATALOG_TIMEOUT, self.engine.storage.catalog()).await;
        if let Ok(Ok(catalog)) = catalog {
            let rights = self.identity.rights_by(&catalog);
            self.begin_group(&rights, &catalog);
            self.variables.begin(catalog.globals.clone());
        }
    }

    /// What is set for everybody now.
    pub(in crate::session) async fn globals(&self) -> SqlResult<Globals> {
        // Brings the catalog up to date.
        self.engine.storage.timestamp().await?;
        Ok(self.engine.storage.catalog().await?.globals.clone())
    }

    /// SET GLOBAL; sessions that are there already keep what they have.
    pub(super) async fn set_global(&self, name: &str, value: Option<Value>) -> SqlResult<()> {
        if name.eq_ignore_ascii_case("tidb_gc_life_time") {
            return self.set_life(name, value).await;
        }
        let (name, value) = Variables::global(name, value)?;
        self.engine.storage.change(CatalogChange::SetGlobal { name, value }).await?;
        Ok(())
    }

    async fn set_life(&self, name: &str, value: Option<Value>) -> SqlResult<()> {
        let text = value.map_or_else(|| "10m".to_owned(), text);
        let life = values::duration::duration(&text).ok_or_else(|| wrong_duration(name, &text))?;
        Ok(self.engine.storage.set_life(life).await?)
    }

    /// SET GLOBAL TRANSACTION.
    pub(super) async fn set_global_isolation(&self, level: &str) -> SqlResult<()> {
        if !["READ-COMMITTED", "REPEATABLE-READ"].contains(&level) {
            return Err(unsupported(format!("SET GLOBAL TRANSACTION of {level}")));
        }
        self.set_global("transaction_isolation", Some(Value::String(level.into()))).await
    }
}
