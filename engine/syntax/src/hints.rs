//! Optimizer hints: what the comments `/*+ … */` behind SELECT say.
//!
//! A hint that is followed here, or that names an order or an algorithm for MySQL's optimizer, is taken in silence: all of
//! them stand in [`HINTS`]. Any other is reported, as MySQL does, and never fails a statement.

mod known;

use std::collections::BTreeMap;

pub use known::{ENGINES, Effect, HINTS, Hint};

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The row store.
    Rows,
    /// Columnar replicas.
    Columns,
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Engine::Rows => "rows",
            Engine::Columns => "columns",
        })
    }
}

/// What a hint comment asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `READ_FROM_STORAGE(TIFLASH[a, b], TIKV[c])`: engines by table or alias, in lower case.
    pub engines: BTreeMap<String, Engine>,
    /// `MAX_EXECUTION_TIME(n)`, in milliseconds.
    pub milliseconds: Option<u64>,
    /// `RESOURCE_GROUP(g)`, in lower case.
    pub group: Option<String>,
    /// The text from the first hint on that is none. What follows it is not read.
    pub unknown: Option<String>,
}

/// Reads the text between `/*+` and `*/`.
pub fn parse(text: &str) -> Hints {
    let mut hints = Hints::default();
    let mut rest = text.trim_start_matches(is_between);
    while !rest.is_empty() {
        let Some(after) = hints.take(rest) else {
            hints.unknown = Some(rest.trim_end().to_owned());
            break;
        };
        rest = after.trim_start_matches(is_between);
    }
    hints
}

fn is_between(c: char) -> bool {
    c.is_whitespace() || c == ','
}

impl Hints {
    /// Takes the first hint of a text, and gives what follows it; `None` if it is not a hint.
    fn take<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        let (name, rest) = text.split_at_checked(end)?;
        let (arguments, rest) = rest.trim_start().strip_prefix('(')?.split_once(')')?;
        match known::hint(name)?.effect {
            Effect::Engines => self.engines.extend(engines(arguments)?),
            Effect::Milliseconds => {
                let number = arguments.trim().parse().ok()?;
                self.milliseconds.get_or_insert(number);
            }
            Effect::Group => {
                let name = arguments.trim().trim_matches('`');
                if name.is_empty() {
                    return None;
                }
                self.group.get_or_insert_with(|| name.to_lowercase());
            }
            Effect::PlanChoice => {}
        }
        Some(rest)
    }
}

/// Reads `TIFLASH[a, b], TIKV[c]`; `None` if it is not such a list.
fn engines(mut text: &str) -> Option<BTreeMap<String, Engine>> {
    let mut found = BTreeMap::new();
    while !text.trim_matches(is_between).is_empty() {
        let (engine, after) = text.split_once('[')?;
        let (tables, after) = after.split_once(']')?;
        let engine = known::engine(engine.trim_matches(is_between))?;
        for table in tables.split(',') {
            let name = table.rsplit('.').next().unwrap_or_default().trim().trim_matches('`');
            if name.is_empty() {
                return None;
            }
            found.insert(name.to_lowercase(), engine);
        }
        text = after;
    }
    Some(found)
}

#[cfg(test)]
mod page;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_read_as_tidb_writes_it() {
        let read =
            parse("HASH_JOIN(t1,t2) READ_FROM_STORAGE(TIFLASH[t1, `d`.`T2`], TIKV[t3]), MRR(y)");
        let expected = [("t1", Engine::Columns), ("t2", Engine::Columns), ("t3", Engine::Rows)];
        assert_eq!(read.engines, expected.map(|(name, engine)| (name.to_owned(), engine)).into());
        assert_eq!(read.unknown, None);
        let read = parse("read_from_storage(columnar[a]) max_execution_time( 20 )");
        assert_eq!(read.engines, [("a".into(), Engine::Columns)].into());
        assert_eq!(read.milliseconds, Some(20));
        let read = parse("RESOURCE_GROUP(`RG1`), resource_group(rg2)");
        assert_eq!((read.group.as_deref(), read.unknown), (Some("rg1"), None));
    }

    #[test]
    fn the_first_text_that_is_no_hint_is_reported_with_what_follows() {
        for (text, unknown) in [
            (" NO_ICP(t) FOO(t1) MRR(t2) ", Some("FOO(t1) MRR(t2)")),
            ("SET_VAR(sort_buffer_size=1)", Some("SET_VAR(sort_buffer_size=1)")),
            ("MAX_EXECUTION_TIME(soon)", Some("MAX_EXECUTION_TIME(soon)")),
            ("MAX_EXECUTION_TIME 5", Some("MAX_EXECUTION_TIME 5")),
            ("READ_FROM_STORAGE(MEMORY[t])", Some("READ_FROM_STORAGE(MEMORY[t])")),
            ("READ_FROM_STORAGE(TIKV[t", Some("READ_FROM_STORAGE(TIKV[t")),
            ("naïve ☃", Some("naïve ☃")),
            ("", None),
            (" , ", None),
        ] {
            assert_eq!(parse(text).unknown.as_deref(), unknown, "{text}");
        }
    }
}
