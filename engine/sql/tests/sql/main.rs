//! SQL over the store in memory: what statements mean, as scripts and as sessions.
#![allow(clippy::unwrap_used)]

mod advisory;
mod alter;
mod alter_indexes;
mod bound_queries;
mod columns;
mod decimals;
mod definitions;
mod edges;
mod filled;
mod harness;
mod indexes;
mod interrupts;
mod introspection;
mod json;
mod lagging;
mod library_texts;
mod library_words;
mod loading;
mod locking;
mod maintenance;
mod memory;
mod modify;
mod panics;
mod prefixes;
mod privileges;
mod queried;
mod readings;
mod router;
mod scripts;
mod session;
mod statements;
mod status;
mod strict;
mod totals;
mod zero_dates;
