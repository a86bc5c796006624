//! Resource control: what work costs ([`units`]), who pays for it in a process ([`ledger`]), how a payer is held to its rate
//! ([`bucket`]), how the rate of a group is shared out among processes ([`shares`]), what goes first where processors are busy
//! ([`priority`]), and how many units a cluster carries ([`capacity`]).
//!
//! Nothing here does I/O or knows a statement. Costs are noted when they are known, so a payer may run into debt; it waits
//! before its next work, and never in the middle of what others wait for.

pub mod account;
pub mod bucket;
pub mod capacity;
pub mod ledger;
pub mod payer;
pub mod priority;
mod processor;
pub mod shares;
pub mod speed;
pub mod units;
pub mod watches;

pub use account::Account;
pub use bucket::Bucket;
pub use capacity::{Capacity, Place, Processors};
pub use ledger::Ledger;
pub use payer::Payer;
pub use priority::{ReadyWork, Scheduled};
pub use shares::{Grant, Shares, Use};
pub use units::Units;
pub use watches::Watches;
