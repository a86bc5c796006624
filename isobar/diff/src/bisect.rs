//! From chunks to rows: which digests, cuts and rows to request next, as a state machine.
//!
//! It sends nothing itself, so that tests can answer for any two tables.

use serde::{Deserialize, Serialize};

use crate::range::{Key, Range};

/// What a range of rows comes to: how many, and the exclusive or of their digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Rows.
    pub rows: u64,
    /// Exclusive or of the rows' digests: in any order the same.
    pub sum: u64,
}

impl Digest {
    /// Takes in rows of another part.
    pub fn add(&mut self, other: Digest) {
        self.rows += other.rows;
        self.sum ^= other.sum;
    }
}

/// One of the two that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the other should be like.
    Source,
    /// What is corrected.
    Target,
}

impl Side {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Side::Source => "SOURCE",
            Side::Target => "TARGET",
        }
    }
}

/// Where to cut a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Range.
    pub range: Range,
    /// The side with more rows there.
    pub side: Side,
    /// Its rows.
    pub rows: u64,
    /// Pieces to make, about.
    pub pieces: u64,
}

/// What to request of both sides, or of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Digests of ranges, of both sides.
    Digests(Vec<Range>),
    /// Keys that cut ranges, of one side each.
    Cuts(Vec<Cut>),
    /// Rows of ranges, of both sides, with how many there are.
    Rows(Vec<(Range, u64)>),
}

/// Counts or digests of parts that do not come to those of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Whose.
    pub side: Side,
    /// The whole.
    pub before: Digest,
    /// The parts together.
    pub after: Digest,
}

/// What is open: a range, its pieces in `ranges`, and what they must come to.
struct Parent {
    pieces: usize,
    digests: Option<(Digest, Digest)>,
}

/// The way from some chunks to the rows that differ.
pub struct Bisect {
    leaf_rows: u64,
    fan_out: u64,
    parents: Vec<Parent>,
    ranges: Vec<Range>,
    known: Vec<(Digest, Digest)>,
    cuts: Vec<Cut>,
    leaves: Vec<(Range, u64)>,
    chunks: Vec<(Digest, Digest)>,
}

impl Bisect {
    /// Starts with chunks; ranges of no more than `leaf_rows` rows are fetched.
    pub fn new(chunks: Vec<Range>, leaf_rows: u64, fan_out: u64) -> Bisect {
        Bisect {
            leaf_rows: leaf_rows.max(1),
            fan_out: fan_out.max(2),
            parents: chunks.iter().map(|_| Parent { pieces: 1, digests: None }).collect(),
            ranges: chunks,
            known: Vec::new(),
            cuts: Vec::new(),
            leaves: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// The next request; `None` when there is none left.
    pub fn next_request(&mut self) -> Option<Request> {
        if !self.ranges.is_empty() {
            return Some(Request::Digests(self.ranges.clone()));
        }
        if !self.cuts.is_empty() {
            return Some(Request::Cuts(self.cuts.clone()));
        }
        (!self.leaves.is_empty()).then(|| Request::Rows(std::mem::take(&mut self.leaves)))
    }

    /// The digests of the chunks that it started with.
    pub fn chunks(&self) -> &[(Digest, Digest)] {
        &self.chunks
    }

    /// Digests of the ranges requested. `Err`: parts do not come to the whole; it goes on all the same.
    pub fn digests(&mut self, found: Vec<(Digest, Digest)>) -> Result<(), Moved> {
        let ranges = std::mem::take(&mut self.ranges);
        let parents = std::mem::take(&mut self.parents);
        if self.chunks.is_empty() {
            self.chunks.clone_from(&found);
        }
        let mut moved = None;
        let mut at = 0;
        for parent in parents {
            let pieces = found.get(at..at + parent.pieces).unwrap_or_default();
            at += parent.pieces;
            if let Some(whole) = parent.digests {
                moved = moved.or_else(|| unlike(whole, pieces));
            }
        }
        for (range, (source, target)) in ranges.into_iter().zip(found) {
            if source == target {
                continue;
            }
            let rows = source.rows.max(target.rows);
            if rows <= self.leaf_rows {
                self.leaves.push((range, rows));
                continue;
            }
            let side = if target.rows > source.rows { Side::Target } else { Side::Source };
            let pieces = rows.div_ceil(self.leaf_rows).min(self.fan_out).max(2);
            self.cuts.push(Cut { range, side, rows, pieces });
            self.known.push((source, target));
        }
        moved.map_or(Ok(()), Err)
    }

    /// Keys for each cut requested. A range that nothing cuts is fetched as it is.
    pub fn keys(&mut self, found: Vec<Vec<Key>>) {
        let cuts = std::mem::take(&mut self.cuts);
        let known = std::mem::take(&mut self.known);
        for ((cut, keys), digests) in cuts.into_iter().zip(found).zip(known) {
            let pieces = cut.range.cut(keys);
            if pieces.len() < 2 {
                self.leaves.push((cut.range, cut.rows));
                continue;
            }
            self.parents.push(Parent { pieces: pieces.len(), digests: Some(digests) });
            self.ranges.extend(pieces);
        }
    }
}

fn unlike(whole: (Digest, Digest), pieces: &[(Digest, Digest)]) -> Option<Moved> {
    let mut sums = (Digest::default(), Digest::default());
    for (source, target) in pieces {
        sums.0.add(*source);
        sums.1.add(*target);
    }
    let of = |side, before, after| (before != after).then_some(Moved { side, before, after });
    of(Side::Source, whole.0, sums.0).or_else(|| of(Side::Target, whole.1, sums.1))
}

#[cfg(test)]
#[path = "tests/bisect.rs"]
mod tests;
