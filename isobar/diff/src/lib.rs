//! `isobar diff`: compares tables of MySQL-protocol servers and of files.
//!
//! It knows servers by their protocol only and imports no other crate, so that it compares any two.

mod args;
mod bisect;
mod catalog;
mod class;
mod compare;
mod csvfile;
mod digest;
mod error;
mod expr;
mod files;
mod fix;
mod input;
mod journal;
mod lease;
mod location;
mod parquetfile;
mod progress;
mod range;
mod report;
mod rows;
mod run;
mod schema;
mod server;
mod sides;
mod table;
mod throttle;

pub use args::Args;
pub use error::Error;
pub use run::run;
