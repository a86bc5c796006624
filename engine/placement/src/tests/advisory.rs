//! Advisory locks: who gets them in which order, what lasts when leaders change, and what ends when a
//! session is silent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use env::Instant;

use super::model::{Flaw, Model, Node, group};
use crate::advisory::{KEPT_FOR, Step, Waits, compare};
use crate::api::{Freed, Hold, LockAnswer, LockRequest};
use crate::client::PlacementClient;
use crate::command::{Command, Outcome};
use crate::state::State;
use crate::testing::InProcess;

/// A session's call.
fn hold(owner: u64, call: u64) -> Hold {
    Hold { owner, call, node: 1_000, connection: owner }
}

fn at(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

/// Names and who holds them.
fn held(locks: &[(&str, u64)]) -> BTreeMap<String, Hold> {
    locks.iter().map(|(name, owner)| ((*name).to_owned(), hold(*owner, 1))).collect()
}

fn freed(name: &str, owner: u64, call: u64) -> Freed {
    Freed { name: name.into(), owner, call }
}

#[test]
fn a_lock_is_held_by_one_session_until_that_frees_it() {
    let mut state = State::new();
    let mut take = |owner, call| {
        let command = Command::TakeLock { name: "a".into(), by: hold(owner, call) };
        state.apply(command).unwrap()
    };
    assert_eq!(take(1, 1), Outcome::Lock(None));
    assert_eq!(take(2, 1), Outcome::Lock(Some(hold(1, 1))));
    assert_eq!(take(1, 4), Outcome::Lock(None), "its own");
    let mut free = |owner, call| {
        state.apply(Command::FreeLocks(vec![freed("a", owner, call)])).unwrap();
        state.locks.contains_key("a")
    };
    assert!(free(2, 9), "another session's word");
    assert!(free(1, 3), "a word from before it was taken again");
    assert!(!free(1, 4));
}

#[test]
fn those_who_wait_are_served_in_order_and_who_is_silent_loses_the_place() {
    let mut waits = Waits::default();
    let (busy, free) = (held(&[("a", 1)]), held(&[]));
    for owner in [2, 3, 4] {
        assert_eq!(waits.step(&busy, ("a", &hold(owner, 1)), true, at(owner)), Step::Wait);
    }
    assert_eq!(waits.step(&free, ("a", &hold(3, 1)), true, at(4)), Step::Wait);
    assert_eq!(
        waits.step(&free, ("a", &hold(9, 1)), false, at(4)),
        Step::Wait,
        "no wait, no place"
    );
    assert_eq!(waits.step(&free, ("a", &hold(2, 1)), true, at(4)), Step::Take);
    // Three seconds after its last request, the first is not waited for any more.
    assert_eq!(waits.step(&free, ("a", &hold(3, 1)), true, at(5)), Step::Take);
    waits.leave(3);
    assert_eq!(waits.step(&free, ("a", &hold(4, 1)), true, at(5)), Step::Take);
}

#[test]
fn a_wait_that_would_never_end_is_reported() {
    let mut waits = Waits::default();
    let locks = held(&[("a", 1), ("b", 2), ("c", 3)]);
    let mut wait = |name: &str, owner| waits.step(&locks, (name, &hold(owner, 2)), true, at(1));
    assert_eq!(wait("b", 1), Step::Wait);
    assert_eq!(wait("c", 2), Step::Wait);
    assert_eq!(wait("a", 3), Step::Deadlock);
    // Who got the error does not wait, and is in nobody's way.
    assert_eq!(wait("c", 4), Step::Wait);
    waits.leave(1);
    let step = waits.step(&locks, ("a", &hold(3, 3)), true, at(1));
    assert_eq!(step, Step::Wait, "the circle is open");
}

#[test]
fn a_call_that_was_given_up_gets_nothing_any_more() {
    let mut waits = Waits::default();
    let busy = held(&[("a", 1)]);
    assert_eq!(waits.step(&busy, ("a", &hold(2, 5)), true, at(1)), Step::Wait);
    waits.give_up(2, 5, at(1));
    assert_eq!(waits.step(&held(&[]), ("a", &hold(2, 5)), true, at(1)), Step::Over);
    assert_eq!(
        waits.step(&held(&[]), ("a", &hold(3, 1)), true, at(1)),
        Step::Take,
        "no place left"
    );
    assert_eq!(waits.step(&held(&[]), ("a", &hold(2, 6)), true, at(1)), Step::Take);
}

#[test]
fn locks_of_silent_sessions_are_found() {
    let mut waits = Waits::default();
    let locks = held(&[("a", 1), ("b", 2)]);
    // Whoever is not known yet may only not have sent a heartbeat to this leader.
    assert!(waits.silent(&locks, at(100)).is_empty());
    waits.touch(1, at(105));
    assert!(waits.silent(&locks, at(114)).is_empty());
    assert_eq!(waits.silent(&locks, at(115)), [freed("b", 2, 1)]);
    assert_eq!(waits.silent(&locks, at(120)), [freed("a", 1, 1), freed("b", 2, 1)]);
}

#[test]
fn what_a_session_believes_is_held_against_what_is() {
    let mut locks = held(&[("a", 1), ("b", 1), ("c", 2)]);
    locks.insert("d".into(), hold(1, 7));
    let believed = ["a", "c", "e"].map(String::from).to_vec();
    let (lost, unknown) = compare(&locks, 1, believed, 6);
    assert_eq!(lost, ["c", "e"]);
    assert_eq!(unknown, [freed("b", 1, 1)], "the call of d may be under way");
}

struct Cluster {
    model: Arc<Model>,
    members: Vec<Node>,
    client: PlacementClient,
}

/// Three members, led by the first, which do unasked what there is to do.
fn cluster() -> Cluster {
    let (model, members) = group(3, 1, Flaw::None, true);
    let network = InProcess::new();
    for member in &members {
        network.attach(format!("127.0.0.1:{}", member.id), member.service.clone());
    }
    model.elect(1).unwrap();
    let addresses = (1..=3).map(|n| (n, format!("127.0.0.1:{n}")));
    Cluster { model, members, client: PlacementClient::new(network, addresses) }
}

async fn take(client: &PlacementClient, by: Hold, wait_ms: u64) -> LockAnswer {
    let request = LockRequest::Take { name: "a".into(), by, wait_ms };
    client.advisory_lock(request).await.unwrap()
}

async fn release(client: &PlacementClient, owner: u64) {
    let request = LockRequest::Release { names: vec!["a".into()], owner, call: u64::MAX };
    assert_eq!(client.advisory_lock(request).await.unwrap(), LockAnswer::Free);
}

async fn look(client: &PlacementClient) -> LockAnswer {
    client.advisory_lock(LockRequest::Look { name: "a".into() }).await.unwrap()
}

#[tokio::test]
async fn a_lock_outlives_the_leader_that_gave_it() {
    let Cluster { model, client, .. } = cluster();
    assert_eq!(take(&client, hold(1, 1), 0).await, LockAnswer::Taken);
    for leader in [2, 3] {
        model.elect(leader).unwrap();
        assert_eq!(take(&client, hold(2, 1), 0).await, LockAnswer::Busy);
        assert_eq!(look(&client).await, LockAnswer::Held(hold(1, 1)));
    }
    release(&client, 1).await;
    assert_eq!(look(&client).await, LockAnswer::Free);
}

#[tokio::test]
async fn a_wait_ends_when_the_lock_is_freed() {
    let Cluster { client, .. } = cluster();
    assert_eq!(take(&client, hold(1, 1), 0).await, LockAnswer::Taken);
    let waiter = client.clone();
    // So short a wait is one request, which nobody repeats: it is woken, or it fails.
    let waiting = tokio::spawn(async move { take(&waiter, hold(2, 1), 1_400).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished(), "it is held back");
    release(&client, 1).await;
    let answer = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap();
    assert_eq!(answer, LockAnswer::Taken);
    assert_eq!(look(&client).await, LockAnswer::Held(hold(2, 1)));
}

#[tokio::test]
async fn a_silent_session_loses_its_lock_and_one_with_heartbeats_keeps_it() {
    let Cluster { members, client, .. } = cluster();
    assert_eq!(take(&client, hold(1, 1), 0).await, LockAnswer::Taken);
    let keep = LockRequest::Keep { owner: 1, held: vec!["a".into()], ended: 1 };
    for _ in 0..3 {
        members[0].clock.advance(KEPT_FOR / 2);
        let kept = client.advisory_lock(keep.clone()).await.unwrap();
        assert_eq!(kept, LockAnswer::Lost(Vec::new()));
    }
    // Moved on for as long as it takes; the leader looks around on its own.
    let mut turns = 0;
    while look(&client).await != LockAnswer::Free {
        turns += 1;
        assert!(turns < 200, "the lock of a silent session is never freed");
        members[0].clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(turns > 5, "freed after {turns} s");
    let lost = client.advisory_lock(keep).await.unwrap();
    assert_eq!(lost, LockAnswer::Lost(vec!["a".into()]));
    assert_eq!(take(&client, hold(2, 1), 0).await, LockAnswer::Taken);
}
