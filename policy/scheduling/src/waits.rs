// SPDX-License-Identifier: Apache-2.0
//! For what a job waited, of late: an instant says little of a job that is held and let in again many times a second.

use crate::command::Cause;

/// What is remembered counts half as much after each of these.
const HALF_NS: u64 = 10_000_000_000;
/// What is left of a wait when it is forgotten.
const LEAST_KEPT_NS: u64 = 1_000_000;

/// Time waited by cause, what is older counting less.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    of: Vec<(Cause, u64)>,
    halved_ns: u64,
}

impl Waits {
    /// Books a wait that ends now.
    pub fn add(&mut self, by: Cause, dt: u64, now: u64) {
        self.age(now);
        if by == Cause::None {
            return;
        }
        match self.of.iter_mut().find(|(other, _)| *other == by) {
            Some((_, sum)) => *sum += dt,
            None => self.of.push((by, dt)),
        }
    }

    /// What it waited for most; none if it did not wait of late.
    pub fn mostly(&self, now: u64) -> Cause {
        let mut aged = self.clone();
        aged.age(now);
        let most = aged.of.iter().max_by_key(|(_, sum)| *sum);
        most.map_or(Cause::None, |(by, _)| *by)
    }

    fn age(&mut self, now: u64) {
        let halvings = now.saturating_sub(self.halved_ns) / HALF_NS;
        if halvings == 0 {
            return;
        }
        self.halved_ns = now - (now - self.halved_ns) % HALF_NS;
        for (_, sum) in &mut self.of {
            *sum = sum
                .checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX))
                .unwrap_or(0);
        }
        self.of.retain(|(_, sum)| *sum >= LEAST_KEPT_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use partage_protocol::units::JobId;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_longest_wait_of_late_is_the_cause() {
        let (neighbour, cap) = (Cause::Neighbour(JobId(2)), Cause::Cap);
        let mut waits = Waits::default();
        assert_eq!(waits.mostly(0), Cause::None);
        for second in 1..60 {
            waits.add(neighbour, SECOND / 2, second * SECOND);
            waits.add(cap, SECOND / 4, second * SECOND);
        }
        assert_eq!(waits.mostly(60 * SECOND), neighbour);
        for second in 60..90 {
            waits.add(cap, SECOND / 2, second * SECOND);
        }
        assert_eq!(waits.mostly(90 * SECOND), cap, "the older counts less");
        assert_eq!(waits.mostly(600 * SECOND), Cause::None, "and in the end nothing");
        waits.add(neighbour, SECOND, 600 * SECOND);
        assert_eq!((waits.mostly(600 * SECOND), waits.of.len()), (neighbour, 1));
    }
}
