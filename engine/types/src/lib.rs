//! What every crate agrees on: values, schemas, keys, rows, regions, timestamps, errors, tokens.
//!
//! This crate imports no other one, does no I/O and reads no clock.

pub mod calibration;
pub mod columns;
pub mod decimal;
pub mod error;
pub mod foreign_key;
pub mod ids;
pub mod index;
pub mod key;
pub mod labels;
pub mod privileges;
pub mod query_watch;
mod ranges;
pub mod region;
mod region_kind;
pub mod resource_group;
pub mod retry;
pub mod row;
pub mod schema;
pub mod setting;
pub mod time;
pub mod token;
pub mod value;
pub mod version;
pub mod wide;

pub use decimal::Decimal;
pub use error::{Error, Result};
pub use foreign_key::{ForeignKey, OnParent};
pub use ids::{ColumnId, IndexId, NodeId, PeerId, RegionId, SchemaVersion, TableId};
pub use index::{Index, IndexState, KeyPart};
pub use labels::Labels;
pub use privileges::Privileges;
pub use region::{Epoch, Peer, PeerRole, Region, ReplicaLag};
pub use region_kind::RegionKind;
pub use resource_group::{GroupOptions, Priority, ResourceGroup};
pub use row::Row;
pub use schema::{Check, Column, ColumnType, Default, IntWidth, Table};
pub use time::Timestamp;
pub use token::{LeaseId, SnapshotToken};
pub use value::Value;
pub use version::ClusterVersion;
pub use wide::Wide;
