//! Which rows a reader sees: begun at or before its timestamp, and not ended by then.
//!
//! A selection never depends on anything but begins, deletions and the range of rows asked about.

use std::ops::Range;

use arrow::array::{Array, BooleanArray};
use arrow::buffer::{BooleanBuffer, MutableBuffer};
use arrow::util::bit_util;
use parquet::arrow::arrow_reader::RowSelection;
use types::Timestamp;

/// Rows of a row group or chunk that are wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// All rows of a range.
    Range(Range<usize>),
    /// The rows whose bit is set; one bit for each row of the group.
    Mask(BooleanBuffer),
}

impl Selection {
    /// Rows of a group that a reader sees. `rows` of the group belong to the tablet at all;
    /// `dead` are the ascending positions, counted from `first`, of those that ended; `begins`
    /// stands for each row of the group, or is absent if all began in time.
    pub fn visible(
        rows: Range<usize>,
        group_rows: usize,
        first: u32,
        dead: &[u32],
        begins: Option<(&[u64], Timestamp)>,
    ) -> Self {
        if dead.is_empty() && begins.is_none() {
            return Selection::Range(rows);
        }
        let mut bits = MutableBuffer::from_len_zeroed(bit_util::ceil(group_rows, 8));
        let slice = bits.as_slice_mut();
        match begins {
            Some((begins, ts)) => {
                for at in rows {
                    if begins.get(at).is_some_and(|begin| *begin <= ts.0) {
                        bit_util::set_bit(slice, at);
                    }
                }
            }
            None => rows.for_each(|at| bit_util::set_bit(slice, at)),
        }
        for row in dead {
            let at = row.saturating_sub(first) as usize;
            if at < group_rows {
                bit_util::unset_bit(slice, at);
            }
        }
        Selection::Mask(BooleanBuffer::new(bits.into(), 0, group_rows))
    }

    /// Number of rows wanted.
    pub fn count(&self) -> usize {
        match self {
            Selection::Range(range) => range.len(),
            Selection::Mask(mask) => mask.count_set_bits(),
        }
    }

    /// Of the rows wanted, those for which `keep` (one value for each of them) is true.
    pub fn narrow(self, keep: &BooleanArray, group_rows: usize) -> Self {
        let keep = true_bits(keep);
        if keep.count_set_bits() == keep.len() {
            return self;
        }
        let mut bits = MutableBuffer::from_len_zeroed(bit_util::ceil(group_rows, 8));
        let slice = bits.as_slice_mut();
        match &self {
            Selection::Range(range) => {
                keep.set_indices().for_each(|at| bit_util::set_bit(slice, range.start + at));
            }
            Selection::Mask(mask) => {
                let kept = mask.set_indices().zip(keep.iter()).filter(|(_, keep)| *keep);
                kept.for_each(|(at, _)| bit_util::set_bit(slice, at));
            }
        }
        Selection::Mask(BooleanBuffer::new(bits.into(), 0, group_rows))
    }

    /// Of the rows wanted, those outside of some ascending ranges.
    pub fn without(self, ranges: &[Range<usize>], group_rows: usize) -> Self {
        if ranges.is_empty() {
            return self;
        }
        let mut bits = MutableBuffer::from_len_zeroed(bit_util::ceil(group_rows, 8));
        let slice = bits.as_slice_mut();
        match &self {
            Selection::Range(range) => range.clone().for_each(|at| bit_util::set_bit(slice, at)),
            Selection::Mask(mask) => {
                mask.set_indices().for_each(|at| bit_util::set_bit(slice, at));
            }
        }
        for at in ranges.iter().cloned().flatten().take_while(|at| *at < group_rows) {
            bit_util::unset_bit(slice, at);
        }
        Selection::Mask(BooleanBuffer::new(bits.into(), 0, group_rows))
    }

    /// As the Parquet reader takes it, for a group of so many rows.
    pub fn to_parquet(&self, group_rows: usize) -> RowSelection {
        match self {
            Selection::Range(range) => {
                RowSelection::from_consecutive_ranges(std::iter::once(range.clone()), group_rows)
            }
            Selection::Mask(mask) => RowSelection::from_consecutive_ranges(
                mask.set_slices().map(|(a, b)| a..b),
                group_rows,
            ),
        }
    }
}

/// Bits of what is true; NULL is not.
fn true_bits(array: &BooleanArray) -> BooleanBuffer {
    match array.nulls() {
        Some(nulls) => array.values() & nulls.inner(),
        None => array.values().clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(selection: &Selection) -> Vec<usize> {
        match selection {
            Selection::Range(range) => range.clone().collect(),
            Selection::Mask(mask) => mask.set_indices().collect(),
        }
    }

    #[test]
    fn a_row_is_seen_from_its_begin_to_before_its_end() {
        let begins = [5, 7, 9, 7];
        let see = |ts| {
            let begins = Some((begins.as_slice(), Timestamp(ts)));
            rows(&Selection::visible(0..4, 4, 100, &[101], begins))
        };
        assert_eq!((see(4), see(5), see(8), see(9)), (vec![], vec![0], vec![0, 3], vec![0, 2, 3]));
        assert_eq!(Selection::visible(1..3, 4, 100, &[], None), Selection::Range(1..3));
        assert_eq!(rows(&Selection::visible(1..3, 4, 100, &[102], None)), vec![1]);
    }

    #[test]
    fn narrowing_counts_within_what_was_selected() {
        let keep = BooleanArray::from(vec![Some(true), None, Some(false)]);
        let range = Selection::Range(2..5).narrow(&keep, 8);
        assert_eq!(rows(&range), vec![2]);
        let mask = Selection::Mask(BooleanBuffer::from(vec![false, true, false, true, true]));
        let keep = BooleanArray::from(vec![false, true, true]);
        let mask = mask.narrow(&keep, 5);
        assert_eq!((rows(&mask), mask.count()), (vec![3, 4], 2));
        let pages = std::slice::from_ref(&(0..4));
        assert_eq!(rows(&mask.without(pages, 5)), vec![4]);
    }
}
