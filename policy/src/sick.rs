// SPDX-License-Identifier: Apache-2.0
//! Which errors make a device sick: nothing is admitted on it until somebody has repaired it.
//!
//! NVIDIA's catalogue of Xids (<https://docs.nvidia.com/deploy/xid-errors/>) says for each what is to be done at once.
//! A device is sick where that is a reset of the GPU or of its host. Errors of a program are no sickness: any job could
//! take a GPU away from all others by them.
//!
//! | not here | because |
//! |---|---|
//! | 13, 31, 43, 45, 68, 69 | the program's own: restart it |
//! | 109, a context switch that takes too long | a reset is asked for, and a program's own kernel can cause it |
//! | 63, a row of memory is to be replaced | done at the next reset; until then the row is not used |
//! | 92, many corrected errors | nothing was lost |
//! | 94, a contained memory error | one program ended by it; others go on, a reset can wait |
//! | 154, the driver names what is to be done | it follows another Xid |

use std::collections::BTreeMap;

use crate::drain_mark::DrainMark;

/// An Xid that says that a device cannot be trusted before it is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatalXid {
    /// Its number.
    pub number: u32,
    /// What it says, in words that follow *GPU 0*.
    pub means: &'static str,
}

/// All of them, in order.
pub const FATAL_XIDS: [FatalXid; 15] = [
    fatal(46, "stopped processing"),
    fatal(48, "has a memory error that could not be corrected"),
    fatal(62, "has an internal controller that halted"),
    fatal(64, "could not replace a bad row of its memory"),
    fatal(74, "has an NVLink error"),
    fatal(79, "has fallen off the bus"),
    fatal(95, "has a memory error that may reach every program"),
    fatal(110, "has a security fault"),
    fatal(119, "has firmware (GSP) that does not answer"),
    fatal(120, "has an error of its firmware (GSP)"),
    fatal(136, "could not train its NVLinks"),
    fatal(140, "has a memory error from which it did not recover"),
    fatal(143, "could not be initialised"),
    fatal(156, "retired a part of itself"),
    fatal(158, "ran into a fatal timeout"),
];

const fn fatal(number: u32, means: &'static str) -> FatalXid {
    FatalXid { number, means }
}

/// What made a device sick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sickness {
    /// One of [`FATAL_XIDS`].
    Xid(u32),
    /// The driver says that a row of its memory could not be replaced.
    RemapFailed,
}

impl Sickness {
    /// Of an Xid that the driver told.
    #[must_use]
    pub fn of_xid(number: u32) -> Option<Self> {
        let is_fatal = FATAL_XIDS.iter().any(|xid| xid.number == number);
        is_fatal.then_some(Self::Xid(number))
    }

    /// For documents and files: `xid 79`, `remap-failed`.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Self::Xid(number) => format!("xid {number}"),
            Self::RemapFailed => "remap-failed".to_owned(),
        }
    }

    /// From that.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word.strip_prefix("xid ") {
            Some(number) => number.parse().ok().map(Self::Xid),
            None => (word == "remap-failed").then_some(Self::RemapFailed),
        }
    }

    /// In words that follow *GPU 0*: `has fallen off the bus (Xid 79)`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::RemapFailed => "could not replace a bad row of its memory".to_owned(),
            Self::Xid(number) => {
                let known = FATAL_XIDS.iter().find(|xid| xid.number == number);
                let means = known.map_or("had an error", |xid| xid.means);
                format!("{means} (Xid {number})")
            }
        }
    }
}

/// Since when a device is sick, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SickMark {
    /// In nanoseconds since 1970.
    pub since_unix_ns: u64,
    /// The first of what was found.
    pub cause: Sickness,
    /// The host was booted since, which resets its devices: it is well, unless the driver says otherwise.
    pub is_of_earlier_boot: bool,
}

/// An Xid as often as the driver told of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct XidCount {
    pub count: u64,
    /// When the last one was heard of, in nanoseconds since 1970.
    pub last_unix_ns: u64,
}

/// What this broker knows of a device's errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub mark: Option<SickMark>,
    pub xids: BTreeMap<u32, XidCount>,
    /// As the driver said last: what it says again is no news, so that an administrator's word holds.
    has_remap_failed: Option<bool>,
}

/// What a device's errors make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthNews {
    Sick(Sickness),
    Well,
}

/// What is new about a device as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceNews<'a> {
    /// It is to take no jobs.
    Drained(DrainMark),
    /// It is to take jobs again.
    Undrained,
    /// The driver told of these errors.
    Xids(&'a [u32]),
    /// The driver says whether a bad row of its memory could not be replaced.
    Remapping(Option<bool>),
    /// It is well again, by this user's word.
    Healed(u32),
}

impl DeviceNews<'_> {
    /// Whose word it is.
    pub(crate) fn by(&self) -> Option<u32> {
        match self {
            Self::Drained(mark) => mark.uid,
            Self::Healed(uid) => Some(*uid),
            Self::Undrained | Self::Xids(_) | Self::Remapping(_) => None,
        }
    }
}

impl From<Option<DrainMark>> for DeviceNews<'_> {
    fn from(mark: Option<DrainMark>) -> Self {
        mark.map_or(Self::Undrained, Self::Drained)
    }
}

impl Health {
    /// What these news make of it.
    pub(crate) fn hear_of(&mut self, news: &DeviceNews<'_>, unix_ns: u64) -> Option<HealthNews> {
        match news {
            DeviceNews::Xids(xids) => {
                // Each is counted; the first that makes it sick is its cause.
                let causes: Vec<Sickness> = xids.iter().filter_map(|xid| self.hear(*xid, unix_ns)).collect();
                causes.first().copied().map(HealthNews::Sick)
            }
            DeviceNews::Remapping(has_failed) => self.see_remapping(*has_failed, unix_ns),
            DeviceNews::Healed(_) => self.mark.take().map(|_| HealthNews::Well),
            DeviceNews::Drained(_) | DeviceNews::Undrained => None,
        }
    }

    /// The broker before left this.
    pub(crate) fn adopt(&mut self, mark: SickMark) {
        self.mark = Some(mark);
    }

    /// The driver told of an Xid. Answers whether that makes the device sick; one that is sick is so already.
    pub(crate) fn hear(&mut self, xid: u32, unix_ns: u64) -> Option<Sickness> {
        let heard = self.xids.entry(xid).or_default();
        heard.count = heard.count.saturating_add(1);
        heard.last_unix_ns = unix_ns;
        Sickness::of_xid(xid).filter(|cause| self.fall_sick(*cause, unix_ns))
    }

    /// The driver says whether a bad row could not be replaced. Answers whether that is news of its health.
    pub(crate) fn see_remapping(&mut self, has_failed: Option<bool>, unix_ns: u64) -> Option<HealthNews> {
        let before = self.has_remap_failed;
        self.has_remap_failed = has_failed.or(before);
        let is_over = self.mark.is_some_and(|mark| {
            let is_reset = mark.is_of_earlier_boot && has_failed != Some(true);
            is_reset || mark.cause == Sickness::RemapFailed && has_failed == Some(false)
        });
        if is_over {
            self.mark = None;
            return Some(HealthNews::Well);
        }
        let is_new = has_failed == Some(true) && before != Some(true);
        let cause = Sickness::RemapFailed;
        (is_new && self.fall_sick(cause, unix_ns)).then_some(HealthNews::Sick(cause))
    }

    fn fall_sick(&mut self, cause: Sickness, since_unix_ns: u64) -> bool {
        // A mark of the boot before says nothing of this one.
        let is_news = self.mark.is_none_or(|mark| mark.is_of_earlier_boot);
        if is_news {
            self.mark = Some(SickMark {
                since_unix_ns,
                cause,
                is_of_earlier_boot: false,
            });
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_error_of_a_program() {
        assert!(FATAL_XIDS.is_sorted_by(|one, next| one.number < next.number));
        for of_a_program in [13, 31, 43, 45, 68, 69, 109, 63, 92, 94, 154] {
            assert_eq!(Sickness::of_xid(of_a_program), None, "Xid {of_a_program}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let all = FATAL_XIDS.iter().map(|xid| Sickness::Xid(xid.number));
        for one in all.chain([Sickness::RemapFailed]) {
            assert_eq!(Sickness::parse(&one.word()), Some(one));
        }
        for other in ["", "xid", "xid x", "Xid 79"] {
            assert_eq!(Sickness::parse(other), None, "{other}");
        }
        assert_eq!(Sickness::Xid(79).text(), "has fallen off the bus (Xid 79)");
    }
}
