// SPDX-License-Identifier: Apache-2.0
//! Periodic timers that have gone off (`timerfd`): CRIU forgets them.
//!
//! The kernel says of such a timer that nothing is left of its period until the program reads it, and to CRIU that is a
//! timer that is not set (its issue 3162). Every timer whose period is shorter than the save is so. In the images it
//! gets the shortest time that is left, so that it goes off at once and then goes on.

use std::path::Path;

use super::images::{Field, entries, fields};

/// The image of all open files, and the number of a timer in an entry.
const FILES: &str = "files.img";
const TIMER: u64 = 12;
/// Fields of CRIU's `timerfd_entry`: what is left, and the period, in seconds and nanoseconds.
const LEFT: [u64; 2] = [7, 8];
const PERIOD: [u64; 2] = [9, 10];

/// Sets them again.
///
/// # Errors
/// A sentence.
pub fn mend(images: &Path) -> Result<(), String> {
    let path = images.join(FILES);
    let mut image = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match mend_image(&mut image) {
        0 => Ok(()),
        _ => std::fs::write(&path, image).map_err(|error| format!("cannot write {}: {error}", path.display())),
    }
}

/// How many it set again.
fn mend_image(image: &mut [u8]) -> usize {
    let timers = entries(image).filter_map(|entry| {
        let mut found = fields(image, entry);
        found.find(|field| field.number == TIMER)
    });
    let forgotten = timers.filter_map(|timer| {
        let found: Vec<Field> = fields(image, timer.span).collect();
        let value = |number: u64| {
            found
                .iter()
                .find(|field| field.number == number)
                .map(|field| field.value)
        };
        let is_unset = LEFT.iter().all(|number| value(*number) == Some(0));
        let is_periodic = PERIOD
            .iter()
            .any(|number| value(*number).is_some_and(|value| value > 0));
        let left = found.iter().find(|field| field.number == LEFT[1]);
        left.filter(|_| is_unset && is_periodic).map(|field| field.span.start)
    });
    let places: Vec<usize> = forgotten.collect();
    for place in &places {
        image[*place] = 1;
    }
    places.len()
}

#[cfg(test)]
mod tests {
    use super::super::images::made::{field, image, inner};
    use super::*;

    fn timer(left: [u64; 2], period: [u64; 2]) -> Vec<u8> {
        let parts = [
            field(1, 9),
            field(5, 3),
            field(7, left[0]),
            field(8, left[1]),
            field(9, period[0]),
            field(10, period[1]),
        ];
        [field(1, 11), field(2, 9), inner(12, &parts.concat())].concat()
    }

    #[test]
    fn a_periodic_timer_that_went_off_is_set_again() {
        let other = [field(1, 1), field(2, 8), inner(3, &field(8, 0))].concat();
        let of = |first: Vec<u8>| image(&[other.clone(), first, other.clone()]);
        for (left, wanted, period) in [
            ([0, 0], [0, 1], [0, 1_000_000]),
            ([0, 0], [0, 1], [5, 0]),
            // It is set.
            ([0, 1], [0, 1], [0, 500]),
            ([4, 0], [4, 0], [5, 0]),
            // It was set for once, and goes off no more.
            ([0, 0], [0, 0], [0, 0]),
        ] {
            let mut bytes = of(timer(left, period));
            let count = mend_image(&mut bytes);
            assert_eq!((bytes, count), (of(timer(wanted, period)), usize::from(left != wanted)));
        }
    }
}
