//! Mixes in the shape of sysbench's `oltp_*`: tables sbtest1, sbtest2, …, point reads, ranges, updates.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use mysql_async::Value;
use mysql_async::prelude::Queryable;
use rand::Rng;

use super::load::{Part, load, quoted};
use super::{Plan, Statement};
use crate::random::{Draw, Random, Skew, digits};
use crate::target::Target;

/// Point reads of a transaction.
const POINTS: usize = 10;
/// Rows of a range.
const RANGE: u64 = 100;
/// One transaction in so many changes a row, where one row is read or changed.
const UPDATE_IN: u64 = 5;

/// Which statements a transaction has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One point read, without a transaction.
    PointSelect,
    /// One point read, or the update of one row by its key in one of five; each without a transaction around it.
    SingleRow,
    /// Ten point reads and four ranges.
    ReadOnly,
    /// Two updates, a delete and an insert.
    WriteOnly,
    /// Both.
    ReadWrite,
}

impl Mix {
    /// All of them.
    pub const ALL: [Mix; 5] =
        [Mix::PointSelect, Mix::SingleRow, Mix::ReadOnly, Mix::WriteOnly, Mix::ReadWrite];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mix::PointSelect => "point-select",
            Mix::SingleRow => "single-row",
            Mix::ReadOnly => "read-only",
            Mix::WriteOnly => "write-only",
            Mix::ReadWrite => "read-write",
        }
    }
}

/// A mix over so many tables of so many rows.
#[derive(Debug)]
pub struct Oltp {
    mix: Mix,
    rows: u64,
    ids: Draw,
    /// Statements of each table.
    texts: Vec<Texts>,
}

#[derive(Debug)]
struct Texts {
    point: Arc<str>,
    ranges: [Arc<str>; 4],
    update_index: Arc<str>,
    update_other: Arc<str>,
    delete: Arc<str>,
    insert: Arc<str>,
}

impl Texts {
    fn new(table: u64) -> Self {
        let name = format!("sbtest{table}");
        let within = "WHERE id BETWEEN ? AND ?";
        Texts {
            point: format!("SELECT c FROM {name} WHERE id = ?").into(),
            ranges: [
                format!("SELECT c FROM {name} {within}").into(),
                format!("SELECT SUM(k) FROM {name} {within}").into(),
                format!("SELECT c FROM {name} {within} ORDER BY c").into(),
                format!("SELECT DISTINCT c FROM {name} {within} ORDER BY c").into(),
            ],
            update_index: format!("UPDATE {name} SET k = k + 1 WHERE id = ?").into(),
            update_other: format!("UPDATE {name} SET c = ? WHERE id = ?").into(),
            delete: format!("DELETE FROM {name} WHERE id = ?").into(),
            insert: format!("INSERT INTO {name} (id, k, c, pad) VALUES (?, ?, ?, ?)").into(),
        }
    }
}

impl Oltp {
    /// A mix; at least one table of one row.
    pub fn new(mix: Mix, tables: u64, rows: u64, skew: Skew) -> Self {
        let rows = rows.max(1);
        let texts = (1..=tables.max(1)).map(Texts::new).collect();
        Oltp { mix, rows, ids: Draw::new(rows, skew), texts }
    }

    /// Draws a transaction.
    pub fn draw(&self, random: &mut Random) -> Plan {
        let mut statements = Vec::with_capacity(POINTS + 8);
        let mix = self.mix;
        match mix {
            Mix::SingleRow if random.random_range(0..UPDATE_IN) == 0 => {
                self.update(random, &mut statements);
            }
            Mix::PointSelect | Mix::SingleRow => self.point(random, &mut statements),
            Mix::ReadOnly | Mix::WriteOnly | Mix::ReadWrite => {}
        }
        if matches!(mix, Mix::ReadOnly | Mix::ReadWrite) {
            for _ in 0..POINTS {
                self.point(random, &mut statements);
            }
            for range in 0..4 {
                self.range(range, random, &mut statements);
            }
        }
        if matches!(mix, Mix::WriteOnly | Mix::ReadWrite) {
            self.writes(random, &mut statements);
        }
        let wrapped = !matches!(mix, Mix::PointSelect | Mix::SingleRow);
        Plan::List { kind: mix.name(), wrapped, statements }
    }

    fn texts(&self, random: &mut Random) -> &Texts {
        &self.texts[random.random_range(0..self.texts.len())]
    }

    fn point(&self, random: &mut Random, statements: &mut Vec<Statement>) {
        let id = self.ids.next(random);
        statements.push((self.texts(random).point.clone(), vec![id.into()]));
    }

    fn range(&self, range: usize, random: &mut Random, statements: &mut Vec<Statement>) {
        let first = self.ids.next(random);
        let parameters = vec![first.into(), (first + RANGE - 1).into()];
        statements.push((self.texts(random).ranges[range].clone(), parameters));
    }

    fn update(&self, random: &mut Random, statements: &mut Vec<Statement>) {
        let id = self.ids.next(random);
        let c = digits(random, 10);
        statements.push((self.texts(random).update_other.clone(), vec![c.into(), id.into()]));
    }

    fn writes(&self, random: &mut Random, statements: &mut Vec<Statement>) {
        let id = self.ids.next(random);
        statements.push((self.texts(random).update_index.clone(), vec![id.into()]));
        self.update(random, statements);
        let id = self.ids.next(random);
        let k = random.random_range(1..=self.rows);
        let (c, pad) = (digits(random, 10), digits(random, 5));
        let texts = self.texts(random);
        statements.push((texts.delete.clone(), vec![id.into()]));
        let row: Vec<Value> = vec![id.into(), k.into(), c.into(), pad.into()];
        statements.push((texts.insert.clone(), row));
    }

    /// How large it is, in words.
    pub fn size(&self) -> String {
        format!("{} tables of {} rows", self.texts.len(), self.rows)
    }

    /// Names of the tables.
    pub fn tables(&self) -> Vec<String> {
        (1..=self.texts.len()).map(|table| format!("sbtest{table}")).collect()
    }

    /// Makes and fills the tables; those of an earlier run are dropped.
    pub async fn prepare(&self, target: &Target, connections: usize, seed: u64) -> Result<u64> {
        self.cleanup(target).await?;
        let mut conn = target.connect_and_create().await?;
        for table in self.tables() {
            let create = format!(
                "CREATE TABLE {table} (id INT NOT NULL AUTO_INCREMENT, k INT NOT NULL DEFAULT 0, \
                 c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', PRIMARY KEY (id), \
                 KEY k_{table} (k))"
            );
            conn.query_drop(create).await.with_context(|| format!("cannot make {table}"))?;
        }
        let most = self.rows;
        let fill = move |row: u64, random: &mut Random, out: &mut String| {
            let _ = write!(out, "({row},{},", random.random_range(1..=most));
            quoted(out, &digits(random, 10));
            out.push(',');
            quoted(out, &digits(random, 5));
            out.push(')');
        };
        let fill: super::load::Fill = Arc::new(fill);
        let part = |table: String| Part {
            table: format!("{table} (id, k, c, pad)"),
            first: 1,
            rows: most,
            fill: fill.clone(),
        };
        let parts = self.tables().into_iter().map(part).collect();
        load(target, parts, connections, seed).await
    }

    /// Drops the tables.
    pub async fn cleanup(&self, target: &Target) -> Result<()> {
        let mut conn = target.connect_and_create().await?;
        for table in self.tables() {
            conn.query_drop(format!("DROP TABLE IF EXISTS {table}"))
                .await
                .with_context(|| format!("cannot drop {table}"))?;
        }
        Ok(())
    }

    /// The number of rows never changes: each delete is followed by an insert of the same key.
    pub async fn check(&self, target: &Target) -> Result<Vec<String>> {
        let mut conn = target.connect().await.context("cannot connect to check the tables")?;
        let mut broken = Vec::new();
        for table in self.tables() {
            let query = format!("SELECT COUNT(*), MIN(id), MAX(id) FROM {table}");
            let found: Option<(u64, u64, u64)> =
                conn.query_first(&query).await.with_context(|| format!("cannot count {table}"))?;
            let found = found.unwrap_or_default();
            ensure!(self.rows > 0, "no rows");
            if found != (self.rows, 1, self.rows) {
                broken.push(format!(
                    "{table} has {} rows with ids from {} to {}, not {} from 1 on",
                    found.0, found.1, found.2, self.rows
                ));
            }
        }
        Ok(broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::stream;

    fn shape(mix: Mix) -> (bool, Vec<String>) {
        let oltp = Oltp::new(mix, 3, 1_000, Skew::Uniform);
        let Plan::List { wrapped, statements, .. } = oltp.draw(&mut stream(1, 1)) else {
            unreachable!()
        };
        for (text, parameters) in &statements {
            assert_eq!(text.matches('?').count(), parameters.len(), "{text}");
        }
        let word = |text: &str| text.split(' ').next().unwrap().to_owned();
        (wrapped, statements.iter().map(|(text, _)| word(text)).collect())
    }

    #[test]
    fn mixes_have_sysbenchs_shape() {
        let reads = vec!["SELECT"; 14];
        let writes = ["UPDATE", "UPDATE", "DELETE", "INSERT"];
        assert_eq!(shape(Mix::PointSelect), (false, vec!["SELECT".into()]));
        assert_eq!(shape(Mix::ReadOnly), (true, reads.iter().map(|s| (*s).to_owned()).collect()));
        assert_eq!(shape(Mix::WriteOnly), (true, writes.map(str::to_owned).to_vec()));
        assert_eq!(shape(Mix::ReadWrite).1, [&reads[..], &writes[..]].concat());
    }

    #[test]
    fn one_row_is_read_or_changed() {
        let oltp = Oltp::new(Mix::SingleRow, 3, 1_000, Skew::Uniform);
        let mut random = stream(3, 1);
        let updates = (0..1_000).filter(|_| {
            let Plan::List { wrapped, statements, .. } = oltp.draw(&mut random) else {
                unreachable!()
            };
            let [(text, _)] = &statements[..] else { unreachable!("{statements:?}") };
            assert!(!wrapped && text.ends_with("WHERE id = ?"), "{text}");
            text.starts_with("UPDATE")
        });
        assert!((150..250).contains(&updates.count()));
    }

    #[test]
    fn a_delete_and_its_insert_are_of_one_row() {
        let oltp = Oltp::new(Mix::WriteOnly, 5, 1_000, Skew::Zipf(0.9));
        let mut random = stream(2, 1);
        for _ in 0..200 {
            let Plan::List { statements, .. } = oltp.draw(&mut random) else { unreachable!() };
            let [.., (delete, of), (insert, row)] = &statements[..] else { unreachable!() };
            let table = delete.split(' ').nth(2).unwrap();
            assert!(insert.contains(&format!(" {table} ")), "{delete} / {insert}");
            assert_eq!(of[0], row[0]);
        }
    }
}
