// SPDX-License-Identifier: Apache-2.0
//! What a job got over the last second and the last minute.

const BUCKETS: usize = 10;

/// A sliding sum over ten whole buckets and the one that is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    bucket_ns: u64,
    sums: [i64; BUCKETS + 1],
    /// Number of the bucket that is being filled, counted from time 0.
    current: u64,
    since_ns: u64,
}

impl Window {
    /// An empty window of ten buckets of this length, from now on.
    pub fn new(bucket_ns: u64, now: u64) -> Self {
        Self {
            bucket_ns,
            sums: [0; BUCKETS + 1],
            current: now / bucket_ns,
            since_ns: now,
        }
    }

    /// Adds what was charged up to now.
    pub fn add(&mut self, now: u64, ns: i64) {
        self.advance(now);
        let at = self.place(self.current);
        self.sums[at] += ns;
    }

    /// Charged over the window, as parts per million of it.
    pub fn ppm(&self, now: u64) -> u32 {
        let mut window = self.clone();
        window.advance(now);
        let from = (window.current.saturating_sub(BUCKETS as u64) * self.bucket_ns).max(self.since_ns);
        let covered = now.saturating_sub(from).max(1);
        let sum: i64 = window.sums.iter().sum();
        let ppm = i128::from(sum.max(0)) * 1_000_000 / i128::from(covered);
        u32::try_from(ppm.min(1_000_000)).unwrap_or(0)
    }

    fn advance(&mut self, now: u64) {
        let bucket = now / self.bucket_ns;
        let steps = bucket.saturating_sub(self.current).min(BUCKETS as u64 + 1);
        for step in 1..=steps {
            let at = self.place(bucket - steps + step);
            self.sums[at] = 0;
        }
        self.current = self.current.max(bucket);
    }

    fn place(&self, bucket: u64) -> usize {
        (bucket % (BUCKETS as u64 + 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_forgets_what_is_older_than_itself() {
        let mut window = Window::new(100, 0);
        for now in (10..=1000).step_by(10) {
            window.add(now, 5);
        }
        assert_eq!(window.ppm(1000), 500_000);
        for now in (1010..=2500).step_by(10) {
            window.add(now, 1);
        }
        assert_eq!(window.ppm(2500), 101_000);
        assert_eq!(window.ppm(9000), 0);
    }

    #[test]
    fn a_young_window_counts_from_its_beginning() {
        let mut window = Window::new(100, 5000);
        window.add(5040, 20);
        assert_eq!(window.ppm(5040), 500_000);
    }
}
