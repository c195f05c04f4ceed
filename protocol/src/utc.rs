// SPDX-License-Identifier: Apache-2.0
//! Dates of UTC.

/// Year, month, day of a number of days since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
#[must_use]
pub const fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + (month <= 2) as i64, month, day)
}

/// `2026-11-20 22:26 UTC`, of nanoseconds since 1970.
#[must_use]
pub fn minute(unix_ns: u64) -> String {
    let s = unix_ns / 1_000_000_000;
    let (year, month, day) = civil((s / 86_400) as i64);
    let (hour, minute) = (s % 86_400 / 3_600, s / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_those_of_utc() {
        assert_eq!(minute(0), "1970-01-01 00:00 UTC");
        assert_eq!(minute(951_782_399_999_999_999), "2000-02-28 23:59 UTC");
        assert_eq!(minute(951_782_400_000_000_000), "2000-02-29 00:00 UTC");
        assert_eq!(minute(1_795_213_560_123_000_000), "2026-11-20 22:26 UTC");
    }
}
