// SPDX-License-Identifier: Apache-2.0
//! Which parts of a range of addresses are free: first fit, with neighbours joined again. Offsets in bytes.

use std::collections::BTreeMap;

/// The free parts of `0..length`.
#[derive(Debug)]
pub struct Ranges {
    /// Start to end of each free part; parts never touch.
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// All of `0..length` is free.
    pub fn new(length: u64) -> Self {
        Self {
            free: BTreeMap::from([(0, length)]),
        }
    }

    /// Takes `bytes` at the lowest multiple of `align` (a power of two) where they fit.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let (start, end, at) = self.free.iter().find_map(|(&start, &end)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= end).then_some((start, end, at))
        })?;
        self.cut(start, end, at, bytes);
        Some(at)
    }

    /// Takes exactly `at..at + bytes`, if all of it is free.
    pub fn take_at(&mut self, at: u64, bytes: u64) -> bool {
        let found = self.free.range(..=at).next_back().map(|(&start, &end)| (start, end));
        match (found, at.checked_add(bytes)) {
            (Some((start, end)), Some(stop)) if stop <= end => {
                self.cut(start, end, at, bytes);
                true
            }
            _ => false,
        }
    }

    /// Gives `at..at + bytes` back and answers the free part that it now belongs to, as start and end.
    pub fn give(&mut self, at: u64, bytes: u64) -> (u64, u64) {
        let (mut start, mut end) = (at, at + bytes);
        if let Some((&before, &touching)) = self.free.range(..at).next_back()
            && touching == at
        {
            start = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        self.free.insert(start, end);
        (start, end)
    }

    fn cut(&mut self, start: u64, end: u64, at: u64, bytes: u64) {
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at);
        }
        if at + bytes < end {
            self.free.insert(at + bytes, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_joins_its_neighbours() {
        let mut ranges = Ranges::new(4096);
        let taken: Vec<_> = (0..4).map(|_| ranges.take(1024, 512).expect("room")).collect();
        assert_eq!(taken, [0, 1024, 2048, 3072]);
        assert_eq!(ranges.take(1, 1), None);
        assert_eq!(ranges.give(1024, 1024), (1024, 2048));
        assert_eq!(ranges.give(3072, 1024), (3072, 4096));
        assert_eq!(ranges.give(2048, 1024), (1024, 4096));
        assert_eq!(ranges.take(1024, 2048), Some(2048), "aligned");
        assert!(ranges.take_at(1024, 1024) && !ranges.take_at(1024, 1));
        assert_eq!(ranges.give(0, 1024), (0, 1024));
    }
}
