//! The rules of leases, one by one.

use super::*;

const REGION: RegionId = 7;

fn at(millis: u64) -> Timestamp {
    Timestamp::pack(millis, 0)
}

fn covered(leases: &mut Leases, term: u64, millis: u64) -> bool {
    leases.look(REGION, term, at(millis)).covered
}

#[test]
fn a_lease_ends_its_length_after_the_timestamp_before_the_round() {
    let mut leases = Leases::default();
    assert!(!covered(&mut leases, 3, 0), "nobody has acknowledged anything");
    leases.granted(REGION, 3, at(1_000), 1);
    assert!(covered(&mut leases, 3, 1_000) && covered(&mut leases, 3, 900));
    assert!(covered(&mut leases, 3, 1_000 + LEASE_MS - 1));
    assert!(!covered(&mut leases, 3, 1_000 + LEASE_MS));
    assert!(!leases.look(REGION, 3, Timestamp::MAX).covered);
}

#[test]
fn a_round_that_ends_late_shortens_nothing() {
    let mut leases = Leases::default();
    leases.granted(REGION, 3, at(1_000), 1);
    leases.granted(REGION, 3, at(900), 1);
    assert!(covered(&mut leases, 3, 1_000 + LEASE_MS - 1));
}

#[test]
fn a_lease_is_of_one_term() {
    let mut leases = Leases::default();
    leases.granted(REGION, 3, at(1_000), 1);
    assert!(!covered(&mut leases, 4, 1_000), "another leader may have written in between");
    leases.granted(REGION, 3, at(1_100), 1);
    assert!(!covered(&mut leases, 4, 1_000), "a round of the old term came back late");
    assert!(!covered(&mut leases, 3, 1_000), "the old term is over");
}

#[test]
fn a_lease_is_renewed_once_at_a_time_and_before_it_ends() {
    let mut leases = Leases::default();
    let renew = |leases: &mut Leases, millis| leases.look(REGION, 3, at(millis)).renew;
    assert!(renew(&mut leases, 1_000) && !renew(&mut leases, 1_001), "one is under way");
    leases.not_granted(REGION, 3);
    assert!(renew(&mut leases, 1_002));
    leases.granted(REGION, 3, at(1_002), 1);
    assert!(!renew(&mut leases, 1_050), "most of it is left");
    assert!(renew(&mut leases, 1_002 + LEASE_MS - RENEW_MS));
}

#[test]
fn no_lease_is_prolonged_while_a_split_may_be_applied_elsewhere() {
    let mut leases = Leases::default();
    leases.granted(REGION, 3, at(1_000), 1);
    leases.splits(REGION, 3, 1);
    leases.granted(REGION, 3, at(1_100), 1);
    assert!(covered(&mut leases, 3, 1_100), "what was granted before the split stays");
    assert!(!covered(&mut leases, 3, 1_000 + LEASE_MS));
    leases.granted(REGION, 3, at(1_200), 2);
    assert!(covered(&mut leases, 3, 1_300), "the split is applied here");
}

#[test]
fn a_split_that_was_dropped_holds_nothing_up() {
    let mut leases = Leases::default();
    leases.splits(REGION, 3, 2);
    leases.does_not_split(REGION, 3, 1);
    leases.granted(REGION, 3, at(1_000), 2);
    assert!(!covered(&mut leases, 3, 1_000), "it was another one that was dropped");
    leases.splits(REGION, 3, 2);
    leases.does_not_split(REGION, 3, 2);
    leases.granted(REGION, 3, at(1_000), 2);
    assert!(!covered(&mut leases, 3, 1_000), "the other one is under way");
    leases.does_not_split(REGION, 3, 2);
    leases.granted(REGION, 3, at(1_000), 2);
    assert!(covered(&mut leases, 3, 1_000));
}

#[test]
fn writes_of_a_new_leader_succeed_once_the_oracle_has_passed_the_leases_before_it() {
    let mut leases = Leases::default();
    assert_eq!(leases.fence(REGION, 4, false), Fence::Ask);
    assert_eq!(leases.fence(REGION, 4, false), Fence::Wait);
    assert_eq!(leases.fenced(REGION, 4, at(1_000)), Some(LEASE_MS + 1));
    assert_eq!(
        leases.fenced(REGION, 4, at(1_000 + LEASE_MS)),
        Some(1),
        "at its end is not past it"
    );
    assert_eq!(leases.fence(REGION, 4, false), Fence::Wait);
    assert_eq!(leases.fenced(REGION, 4, at(1_000 + LEASE_MS).next()), None);
    assert_eq!(leases.fence(REGION, 4, false), Fence::Passed);
    assert_eq!(leases.fence(REGION, 5, false), Fence::Ask, "each term anew, a transfer's too");
}

#[test]
fn a_fence_begins_with_the_first_timestamp_of_its_term() {
    let mut leases = Leases::default();
    assert_eq!(leases.fence(REGION, 4, false), Fence::Ask);
    leases.not_fenced(REGION, 4);
    assert_eq!(leases.fence(REGION, 4, false), Fence::Ask, "the oracle was not to be had");
    assert_eq!(leases.fenced(REGION, 4, at(1_000)), Some(LEASE_MS + 1));
    leases.not_fenced(REGION, 4);
    assert_eq!(leases.fence(REGION, 4, false), Fence::Ask);
    assert_eq!(leases.fenced(REGION, 4, at(2_000)), Some(LEASE_MS + 1), "later is safe, too");
}

#[test]
fn the_first_leader_of_a_region_waits_for_nobody() {
    let mut leases = Leases::default();
    assert_eq!(leases.fence(REGION, 6, true), Fence::Passed);
    assert_eq!(leases.fence(REGION, 7, false), Fence::Ask);
}

#[test]
fn regions_that_are_gone_are_forgotten_and_splits_are_not() {
    let mut leases = Leases::default();
    leases.granted(REGION, 3, at(1_000), 1);
    leases.keep(|region| region != REGION);
    assert!(!covered(&mut leases, 3, 1_000));
    leases.splits(REGION, 3, 1);
    leases.keep(|region| region != REGION);
    leases.granted(REGION, 3, at(1_000), 1);
    assert!(!covered(&mut leases, 3, 1_000), "the split may be applied yet");
}
