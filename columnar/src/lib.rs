//! Learners that turn the log into columns, and scans of them.
//!
//! Never contacts a leader to apply, and never depends on a query engine.
