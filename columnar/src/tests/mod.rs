//! Tests of the room: scenario scripts, random histories against a model, and damage.

mod damage;
mod dropping;
mod figures;
mod harness;
mod histories;
mod scans;
mod scripts;
mod steady;
mod threads;
mod types_of_columns;
mod widening;
