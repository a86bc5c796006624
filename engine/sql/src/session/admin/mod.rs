//! What administers a session or the server: SET, SHOW, users and their privileges, maintenance of tables.
//!
//! Nothing here changes a row.

mod calibration;
mod config;
mod globals;
mod grants;
mod maintenance;
mod privileges;
pub(super) mod settings;
mod show;
pub mod status;
mod users;
