//! Tests of the crate: scenario scripts, random histories against a model, and damage.

mod damage;
mod dropping;
mod harness;
mod histories;
mod scans;
mod scripts;
mod steady;
mod threads;
mod throughput;
mod types_of_columns;
mod widening;
