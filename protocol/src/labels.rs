// SPDX-License-Identifier: Apache-2.0
//! How much a job may be labelled: labels are kept, sent and shown with every job.

/// Most labels of one job.
pub const MAX_LABELS: usize = 32;
/// Longest label, key and value together, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;

/// Are these labels few and short enough?
///
/// # Errors
/// A sentence with the numbers.
pub fn check(labels: &[(String, String)]) -> Result<(), String> {
    if labels.len() > MAX_LABELS {
        return Err(format!("{} labels are too many: at most {MAX_LABELS}", labels.len()));
    }
    let length = |(key, value): &(String, String)| key.len() + value.len();
    match labels.iter().max_by_key(|label| length(label)) {
        Some(longest) if length(longest) > MAX_LABEL_BYTES => {
            let start: String = longest.0.chars().take(20).collect();
            let long = length(longest);
            Err(format!(
                "label {start:?} has {long} bytes with its value: at most {MAX_LABEL_BYTES}"
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_reached_and_not_passed() {
        let label = |key: usize, value: usize| ("k".repeat(key), "v".repeat(value));
        assert_eq!(check(&vec![label(6, MAX_LABEL_BYTES - 6); MAX_LABELS]), Ok(()));
        assert!(check(&vec![label(1, 1); MAX_LABELS + 1]).is_err_and(|why| why.contains("33 labels")));
        assert!(check(&[label(1, 1), label(6, MAX_LABEL_BYTES)]).is_err_and(|why| why.contains("262 bytes")));
    }
}
