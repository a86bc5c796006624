//! The Flight server and distributed plans over columnar replicas.
//!
//! A columnar node runs both: the Flight server takes requests from Spark, ADBC clients and the SQL router,
//! plans them, and coordinates; workers scan the regions that their node holds. It never reads a
//! row store's leader except for one read index per region.

pub mod actions;
mod answering;
mod attempts;
pub mod auth;
pub mod channel;
pub mod error;
pub mod exec;
pub mod flight;
pub mod guard;
pub mod handlers;
pub mod layout;
mod life;
pub mod metadata;
pub mod parts;
mod payer;
pub mod prepared;
mod prepared_scan;
mod privileges;
pub mod pruning;
pub mod reader;
pub mod remote;
pub mod request;
pub mod rules;
pub mod scan;
pub mod scan_spec;
mod server_info;
pub mod session;
pub mod table;
pub mod tasks;
pub mod ticket;
pub mod verifier;
mod worker;
