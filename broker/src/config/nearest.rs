// SPDX-License-Identifier: Apache-2.0
//! The known word that a misspelt one is nearest to.

/// The parser's message about an unknown key in our words, with the nearest known key; others stay. The parser names
/// the unknown key and then the known ones in backquotes.
pub(super) fn with_nearest(message: &str) -> String {
    let message = message.trim_end();
    let Some((_, rest)) = message.split_once("unknown field ") else {
        return message.to_owned();
    };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(written) = names.next() else {
        return message.to_owned();
    };
    format!("unknown key `{written}`{}", suggestion(written, names))
}

/// ``; did you mean `reserve`?``, or `; known: …` where nothing is near; nothing where nothing is known.
pub(super) fn suggestion<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let most = (written.chars().count() / 2).clamp(1, 3);
    match known.iter().map(|name| (distance(written, name), name)).min() {
        Some((distance, nearest)) if distance <= most => format!("; did you mean `{nearest}`?"),
        Some(_) => format!("; known: {}", known.join(", ")),
        None => String::new(),
    }
}

/// Edits that turn one word into the other. Long words are cut: what is as long is near nothing.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let b: Vec<char> = b.chars().take(LONGEST).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(LONGEST).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
