// SPDX-License-Identifier: Apache-2.0
//! The constants of the policy, each with its reason. Nanoseconds and parts per million.

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// What can be tuned. [`Config::default`] is what the documents promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Shortest request of a job of class normal or low in Turns: below it hand-overs cost more than 2 %.
    pub quantum_min_ns: u64,
    /// Longest: half a percentage point of one second.
    pub quantum_max_ns: u64,
    /// In Overlap a job is closed when it is further ahead of its share than this (or a quarter of the longest unit):
    /// two slices of the device's own.
    pub slack_ns: u64,
    /// Period of a cap's budget.
    pub period_ns: u64,
    /// Work in flight while another job wants the device.
    pub depth_contended_ns: u64,
    /// The device's own slice: bounds the work in flight for units that are longer than the depth.
    pub slice_ns: u64,
    /// Work in flight while other jobs are there and want nothing: what one that wakes finds before it.
    pub depth_present_ns: u64,
    /// Work in flight of a job beside one of a higher class.
    pub depth_beside_higher_ns: u64,
    /// The same shortly before one of a higher class is expected: none beyond a unit that runs.
    pub depth_before_wake_ns: u64,
    /// How long jobs of lower classes are kept away after a higher one was last seen to want the device, if its pauses
    /// are no longer than that as a rule: two or three looks.
    pub linger_ns: u64,
    /// For so long of a pause its end is expected, if pauses end within that time as a rule.
    pub pause_ns: u64,
    /// What all jobs of lower classes get together, however much higher classes want; and what is left for jobs
    /// without a promise when everything is promised.
    pub floor_ppm: u32,
    /// How long a device may be drained before others are let in; at least three quanta.
    pub drain_timeout_ns: u64,
    /// A regime holds at least this long.
    pub hysteresis_ns: u64,
    /// For how long two jobs must have wanted the device without pause before they take turns.
    pub evidence_ns: u64,
    /// Turns end when less than this part of the device's time was used in them.
    pub turns_efficiency_ppm: u32,
    /// Jobs with longer units do not take turns of their own accord: a drain would take as long.
    pub turns_unit_ns: u64,
    /// A job that was idle for less than this still wants the device: gaps between two launches are no end of work.
    pub think_ns: u64,
    /// A job that was idle for less than this and comes back has all that it was owed; after longer sleep one request
    /// of it. In Turns it wants the device all the while: a processor that is taken away costs no share.
    pub nap_ns: u64,
    /// Who has the turn and is idle for this long gives it up.
    pub release_ns: u64,
    /// How long a gang whose members wait for one another at closed gates is left so before it may go on for a moment.
    pub run_ahead_ns: u64,
    /// Interval of observations while a device is drained, or a higher class may wake.
    pub watch_drain_ns: u64,
    /// Interval in Turns, and near the end of a cap's budget.
    pub watch_turns_ns: u64,
    /// Interval in Overlap while several jobs want the device.
    pub watch_overlap_ns: u64,
    /// Interval while one of several jobs wants it, or a capped job is alone. Up to the next, if no other has for
    /// seconds.
    pub watch_light_ns: u64,
    /// Interval while none of several jobs wants it. Up to ten times as long, if none has for seconds.
    pub watch_idle_ns: u64,
    /// Interval for a job alone: only to show what it got.
    pub watch_alone_ns: u64,
    /// An observation that comes later than its time by more than this speaks for no more: gates stood as they were, or
    /// open, because nobody was there to close them.
    pub late_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            quantum_min_ns: 2 * MS,
            quantum_max_ns: 5 * MS,
            slack_ns: 4 * MS,
            period_ns: 100 * MS,
            depth_contended_ns: 500 * US,
            slice_ns: 2 * MS,
            depth_present_ns: 10 * MS,
            depth_beside_higher_ns: 200 * US,
            depth_before_wake_ns: 0,
            linger_ns: 150 * US,
            pause_ns: MS,
            floor_ppm: 20_000,
            drain_timeout_ns: 50 * MS,
            hysteresis_ns: 1_000 * MS,
            evidence_ns: 250 * MS,
            turns_efficiency_ppm: 950_000,
            turns_unit_ns: 20 * MS,
            think_ns: 200 * US,
            nap_ns: 5 * MS,
            release_ns: 100 * US,
            run_ahead_ns: 2 * MS,
            watch_drain_ns: 50 * US,
            watch_turns_ns: 100 * US,
            watch_overlap_ns: 200 * US,
            watch_light_ns: MS,
            watch_idle_ns: 5 * MS,
            watch_alone_ns: 500 * MS,
            late_ns: 250 * MS,
        }
    }
}
