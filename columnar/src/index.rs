//! The key index of a segment: its rows' keys and begins, sorted, in checksummed blocks.
//!
//! A segment's rows stand in the order of (key, begin), so a row's position is its rank here.
//! Blocks are found through their first keys and decoded one at a time; nothing here is in memory
//! as a whole.
//!
//! Block: per row, LEB128 shared prefix with the row before, LEB128 rest, rest, begin (8, LE).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::{Error, Result, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

/// Rows of a block.
const BLOCK_ROWS: u32 = 512;

/// Where a block is, and what it begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRef {
    /// Key of its first row.
    pub first_key: Vec<u8>,
    /// Position of its first row.
    pub first_row: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    /// xxh3 of the bytes.
    pub sum: u64,
}

/// Collects the keys of a segment in order.
#[derive(Default)]
pub struct KeyIndexBuilder {
    out: Vec<u8>,
    blocks: Vec<BlockRef>,
    start: usize,
    last_key: Vec<u8>,
    rows: u32,
}

impl KeyIndexBuilder {
    /// A builder whose blocks follow `header` in the file.
    pub fn new(header: &[u8]) -> Self {
        KeyIndexBuilder { out: header.to_vec(), start: header.len(), ..Self::default() }
    }

    /// Adds the next row.
    pub fn push(&mut self, key: &[u8], begin: Timestamp) {
        if self.rows.is_multiple_of(BLOCK_ROWS) {
            self.close();
            self.blocks.push(BlockRef {
                first_key: key.to_vec(),
                first_row: self.rows,
                offset: self.out.len() as u64,
                len: 0,
                sum: 0,
            });
            self.last_key.clear();
        }
        let shared = key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count();
        let rest = key.get(shared..).unwrap_or_default();
        put(&mut self.out, shared);
        put(&mut self.out, rest.len());
        self.out.extend_from_slice(rest);
        self.out.extend_from_slice(&begin.0.to_le_bytes());
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(rest);
        self.rows += 1;
    }

    /// Key of the last row added.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The file so far, and its blocks.
    pub fn finish(mut self) -> (Vec<u8>, Vec<BlockRef>) {
        self.close();
        (self.out, self.blocks)
    }

    fn close(&mut self) {
        let bytes = self.out.get(self.start..).unwrap_or_default();
        if let Some(block) = self.blocks.last_mut() {
            block.len = bytes.len() as u32;
            block.sum = xxh3_64(bytes);
        }
        self.start = self.out.len();
    }
}

/// A decoded block.
#[derive(Debug)]
pub struct KeyBlock {
    first_row: u32,
    keys: Vec<u8>,
    ends: Vec<u32>,
    begins: Vec<Timestamp>,
}

impl KeyBlock {
    /// Checks and decodes a block's bytes.
    pub fn decode(block: &BlockRef, bytes: &[u8]) -> Result<Arc<Self>> {
        if xxh3_64(bytes) != block.sum {
            return Err(Error::Corrupt("a key index block does not match its checksum".into()));
        }
        let bad = || Error::Corrupt("malformed key index block".into());
        let mut this = KeyBlock {
            first_row: block.first_row,
            keys: Vec::new(),
            ends: Vec::new(),
            begins: Vec::new(),
        };
        let mut input = bytes;
        let mut last: Vec<u8> = Vec::new();
        while !input.is_empty() {
            let shared = take(&mut input).ok_or_else(bad)?;
            let len = take(&mut input).ok_or_else(bad)?;
            let (rest, after) = input.split_at_checked(len).ok_or_else(bad)?;
            let (begin, after) = after.split_first_chunk::<8>().ok_or_else(bad)?;
            if shared > last.len() {
                return Err(bad());
            }
            last.truncate(shared);
            last.extend_from_slice(rest);
            this.keys.extend_from_slice(&last);
            this.ends.push(this.keys.len() as u32);
            this.begins.push(Timestamp(u64::from_le_bytes(*begin)));
            input = after;
        }
        Ok(Arc::new(this))
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.begins.len()
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.begins.len() * 12 + 64
    }

    /// Key and begin of the row at a position of the segment, if it is in this block.
    pub fn row(&self, position: u32) -> Option<(&[u8], Timestamp)> {
        let at = position.checked_sub(self.first_row)? as usize;
        Some((self.key(at)?, *self.begins.get(at)?))
    }

    /// Position in the segment of the first row that is not before (key, begin); the position
    /// behind the block if there is none.
    pub fn lower_bound(&self, key: &[u8], begin: Timestamp) -> u32 {
        let (mut low, mut high) = (0, self.rows());
        while low < high {
            let middle = low + (high - low) / 2;
            let before = match (self.key(middle), self.begins.get(middle)) {
                (Some(k), Some(b)) => (k, *b) < (key, begin),
                _ => false,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.first_row + low as u32
    }

    fn key(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)? as usize;
        let start = match at {
            0 => 0,
            _ => *self.ends.get(at - 1)? as usize,
        };
        self.keys.get(start..end)
    }
}

/// The block that holds the first row not before a key, if not the one after it does.
pub fn block_of_key(blocks: &[BlockRef], key: &[u8]) -> usize {
    blocks.partition_point(|block| block.first_key.as_slice() < key).saturating_sub(1)
}

/// The block that holds a position.
pub fn block_of_row(blocks: &[BlockRef], row: u32) -> usize {
    blocks.partition_point(|block| block.first_row <= row).saturating_sub(1)
}

fn put(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(input: &mut &[u8]) -> Option<usize> {
    let mut n = 0usize;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        n |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_rows_in_order_and_refuse_changed_bytes() {
        let mut builder = KeyIndexBuilder::new(b"head");
        for n in 0..2_000u32 {
            builder.push(format!("key{:05}", n / 2).as_bytes(), Timestamp(u64::from(n % 2)));
        }
        let (bytes, blocks) = builder.finish();
        assert_eq!(blocks.len(), 4);
        for row in [0u32, 1, 511, 512, 1_999] {
            let block = &blocks[block_of_row(&blocks, row)];
            let raw = &bytes[block.offset as usize..][..block.len as usize];
            let decoded = KeyBlock::decode(block, raw).unwrap();
            let (key, begin) = decoded.row(row).unwrap();
            assert_eq!(key, format!("key{:05}", row / 2).as_bytes());
            assert_eq!(begin, Timestamp(u64::from(row % 2)));
            assert_eq!(decoded.lower_bound(key, begin), row);
            let mut broken = raw.to_vec();
            broken[raw.len() / 2] ^= 4;
            assert!(matches!(KeyBlock::decode(block, &broken), Err(Error::Corrupt(_))));
        }
    }
}
