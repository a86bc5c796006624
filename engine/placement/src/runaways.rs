//! Watched queries and the last runaways: what SQL nodes share of them.
//!
//! Bounded, as all of placement's state is written whole.

use types::query_watch::{QueryWatch, Runaway};
use types::{Error, Result, version};

use crate::state::State;

/// Most watches.
const MAX_WATCHES: usize = 1_000;
/// Most runaways that are kept.
const MAX_RUNAWAYS: usize = 1_000;

/// Takes a watch in, in the place of one of the same queries; its number.
pub(crate) fn watch(state: &mut State, mut watch: QueryWatch) -> Result<u64> {
    check_version(state)?;
    if state.catalog.resources.named(&watch.group).is_none() {
        return Err(Error::not_found("resource group", &watch.group));
    }
    if watch.text.is_empty() || watch.text.len() > QueryWatch::LONGEST {
        let most = QueryWatch::LONGEST;
        return Err(Error::Invalid(format!(
            "a watched query has 1 to {most} bytes of text: watch a longer one as SIMILAR"
        )));
    }
    let kept = &mut state.runaways;
    let now_ms = watch.since_ms;
    kept.watches.retain(|known| !known.is_over(now_ms) && !known.is_like(&watch));
    if kept.watches.len() >= MAX_WATCHES {
        return Err(Error::Invalid(format!("there are at most {MAX_WATCHES} watched queries")));
    }
    kept.last_id += 1;
    kept.version += 1;
    watch.id = kept.last_id;
    kept.watches.push(watch);
    Ok(kept.last_id)
}

/// Removes a watch.
pub(crate) fn unwatch(state: &mut State, id: u64) -> Result<()> {
    let kept = &mut state.runaways;
    let before = kept.watches.len();
    kept.watches.retain(|watch| watch.id != id);
    if kept.watches.len() == before {
        return Err(Error::not_found("query watch", id.to_string()));
    }
    kept.version += 1;
    Ok(())
}

/// Forgets the watches of a group that is gone.
pub(crate) fn forget_group(state: &mut State, group: &str) {
    let kept = &mut state.runaways;
    let before = kept.watches.len();
    kept.watches.retain(|watch| watch.group != group);
    kept.version += u64::from(kept.watches.len() != before);
}

/// Keeps runaways that a SQL node has met.
pub(crate) fn note(state: &mut State, met: Vec<Runaway>) -> Result<()> {
    check_version(state)?;
    let kept = &mut state.runaways.met;
    kept.extend(met);
    kept.drain(..kept.len().saturating_sub(MAX_RUNAWAYS));
    Ok(())
}

fn check_version(state: &State) -> Result<()> {
    if state.version >= version::QUERY_WATCHES {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the cluster is at version {}, and queries are watched from version {} on: upgrade all nodes first",
        state.version,
        version::QUERY_WATCHES
    )))
}

#[cfg(test)]
mod tests {
    use types::ResourceGroup;
    use types::resource_group::{Action, Likeness};

    use super::*;

    fn state() -> State {
        let mut state = State { version: version::QUERY_WATCHES, ..State::new() };
        let group = ResourceGroup::new("g").unwrap();
        state.catalog.resources.groups.insert(group.name.clone(), group);
        state
    }

    fn of(text: &str, since_ms: u64, lasts: Option<u64>) -> QueryWatch {
        QueryWatch {
            id: 0,
            group: "g".into(),
            by: Likeness::Exact,
            text: text.into(),
            action: Action::Kill,
            since_ms,
            until_ms: lasts.map(|lasts| since_ms + lasts),
            source: "manual".into(),
        }
    }

    #[test]
    fn a_watch_takes_the_place_of_one_of_the_same_queries_and_ends() {
        let mut state = state();
        assert_eq!(watch(&mut state, of("a", 10, Some(5))).unwrap(), 1);
        assert_eq!(watch(&mut state, of("a", 12, None)).unwrap(), 2);
        assert_eq!(watch(&mut state, of("b", 13, Some(2))).unwrap(), 3);
        assert_eq!(watch(&mut state, of("c", 15, None)).unwrap(), 4);
        let ids: Vec<u64> = state.runaways.watches.iter().map(|watch| watch.id).collect();
        assert_eq!(ids, [2, 4], "b was over");
        unwatch(&mut state, 2).unwrap();
        assert!(matches!(unwatch(&mut state, 2), Err(Error::NotFound { .. })));
        let before = state.runaways.version;
        forget_group(&mut state, "g");
        assert!(state.runaways.watches.is_empty() && state.runaways.version > before);
    }

    #[test]
    fn what_cannot_be_watched_changes_nothing() {
        let mut state = state();
        let before = state.clone();
        let elsewhere = QueryWatch { group: "h".into(), ..of("a", 1, None) };
        assert!(watch(&mut state, elsewhere).is_err());
        assert!(watch(&mut state, of("", 1, None)).is_err());
        assert!(watch(&mut state, of(&"x".repeat(QueryWatch::LONGEST + 1), 1, None)).is_err());
        assert_eq!(state, before);
        for number in 0..MAX_WATCHES {
            watch(&mut state, of(&number.to_string(), 1, None)).unwrap();
        }
        assert!(watch(&mut state, of("one more", 1, None)).is_err());
        let mut older = State { version: version::QUERY_WATCHES - 1, ..state };
        assert!(watch(&mut older, of("a", 1, None)).unwrap_err().to_string().contains("upgrade"));
    }

    #[test]
    fn the_last_runaways_are_kept() {
        let mut state = state();
        let met = |at_ms| Runaway {
            at_ms,
            group: "g".into(),
            watched: false,
            action: Action::DryRun,
            text: "SELECT 1".into(),
            digest: "d".into(),
            node: 7,
        };
        for at_ms in 0..3 {
            note(&mut state, (0..400).map(|_| met(at_ms)).collect()).unwrap();
        }
        assert_eq!(state.runaways.met.len(), MAX_RUNAWAYS);
        assert_eq!(state.runaways.met.front().map(|first| first.at_ms), Some(0));
        assert_eq!(state.runaways.met.iter().filter(|met| met.at_ms == 0).count(), 200);
    }
}
