//! Finds keys that cut a region into parts of about equal size, by reading it once. One that holds a table's indexes
//! and records is first cut between them: columns follow records alone.
//!
//! Advice only: a cut is checked again when it is decided.

use kv::{Keyspace, KvRead};
use types::{Error, Region, Result};

/// Samples kept at a time; when there are more, every second one goes.
const SAMPLES: usize = 4_096;
/// Bytes read between two chances for other tasks to run.
const STRIDE: usize = 1 << 20;
/// Most parts of one cut.
const MAX_PARTS: u32 = 1_024;

/// Keys that cut a region into `parts`, ascending and distinct; fewer if it holds fewer keys, and the first record alone if
/// it holds entries of indexes before its records.
pub async fn split_keys(kv: Box<dyn KvRead>, region: &Region, parts: u32) -> Result<Vec<Vec<u8>>> {
    if !(2..=MAX_PARTS).contains(&parts) {
        return Err(Error::Invalid(format!("a region is cut into 2 to {MAX_PARTS} parts")));
    }
    let (start, end) = (region.start.clone(), region.end.clone());
    if let Some(first) = first_record(kv.as_ref(), region)? {
        return Ok(vec![first]);
    }
    let mut samples = Samples::default();
    let mut cursor = Some(start.clone());
    while let Some(from) = cursor {
        cursor = stride(kv.as_ref(), &from, &end, &mut samples)?;
        tokio::task::yield_now().await;
    }
    Ok(samples.cuts(parts, &start))
}

/// Where a region's records begin, if it holds any and entries of indexes, too.
fn first_record(kv: &dyn KvRead, region: &Region) -> Result<Option<Vec<u8>>> {
    let Some((first, end)) = region.records().filter(|(first, _)| *first > region.start) else {
        return Ok(None);
    };
    let entry = kv.scan(Keyspace::Data, &region.start, &first).next().transpose()?;
    let record = kv.scan(Keyspace::Data, &first, &end).next().transpose()?;
    Ok((entry.is_some() && record.is_some()).then_some(first))
}

/// Reads one stride and says where the next one starts.
fn stride(
    kv: &dyn KvRead,
    from: &[u8],
    end: &[u8],
    samples: &mut Samples,
) -> Result<Option<Vec<u8>>> {
    let mut read = 0;
    for pair in kv.scan(Keyspace::Data, from, end) {
        let (mut key, value) = pair?;
        let bytes = key.len() + value.len();
        samples.add(&key, bytes as u64);
        read += bytes;
        if read >= STRIDE {
            key.push(0);
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Keys with the bytes that lie before each, about evenly spaced.
#[derive(Default)]
struct Samples {
    keys: Vec<(Vec<u8>, u64)>,
    total: u64,
    step: u64,
    next: u64,
}

impl Samples {
    fn add(&mut self, key: &[u8], bytes: u64) {
        if self.total >= self.next {
            self.keys.push((key.to_vec(), self.total));
            self.next = self.total + self.step;
            if self.keys.len() >= SAMPLES {
                let mut nth = 0;
                self.keys.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
                self.step = (self.total / (SAMPLES as u64 / 2)).max(1);
            }
        }
        self.total += bytes;
    }

    fn cuts(&self, parts: u32, start: &[u8]) -> Vec<Vec<u8>> {
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        for part in 1..u64::from(parts) {
            let at = self.total / u64::from(parts) * part;
            let found = self.keys.partition_point(|(_, before)| *before < at);
            if let Some((key, _)) = self.keys.get(found)
                && key.as_slice() > cuts.last().map_or(start, Vec::as_slice)
            {
                cuts.push(key.clone());
            }
        }
        cuts
    }
}
