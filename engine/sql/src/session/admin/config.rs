//! SET CONFIG: settings of nodes of every kind, for operators who have no shell on them.
//!
//! What is set is kept among what is set for everybody; nodes find it there, and report by what they go.

use execution::reply::Reply;
use placement::api::{CatalogChange, NodeRole, NodeStatus};
use types::Error;
use types::setting::{Setting, kind_of};
use values::error::SqlResult;

use crate::session::{Session, done};

impl Session {
    /// Sets a setting of a kind of node, or of one node, from now on; or gives it back to the nodes' files.
    ///
    /// # Errors
    ///
    /// What is no setting of such a node, or no value of it.
    pub(in crate::session) async fn set_config(
        &mut self,
        whose: &str,
        name: &str,
        value: Option<String>,
    ) -> SqlResult<Reply> {
        let setting = Setting::named(name).ok_or_else(|| {
            Error::Invalid(format!(
                "'{name}' is no setting that can be changed while nodes run: SHOW CONFIG lists all, and the reference of \
                 the configuration says which can"
            ))
        })?;
        let (whose, kinds) = match kind_of(whose) {
            Some(kind) => (kind.to_owned(), vec![kind]),
            None => self.node_named(whose).await?,
        };
        if !kinds.iter().any(|kind| setting.kinds.contains(kind)) {
            let of = setting.kinds.join(", ");
            return Err(Error::Invalid(format!(
                "{} is a setting of nodes of kind {of}",
                setting.name
            ))
            .into());
        }
        let value = value.map(|value| setting.value(&value)).transpose()?;
        let change = CatalogChange::SetGlobal { name: setting.key(&whose), value };
        self.engine.storage.change(change).await?;
        Ok(done())
    }

    /// A node by its address, that of its clients, or its number; and the kinds that it is of.
    async fn node_named(&self, name: &str) -> SqlResult<(String, Vec<&'static str>)> {
        let nodes = self.engine.storage.status().await?.nodes;
        let named = |of: &&NodeStatus| {
            let node = &of.node;
            [node.rpc_address.as_str(), node.client_address.as_str()].contains(&name)
                || node.id.to_string() == name
        };
        let found = nodes.iter().find(named).ok_or_else(|| {
            Error::Invalid(format!(
                "'{name}' is neither a kind of node (row, sql, columnar) nor the address or number of one"
            ))
        })?;
        let mut kinds = vec![found.node.role.name()];
        // A row node that answers MySQL clients is a SQL node, too.
        if found.node.role == NodeRole::Row && !found.node.client_address.is_empty() {
            kinds.push("sql");
        }
        Ok((found.node.id.to_string(), kinds))
    }
}
