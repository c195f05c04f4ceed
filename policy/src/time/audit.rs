// SPDX-License-Identifier: Apache-2.0
//! The auditor of device time: jobs for which NVML shows the device at work for longer than what they were charged.
//!
//! ```text
//!   excess = shown − r · max(charged in this look, charged in the look before)
//!   r      = Σ shown / Σ charged of the other jobs on the device, within 1 and MOST_AHEAD; 1 where there are none
//!
//!            excess > TOLERANCE in two looks                  no excess for AGREES_AFTER_NS
//!   agrees ─────────────────────────────────► drifts ─────────────────────────────────► agrees
//!                                               │ each look's excess is charged to the job and taken from who was
//!                                               │ charged for it; after TIME_CONFIRM_NS `[audit] drift` answers
//! ```
//! A *look* is the time between two views of what was charged, some 0.9 s and, while NVML gives no figure, up to
//! [`LONGEST_LOOK_NS`]; *shown* is the mean of NVML's figures in it. NVML's figure is a mean over a second whose
//! samples may be a second old, so that work which has just ended still shows: a look is compared with what was charged
//! in it or in the one before, whichever is more. Excess that NVML shows for all jobs alike (another clock, time
//! between kernels) accuses none of them: `r` takes it out.
//!
//! Nothing is judged where the figures are no split of the device: where NVML does not say them of one of the job's
//! processes, or where those of all processes add up to more than the device ([`OVERLAP_PPM`]). Less than what was
//! charged is never judged: a client that waits between its launches is charged for gaps that NVML does not count. Work
//! that began before its job was measured and has not ended is not told from work that goes past Partage: it is
//! charged, too.

use partage_protocol::terms::WHOLE_PPM;
use partage_protocol::units::SECOND_NS;

/// A job whose time drifts is answered after so long, as `[audit] drift` says.
pub const TIME_CONFIRM_NS: u64 = 5 * SECOND_NS;
/// NVML may show so much more than what was charged.
pub(crate) const TOLERANCE_PPM: u32 = WHOLE_PPM / 10;
/// NVML may show all jobs of a device at work for so many times longer than they are charged, at most.
const MOST_AHEAD: u64 = 2;
/// Shorter than that is no look.
const LEAST_LOOK_NS: u64 = SECOND_NS / 10 * 9;
/// A look waits for a figure of NVML's for so long: views and polls have clocks of their own.
const LONGEST_LOOK_NS: u64 = 2 * SECOND_NS;
/// A job agrees again after so long without an excess: one whose cap makes it pay stands still for a while.
const AGREES_AFTER_NS: u64 = 30 * SECOND_NS;

/// What is known of one job on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeAudit {
    /// Sum of NVML's figures since the last look, and how many.
    shown: (u64, u32),
    /// One of them divides nothing.
    is_blurred: bool,
    /// When the last look ended, what was seen of the job's time up to then, and in which stretch of measuring.
    last: Option<(u64, i64, u32)>,
    /// What was charged in the look before.
    before_ppm: Option<u32>,
    /// Excess of one look, which the next one confirms or not.
    pending_ns: i64,
    /// The newest look's excess, where it is charged.
    excess_ppm: u32,
    drift: Option<TimeDrift>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeDrift {
    since_ns: u64,
    /// When an excess was last seen.
    last_ns: u64,
    pub shown_ppm: u32,
    pub charged_ppm: u32,
    is_killed: bool,
}

/// What one look says.
pub(crate) struct Look {
    pub shown_ppm: u32,
    pub charged_ppm: u32,
    /// As much as was charged in this look or the one before.
    pub most_ppm: u32,
}

impl Look {
    /// The look with what was charged brought to the measure of the device's other jobs. `all`: what was shown and
    /// charged of all its jobs, this one's included.
    pub(crate) fn beside(mut self, (shown, charged): (u64, u64)) -> Self {
        let others = (
            shown.saturating_sub(u64::from(self.shown_ppm)),
            charged.saturating_sub(u64::from(self.most_ppm)),
        );
        let most = u64::from(self.most_ppm);
        let scaled = (most * others.0).checked_div(others.1).unwrap_or(most);
        let scaled = scaled.clamp(most, most * MOST_AHEAD).min(u64::from(WHOLE_PPM));
        self.most_ppm = u32::try_from(scaled).unwrap_or(WHOLE_PPM);
        self
    }
}

impl TimeAudit {
    /// It has drifted for so long that the rules answer.
    pub(crate) fn is_confirmed(&self, now_ns: u64) -> bool {
        self.drift
            .as_ref()
            .is_some_and(|drift| now_ns >= drift.since_ns.saturating_add(TIME_CONFIRM_NS))
    }

    /// It drifts.
    pub(crate) const fn drift(&self) -> Option<&TimeDrift> {
        self.drift.as_ref()
    }

    /// What NVML shows of the job; none where its figures divide nothing.
    pub(crate) fn note_shown(&mut self, part_ppm: Option<u32>) {
        match part_ppm {
            Some(part) => self.shown = (self.shown.0 + u64::from(part), self.shown.1 + 1),
            None => self.is_blurred = true,
        }
    }

    /// Its processes are to be killed, where the rules say so, and have not been.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.is_confirmed(now_ns) && self.drift.as_ref().is_some_and(|drift| !drift.is_killed)
    }

    /// Its processes were killed.
    pub(crate) fn note_killed(&mut self) {
        if let Some(drift) = &mut self.drift {
            drift.is_killed = true;
        }
    }

    /// The part of the device's time that NVML alone shows of it, while that is charged.
    pub(crate) fn unseen_ppm(&self) -> u32 {
        self.excess_ppm
    }

    /// Ends a look at a job of which `seen_ns` were seen so far. None where it is too short, or the first of a stretch
    /// of measuring: in between the device was not measured, so that NVML shows what nobody was to be charged for.
    pub(crate) fn end_look(&mut self, seen_ns: i64, stretch: u32, now_ns: u64) -> Option<(u64, i64, Option<Look>)> {
        let Some((at, before, _)) = self.last.filter(|(_, _, last)| *last == stretch) else {
            self.last = Some((now_ns, seen_ns, stretch));
            (self.shown, self.is_blurred, self.before_ppm, self.pending_ns) = ((0, 0), false, None, 0);
            self.excess_ppm = 0;
            return None;
        };
        let dt = now_ns.saturating_sub(at);
        let has_figure = self.shown.1 > 0 || self.is_blurred;
        if dt < LEAST_LOOK_NS || (!has_figure && dt < LONGEST_LOOK_NS) {
            return None;
        }
        self.last = Some((now_ns, seen_ns, stretch));
        let charged_ns = seen_ns.saturating_sub(before).max(0);
        let charged = i128::from(charged_ns) * i128::from(WHOLE_PPM) / i128::from(dt);
        let charged_ppm = u32::try_from(charged).map_or(WHOLE_PPM, |ppm| ppm.min(WHOLE_PPM));
        let before_ppm = self.before_ppm.replace(charged_ppm);
        let (sum, count) = std::mem::take(&mut self.shown);
        let is_blurred = std::mem::take(&mut self.is_blurred);
        let shown = sum.checked_div(u64::from(count)).filter(|_| !is_blurred);
        let look = shown.zip(before_ppm).map(|(shown, before_ppm)| Look {
            // A mean of parts is one.
            shown_ppm: u32::try_from(shown).map_or(WHOLE_PPM, |ppm| ppm.min(WHOLE_PPM)),
            charged_ppm,
            most_ppm: charged_ppm.max(before_ppm),
        });
        Some((dt, charged_ns, look))
    }

    /// Judges a look of `dt`: what the job is charged for it, and whether its drift begins or ends.
    pub(crate) fn judge(&mut self, look: Option<Look>, dt: u64, now_ns: u64) -> (i64, Option<bool>) {
        let excess_ppm = look
            .as_ref()
            .map_or(0, |look| look.shown_ppm.saturating_sub(look.most_ppm));
        self.excess_ppm = 0;
        let Some(look) = look.filter(|_| excess_ppm > TOLERANCE_PPM) else {
            self.pending_ns = 0;
            let is_over = self
                .drift
                .take_if(|drift| now_ns >= drift.last_ns.saturating_add(AGREES_AFTER_NS))
                .is_some();
            return (0, is_over.then_some(false));
        };
        let ns = i128::from(excess_ppm) * i128::from(dt) / i128::from(WHOLE_PPM);
        let excess_ns = i64::try_from(ns).unwrap_or(i64::MAX);
        if self.drift.is_none() && self.pending_ns == 0 {
            self.pending_ns = excess_ns;
            return (0, None);
        }
        let ns = excess_ns.saturating_add(std::mem::take(&mut self.pending_ns));
        self.excess_ppm = excess_ppm;
        let is_new = self.drift.is_none();
        let drift = self.drift.get_or_insert(TimeDrift {
            since_ns: now_ns.saturating_sub(dt),
            last_ns: now_ns,
            shown_ppm: 0,
            charged_ppm: 0,
            is_killed: false,
        });
        (drift.last_ns, drift.shown_ppm, drift.charged_ppm) = (now_ns, look.shown_ppm, look.charged_ppm);
        (ns, is_new.then_some(true))
    }
}
