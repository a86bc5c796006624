//! One side of a comparison, whatever it is: counts, digests, keys and rows of ranges.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use crate::bisect::{Cut, Digest};
use crate::class::{Class, six_digits};
use crate::compare::Row;
use crate::error::{Error, Result};
use crate::expr::TableSql;
use crate::files::FileTable;
use crate::range::{Key, Range};
use crate::schema::Plan;
use crate::server::{Cells, Engine, Server, text};
use crate::throttle::Throttle;

/// Keys sampled for each piece that is made of them: the more, the more even the pieces.
const SAMPLED: u64 = 8;

/// One side.
pub enum Input {
    /// A table of a server.
    Server(ServerTable),
    /// Files, each request one pass over them.
    Files(Arc<FileTable>),
}

/// A table of a server.
pub struct ServerTable {
    /// Server.
    pub server: Arc<Server>,
    /// Its SQL.
    pub sql: TableSql,
    /// Who computes digests.
    pub engine: Engine,
    /// Statements at once.
    pub width: usize,
    /// Columns, rules and key.
    pub plan: Arc<Plan>,
    /// Shared by both sides.
    pub throttle: Arc<Throttle>,
}

impl Input {
    /// Whether several requests cost as much as one.
    pub fn is_files(&self) -> bool {
        matches!(self, Input::Files(_))
    }

    /// Rows of a range.
    pub async fn count(&self, range: &Range) -> Result<u64> {
        match self {
            Input::Server(table) => table.count(range).await,
            Input::Files(files) => {
                let found = files.digests(vec![range.clone()]).await?;
                Ok(found.first().map_or(0, |digest| digest.rows))
            }
        }
    }

    /// Digests, in the order of the ranges.
    pub async fn digests(&self, ranges: &[Range]) -> Result<Vec<Digest>> {
        match self {
            Input::Server(table) => {
                let each = ranges.iter().map(|range| table.digest(range));
                futures::stream::iter(each).buffered(table.width).try_collect().await
            }
            Input::Files(files) => files.digests(ranges.to_vec()).await,
        }
    }

    /// Keys that cut each range into about as many pieces as requested.
    pub async fn cuts(&self, cuts: &[Cut]) -> Result<Vec<Vec<Key>>> {
        match self {
            Input::Server(table) => {
                let each = cuts.iter().map(|cut| table.cut(cut));
                futures::stream::iter(each).buffered(table.width).try_collect().await
            }
            Input::Files(files) => {
                let wanted =
                    cuts.iter().map(|cut| (cut.range.clone(), sampled_every(cut))).collect();
                let found = files.sample(wanted).await?;
                Ok(found
                    .into_iter()
                    .zip(cuts)
                    .map(|(keys, cut)| thinned(keys, cut.pieces))
                    .collect())
            }
        }
    }

    /// Rows of each range.
    pub async fn rows(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        match self {
            Input::Server(table) => {
                let each = ranges.iter().map(|range| table.rows(range));
                futures::stream::iter(each).buffered(table.width).try_collect().await
            }
            Input::Files(files) => files.rows(ranges.to_vec()).await,
        }
    }
}

fn sampled_every(cut: &Cut) -> u64 {
    (cut.rows / (cut.pieces.max(1) * SAMPLED)).max(1)
}

/// As many of the keys as make so many pieces, evenly.
fn thinned(mut keys: Vec<Key>, pieces: u64) -> Vec<Key> {
    keys.sort();
    keys.dedup();
    let (pieces, count) = (usize::try_from(pieces).unwrap_or(usize::MAX), keys.len());
    if count < pieces {
        return keys;
    }
    (1..pieces).filter_map(|piece| keys.get(piece * count / pieces).cloned()).collect()
}

impl ServerTable {
    async fn count(&self, range: &Range) -> Result<u64> {
        let rows = self.server.query("count rows", &self.sql.count(range), self.engine).await?;
        let cell = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
        number(&text(cell)).ok_or_else(|| self.odd("a count that is no number"))
    }

    async fn digest(&self, range: &Range) -> Result<Digest> {
        let sql = self.sql.digest(range);
        let rows = self.server.query("compute a digest", &sql, self.engine).await?;
        let mut cells = rows.into_iter().next().unwrap_or_default().into_iter();
        let mut next = || cells.next().flatten().map(|cell| text(Some(cell)));
        let (rows, sum) = (next(), next());
        let rows = rows
            .as_deref()
            .and_then(number)
            .ok_or_else(|| self.odd("a count that is no number"))?;
        // The exclusive or of nothing is 0, or NULL.
        let sum = match sum {
            None => 0,
            Some(sum) => number(&sum).ok_or_else(|| self.odd("a digest that is no number"))?,
        };
        self.throttle.wait(rows).await;
        Ok(Digest { rows, sum })
    }

    async fn cut(&self, cut: &Cut) -> Result<Vec<Key>> {
        let sql = self.sql.sample(&cut.range, sampled_every(cut));
        let keys = self.keys(&sql).await?;
        let keys = thinned(keys, cut.pieces);
        if cut.range.cut(keys.clone()).len() > 1 {
            return Ok(keys);
        }
        // The sample was unlucky: the middle key it is.
        self.keys(&self.sql.nth(&cut.range, (cut.rows / 2).saturating_sub(1))).await
    }

    async fn keys(&self, sql: &str) -> Result<Vec<Key>> {
        let rows = self.server.query("sample keys", sql, self.engine).await?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            let places = self.plan.key.iter().copied();
            let mut values = vec![None; self.plan.columns.len()];
            for (at, value) in places.zip(self.values(row, &self.plan.key)?) {
                if let Some(slot) = values.get_mut(at) {
                    *slot = value;
                }
            }
            keys.push(self.plan.key_of(&values).ok_or_else(|| self.odd("a key with NULL in it"))?);
        }
        Ok(keys)
    }

    async fn rows(&self, range: &Range) -> Result<Vec<Row>> {
        let rows = self.server.query("read rows", &self.sql.rows(range), Engine::Any).await?;
        let places: Vec<usize> = (0..self.plan.columns.len()).collect();
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            let values = self.values(row, &places)?;
            let key = self.plan.key_of(&values).ok_or_else(|| self.odd("a key with NULL in it"))?;
            found.push(Row { key, values });
        }
        self.throttle.wait(found.len() as u64).await;
        Ok(found)
    }

    /// Cells of the columns at these places, in their plain spelling.
    fn values(&self, row: Cells, places: &[usize]) -> Result<Vec<Option<String>>> {
        let one = |(cell, at): (Option<Vec<u8>>, &usize)| {
            let Some(bytes) = cell else { return Ok(None) };
            let column = self.plan.columns.get(*at);
            let name = column.map(|column| column.source.name.as_str()).unwrap_or_default();
            let text = String::from_utf8(bytes)
                .map_err(|_| self.odd(&format!("text in column {name} that is not UTF-8")))?;
            Ok(Some(match column.map(|column| column.rule.class) {
                Some(Class::DateTime | Class::Timestamp | Class::Time) => six_digits(&text),
                _ => text,
            }))
        };
        row.into_iter().zip(places).map(one).collect()
    }

    fn odd(&self, what: &str) -> Error {
        Error::Schema {
            table: format!("{} on {}", self.sql.table, self.server.label),
            cause: format!(
                "the server answers with {what}; leave the column out with --ignore-columns, or name another --key"
            ),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Part;

    #[test]
    fn samples_are_thinned_evenly() {
        let keys: Vec<Key> = (0..100).rev().map(|n| vec![Part::Int(n)]).collect();
        let thin = thinned(keys.clone(), 4);
        assert_eq!(thin, [vec![Part::Int(25)], vec![Part::Int(50)], vec![Part::Int(75)]]);
        assert_eq!(thinned(keys[..2].to_vec(), 4).len(), 2);
        assert_eq!(thinned(Vec::new(), 4), Vec::<Key>::new());
    }
}
