//! CREATE USER, SET PASSWORD, DROP USER; what users may do is `grants`' business. Passwords are stored as the server around us checks them,
//! and never logged.

use placement::api::{CatalogChange, Grants, GroupChange, User};
use syntax::statement::UserName;
use values::error::{
    SqlError, SqlResult, no_resource_group, no_user, unsupported, user_does_not_exist, user_exists,
    user_operation_failed,
};

use crate::session::{Session, done};
use execution::reply::Reply;

fn failed(verb: &str, user: &UserName) -> SqlError {
    user_operation_failed(verb, &user.name, &user.host)
}

impl Session {
    /// The account that this session's user was let in by.
    pub(super) fn own_account(&self) -> UserName {
        let rights = self.identity.known_rights();
        let (name, host) = rights.account();
        UserName { name: name.to_owned(), host: host.to_owned() }
    }

    fn stored_password(&self, password: &str) -> SqlResult<Vec<u8>> {
        match &self.engine.host {
            Some(host) => Ok(host.store_password(password)),
            None if password.is_empty() => Ok(Vec::new()),
            None => Err(unsupported("passwords without a server")),
        }
    }

    /// CREATE USER and ALTER USER.
    pub(in crate::session) async fn put_users(
        &mut self,
        users: Vec<(UserName, Option<String>)>,
        group: Option<String>,
        lenient: bool,
        create: bool,
    ) -> SqlResult<Reply> {
        self.engine.storage.timestamp().await?;
        let catalog = self.engine.storage.catalog().await?;
        if let Some(group) = group.as_ref().filter(|group| catalog.resources.named(group).is_none())
        {
            return Err(no_resource_group(group));
        }
        let mut accounts = Vec::new();
        for (user, password) in users {
            let exists = catalog.user(&user.name, &user.host).is_some();
            if exists == create {
                if !lenient {
                    return Err(failed(if create { "CREATE" } else { "ALTER" }, &user));
                }
                self.note(match create {
                    true => user_exists(&user.name, &user.host),
                    false => user_does_not_exist(&user.name, &user.host),
                });
                continue;
            }
            accounts.push((user.name.clone(), user.host.clone()));
            // Without one, a new user has an empty password, and another keeps what it has.
            if create || password.is_some() {
                self.put_user(user, &password.unwrap_or_default()).await?;
            }
        }
        if let Some(group) = group.filter(|_| !accounts.is_empty()) {
            let change = GroupChange::Assign { accounts, group };
            self.engine.storage.change(CatalogChange::Groups(change)).await?;
        }
        Ok(done())
    }

    async fn put_user(&mut self, user: UserName, password: &str) -> SqlResult<()> {
        let credentials = self.stored_password(password)?;
        // A new user may do nothing; one that is there keeps what it may do.
        let grants = Grants::default();
        let user = User { name: user.name, host: user.host, credentials, grants };
        self.engine.storage.change(CatalogChange::PutUser(user)).await?;
        Ok(())
    }

    /// SET PASSWORD.
    pub(in crate::session) async fn set_password(
        &mut self,
        user: Option<UserName>,
        password: &str,
    ) -> SqlResult<Reply> {
        self.engine.storage.timestamp().await?;
        let catalog = self.engine.storage.catalog().await?;
        let user = match user {
            Some(user) => user,
            None => self.own_account(),
        };
        if catalog.user(&user.name, &user.host).is_none() {
            return Err(no_user());
        }
        self.put_user(user, password).await?;
        Ok(done())
    }

    /// DROP USER.
    pub(in crate::session) async fn drop_users(
        &mut self,
        users: Vec<UserName>,
        if_exists: bool,
    ) -> SqlResult<Reply> {
        for user in users {
            let change =
                CatalogChange::DropUser { name: user.name.clone(), host: user.host.clone() };
            match self.engine.storage.change(change).await {
                Ok(_) => {}
                Err(types::Error::NotFound { .. }) if if_exists => {
                    self.note(user_does_not_exist(&user.name, &user.host));
                }
                Err(types::Error::NotFound { .. }) => return Err(failed("DROP", &user)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done())
    }
}
