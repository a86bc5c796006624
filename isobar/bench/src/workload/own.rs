//! A user's own statements, with weights, from a file.
//!
//! ```toml
//! measured_rate = 120.0                  # transactions a second, as measured; --times N asks for N times that
//!
//! [parameters]
//! id   = { from = 1, to = 100000, skew = "zipf:0.9" }
//! city = { list = ["Ulm", "Bonn"] }
//! note = { text = 20 }
//!
//! [[transaction]]
//! name = "move"
//! weight = 3
//! statements = ["UPDATE person SET city = :city WHERE id = :id", "INSERT INTO log (who, note) VALUES (:id, :note)"]
//! ```
//!
//! A parameter is drawn once for each transaction. Several statements are one transaction, unless
//! `transaction = false`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use mysql_async::Value;
use rand::Rng;
use serde::Deserialize;

use super::Plan;
use crate::random::{Draw, Random, Skew, letters};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    measured_rate: Option<f64>,
    #[serde(default)]
    parameters: BTreeMap<String, Source>,
    transaction: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Source {
    Range { from: i64, to: i64, skew: Option<String> },
    List { list: Vec<Item> },
    Text { text: usize },
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Item {
    Integer(i64),
    Float(f64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default = "one")]
    weight: u32,
    transaction: Option<bool>,
    statements: Vec<String>,
}

fn one() -> u32 {
    1
}

#[derive(Debug)]
enum Parameter {
    Range { from: i64, draw: Draw },
    List(Vec<Value>),
    Text(usize),
}

#[derive(Debug)]
struct Transaction {
    kind: &'static str,
    wrapped: bool,
    /// Text with question marks, and the parameters they stand for.
    statements: Vec<(Arc<str>, Vec<String>)>,
}

/// The statements of a file.
#[derive(Debug)]
pub struct Own {
    parameters: BTreeMap<String, Parameter>,
    transactions: Vec<Transaction>,
    /// Running sums of weights.
    weights: Vec<u64>,
    /// Transactions per second, as measured where the statements come from.
    pub measured_rate: Option<f64>,
}

impl Own {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the statements in {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).context("not a file of statements")?;
        let mut parameters = BTreeMap::new();
        for (name, source) in file.parameters {
            let parameter = parameter(source).with_context(|| format!("parameter {name}"))?;
            parameters.insert(name, parameter);
        }
        ensure!(!file.transaction.is_empty(), "there is no [[transaction]]");
        let (mut transactions, mut weights, mut sum) = (Vec::new(), Vec::new(), 0);
        for entry in file.transaction {
            ensure!(!entry.statements.is_empty(), "transaction {} has no statements", entry.name);
            let mut statements = Vec::new();
            for statement in &entry.statements {
                let (text, names) = split(statement);
                if let Some(unknown) = names.iter().find(|name| !parameters.contains_key(*name)) {
                    bail!("transaction {}: no parameter is called {unknown}", entry.name);
                }
                statements.push((text.into(), names));
            }
            sum += u64::from(entry.weight);
            weights.push(sum);
            transactions.push(Transaction {
                // Kinds are few and live as long as the program.
                kind: Box::leak(entry.name.into_boxed_str()),
                wrapped: entry.transaction.unwrap_or(statements.len() > 1),
                statements,
            });
        }
        ensure!(sum > 0, "all weights are 0");
        if let Some(rate) = file.measured_rate {
            ensure!(rate.is_finite() && rate > 0.0, "measured_rate must be above 0");
        }
        Ok(Own { parameters, transactions, weights, measured_rate: file.measured_rate })
    }

    /// Draws a transaction.
    pub fn draw(&self, random: &mut Random) -> Plan {
        let most = self.weights.last().copied().unwrap_or(1);
        let at = random.random_range(0..most);
        let chosen = self.weights.partition_point(|sum| *sum <= at);
        let transaction = &self.transactions[chosen];
        let mut values: BTreeMap<&str, Value> = BTreeMap::new();
        let mut statements = Vec::with_capacity(transaction.statements.len());
        for (text, names) in &transaction.statements {
            let mut list = Vec::with_capacity(names.len());
            for name in names {
                let value =
                    values.entry(name).or_insert_with(|| self.parameters[name].draw(random));
                list.push(value.clone());
            }
            statements.push((text.clone(), list));
        }
        Plan::List { kind: transaction.kind, wrapped: transaction.wrapped, statements }
    }
}

impl Parameter {
    fn draw(&self, random: &mut Random) -> Value {
        match self {
            Parameter::Range { from, draw } => {
                let offset = i64::try_from(draw.next(random) - 1).unwrap_or(0);
                from.wrapping_add(offset).into()
            }
            Parameter::List(list) => list[random.random_range(0..list.len())].clone(),
            Parameter::Text(length) => letters(random, *length, *length).into(),
        }
    }
}

fn parameter(source: Source) -> Result<Parameter> {
    Ok(match source {
        Source::Range { from, to, skew } => {
            ensure!(from <= to, "from {from} is above to {to}");
            let skew: Skew = match skew {
                Some(skew) => skew.parse().map_err(anyhow::Error::msg)?,
                None => Skew::Uniform,
            };
            let most = to.abs_diff(from).saturating_add(1);
            Parameter::Range { from, draw: Draw::new(most, skew) }
        }
        Source::List { list } => {
            ensure!(!list.is_empty(), "the list is empty");
            let value = |item| match item {
                Item::Integer(number) => Value::from(number),
                Item::Float(number) => Value::from(number),
                Item::Text(text) => Value::from(text),
            };
            Parameter::List(list.into_iter().map(value).collect())
        }
        Source::Text { text } => Parameter::Text(text),
    })
}

/// Puts a question mark for each `:name` outside quotes, and returns the names in order.
fn split(statement: &str) -> (String, Vec<String>) {
    let (mut text, mut names) = (String::new(), Vec::new());
    let mut quote = None;
    let mut rest = statement.chars().peekable();
    while let Some(c) = rest.next() {
        match quote {
            Some('\'' | '"') if c == '\\' => {
                text.push(c);
                text.extend(rest.next());
                continue;
            }
            Some(open) if c == open => quote = None,
            None if matches!(c, '\'' | '"' | '`') => quote = Some(c),
            None if c == ':' && rest.peek().is_some_and(|c| c.is_alphabetic() || *c == '_') => {
                let mut name = String::new();
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                names.push(name);
                text.push('?');
                continue;
            }
            _ => {}
        }
        text.push(c);
    }
    (text, names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    const GOOD: &str = r#"
        measured_rate = 12.5
        [parameters]
        id = { from = -3, to = 3 }
        city = { list = ["Ulm", 7, 1.5] }
        note = { text = 4 }
        [[transaction]]
        name = "move"
        weight = 3
        statements = ["UPDATE p SET city = :city WHERE id = :id AND x <> ':id'", "INSERT INTO l VALUES (:id, :note, :id)"]
        [[transaction]]
        name = "look"
        statements = ["SELECT 1"]
    "#;

    #[test]
    fn transactions_come_by_weight_with_one_draw_of_each_parameter() {
        let own = Own::parse(GOOD).unwrap();
        assert_eq!(own.measured_rate, Some(12.5));
        let mut random = stream(5, 5);
        let mut moves = 0;
        for _ in 0..4_000 {
            let Plan::List { kind, wrapped, statements } = own.draw(&mut random) else {
                unreachable!()
            };
            if kind == "look" {
                assert!(!wrapped);
                continue;
            }
            moves += 1;
            assert!(wrapped);
            assert_eq!(
                statements[0].0.as_ref(),
                "UPDATE p SET city = ? WHERE id = ? AND x <> ':id'"
            );
            assert_eq!(statements[0].1[1], statements[1].1[0]);
            assert_eq!(statements[1].1[0], statements[1].1[2]);
        }
        assert!((2_900..3_100).contains(&moves), "{moves}");
    }

    #[test]
    fn a_wrong_file_is_refused_with_what_is_wrong() {
        for (wrong, expected) in [
            ("", "transaction"),
            ("transaction = []", "no [[transaction]]"),
            ("[[transaction]]\nname='a'\nstatements=[]", "no statements"),
            ("[[transaction]]\nname='a'\nstatements=['SELECT :x']", "called x"),
            ("[[transaction]]\nname='a'\nweight=0\nstatements=['SELECT 1']", "weights are 0"),
            (
                "[parameters]\nx={from=3,to=1}\n[[transaction]]\nname='a'\nstatements=['SELECT 1']",
                "above",
            ),
            (
                "[parameters]\nx={from=1,to=3,skew='odd'}\n[[transaction]]\nname='a'\nstatements=['SELECT 1']",
                "skew",
            ),
            (
                "[parameters]\nx={list=[]}\n[[transaction]]\nname='a'\nstatements=['SELECT 1']",
                "empty",
            ),
            (
                "measured_rate=0\n[[transaction]]\nname='a'\nstatements=['SELECT 1']",
                "measured_rate",
            ),
        ] {
            let text = format!("{:#}", Own::parse(wrong).unwrap_err());
            assert!(text.contains(expected), "{wrong}: {text}");
        }
    }
}
