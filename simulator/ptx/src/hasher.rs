// SPDX-License-Identifier: Apache-2.0
//! Maps of the translation: a large module looks millions of short names up, and nobody gains by making them collide.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map with a fast hash.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;
/// A set with a fast hash.
pub type Set<K> = HashSet<K, BuildHasherDefault<Mixer>>;

/// Multiplies by an odd number with well mixed bits (the golden ratio's), a word at a time.
#[derive(Default)]
pub struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            self.mix(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let rest = words.remainder();
        self.mix(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        // The maps take the upper seven bits and the lower ones: bring the well mixed half down too.
        self.0 ^ self.0 >> 32
    }
}
