//! Resource groups: made, altered, dropped, and given to users.
//!
//! What a name or an option may be is checked here; what a group has used is not known here.

use types::resource_group::{Action, DEFAULT_GROUP};
use types::{Error, GroupOptions, ResourceGroup, Result};

use crate::api::GroupChange;
use crate::runaways;
use crate::state::State;

/// Most groups: every node fetches the catalog as one message.
const MAX_GROUPS: usize = 1_024;

/// Carries out a change of groups, or changes nothing and says why.
pub(crate) fn change_groups(state: &mut State, change: GroupChange) -> Result<()> {
    match change {
        GroupChange::Create(name, options) => create(state, &name, &options),
        GroupChange::Alter(name, options) => {
            let known = state.catalog.resources.named(&name);
            let altered = options.of(known.ok_or_else(|| missing(&name))?);
            put(state, altered)
        }
        GroupChange::Drop(name) => drop_group(state, &name),
        GroupChange::Assign { accounts, group } => assign(state, accounts, &group),
    }
}

fn missing(name: &str) -> Error {
    Error::not_found("resource group", name)
}

fn create(state: &mut State, name: &str, options: &GroupOptions) -> Result<()> {
    if state.catalog.resources.named(name).is_some() {
        return Err(Error::exists("resource group", name));
    }
    if state.catalog.resources.groups.len() >= MAX_GROUPS {
        return Err(Error::Invalid(format!("there are at most {MAX_GROUPS} resource groups")));
    }
    let group = options.of(&ResourceGroup::new(name)?);
    if options.ru_per_sec.is_none() {
        return Err(Error::Invalid(format!(
            "resource group {name} needs RU_PER_SEC, a number of request units or UNLIMITED"
        )));
    }
    put(state, group)
}

/// Takes a group in as it is described, in the place of the one of its name.
fn put(state: &mut State, group: ResourceGroup) -> Result<()> {
    if group.ru_per_sec == Some(0) {
        return Err(Error::Invalid("RU_PER_SEC is 1 or more, or UNLIMITED".into()));
    }
    let groups = &mut state.catalog.resources.groups;
    if let Some(Action::Switch(to)) = group.query_limit.as_ref().map(|limit| &limit.action)
        && *to != group.name
        && !groups.contains_key(to)
    {
        return Err(missing(to));
    }
    groups.insert(group.name.clone(), group);
    Ok(())
}

fn drop_group(state: &mut State, name: &str) -> Result<()> {
    if name == DEFAULT_GROUP {
        return Err(Error::Invalid("the default resource group cannot be dropped".into()));
    }
    let resources = &mut state.catalog.resources;
    if let Some(((user, host), _)) = resources.users.iter().find(|(_, group)| *group == name) {
        return Err(Error::Invalid(format!(
            "user {user}@{host} belongs to resource group {name}: give it another one first"
        )));
    }
    let switches = |group: &&ResourceGroup| {
        let action = group.query_limit.as_ref().map(|limit| &limit.action);
        group.name != name && matches!(action, Some(Action::Switch(to)) if to == name)
    };
    if let Some(other) = resources.groups.values().find(switches) {
        return Err(Error::Invalid(format!(
            "runaways of resource group {} go on in {name}: alter that first",
            other.name
        )));
    }
    resources.groups.remove(name).ok_or_else(|| missing(name))?;
    runaways::forget_group(state, name);
    Ok(())
}

fn assign(state: &mut State, accounts: Vec<(String, String)>, group: &str) -> Result<()> {
    if state.catalog.resources.named(group).is_none() {
        return Err(missing(group));
    }
    for (name, host) in &accounts {
        if state.catalog.user(name, host).is_none() {
            return Err(Error::not_found("user", format!("{name}@{host}")));
        }
    }
    for (name, host) in accounts {
        state.catalog.resources.users.insert((name, host.to_lowercase()), group.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use types::version;

    use super::*;
    use crate::api::CatalogChange;
    use crate::catalog::check_known;

    fn state() -> State {
        State { version: version::RESOURCE_GROUPS, ..State::new() }
    }

    fn rate(ru: u64) -> GroupOptions {
        GroupOptions { ru_per_sec: Some(Some(ru)), ..GroupOptions::default() }
    }

    #[test]
    fn the_default_group_is_there_and_stays() {
        let mut state = state();
        let everybodys = state.catalog.resources.named("DEFAULT").unwrap().clone();
        assert_eq!(everybodys, ResourceGroup::everybodys());
        assert!(change_groups(&mut state, GroupChange::Drop("default".into())).is_err());
        change_groups(&mut state, GroupChange::Alter("default".into(), rate(7))).unwrap();
        assert_eq!(state.catalog.resources.named("default").unwrap().ru_per_sec, Some(7));
    }

    #[test]
    fn a_group_that_is_used_is_not_dropped() {
        let mut state = state();
        change_groups(&mut state, GroupChange::Create("a".into(), rate(7))).unwrap();
        assert!(matches!(
            change_groups(&mut state, GroupChange::Create("a".into(), rate(7))),
            Err(Error::Exists { .. })
        ));
        let accounts = vec![("root".to_owned(), "localhost".to_owned())];
        let of = |group: &str, accounts: &[(String, String)]| GroupChange::Assign {
            accounts: accounts.to_vec(),
            group: group.into(),
        };
        assert!(change_groups(&mut state, of("b", &accounts)).is_err());
        let nobody = [accounts[0].clone(), ("nobody".to_owned(), "%".to_owned())];
        assert!(change_groups(&mut state, of("a", &nobody)).is_err());
        assert!(state.catalog.resources.users.is_empty(), "one of several was given the group");
        change_groups(&mut state, of("a", &accounts)).unwrap();
        assert_eq!(state.catalog.resources.of_user("root", "LOCALHOST"), "a");
        assert!(change_groups(&mut state, GroupChange::Drop("a".into())).is_err());
        change_groups(&mut state, of("default", &accounts)).unwrap();
        change_groups(&mut state, GroupChange::Drop("a".into())).unwrap();
        assert!(matches!(
            change_groups(&mut state, GroupChange::Drop("a".into())),
            Err(Error::NotFound { .. })
        ));
    }

    #[test]
    fn rates_and_groups_to_switch_to_are_checked() {
        let mut state = state();
        assert!(change_groups(&mut state, GroupChange::Create("a".into(), rate(0))).is_err());
        let nothing = GroupOptions::default();
        assert!(change_groups(&mut state, GroupChange::Create("a".into(), nothing)).is_err());
        let switching = |to: &str| GroupOptions {
            query_limit: Some(Some(types::resource_group::QueryLimit {
                exec_elapsed: None,
                ru: Some(1),
                action: Action::Switch(to.into()),
                watch: None,
            })),
            ..rate(7)
        };
        assert!(
            change_groups(&mut state, GroupChange::Create("a".into(), switching("b"))).is_err()
        );
        change_groups(&mut state, GroupChange::Create("b".into(), rate(7))).unwrap();
        change_groups(&mut state, GroupChange::Create("a".into(), switching("b"))).unwrap();
        assert!(change_groups(&mut state, GroupChange::Drop("b".into())).is_err());
    }

    #[test]
    fn a_cluster_with_older_programs_has_no_groups() {
        let change = CatalogChange::Groups(GroupChange::Create("a".into(), rate(7)));
        check_known(&change, version::RESOURCE_GROUPS).unwrap();
        let refused = check_known(&change, version::RESOURCE_GROUPS - 1);
        assert!(refused.unwrap_err().to_string().contains("upgrade"));
    }
}
