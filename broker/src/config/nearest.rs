// SPDX-License-Identifier: Apache-2.0
//! The known key that a misspelt one is nearest to.

/// Adds `did you mean` to serde's message about an unknown key, which names the known ones in backquotes.
pub(super) fn with_nearest(message: &str) -> String {
    let Some((_, rest)) = message.split_once("unknown field ") else {
        return message.to_owned();
    };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(written) = names.next() else {
        return message.to_owned();
    };
    match names.map(|name| (distance(written, name), name)).min() {
        Some((distance, nearest)) if distance <= 3 => format!("{message}did you mean `{nearest}`?\n"),
        _ => message.to_owned(),
    }
}

/// Edits that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
