// SPDX-License-Identifier: Apache-2.0
//! A job that ended in one line: `j19 ended 0 after 13s, peak 1.5 of 2 GiB, denied 2 times`.

use crate::admin::JobView;
use crate::size::{format_bytes, format_duration};

/// What is said of a job that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Exit code of its first process; none where nobody saw it.
    pub exit_code: Option<u32>,
    /// Its time limit ended it.
    pub is_over_time: bool,
    /// How long it ran, in nanoseconds.
    pub ran_ns: u64,
    /// Per device: its name (`GPU 3`), the highest use and the limit.
    pub peaks: Vec<(String, u64, Option<u64>)>,
    /// Denials that it did not recover from.
    pub denied: u64,
    /// Processes that used a GPU without Partage.
    pub unlimited: u64,
}

impl Summary {
    /// Of a job as documents show it; `now_ns`, a Unix time, stands for the end of one that has not ended.
    #[must_use]
    pub fn of(job: &JobView, now_ns: u64) -> Self {
        let peak = |device: &crate::admin::JobDeviceView| (device.gpu(), device.peak_bytes, device.limit_bytes);
        Self {
            exit_code: job.exit_code,
            is_over_time: job.is_over_time,
            ran_ns: job.ended_ns.unwrap_or(now_ns).saturating_sub(job.started_ns),
            peaks: job.devices.iter().map(peak).collect(),
            denied: job.denied.failed(),
            unlimited: job.unlimited,
        }
    }

    /// Did it use a GPU, or try to?
    #[must_use]
    pub fn has_used_a_gpu(&self) -> bool {
        self.denied > 0 || self.unlimited > 0 || self.peaks.iter().any(|(_, peak, _)| *peak > 0)
    }

    /// `ended 0 after 13s, peak 1.5 of 2 GiB, denied 2 times`, `ended 143 after 2h by its time limit, …`; with several
    /// devices each peak has its device's name.
    #[must_use]
    pub fn sentence(&self) -> String {
        let code = self.exit_code.map_or(String::new(), |code| format!(" {code}"));
        let by = if self.is_over_time { " by its time limit" } else { "" };
        let mut parts = vec![format!("ended{code} after {}{by}", format_duration(self.ran_ns))];
        parts.extend(self.facts());
        parts.join(", ")
    }

    /// What it used and what was denied to it.
    #[must_use]
    pub fn facts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        for (gpu, peak, limit) in &self.peaks {
            let on = if self.peaks.len() > 1 {
                format!(" on {gpu}")
            } else {
                String::new()
            };
            parts.push(format!("peak {}{on}", of(*peak, *limit)));
        }
        if self.denied > 0 {
            parts.push(denied_times(self.denied));
        }
        match self.unlimited {
            0 => {}
            1 => parts.push("1 process ran without Partage".to_owned()),
            count => parts.push(format!("{count} processes ran without Partage")),
        }
        parts
    }
}

/// `denied once`, `denied 3 times`.
#[must_use]
pub fn denied_times(count: u64) -> String {
    format!("denied {}", times(count))
}

/// `once`, `3 times`.
#[must_use]
pub fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// `1.5 of 2 GiB`, `512 MiB of 2 GiB`, `512 MiB`.
fn of(used: u64, limit: Option<u64>) -> String {
    let used = format_bytes(used);
    let Some(limit) = limit.map(format_bytes) else {
        return used;
    };
    match (used.split_once(' '), limit.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} of {limit}"),
        _ => format!("{used} of {limit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GIB, MIB, SECOND_NS};

    #[test]
    fn the_line_says_code_time_peak_and_denials() {
        let mut summary = Summary {
            exit_code: Some(0),
            is_over_time: false,
            ran_ns: 13 * SECOND_NS,
            peaks: vec![("GPU 0".to_owned(), 1536 * MIB, Some(2 * GIB))],
            denied: 2,
            unlimited: 0,
        };
        assert_eq!(
            summary.sentence(),
            "ended 0 after 13s, peak 1.5 of 2 GiB, denied 2 times"
        );
        assert!(summary.has_used_a_gpu());
        summary.peaks.push(("GPU 1".to_owned(), 512 * MIB, None));
        summary.exit_code = None;
        summary.denied = 1;
        summary.unlimited = 2;
        summary.is_over_time = true;
        assert_eq!(
            summary.sentence(),
            "ended after 13s by its time limit, peak 1.5 of 2 GiB on GPU 0, peak 512 MiB on GPU 1, denied once, \
             2 processes ran without Partage"
        );
        assert!(!Summary::default().has_used_a_gpu());
        assert_eq!(of(512 * MIB, Some(2 * GIB)), "512 MiB of 2 GiB");
    }
}
