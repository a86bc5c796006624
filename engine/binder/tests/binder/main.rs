//! What queries are bound to, and what their plans mean, over tables in memory.
#![allow(clippy::unwrap_used)]

mod bound;
mod meaning;
mod restrictions;
mod rules;
mod tables;
