//! What statements need, by the names of tables in them, prepared ones each time.
//!
//! Views are not opened yet then: who may read a view need not be able to read its tables. What names stand for is not
//! looked at, and nothing is decided here.

use std::ops::ControlFlow;

use placement::api::Catalog;
use sqlparser::ast::{
    AssignmentTarget, CreateTable, CreateTableLikeKind, Delete, Expr, ForeignKeyConstraint,
    FromTable, Insert, LockType, ObjectName, OnInsert, Query, SetExpr, TableConstraint,
    TableFactor, TableObject, TableWithJoins, Update, Visitor,
};
use syntax::from::{deletes_joined, factors, updates_joined};
use syntax::names::{TableName, parts, table_name};
use syntax::statement::{
    Alter, Assignment, DefineView, LoadData, Scope, Show, ShowKind, Stmt, Target, Task, UserName,
};
use syntax::walk::{Part, finds};
use types::Privileges;
use values::error::SqlResult;

use crate::{Need, Rights, reads};

/// Whether anybody may run a statement, whoever it is; these must also run where the catalog is
/// not to be had.
pub fn needs_no_privilege(statement: &Stmt) -> bool {
    match statement {
        Stmt::Begin { .. }
        | Stmt::Commit
        | Stmt::Rollback
        | Stmt::Savepoint(..)
        | Stmt::SetNames(_)
        | Stmt::Deallocate(_)
        // What it runs is looked at by itself.
        | Stmt::Execute { .. }
        | Stmt::Nothing => true,
        Stmt::Show(show) => {
            matches!(show.kind, ShowKind::Warnings { .. } | ShowKind::WarningCount { .. })
        }
        _ => false,
    }
}

/// Who runs a statement, and in which database.
pub struct Requester<'a> {
    /// The current database; empty for none.
    pub database: &'a str,
    /// What the user may do.
    pub rights: &'a Rights,
    /// What there is.
    pub catalog: &'a Catalog,
}

impl Requester<'_> {
    /// What a statement needs.
    ///
    /// # Errors
    ///
    /// A name without a database where there is no current one.
    pub fn by(&self, statement: &Stmt) -> SqlResult<Vec<Need>> {
        match statement {
            Stmt::Query(query) | Stmt::SelectInto(query, _) => self.by_query(query),
            Stmt::Insert(insert) => self.by_insert(insert),
            Stmt::Update(update) => self.by_update(update),
            Stmt::Delete(delete, _) => self.by_delete(delete),
            Stmt::LoadData(load) => self.by_load(load),
            Stmt::Prepare { source, .. } => self.selects(source),
            Stmt::Do(exprs) => self.selects(exprs),
            Stmt::Set(list) => self.by_set(list),
            Stmt::Explain { statement, .. } => self.by(statement),
            Stmt::Describe { table, .. } => self.some(table, "SELECT"),
            Stmt::Show(show) => self.by_show(show),
            Stmt::SetTransaction { scope: Scope::Global, .. } => Ok(vec![to_set_globals()]),
            Stmt::SetPassword { user: Some(user), .. } => Ok(self.by_users(&[user])),
            Stmt::PutUser { users, group, create: false, .. } => {
                let users: Vec<_> = users.iter().map(|(user, _)| user).collect();
                let mut needs = self.by_users(&users);
                if group.is_some() {
                    needs.push(to_create_users());
                }
                Ok(needs)
            }
            Stmt::PutUser { .. } => Ok(vec![to_create_users()]),
            Stmt::DropUser { users, .. } => {
                let mut needs = self.by_users(&users.iter().collect::<Vec<_>>());
                needs.push(to_create_users());
                Ok(needs)
            }
            Stmt::PutResourceGroup { .. }
            | Stmt::DropResourceGroup { .. }
            | Stmt::QueryWatch(_)
            | Stmt::QueryUnwatch(_)
            | Stmt::Calibrate(_) => {
                let any = Privileges::SUPER.and(Privileges::RESOURCE_GROUP_ADMIN);
                Ok(vec![Need::Everywhere { any, named: "SUPER or RESOURCE_GROUP_ADMIN" }])
            }
            Stmt::SetConfig { .. } => {
                Ok(vec![Need::Everywhere { any: Privileges::SUPER, named: "SUPER" }])
            }
            Stmt::Flush => Ok(vec![Need::Everywhere { any: Privileges::RELOAD, named: "RELOAD" }]),
            definition => self.by_definition(definition),
        }
    }

    fn by_definition(&self, statement: &Stmt) -> SqlResult<Vec<Need>> {
        use Privileges as P;
        let database = |name: &str, all| vec![Need::Database { name: name.to_lowercase(), all }];
        let renamed = |from: &ObjectName, to: &ObjectName| -> SqlResult<[Need; 2]> {
            let from = self.on(from, P::ALTER.and(P::DROP))?;
            Ok([from, self.on(to, P::CREATE.and(P::INSERT))?])
        };
        Ok(match statement {
            Stmt::CreateDatabase { name, .. } => database(name, P::CREATE),
            Stmt::DropDatabase { name, .. } => database(name, P::DROP),
            Stmt::AlterDatabase(name) => {
                let name = name.as_deref().unwrap_or(self.database);
                // Without a database there is another error.
                if name.is_empty() { Vec::new() } else { database(name, P::ALTER) }
            }
            Stmt::Maintain { task, tables } => {
                let all = match task {
                    Task::Check | Task::AdminCheck => P::SELECT,
                    Task::Analyze | Task::Optimize => P::SELECT.and(P::INSERT),
                };
                tables.iter().map(|name| self.on(name, all)).collect::<SqlResult<_>>()?
            }
            Stmt::LockTables(tables) => {
                let all = P::SELECT.and(P::LOCK_TABLES);
                tables.iter().map(|name| self.on(name, all)).collect::<SqlResult<_>>()?
            }
            Stmt::CreateTable(create) => self.by_create(create)?,
            Stmt::DropTable { names, .. } | Stmt::DropViews { names, .. } => {
                names.iter().map(|name| self.on(name, P::DROP)).collect::<SqlResult<_>>()?
            }
            Stmt::Truncate(table) => vec![self.on(table, P::DROP)?],
            Stmt::CreateIndex(create) => vec![self.to_index(&create.table_name)?],
            Stmt::DropIndex { table, .. } => vec![self.to_index(table)?],
            Stmt::AlterTable { table, actions } => {
                let mut needs = vec![self.on(table, P::ALTER)?];
                for action in actions {
                    match action {
                        Alter::RenameTable(to) => needs.extend(renamed(table, to)?),
                        Alter::AddForeignKey(key) => needs.push(self.to_refer(table, key)?),
                        _ => {}
                    }
                }
                needs
            }
            Stmt::RenameTables(names) => {
                let mut needs = Vec::new();
                for (from, to) in names {
                    needs.extend(renamed(from, to)?);
                }
                needs
            }
            Stmt::SetReplica { table, .. } | Stmt::SplitTable { table, .. } => {
                vec![self.on(table, P::ALTER)?]
            }
            Stmt::PutView(view) => self.by_view(view)?,
            // USE, KILL, GRANT, REVOKE and SET RESOURCE GROUP look for themselves; the others need nothing.
            _ => Vec::new(),
        })
    }

    fn name(&self, name: &ObjectName) -> SqlResult<TableName> {
        table_name(name, self.database)
    }

    /// All of some privileges on a table.
    fn on(&self, name: &ObjectName, all: Privileges) -> SqlResult<Need> {
        Ok(Need::Table { name: self.name(name)?, all })
    }

    /// Anything on a table; the command is what is denied without.
    fn some(&self, name: &ObjectName, command: &'static str) -> SqlResult<Vec<Need>> {
        let name = self.name(name)?;
        Ok(vec![Need::OneOn { name, any: Privileges::ON_TABLES, command }])
    }

    /// CREATE INDEX is also an ALTER TABLE.
    fn to_index(&self, name: &ObjectName) -> SqlResult<Need> {
        let any = Privileges::INDEX.and(Privileges::ALTER);
        Ok(Need::OneOn { name: self.name(name)?, any, command: "INDEX" })
    }

    /// To read every table of a part of a statement.
    fn selects(&self, part: &impl Part) -> SqlResult<Vec<Need>> {
        Ok(reads(part, self.database)?.into_iter().map(Need::to_select).collect())
    }

    fn by_query(&self, query: &Query) -> SqlResult<Vec<Need>> {
        let mut needs = self.selects(query)?;
        let locks = query.locks.iter().any(|lock| lock.lock_type == LockType::Update);
        if let (true, SetExpr::Select(select)) = (locks, &*query.body) {
            let any = Privileges::UPDATE.and(Privileges::DELETE).and(Privileges::LOCK_TABLES);
            for Named { table: name, .. } in self.named(&select.from) {
                // Not a name of WITH.
                if needs.contains(&Need::to_select(name.clone())) {
                    needs.push(Need::OneOn { name, any, command: "SELECT with locking clause" });
                }
            }
        }
        Ok(needs)
    }

    fn by_insert(&self, insert: &Insert) -> SqlResult<Vec<Need>> {
        let mut needs = self.selects(&insert.source)?;
        for assignment in &insert.assignments {
            needs.extend(self.selects(assignment)?);
        }
        let mut all = Privileges::INSERT;
        if insert.replace_into {
            all = all.and(Privileges::DELETE);
        }
        if let Some(OnInsert::DuplicateKeyUpdate(assignments)) = &insert.on {
            all = all.and(Privileges::UPDATE);
            for assignment in assignments {
                needs.extend(self.selects(assignment)?);
            }
        }
        if let TableObject::TableName(name) = &insert.table {
            needs.push(self.on(name, all)?);
        }
        Ok(needs)
    }

    fn by_load(&self, load: &LoadData) -> SqlResult<Vec<Need>> {
        let all = match load.replace {
            true => Privileges::INSERT.and(Privileges::DELETE),
            false => Privileges::INSERT,
        };
        let mut needs = vec![self.on(&load.table, all)?];
        for (_, value) in &load.assignments {
            needs.extend(self.selects(value)?);
        }
        Ok(needs)
    }

    /// Tables that are written, of those that a statement joins.
    fn by_update(&self, update: &Update) -> SqlResult<Vec<Need>> {
        let from = std::slice::from_ref(&update.table);
        let named = self.named(from);
        let mut needs = self.selects(&update.selection)?;
        needs.extend(self.selects(&update.order_by)?);
        needs.extend(self.selects(&update.from)?);
        for assignment in &update.assignments {
            needs.extend(self.selects(assignment)?);
        }
        let values: Vec<Expr> = update.assignments.iter().map(|a| a.value.clone()).collect();
        if updates_joined(update)
            || named.is_empty()
            || names_columns(&values)
            || names_columns(&update.selection)
            || names_columns(&update.order_by)
        {
            needs.extend(self.selects(&update.table)?);
        }
        let all = Privileges::UPDATE;
        for assignment in &update.assignments {
            let written = named.iter().filter(|one| self.is_of(&assignment.target, one));
            let mut written: Vec<&Named> = written.collect();
            if written.is_empty() {
                written = named.iter().collect();
            }
            needs.extend(written.iter().map(|one| Need::Table { name: one.table.clone(), all }));
        }
        Ok(needs)
    }

    fn by_delete(&self, delete: &Delete) -> SqlResult<Vec<Need>> {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let mut needs = self.selects(&delete.selection)?;
        needs.extend(self.selects(&delete.order_by)?);
        let all = Privileges::DELETE;
        let to_delete = |one: &Named| Need::Table { name: one.table.clone(), all };
        if !deletes_joined(delete) {
            let named = self.named(from);
            if named.len() != 1
                || names_columns(&delete.selection)
                || names_columns(&delete.order_by)
            {
                needs.extend(self.selects(from)?);
            }
            needs.extend(named.iter().map(to_delete));
            return Ok(needs);
        }
        // DELETE t FROM … names its targets before FROM, DELETE FROM t USING … after it.
        let (wanted, from) = match &delete.using {
            Some(using) => (self.named(from), using),
            None => (Vec::new(), from),
        };
        needs.extend(self.selects(from)?);
        let named = self.named(from);
        let wanted = wanted.into_iter().map(|one| one.path);
        for path in wanted.chain(delete.tables.iter().map(parts)) {
            match named.iter().find(|one| one.is_called(&path)) {
                Some(one) => needs.push(to_delete(one)),
                // Whoever runs it says that there is no such table among them.
                None => needs.extend(named.iter().map(to_delete)),
            }
        }
        Ok(needs)
    }

    fn by_set(&self, list: &[Assignment]) -> SqlResult<Vec<Need>> {
        let mut needs = Vec::new();
        for Assignment { target, value } in list {
            needs.extend(self.selects(value)?);
            if let Target::Global(_) = target {
                needs.push(to_set_globals());
            }
        }
        Ok(needs)
    }

    fn by_create(&self, create: &CreateTable) -> SqlResult<Vec<Need>> {
        let mut all = Privileges::CREATE;
        let mut needs = self.selects(&create.query)?;
        if create.query.is_some() {
            all = all.and(Privileges::INSERT);
        }
        if let Some(CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like)) =
            &create.like
        {
            needs.push(self.on(&like.name, Privileges::SELECT)?);
        }
        needs.push(self.on(&create.name, all)?);
        for constraint in &create.constraints {
            if let TableConstraint::ForeignKey(key) = constraint {
                needs.push(self.to_refer(&create.name, key)?);
            }
        }
        Ok(needs)
    }

    /// What a foreign key of a table needs at the one that it refers to, which lies in the same database unless it says otherwise.
    fn to_refer(&self, child: &ObjectName, key: &ForeignKeyConstraint) -> SqlResult<Need> {
        let database = self.name(child)?.database;
        let name = table_name(&key.foreign_table, &database)?;
        Ok(Need::Table { name, all: Privileges::REFERENCES })
    }

    fn by_view(&self, view: &DefineView) -> SqlResult<Vec<Need>> {
        let all = match view.alter || view.replace {
            true => Privileges::CREATE_VIEW.and(Privileges::DROP),
            false => Privileges::CREATE_VIEW,
        };
        let mut needs = vec![self.on(&view.name, all)?];
        needs.extend(self.selects(&view.query)?);
        if view.definer.as_ref().is_some_and(|user| !self.rights.is_own(&user.name, &user.host)) {
            needs.push(Need::Everywhere { any: Privileges::SUPER, named: "SUPER or SET_USER_ID" });
        }
        Ok(needs)
    }

    /// To change the password of users: one's own is free. Who may do everything is not taken over
    /// by who may not.
    fn by_users(&self, users: &[&UserName]) -> Vec<Need> {
        let mut needs = Vec::new();
        for user in users.iter().filter(|user| !self.rights.is_own(&user.name, &user.host)) {
            needs.push(to_create_users());
            let known = self.catalog.user(&user.name, &user.host);
            if known.is_some_and(|known| known.grants.everywhere.meets(Privileges::SUPER)) {
                needs.push(Need::Everywhere { any: Privileges::SUPER, named: "SUPER" });
            }
        }
        needs
    }

    fn by_show(&self, show: &Show) -> SqlResult<Vec<Need>> {
        let something_in = |database: &Option<String>| {
            let name = database.as_deref().unwrap_or(self.database).to_lowercase();
            // Without a database there is another error.
            if name.is_empty() { Vec::new() } else { vec![Need::SomethingIn(name)] }
        };
        Ok(match &show.kind {
            ShowKind::Tables { database, .. } | ShowKind::TableStatus { database } => {
                something_in(database)
            }
            ShowKind::CreateDatabase(name) => something_in(&Some(name.clone())),
            ShowKind::Columns { table, .. } | ShowKind::Index { table } => {
                self.some(table, "SELECT")?
            }
            ShowKind::CreateTable(name) | ShowKind::CreateView(name) => {
                let found = self.name(name)?;
                match self.catalog.view_named(&found.database, &found.table) {
                    Some(_) => {
                        let all = Privileges::SELECT.and(Privileges::SHOW_VIEW);
                        vec![Need::Table { name: found, all }]
                    }
                    None => self.some(name, "SHOW")?,
                }
            }
            ShowKind::Grants(Some(user)) if !self.rights.is_own(&user.name, &user.host) => {
                vec![Need::Database { name: "mysql".into(), all: Privileges::SELECT }]
            }
            ShowKind::Config => {
                let any = Privileges::SUPER.and(Privileges::PROCESS);
                vec![Need::Everywhere { any, named: "SUPER or PROCESS" }]
            }
            _ => Vec::new(),
        })
    }

    /// The tables of a FROM, but for those of derived tables, and what they are called there.
    fn named(&self, from: &[TableWithJoins]) -> Vec<Named> {
        let mut named = Vec::new();
        for factor in factors(from) {
            let TableFactor::Table { name, alias, args: None, .. } = factor else { continue };
            let Ok(table) = self.name(name) else { continue };
            let mut path = vec![table.database.clone(), table.table.clone()];
            if let Some(alias) = alias {
                path = vec![alias.name.value.to_lowercase()];
            }
            named.push(Named { path, table });
        }
        named
    }

    /// Whether a table has the column that is assigned to.
    fn is_of(&self, target: &AssignmentTarget, one: &Named) -> bool {
        let AssignmentTarget::ColumnName(name) = target else { return true };
        let mut path = parts(name);
        let column = path.pop().unwrap_or_default();
        if !path.is_empty() {
            return one.is_called(&path);
        }
        let table = self.catalog.table_named(&one.table.database, &one.table.table);
        table.is_some_and(|table| table.column_named(&column).is_some())
    }
}

/// A table of a FROM.
struct Named {
    /// Its alias, or its database and name.
    path: Vec<String>,
    table: TableName,
}

impl Named {
    /// Whether a name, with or without its database, means it.
    fn is_called(&self, path: &[String]) -> bool {
        match path {
            [database, name] => self.path.last() == Some(name) && self.table.database == *database,
            [name] => self.path.last() == Some(name),
            _ => false,
        }
    }
}

fn to_set_globals() -> Need {
    Need::Everywhere { any: Privileges::SUPER, named: "SUPER or SYSTEM_VARIABLES_ADMIN" }
}

fn to_create_users() -> Need {
    Need::Everywhere { any: Privileges::CREATE_USER, named: "CREATE USER" }
}

/// Whether a part of a statement names columns: then it says something of their values.
fn names_columns(part: &impl Part) -> bool {
    struct Columns;
    impl Visitor for Columns {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let variable = |name: &sqlparser::ast::Ident| {
                name.quote_style.is_none()
                    && (name.value.starts_with('@') || name.value.eq_ignore_ascii_case("default"))
            };
            match expr {
                Expr::Identifier(name) if !variable(name) => ControlFlow::Break(()),
                Expr::CompoundIdentifier(path) if !path.first().is_some_and(variable) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    finds(part, &mut Columns)
}
