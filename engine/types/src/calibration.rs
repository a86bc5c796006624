//! CALIBRATE RESOURCE: how many request units a second a cluster carries, by what is asked.

use serde::{Deserialize, Serialize};

/// A load whose costs are known, as TiDB names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KnownLoad {
    /// TPC-C.
    Tpcc,
    /// sysbench's oltp_read_write.
    ReadWrite,
    /// sysbench's oltp_read_only.
    ReadOnly,
    /// sysbench's oltp_write_only.
    WriteOnly,
}

impl KnownLoad {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tpcc, Self::ReadWrite, Self::ReadOnly, Self::WriteOnly];

    /// The name in a statement.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpcc => "TPCC",
            Self::ReadWrite => "OLTP_READ_WRITE",
            Self::ReadOnly => "OLTP_READ_ONLY",
            Self::WriteOnly => "OLTP_WRITE_ONLY",
        }
    }
}

/// What a cluster's capacity is found from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Calibration {
    /// Its processors, under a load whose costs are known.
    Hardware(KnownLoad),
    /// What was used of its processors for how many units, from a Unix millisecond to another.
    Used {
        /// From when.
        from_ms: u64,
        /// Until when.
        to_ms: u64,
    },
}
