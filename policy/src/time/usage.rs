// SPDX-License-Identifier: Apache-2.0
//! GPU time that users had, of which half is forgotten after each half-life: who had less is next in the queue.
//!
//! ```text
//!   had(t + d) = had(t) · 2^(−d / half-life) + GPU time of the user's jobs in d
//! ```
//! The times are Unix time, so that the next broker goes on with them. A clock that goes back forgets nothing.

use std::collections::BTreeMap;

use partage_protocol::units::{DeviceUuid, JobId, SECOND_NS};
use serde::{Deserialize, Serialize};

/// Users that are remembered at most; those that had the least are forgotten first.
pub const MOST_USERS: usize = 1_000;
/// Who had less GPU time than this is not remembered.
const LEAST_NS: u64 = SECOND_NS / 1_000;
/// Between two polls of NVML no more than this is charged: what was not looked at is not known.
const LONGEST_POLL_NS: u64 = 5 * SECOND_NS;
/// So often what users had is written down at most.
pub(crate) const SAVE_EVERY_NS: u64 = 60 * SECOND_NS;

/// What a user had, for the next broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserUsage {
    /// The user.
    pub uid: u32,
    /// GPU time in nanoseconds, as much of it as counted then.
    pub gpu_ns: u64,
    /// When, in nanoseconds of Unix time.
    pub unix_ns: u64,
}

impl UserUsage {
    /// How much of it counts at this instant. What is rounded away is less than a nanosecond.
    fn at(&self, unix_ns: u64, half_life_ns: u64) -> u64 {
        let age_ns = unix_ns.saturating_sub(self.unix_ns);
        (self.gpu_ns as f64 * (-(age_ns as f64) / half_life_ns.max(1) as f64).exp2()) as u64
    }
}

/// What all users had, and how far it is counted. Everybody reads it; what changes it is a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    users: BTreeMap<u32, UserUsage>,
    /// What is counted of a measured job's time on a device: the most that it was charged there.
    counted: BTreeMap<(JobId, DeviceUuid), u64>,
    /// The newest poll of each device.
    polled: BTreeMap<DeviceUuid, u64>,
    /// When what users had was written down, and whether it changed since.
    saved_ns: Option<u64>,
    is_changed: bool,
}

impl Usage {
    /// GPU time that a user had, as much of it as counts at this instant, in nanoseconds.
    pub(crate) fn had(&self, uid: u32, unix_ns: u64, half_life_ns: u64) -> u64 {
        self.users.get(&uid).map_or(0, |user| user.at(unix_ns, half_life_ns))
    }

    /// A user's jobs had so much more.
    pub(crate) fn charge(&mut self, uid: u32, ns: u64, (unix_ns, half_life_ns): (u64, u64)) {
        if ns == 0 {
            return;
        }
        let gpu_ns = self.had(uid, unix_ns, half_life_ns).saturating_add(ns);
        let had = UserUsage { uid, gpu_ns, unix_ns };
        self.users.insert(uid, had);
        self.is_changed = true;
    }

    /// A measured job was charged so much on a device since it came; answers what of it is not counted yet.
    pub(crate) fn count(&mut self, job: JobId, device: DeviceUuid, used_ns: u64) -> u64 {
        let counted = self.counted.entry((job, device)).or_default();
        let more = used_ns.saturating_sub(*counted);
        *counted += more;
        more
    }

    /// Only what is counted of these jobs is remembered.
    pub(crate) fn keep_jobs(&mut self, lives: impl Fn(JobId) -> bool) {
        self.counted.retain(|(job, _), _| lives(*job));
    }

    /// A device is polled; answers for how long its figures count.
    pub(crate) fn poll(&mut self, device: DeviceUuid, now_ns: u64) -> u64 {
        let before = self.polled.insert(device, now_ns);
        before.map_or(0, |before| now_ns.saturating_sub(before).min(LONGEST_POLL_NS))
    }

    /// What users had is to be written down now, if it is: it changed, and was not lately.
    pub(crate) fn take_due(&mut self, now_ns: u64, (unix_ns, half_life_ns): (u64, u64)) -> Option<Vec<UserUsage>> {
        let is_fresh = self
            .saved_ns
            .is_some_and(|at| now_ns < at.saturating_add(SAVE_EVERY_NS));
        if is_fresh || !self.is_changed {
            return None;
        }
        (self.saved_ns, self.is_changed) = (Some(now_ns), false);
        self.forget_least(unix_ns, half_life_ns);
        Some(self.users.values().copied().collect())
    }

    /// What the broker before wrote down; a time to come is now.
    pub(crate) fn adopt(&mut self, users: Vec<UserUsage>, (unix_ns, half_life_ns): (u64, u64)) {
        for user in users {
            let unix_ns = user.unix_ns.min(unix_ns);
            self.users.insert(user.uid, UserUsage { unix_ns, ..user });
        }
        self.forget_least(unix_ns, half_life_ns);
    }

    fn forget_least(&mut self, unix_ns: u64, half_life_ns: u64) {
        self.users.retain(|_, user| user.at(unix_ns, half_life_ns) >= LEAST_NS);
        let excess = self.users.len().saturating_sub(MOST_USERS);
        if excess > 0 {
            let had = |user: &UserUsage| (user.at(unix_ns, half_life_ns), user.uid);
            let mut by_use: Vec<(u64, u32)> = self.users.values().map(had).collect();
            by_use.sort_unstable();
            for (_, uid) in by_use.into_iter().take(excess) {
                self.users.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600 * SECOND_NS;
    const GPU: DeviceUuid = DeviceUuid {
        bytes: [1; 16],
        is_mig: false,
    };

    #[test]
    fn half_is_forgotten_after_each_half_life_however_often_it_is_looked_at() {
        let mut once = Usage::default();
        once.charge(7, 100 * SECOND_NS, (HOUR, HOUR));
        assert_eq!(once.had(7, HOUR, HOUR), 100 * SECOND_NS);
        assert_eq!(once.had(7, 3 * HOUR, HOUR), 25 * SECOND_NS);
        assert_eq!(once.had(8, HOUR, HOUR), 0);
        assert_eq!(once.had(7, 0, HOUR), 100 * SECOND_NS, "a clock that goes back");
        let mut often = Usage::default();
        often.charge(7, 100 * SECOND_NS, (HOUR, HOUR));
        for step in 1..=3_600 {
            often.charge(7, 1, (HOUR + step * 2 * SECOND_NS, HOUR));
        }
        assert!(often.had(7, 3 * HOUR, HOUR).abs_diff(25 * SECOND_NS) < SECOND_NS / 10_000);
    }

    #[test]
    fn what_a_job_was_charged_counts_once_and_a_correction_takes_nothing_back() {
        let mut usage = Usage::default();
        let counts = [(5, 5), (9, 4), (7, 0), (8, 0), (12, 3)];
        for (used, more) in counts {
            assert_eq!(usage.count(JobId(1), GPU, used), more, "{used}");
        }
        usage.keep_jobs(|_| false);
        assert_eq!(usage.count(JobId(1), GPU, 4), 4, "another broker's job of that number");
    }

    #[test]
    fn what_was_not_looked_at_is_not_charged() {
        let mut usage = Usage::default();
        let times = [(SECOND_NS, 0), (2 * SECOND_NS, SECOND_NS), (HOUR, LONGEST_POLL_NS)];
        for (now, counts) in times {
            assert_eq!(usage.poll(GPU, now), counts);
        }
    }

    #[test]
    fn it_is_written_down_when_it_changed_once_a_minute_at_most_and_the_next_broker_goes_on_with_it() {
        let mut usage = Usage::default();
        assert_eq!(usage.take_due(0, (HOUR, HOUR)), None, "nothing to write");
        usage.charge(7, 100 * SECOND_NS, (HOUR, HOUR));
        let saved = usage.take_due(1, (HOUR, HOUR)).expect("due");
        usage.charge(7, SECOND_NS, (HOUR, HOUR));
        assert_eq!(usage.take_due(SAVE_EVERY_NS, (HOUR, HOUR)), None);
        assert!(usage.take_due(SAVE_EVERY_NS + 1, (HOUR, HOUR)).is_some());
        assert_eq!(
            usage.take_due(9 * SAVE_EVERY_NS, (HOUR, HOUR)),
            None,
            "as it stands there"
        );
        let mut next = Usage::default();
        next.adopt(saved, (2 * HOUR, HOUR));
        assert_eq!(next.had(7, 2 * HOUR, HOUR), 50 * SECOND_NS);
    }

    #[test]
    fn a_thousand_users_are_the_bound() {
        let many = |uid: u32| UserUsage {
            uid,
            gpu_ns: u64::from(uid) * SECOND_NS,
            unix_ns: 9 * HOUR,
        };
        let mut usage = Usage::default();
        usage.adopt((0..1_500).map(many).collect(), (HOUR, HOUR));
        assert_eq!(usage.users.len(), MOST_USERS);
        assert_eq!(usage.had(499, HOUR, HOUR), 0);
        assert_eq!(usage.had(500, HOUR, HOUR), 500 * SECOND_NS, "of a time to come");
    }
}
