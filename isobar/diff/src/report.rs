//! What was found: for people as a table, for programs as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::compare::{Difference, Values};
use crate::schema::Plan;

/// Differences that a report spells out, of each table.
pub const SHOWN: usize = 1000;

/// What became of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No difference.
    Same,
    /// Differences.
    Different,
    /// An error.
    #[serde(rename = "could_not_tell")]
    Inconclusive,
}

/// One table.
#[derive(Debug, Serialize)]
pub struct TableReport {
    /// Table.
    pub table: String,
    /// Outcome.
    pub verdict: Verdict,
    /// Why it is inconclusive, or what else there is to say.
    pub cause: Option<String>,
    /// Rows of SOURCE.
    pub source_rows: u64,
    /// Rows of TARGET.
    pub target_rows: u64,
    /// Chunks compared.
    pub chunks: usize,
    /// Chunks with a difference in digests.
    pub differing_chunks: usize,
    /// Rows in SOURCE only.
    pub missing: u64,
    /// Rows in TARGET only.
    pub extra: u64,
    /// Rows with other values.
    pub changed: u64,
    /// Keys that are there more than once.
    pub repeated: u64,
    /// How many rows each column differs in.
    pub columns: Map<String, Value>,
    /// Key.
    pub key: Vec<String>,
    /// Rules and what else a user should know.
    pub notes: Vec<String>,
    /// The first of the differences.
    pub differences: Vec<Value>,
}

impl TableReport {
    /// Of a table that is not yet looked at.
    pub fn new(table: String) -> TableReport {
        TableReport {
            table,
            verdict: Verdict::Same,
            cause: None,
            source_rows: 0,
            target_rows: 0,
            chunks: 0,
            differing_chunks: 0,
            missing: 0,
            extra: 0,
            changed: 0,
            repeated: 0,
            columns: Map::new(),
            key: Vec::new(),
            notes: Vec::new(),
            differences: Vec::new(),
        }
    }

    /// Of a table that cannot be compared.
    pub fn failed(table: String, cause: String) -> TableReport {
        TableReport {
            verdict: Verdict::Inconclusive,
            cause: Some(cause),
            ..TableReport::new(table)
        }
    }

    /// Takes in a difference.
    pub fn add(&mut self, difference: &Difference, plan: &Plan) {
        self.verdict = Verdict::Different;
        match difference {
            Difference::Missing { .. } => self.missing += 1,
            Difference::Extra { .. } => self.extra += 1,
            Difference::Repeated { .. } => self.repeated += 1,
            Difference::Changed { columns, .. } => {
                self.changed += 1;
                for at in columns {
                    let Some(column) = plan.columns.get(*at) else { continue };
                    let count = self.columns.entry(column.source.name.clone()).or_insert(json!(0));
                    *count = json!(count.as_u64().unwrap_or(0) + 1);
                }
            }
        }
        if self.differences.len() < SHOWN {
            self.differences.push(shown(difference, plan));
        }
    }
}

fn shown(difference: &Difference, plan: &Plan) -> Value {
    let of = |places: &[usize], row: &Values| -> Value {
        let named = places.iter().filter_map(|at| {
            let column = plan.columns.get(*at)?;
            Some((column.source.name.clone(), json!(row.get(*at)?)))
        });
        Value::Object(named.collect())
    };
    let all: Vec<usize> = (0..plan.columns.len()).collect();
    match difference {
        Difference::Missing { source } => {
            json!({"kind": "missing", "key": of(&plan.key, source), "source": of(&all, source)})
        }
        Difference::Extra { target } => {
            json!({"kind": "extra", "key": of(&plan.key, target), "target": of(&all, target)})
        }
        Difference::Changed { columns, source, target } => json!({
            "kind": "changed", "key": of(&plan.key, source),
            "source": of(columns, source), "target": of(columns, target),
        }),
        Difference::Repeated { source, target } => {
            let row = source.first().or(target.first());
            json!({
                "kind": "repeated", "key": row.map(|row| of(&plan.key, row)),
                "source_rows": source.len(), "target_rows": target.len(),
            })
        }
    }
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Outcome of all tables together.
    pub verdict: Verdict,
    /// Sides, without passwords.
    pub source: String,
    /// Sides, without passwords.
    pub target: String,
    /// Which snapshot each was read at.
    #[serde(rename = "source_moment")]
    pub source_snapshot: String,
    /// Which snapshot each was read at.
    #[serde(rename = "target_moment")]
    pub target_snapshot: String,
    /// Seconds of this run.
    pub seconds: f64,
    /// Rows per second of this run, the larger side counted.
    pub rows_per_second: f64,
    /// Tables.
    pub tables: Vec<TableReport>,
}

impl Report {
    /// The outcome of tables together: not knowing outweighs a difference.
    pub fn verdict_of(tables: &[TableReport]) -> Verdict {
        let any = |verdict| tables.iter().any(|table| table.verdict == verdict);
        if any(Verdict::Inconclusive) {
            Verdict::Inconclusive
        } else if any(Verdict::Different) {
            Verdict::Different
        } else {
            Verdict::Same
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to memory does not fail.
        _ = writeln!(out, "SOURCE  {}  ({})", self.source, self.source_snapshot);
        _ = writeln!(out, "TARGET  {}  ({})", self.target, self.target_snapshot);
        let width =
            self.tables.iter().map(|table| table.table.chars().count()).max().unwrap_or(0).max(5);
        _ = writeln!(
            out,
            "\n{:width$}  {:>12}  {:>12}  {:>9}  {:>9}  {:>9}  outcome",
            "table", "source rows", "target rows", "missing", "extra", "changed"
        );
        for table in &self.tables {
            let outcome = match table.verdict {
                Verdict::Same => "same".to_owned(),
                Verdict::Different if table.repeated > 0 => {
                    format!("different, {} keys repeated", table.repeated)
                }
                Verdict::Different => "different".to_owned(),
                Verdict::Inconclusive => "inconclusive".to_owned(),
            };
            _ = writeln!(
                out,
                "{:width$}  {:>12}  {:>12}  {:>9}  {:>9}  {:>9}  {outcome}",
                table.table,
                table.source_rows,
                table.target_rows,
                table.missing,
                table.extra,
                table.changed
            );
        }
        for table in &self.tables {
            if !table.columns.is_empty() {
                let columns: Vec<String> =
                    table.columns.iter().map(|(name, n)| format!("{name} ({n})")).collect();
                _ = writeln!(out, "{}: changed in {}", table.table, columns.join(", "));
            }
            for note in table.cause.iter().chain(&table.notes) {
                _ = writeln!(out, "{}: {note}", table.table);
            }
        }
        _ = writeln!(out, "\n{:.1} s, {:.0} rows/s", self.seconds, self.rows_per_second);
        out
    }
}
