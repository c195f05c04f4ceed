// SPDX-License-Identifier: Apache-2.0
//! The blocks of a pool: pure, no device, no clock. Offsets and lengths in bytes.
//!
//! Terms. *Chunk*: what the pool holds of the device in one piece; it is taken and given back whole. *Block*: a part
//! of chunks that nobody uses. *Tag*: the free that gave a block back, while it may not have happened yet; a block
//! without one is anybody's. Invariants: blocks lie in chunks, do not overlap, and blocks that touch have different
//! tags. A block may reach over chunks that touch.

use std::collections::BTreeMap;

/// The chunks of a pool and their blocks.
#[derive(Debug)]
pub struct Chunks<T> {
    /// Start to length.
    chunks: BTreeMap<u64, u64>,
    /// Start of each block.
    blocks: BTreeMap<u64, Block<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block<T> {
    end: u64,
    tag: Option<T>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            chunks: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }
}

impl<T: Copy + Eq> Chunks<T> {
    /// Bytes of all chunks.
    pub fn reserved(&self) -> u64 {
        self.chunks.values().sum()
    }

    /// Adds fresh memory in chunks of `length`, the last one shorter if it must be.
    pub fn add(&mut self, start: u64, bytes: u64, length: u64) {
        let mut at = start;
        while at < start + bytes {
            let piece = length.min(start + bytes - at);
            self.chunks.insert(at, piece);
            at += piece;
        }
        self.give(start, bytes, None);
    }

    /// Start and length of the chunks that have a part of `start..end`.
    pub fn between(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let reaching = move |(from, length): &(u64, u64)| from + length > start;
        let before = self.chunks.range(..start).next_back();
        let all = before.into_iter().chain(self.chunks.range(start..end));
        all.map(|(&from, &length)| (from, length)).filter(reaching)
    }

    /// Takes `bytes` from the smallest place that holds them, joining neighbours: blocks without a tag, and those whose
    /// tag `may_use` accepts. Answers where, and the tags of what was taken.
    pub fn take(&mut self, bytes: u64, may_use: impl Fn(&T) -> bool) -> Option<(u64, Vec<T>)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (&start, block) in &self.blocks {
            if block.tag.as_ref().is_some_and(|tag| !may_use(tag)) {
                continue;
            }
            match runs.last_mut() {
                Some(last) if last.1 == start => last.1 = block.end,
                _ => runs.push((start, block.end)),
            }
        }
        let fitting = runs.into_iter().filter(|(start, end)| end - start >= bytes);
        let (at, _) = fitting.min_by_key(|(start, end)| end - start)?;
        Some((at, self.cut(at, at + bytes)))
    }

    /// Takes back what was taken, or a part of it.
    pub fn give(&mut self, start: u64, bytes: u64, tag: Option<T>) {
        let (mut start, mut end) = (start, start + bytes);
        if let Some((&before, block)) = self.blocks.range(..start).next_back()
            && block.end == start
            && block.tag == tag
        {
            start = before;
        }
        if let Some(block) = self.blocks.get(&end)
            && block.tag == tag
        {
            let after = block.end;
            self.blocks.remove(&end);
            end = after;
        }
        self.blocks.insert(start, Block { end, tag });
    }

    /// Takes the tags away that `is_over` says are over.
    pub fn ripen(&mut self, is_over: impl Fn(&T) -> bool) {
        let ripe: Vec<(u64, u64)> = self
            .blocks
            .iter()
            .filter(|(_, block)| block.tag.as_ref().is_some_and(&is_over))
            .map(|(&start, block)| (start, block.end))
            .collect();
        for (start, end) in ripe {
            self.blocks.remove(&start);
            self.give(start, end - start, None);
        }
    }

    /// Takes chunks away of which nothing is used or tagged, as long as `keep` bytes remain. Answers start and length
    /// of each.
    pub fn release(&mut self, keep: u64) -> Vec<(u64, u64)> {
        let mut reserved = self.reserved();
        let mut gone = Vec::new();
        // The last first: what stays is dense at the start of the window.
        for (&start, &length) in self.chunks.iter().rev() {
            let is_idle = self
                .blocks
                .range(..=start)
                .next_back()
                .is_some_and(|(_, block)| block.tag.is_none() && block.end >= start + length);
            if is_idle && reserved - length >= keep {
                reserved -= length;
                gone.push((start, length));
            }
        }
        for &(start, length) in &gone {
            self.cut(start, start + length);
            self.chunks.remove(&start);
        }
        gone
    }

    /// Takes `start..end` out of the blocks that cover it, and answers their tags.
    fn cut(&mut self, start: u64, end: u64) -> Vec<T> {
        let covering = self.blocks.range(..=start).next_back().map(|(&first, _)| first);
        let touched: Vec<u64> = self
            .blocks
            .range(covering.unwrap_or(start)..end)
            .map(|(&start, _)| start)
            .collect();
        let mut tags = Vec::new();
        for first in touched {
            let Some(block) = self.blocks.remove(&first) else {
                continue;
            };
            tags.extend(block.tag);
            if first < start {
                self.blocks.insert(first, Block { end: start, ..block });
            }
            if block.end > end {
                self.blocks.insert(end, block);
            }
        }
        tags
    }
}

#[cfg(test)]
mod tests;
