//! The resource group that a session's statements belong to: its user's as of the session's begin, or the one that SET
//! RESOURCE GROUP or the statement's hint names.
//!
//! What a group may use is not known here.

use std::sync::Arc;

use access::Rights;
use placement::api::{Catalog, CatalogChange, GroupChange};
use resources::{Payer, Scheduled};
use sqlparser::ast::SetExpr;
use syntax::hints;
use syntax::statement::Stmt;
use types::resource_group::{Action, DEFAULT_GROUP};
use types::{Error, GroupOptions, Priority, Privileges, ResourceGroup};
use values::error::{
    SqlError, SqlResult, no_resource_group, privilege_needed, resource_control_disabled,
    resource_group_exists,
};

use super::runaway::Guard;
use super::{Session, done};
use execution::reply::Reply;

/// A session's groups, by their names in lower case.
pub(super) struct GroupChoice {
    /// The user's; none before the session knows the catalog.
    own: Option<String>,
    /// SET RESOURCE GROUP.
    set: Option<String>,
    /// That of statements without a hint, and the catalog's version by which it was chosen.
    usual: Arc<ResourceGroup>,
    chosen_by: Option<u64>,
    /// The running statement's, and who pays for that.
    running: Arc<ResourceGroup>,
    payer: Option<Arc<Payer>>,
    /// Has what runs go by its group's priority.
    scheduled: Arc<Scheduled>,
    /// Of the last statement that could run away.
    guard: Option<Arc<Guard>>,
    /// Whether what runs goes behind all other work.
    gives_way: bool,
    /// Whether groups have an effect.
    controlled: bool,
}

impl GroupChoice {
    pub(super) fn new(scheduled: Arc<Scheduled>) -> Self {
        let usual = Arc::new(ResourceGroup::everybodys());
        let running = usual.clone();
        let (own, set, chosen_by, payer, guard) = (None, None, None, None, None);
        let (gives_way, controlled) = (false, true);
        GroupChoice {
            own,
            set,
            usual,
            chosen_by,
            running,
            payer,
            scheduled,
            guard,
            gives_way,
            controlled,
        }
    }

    /// By what work of the session is scheduled.
    pub(super) fn scheduled(&self) -> Arc<Scheduled> {
        self.scheduled.clone()
    }

    /// What CURRENT_RESOURCE_GROUP() gives.
    pub(super) fn running(&self) -> &str {
        &self.running.name
    }

    /// The group of statements without a hint, as far as it is there.
    fn named_in<'a>(&self, catalog: &'a Catalog) -> Option<&'a ResourceGroup> {
        let groups = &catalog.resources.groups;
        let named = self.set.as_ref().or(self.own.as_ref());
        named.and_then(|name| groups.get(name)).or_else(|| groups.get(DEFAULT_GROUP))
    }
}

/// Whether a user may leave its own group.
fn may_leave(rights: &Rights) -> bool {
    rights.everywhere(Privileges::SUPER.and(Privileges::DYNAMIC))
}

impl Session {
    /// The session begins, with its user's group.
    pub(super) fn begin_group(&mut self, rights: &Rights, catalog: &Catalog) {
        let (user, host) = rights.account();
        self.group.own.get_or_insert_with(|| catalog.resources.of_user(user, host).to_owned());
        self.choose_group(catalog);
    }

    /// Chooses the group of statements without a hint.
    fn choose_group(&mut self, catalog: &Catalog) {
        if self.group.chosen_by == Some(catalog.version) {
            return;
        }
        if let Some(group) = self.group.named_in(catalog) {
            self.group.usual = Arc::new(group.clone());
        }
        self.group.chosen_by = Some(catalog.version);
        self.group.controlled = catalog.controls_resources();
        self.switch_to(self.group.usual.clone());
    }

    fn switch_to(&mut self, group: Arc<ResourceGroup>) {
        self.group.payer = match self.group.controlled {
            true => self.engine.charge_to(&group),
            false => self.engine.charge_nobody(),
        };
        let priority = if self.group.controlled { group.priority } else { Priority::default() };
        self.group.scheduled.set_priority(priority);
        self.group.scheduled.charge_to(self.group.payer.clone());
        self.group.running = group;
    }

    /// Takes the group of a statement that is about to run.
    pub(super) fn take_group(&mut self, statement: &Stmt, rights: &Rights, catalog: &Catalog) {
        self.choose_group(catalog);
        if self.group.guard.take().is_some_and(|guard| guard.has_moved_the_session()) {
            self.switch_to(self.group.usual.clone());
        }
        let Some(name) = hinted_group(statement) else { return };
        match catalog.resources.groups.get(&name) {
            None => self.diagnostics.warn(no_resource_group(&name)),
            Some(_) if !may_leave(rights) && Some(&name) != self.group.own.as_ref() => {
                self.diagnostics.warn(needs_to_leave());
            }
            Some(group) => self.switch_to(Arc::new(group.clone())),
        }
    }

    /// The statement has ended: its hint counts no more.
    pub(super) fn end_group(&mut self) {
        if !Arc::ptr_eq(&self.group.running, &self.group.usual) {
            self.switch_to(self.group.usual.clone());
        }
        if std::mem::take(&mut self.group.gives_way) {
            self.switch_to(self.group.usual.clone());
        }
    }

    /// What a definition does goes behind all other work, if its group says so.
    pub(super) fn give_way(&mut self) {
        if self.group.running.background.iter().any(|task| task == "ddl") {
            self.group.scheduled.set_priority(Priority::Low);
            self.group.gives_way = true;
        }
    }

    /// Returns once the statement may run: it does more than to look at the session, and its group owes nothing.
    pub(super) async fn wait_for_units(&self, statement: &Stmt) -> SqlResult<()> {
        match &self.group.payer {
            Some(payer) if pays(statement) => Ok(payer.admit().await?),
            _ => Ok(()),
        }
    }

    /// What watches over a statement that is about to run, if it may run away.
    ///
    /// # Errors
    ///
    /// 8254 for one that is watched and to be ended.
    pub(super) async fn guard(&mut self, statement: &Stmt) -> SqlResult<Option<Arc<Guard>>> {
        let group = self.group.running.clone();
        if !pays(statement) || !self.engine.may_run_away(&group) {
            return Ok(None);
        }
        let Some(payer) = self.group.payer.clone() else { return Ok(None) };
        let catalog = self.engine.storage.catalog().await?;
        let other = |action: &Action| {
            let Action::Switch(name) = action else { return None };
            let group = catalog.resources.named(name)?;
            Some((group.priority, self.engine.account(group)?))
        };
        let guard = self.guard_of(&group, other, payer, self.group.scheduled.clone())?;
        self.group.guard = guard.map(Arc::new);
        Ok(self.group.guard.clone())
    }

    /// SET RESOURCE GROUP.
    pub(super) async fn set_resource_group(&mut self, name: String) -> SqlResult<Reply> {
        self.engine.storage.timestamp().await?;
        let (rights, catalog) = self.rights().await?;
        if !catalog.controls_resources() {
            return Err(resource_control_disabled());
        }
        if catalog.resources.named(&name).is_none() {
            return Err(no_resource_group(&name));
        }
        if !may_leave(&rights) && self.group.own.as_ref() != Some(&name) {
            return Err(needs_to_leave());
        }
        self.group.set = Some(name);
        self.group.chosen_by = None;
        Ok(done())
    }

    /// CREATE and ALTER RESOURCE GROUP.
    pub(super) async fn put_resource_group(
        &mut self,
        name: String,
        options: GroupOptions,
        lenient: bool,
        create: bool,
    ) -> SqlResult<Reply> {
        let change = match create {
            true => GroupChange::Create(name.clone(), options),
            false => GroupChange::Alter(name.clone(), options),
        };
        self.change_groups(change, lenient.then_some(name)).await
    }

    /// DROP RESOURCE GROUP.
    pub(super) async fn drop_resource_group(
        &mut self,
        name: String,
        if_exists: bool,
    ) -> SqlResult<Reply> {
        self.change_groups(GroupChange::Drop(name.clone()), if_exists.then_some(name)).await
    }

    /// Changes groups; that one of this name is there, or is not, is a note.
    async fn change_groups(
        &mut self,
        change: GroupChange,
        lenient: Option<String>,
    ) -> SqlResult<Reply> {
        self.engine.storage.timestamp().await?;
        if !self.engine.storage.catalog().await?.controls_resources() {
            return Err(resource_control_disabled());
        }
        match self.engine.storage.change(CatalogChange::Groups(change)).await {
            Ok(_) => {}
            // Another group may be meant, to which runaways would be switched.
            Err(Error::NotFound { name, .. }) if lenient.as_ref() == Some(&name) => {
                self.note(no_resource_group(name));
            }
            Err(Error::Exists { name, .. }) if lenient.is_some() => {
                self.note(resource_group_exists(name));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(done())
    }
}

/// Whether what a statement does is paid for.
fn pays(statement: &Stmt) -> bool {
    matches!(
        statement,
        Stmt::Query(_)
            | Stmt::SelectInto(..)
            | Stmt::Insert(_)
            | Stmt::Update(_)
            | Stmt::Delete(..)
            | Stmt::LoadData(_)
            | Stmt::Explain { analyze: true, .. }
            | Stmt::CreateTable(_)
            | Stmt::Maintain { .. }
    )
}

fn needs_to_leave() -> SqlError {
    privilege_needed("SUPER or RESOURCE_GROUP_ADMIN or RESOURCE_GROUP_USER")
}

/// The group that a statement's own hint comment names, in lower case.
fn hinted_group(statement: &Stmt) -> Option<String> {
    let comments = match statement {
        Stmt::Query(query) | Stmt::SelectInto(query, _) => match &*query.body {
            SetExpr::Select(select) => &select.optimizer_hints,
            _ => return None,
        },
        Stmt::Insert(insert) => &insert.optimizer_hints,
        Stmt::Update(update) => &update.optimizer_hints,
        Stmt::Delete(delete, _) => &delete.optimizer_hints,
        Stmt::Explain { statement, .. } => return hinted_group(statement),
        _ => return None,
    };
    comments.iter().find_map(|comment| hints::parse(&comment.text).group)
}
