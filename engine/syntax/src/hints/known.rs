//! Every hint that is taken, with what it does.
//!
//! The page `docs/reference/hints.md` is made of it: what is no hint here is reported to the client. It reads no text.

use super::Engine;

/// What comes of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tables are read from the engines that it names.
    Engines,
    /// The query has so many milliseconds.
    Milliseconds,
    /// The statement is of the resource group that it names.
    Group,
    /// Nothing: it chooses for MySQL among plans with the same rows.
    PlanChoice,
}

/// A hint.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// What it is called, in upper case.
    pub name: &'static str,
    /// What stands in its parentheses.
    pub arguments: &'static str,
    /// What comes of it.
    pub effect: Effect,
    /// What it asks for, for the page of hints.
    pub meaning: &'static str,
}

const TABLES: &str = "t, …";
const INDEXES: &str = "t i, …";

const fn plans(name: &'static str, arguments: &'static str, meaning: &'static str) -> Hint {
    Hint { name, arguments, effect: Effect::PlanChoice, meaning }
}

/// All of them: first those that are followed; then, in order, those of MySQL 8.0 that choose among plans with the same
/// rows (10.9.3 Optimizer Hints). Those that change settings are not among them: whoever writes one counts on its effect.
pub const HINTS: &[Hint] = &[
    Hint {
        name: "READ_FROM_STORAGE",
        arguments: "engine[t, …], …",
        effect: Effect::Engines,
        meaning: "The engine that reads these tables, by their names or aliases. Behind any SELECT of the query it is for the whole query; of several for one table the last counts.",
    },
    Hint {
        name: "MAX_EXECUTION_TIME",
        arguments: "n",
        effect: Effect::Milliseconds,
        meaning: "Milliseconds after which the query ends with 3024, in place of `max_execution_time`; 0 for no limit. It counts in a statement that is one SELECT, not in its parts nor in a UNION; of several the first counts.",
    },
    Hint {
        name: "RESOURCE_GROUP",
        arguments: "name",
        effect: Effect::Group,
        meaning: "The resource group that the statement belongs to; of several the first counts.",
    },
    plans("BKA", TABLES, "Join them by keys that are looked up in batches."),
    plans("BNL", TABLES, "Join them by blocks of rows, or by a hash table."),
    plans("DERIVED_CONDITION_PUSHDOWN", TABLES, "Apply conditions inside of derived tables."),
    plans("GROUP_INDEX", INDEXES, "Use these indexes for GROUP BY."),
    plans("HASH_JOIN", TABLES, "Join them by a hash table."),
    plans("INDEX", INDEXES, "Use these indexes, for whatever they serve."),
    plans("INDEX_MERGE", INDEXES, "Read by several indexes and merge what they find."),
    plans("JOIN_FIXED_ORDER", "", "Join tables in the order in which they stand in FROM."),
    plans("JOIN_INDEX", INDEXES, "Use these indexes to find rows."),
    plans("JOIN_ORDER", TABLES, "Join these tables in this order."),
    plans("JOIN_PREFIX", TABLES, "Join these tables first, in this order."),
    plans("JOIN_SUFFIX", TABLES, "Join these tables last, in this order."),
    plans("MERGE", TABLES, "Make derived tables and views a part of the query around them."),
    plans("MRR", INDEXES, "Sort what an index finds before rows are read."),
    plans("NO_BKA", TABLES, "Not as `BKA`."),
    plans("NO_BNL", TABLES, "Not as `BNL`."),
    plans("NO_DERIVED_CONDITION_PUSHDOWN", TABLES, "Not as `DERIVED_CONDITION_PUSHDOWN`."),
    plans("NO_GROUP_INDEX", INDEXES, "Not as `GROUP_INDEX`."),
    plans("NO_HASH_JOIN", TABLES, "Not as `HASH_JOIN`."),
    plans("NO_ICP", INDEXES, "Apply no conditions while an index is read."),
    plans("NO_INDEX", INDEXES, "Not as `INDEX`."),
    plans("NO_INDEX_MERGE", INDEXES, "Not as `INDEX_MERGE`."),
    plans("NO_JOIN_INDEX", INDEXES, "Not as `JOIN_INDEX`."),
    plans("NO_MERGE", TABLES, "Not as `MERGE`."),
    plans("NO_MRR", INDEXES, "Not as `MRR`."),
    plans("NO_ORDER_INDEX", INDEXES, "Not as `ORDER_INDEX`."),
    plans("NO_RANGE_OPTIMIZATION", INDEXES, "Read no ranges of these indexes."),
    plans("NO_SEMIJOIN", "strategy, …", "Not as `SEMIJOIN`."),
    plans("NO_SKIP_SCAN", INDEXES, "Not as `SKIP_SCAN`."),
    plans("ORDER_INDEX", INDEXES, "Use these indexes for ORDER BY."),
    plans("QB_NAME", "name", "A name of the query or subquery, for other hints."),
    plans("SEMIJOIN", "strategy, …", "Answer IN and EXISTS by joins of these kinds."),
    plans("SKIP_SCAN", INDEXES, "Read an index without a condition on its first column."),
    plans("SUBQUERY", "strategy", "Answer a subquery row by row, or make its rows once."),
];

/// Names of engines in hints, TiDB's among them.
pub const ENGINES: &[(&str, Engine)] = &[
    ("COLUMNS", Engine::Columns),
    ("COLUMNAR", Engine::Columns),
    ("TIFLASH", Engine::Columns),
    ("ROWS", Engine::Rows),
    ("ROW", Engine::Rows),
    ("TIKV", Engine::Rows),
];

/// The hint of a name, however it is written.
pub(super) fn hint(name: &str) -> Option<&'static Hint> {
    HINTS.iter().find(|hint| hint.name.eq_ignore_ascii_case(name))
}

/// The engine of a name, however it is written.
pub(super) fn engine(name: &str) -> Option<Engine> {
    let found = ENGINES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, engine)| *engine)
}
