// SPDX-License-Identifier: Apache-2.0
//! Bars of memory and the line of a minute, in cells.

/// How many of `width` cells each part of `whole` has, and what is left. A part that is there has a cell at least,
/// while there are any.
pub fn cells(width: u16, whole: u64, parts: [u64; 3]) -> [u16; 4] {
    let mut left = width;
    let mut shares = [0; 4];
    for (share, part) in shares.iter_mut().zip(parts) {
        let exact = u128::from(part) * u128::from(width) / u128::from(whole.max(1));
        let rounded = u16::try_from(exact).unwrap_or(width);
        *share = rounded.max(u16::from(part > 0)).min(left);
        left -= *share;
    }
    shares[3] = left;
    shares
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// A minute in `width` cells, the last second to the right. Each cell is the most of its seconds, blank where nothing
/// was measured.
pub fn minute(parts: &[Option<f64>], width: u16, is_utf8: bool) -> String {
    const SECONDS: usize = crate::top::state::history::SECONDS;
    let width = usize::from(width).min(SECONDS);
    let levels = if is_utf8 { BLOCKS } else { ASCII };
    let missing = SECONDS - parts.len().min(SECONDS);
    let second = |place: usize| {
        place
            .checked_sub(missing)
            .and_then(|place| parts.get(place).copied().flatten())
    };
    let cell = |column: usize| {
        let seconds = column * SECONDS / width..(column + 1) * SECONDS / width;
        let most = seconds.filter_map(second).max_by(f64::total_cmp);
        most.map_or(' ', |part| {
            let level = (part.clamp(0.0, 1.0) * 8.0).ceil() as usize;
            levels[level.saturating_sub(1).min(7)]
        })
    };
    (0..width).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_and_shows_the_smallest_part() {
        assert_eq!(cells(20, 100, [50, 1, 20]), [10, 1, 4, 5]);
        assert_eq!(cells(20, 100, [0, 0, 0]), [0, 0, 0, 20]);
        assert_eq!(cells(20, 100, [100, 30, 10]), [20, 0, 0, 0]);
        assert_eq!(cells(10, 0, [1, 0, 0]), [10, 0, 0, 0]);
        for parts in [[33, 33, 34], [1, 1, 1], [99, 1, 0]] {
            assert_eq!(cells(31, 100, parts).iter().sum::<u16>(), 31);
        }
    }

    #[test]
    fn a_minute_has_its_last_second_to_the_right() {
        let parts = [Some(0.0), Some(0.5), None, Some(1.0)];
        assert_eq!(minute(&parts, 60, true).trim_start(), "▁▄ █");
        assert_eq!(minute(&parts, 60, false).trim_start(), "_- #");
        assert_eq!(minute(&parts, 10, true), format!("{}█", " ".repeat(9)));
        assert_eq!(minute(&[], 10, true), " ".repeat(10));
    }
}
