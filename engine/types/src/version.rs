//! Versions of what nodes share: the log, messages, tickets, placement's state.
//!
//! One number stands for all of it. A program speaks every version from [`MINIMUM`] to [`CURRENT`]; a cluster is at
//! the greatest version that all of its nodes speak, which placement raises and never lowers (in the manner of
//! CockroachDB's cluster version). Writers write what the cluster's version has, and readers read all.
//!
//! | version | has |
//! |---|---|
//! | 1 | the formats of before there were versions |
//! | 2 | tickets that carry bound queries; placement's state with the cluster's version in it |
//! | 3 | leaders that answer reads by leases; at every version, those of this program wait for leases before theirs |
//! | 4 | transactions of one region that commit in one entry; at every version, replicas of this program ask the leader how far to read |
//! | 5 | tables whose indexes and records begin in one region; when each table's columns last changed, in placement's state |
//! | 6 | transactions of several regions that commit once all of their keys are locked |
//! | 7 | resource groups, behind placement's state and the catalog |
//! | 8 | watched queries and runaways, behind those in placement's state |
//! | 9 | locks of keys that several transactions hold beside each other |
//! | 10 | foreign keys, behind placement's state and the catalog |

use crate::error::{Error, Result};

/// A cluster's version, or the greatest one that a program speaks.
pub type ClusterVersion = u32;

/// The greatest version that this program speaks.
pub const CURRENT: ClusterVersion = 10;

/// The version from which on leaders answer reads by leases.
pub const LEASES: ClusterVersion = 3;

/// The version from which on transactions of one region commit in one entry.
pub const ONE_ENTRY: ClusterVersion = 4;

/// The version from which on a new table's indexes and records share one region until it is cut.
pub const SHARED_REGIONS: ClusterVersion = 5;

/// The version from which on placement notes when a table's columns changed.
pub const COLUMN_CHANGES: ClusterVersion = 5;

/// The version from which on transactions of several regions commit asynchronously.
pub const ASYNC_COMMITS: ClusterVersion = 6;

/// The version from which on there are resource groups.
pub const RESOURCE_GROUPS: ClusterVersion = 7;

/// The version from which on queries are watched.
pub const QUERY_WATCHES: ClusterVersion = 8;

/// The version from which on transactions hold keys beside each other.
pub const SHARED_LOCKS: ClusterVersion = 9;

/// The version from which on there are foreign keys.
pub const FOREIGN_KEYS: ClusterVersion = 10;

/// The least one.
pub const MINIMUM: ClusterVersion = 1;

/// The version that a message names; programs that knew of none name none.
pub fn named(version: u32) -> ClusterVersion {
    version.max(1)
}

/// Refuses a program that does not speak a cluster's version.
///
/// # Errors
///
/// `Invalid`, with both versions.
pub fn check_program(speaks: ClusterVersion, cluster: ClusterVersion) -> Result<()> {
    if speaks >= cluster {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the cluster is at version {cluster}, and this program speaks versions up to {speaks}: install the release \
         that the other nodes run"
    )))
}

/// Refuses a cluster whose version this program does not speak any more.
///
/// # Errors
///
/// `Invalid`, with both versions.
pub fn check_cluster(cluster: ClusterVersion) -> Result<()> {
    if cluster >= MINIMUM {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the cluster is at version {cluster}, and this program speaks versions from {MINIMUM} on: upgrade all nodes \
         through the releases between them"
    )))
}

/// The error of bytes in a format that this program does not know, which is no damage: another program wrote them.
pub fn unknown_format(what: &str, found: u8, known: u8) -> Error {
    Error::Invalid(format!(
        "{what} has format {found}, and this program reads format {known}: start the release that wrote it, or a \
         later one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_too_old_or_too_new_is_refused_with_both_versions() {
        assert_eq!(check_program(2, 2), Ok(()));
        assert_eq!(check_program(2, 1), Ok(()));
        let error = check_program(named(0), 2).unwrap_err().to_string();
        assert!(error.contains("at version 2") && error.contains("up to 1"), "{error}");
        assert_eq!(check_cluster(MINIMUM), Ok(()));
        let error = check_cluster(MINIMUM - 1).unwrap_err().to_string();
        assert!(error.contains("at version 0") && error.contains("from 1 on"), "{error}");
    }
}
