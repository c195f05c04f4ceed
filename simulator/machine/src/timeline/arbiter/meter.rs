// SPDX-License-Identifier: Apache-2.0
//! How busy something was lately: the part of the last quarter of a second, as NVML reports it.
//!
//! The window is one of the machine's clock, as a GPU's is. While the device stands still it does not work: a window of
//! device time would show a device that stands still for half of the time as busy as one that never does.

/// Length of the window over which utilisation is reported, in nanoseconds of the machine's clock.
pub const WINDOW: u64 = 250_000_000;

/// Busy time in the current and in the previous window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Meter {
    window: u64,
    current: u64,
    previous: u64,
}

impl Meter {
    fn roll(&mut self, clock: u64) {
        let window = clock / WINDOW;
        if window == self.window {
            return;
        }
        self.previous = if window == self.window.wrapping_add(1) {
            self.current
        } else {
            0
        };
        self.current = 0;
        self.window = window;
    }

    /// Counts `length` nanoseconds of service that began at `from`.
    pub fn add(&mut self, from: u64, length: u64) {
        let to = from + length;
        let start = to / WINDOW * WINDOW;
        self.roll(from);
        if start <= from {
            self.current += length;
            return;
        }
        // The service began in an earlier window: the part in that one counts if it is the one just before,
        // else the window just before was busy throughout.
        let is_adjacent = from / WINDOW + 1 == start / WINDOW;
        self.current += start - from;
        self.roll(start);
        self.previous = if is_adjacent { self.previous } else { WINDOW };
        self.current = to - start;
    }

    /// The busy part of the last window before `clock`, of 1000.
    pub fn permille(&self, clock: u64) -> u32 {
        let mut now = *self;
        now.roll(clock);
        let elapsed = clock % WINDOW;
        let kept = (u128::from(now.previous) * u128::from(WINDOW - elapsed) / u128::from(WINDOW)) as u64;
        ((now.current + kept) * 1000 / WINDOW).min(1000) as u32
    }
}
