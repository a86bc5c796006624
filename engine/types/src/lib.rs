//! What every crate agrees on: values, schemas, keys, rows, regions, timestamps, errors, tokens.
//!
//! This crate imports no other one, does no I/O and reads no clock.

pub mod columns;
pub mod error;
pub mod index;
pub mod key;
pub mod labels;
pub mod privileges;
pub mod region;
pub mod row;
pub mod schema;
pub mod time;
pub mod token;
pub mod value;
pub mod wide;

pub use error::{Error, Result};
pub use index::{Index, IndexState, KeyPart};
pub use labels::Labels;
pub use privileges::Privileges;
pub use region::{Epoch, NodeId, Peer, PeerId, PeerRole, Region, RegionId, RegionKind, ReplicaLag};
pub use row::Row;
pub use schema::{
    Check, Column, ColumnId, ColumnType, Default, IndexId, IntWidth, SchemaVersion, Table, TableId,
};
pub use time::Timestamp;
pub use token::{LeaseId, SnapshotToken};
pub use value::{Decimal, Value};
pub use wide::Wide;
