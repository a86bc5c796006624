//! Peers that have lost what they acknowledged, and processes that may not take part yet.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;

use common::{Rig, region};
use env::Disk;
use raft::testing::SimOptions;
use raft::{Groups, Participation, StoreConfig};
use types::region::PLACEMENT_REGION;

#[test]
fn a_voter_whose_log_is_lost_is_faulted_by_its_leaders_heartbeat() {
    let mut rig = Rig::new(3, 1);
    rig.cluster.create(&region(2, &[1, 2, 3])).unwrap();
    for value in 0..40 {
        rig.write(2, "a", value).unwrap();
    }
    let leader = rig.wait_leader(2);
    let victim = (1..=3).find(|node| *node != leader).unwrap();
    // Its machine had reached the disk at the initial position only: what is left looks new.
    rig.crash(victim, false);
    rig.cluster.disk(victim).unwrap().remove_dir_all(Path::new("/raft")).unwrap();
    rig.cluster.restart(victim).unwrap();
    let groups = rig.cluster.groups(victim).unwrap();
    let faulted = rig.cluster.run_until(100, |_| groups.status(2).unwrap().fault.is_some());
    assert!(faulted, "a peer that has lost its log goes on");
    let fault = groups.status(2).unwrap().fault.unwrap();
    assert!(fault.contains("has acknowledged") && !fault.contains("Raft stopped"), "{fault}");
    // The others go on without it.
    rig.write(2, "a", 100).unwrap();
}

#[test]
fn nobody_votes_or_leads_before_it_takes_part() {
    let config = StoreConfig { participation: Participation::None, ..StoreConfig::new(0) };
    let mut rig = Rig::with(SimOptions { config, ..SimOptions::default() });
    for id in [PLACEMENT_REGION, 2] {
        let mut region = region(id, &[1, 2, 3]);
        if id == PLACEMENT_REGION {
            region.kind = types::RegionKind::Placement;
        }
        rig.cluster.create(&region).unwrap();
    }
    rig.cluster.run(100);
    let led = |rig: &Rig, id| rig.cluster.leader(id).is_some();
    assert!(!led(&rig, PLACEMENT_REGION) && !led(&rig, 2));
    rig.cluster.participate(1, Participation::All).unwrap();
    rig.cluster.run(100);
    assert!(!led(&rig, 2), "one of three leads by votes that nobody may give");
    rig.cluster.participate(2, Participation::Placement).unwrap();
    rig.wait_leader(PLACEMENT_REGION);
    rig.cluster.run(100);
    assert!(!led(&rig, 2), "node 2 has voted in a group that it takes no part in");
    rig.cluster.participate(2, Participation::All).unwrap();
    rig.wait_leader(2);
}
