//! Tests of the room: scenario scripts, random histories against a model, and damage.

mod damage;
mod harness;
mod histories;
mod scans;
mod scripts;
