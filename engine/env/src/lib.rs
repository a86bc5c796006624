//! Clock, randomness and disk, real and simulated: the only room that touches them.
//!
//! Raft, placement, transactions and columns take what they need from here, so that one seed
//! replays one history.
