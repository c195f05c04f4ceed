// SPDX-License-Identifier: Apache-2.0
//! What must never be: who may not name whom, what may not be called where. A row for each rule.
//!
//! What breaks a row today stands in [`crate::listed`]. A row that watches nothing is named, too: a wall whose folder
//! has moved would stand in a field.

use std::collections::{BTreeMap, BTreeSet};

use crate::listed::Fault;
use crate::modules::Arrows;
use crate::source::{Kind, Token, closing, tokens, without_tests};
use crate::tree::File;

/// Files of one folder that may not name those of another.
struct Wall {
    rule: &'static str,
    /// Where it holds: paths that begin so.
    within: &'static [&'static str],
    /// Where it does not, within.
    except: &'static [&'static str],
    /// What may not be named there: paths that begin so.
    never: &'static [&'static str],
    /// What may be named there although it begins so.
    but: &'static [&'static str],
    instead: &'static str,
}

const WALLS: [Wall; 6] = [
    Wall {
        rule: "gate-knows-no-memory",
        within: &["interposer/src/gate", "interposer/src/hold", "interposer/src/marks"],
        except: &[],
        never: &["interposer/src/memory"],
        but: &[],
        instead: "a launch is held and measured whatever memory it uses; give the fact as an argument",
    },
    Wall {
        rule: "memory-knows-no-gate",
        within: &["interposer/src/memory"],
        except: &[],
        never: &["interposer/src/gate", "interposer/src/hold", "interposer/src/marks"],
        but: &[],
        instead: "memory is charged whether or not a gate is closed; let the hook ask both",
    },
    Wall {
        rule: "hooks-call-five-rooms",
        within: &["interposer/src/hooks"],
        except: &[],
        never: &["interposer/src/"],
        but: &[
            "interposer/src/hooks",
            "interposer/src/memory",
            "interposer/src/gate",
            "interposer/src/attachment",
            "interposer/src/devices",
            "interposer/src/stream",
            // What every hook is made of: the macros of its entry, the driver's function, the guard around it, the
            // system.
            "interposer/src/entry",
            "interposer/src/real",
            "interposer/src/guard",
            "interposer/src/guest",
        ],
        instead: "call memory::, gate::, attachment::, devices:: or stream::",
    },
    Wall {
        rule: "decisions-name-no-view",
        within: &["policy/src/"],
        except: &["policy/src/views", "policy/src/lib.rs", "policy/src/decisions/step.rs"],
        never: &["policy/src/views"],
        but: &[],
        instead: "views ask the decisions, never the other way round; `step` alone routes to both",
    },
    Wall {
        rule: "engine-knows-no-driver",
        within: &["broker/src/site", "broker/src/residence", "broker/src/registration"],
        except: &[],
        never: &["broker/src/driver", "broker/src/server"],
        but: &[],
        instead: "tell the site an event, or push an effect; the loop hears and does it",
    },
    Wall {
        rule: "books-name-no-decision",
        within: &["policy/src/books"],
        // It builds books by deciding.
        except: &["policy/src/books/check/tests.rs"],
        never: &["policy/src/decisions"],
        but: &[],
        instead: "what answers a question is the books' own; decisions ask, and write",
    },
];

/// Words that may not be said in a folder: a path, a call, a name.
struct Banned {
    rule: &'static str,
    within: &'static [&'static str],
    but: &'static [&'static str],
    /// Each a run of tokens, separated by spaces.
    never: &'static [&'static str],
    instead: &'static str,
}

const BANNED: [Banned; 6] = [
    Banned {
        rule: "policy-names-no-json",
        within: &["policy/src/"],
        but: &["policy/src/views"],
        never: &["admin ::", "serde_json"],
        instead: "return a fact; policy/src/views/ turns it into the document",
    },
    Banned {
        rule: "dispatcher-does-not-wait",
        within: &["broker/src/dispatcher"],
        but: &[],
        never: &[
            "File",
            "OpenOptions",
            "fs ::",
            "Command ::",
            "helper ::",
            "nvml ::",
            "TcpStream",
            "UnixStream",
        ],
        instead: "the dispatcher opens no file and waits for no helper; let the loop do it and send the result",
    },
    Banned {
        rule: "plan-calls-no-driver",
        within: &["broker/src/residence", "policy/src/residence"],
        but: &[],
        never: &["nvml ::", "libloading", "dlopen", "dlsym", "Driver ::"],
        instead: "a helper calls the driver; the way of a job and its plan tell it what to do",
    },
    Banned {
        rule: "attachment-alone-maps",
        within: &["interposer/src/"],
        but: &["interposer/src/attachment", "interposer/src/guest/"],
        never: &["MAP_SHARED"],
        instead: "nothing but `attachment` maps, unmaps or closes what the process shares with the broker",
    },
    Banned {
        rule: "policy-has-no-clock",
        within: &["policy/src/", "policy/scheduling/src/", "gpu-time/src/"],
        but: &[],
        // A type alone: one that came by `use` is said without its path.
        never: &["Instant", "SystemTime", "UNIX_EPOCH", "fs ::", "thread ::", "unsafe"],
        instead: "time, files and threads are the broker's; take what they gave as an argument",
    },
    Banned {
        rule: "library-prints-nothing",
        within: &["interposer/src/"],
        but: &[],
        never: &["println !", "print !", "eprintln !", "std ::"],
        instead: "a guest of the program says nothing on its output; `note` writes what must be said",
    },
];

/// Where nothing is said in sentences: what is decided is a value, and `policy/src/views/said/` words it.
const WORDLESS: &str = "policy/src/decisions";

/// Where a file writes only the fields that its own types declare.
const OWN_FIELDS: &str = "policy/src/";

/// What ends the name of a number with a unit.
const UNITS: [&str; 10] = [
    "NS", "US", "MS", "SECONDS", "PPM", "BYTES", "KIB", "MIB", "GIB", "PERCENT",
];

/// Everything in `files` that breaks a row; `arrows` are those of all crates.
pub fn faults(files: &[File], arrows: &Arrows) -> Vec<Fault> {
    let mut found = Vec::new();
    for wall in &WALLS {
        let within = arrows
            .iter()
            .filter(|(path, _)| begins(path, wall.within) && !begins(path, wall.except));
        for (path, named) in within {
            let over: Vec<_> = named
                .iter()
                .filter(|(other, _)| begins(other, wall.never) && !begins(other, wall.but))
                .collect();
            if !over.is_empty() {
                let places: Vec<_> = over
                    .iter()
                    .map(|(other, line)| format!("line {line} names {other}"))
                    .collect();
                found.push(fault(
                    wall.rule,
                    path,
                    over.len(),
                    format!("{}; {}", places.join(", "), wall.instead),
                ));
            }
        }
    }
    found.extend(foreign_writes(files));
    let mut numbers: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_product(&file.path)) {
        let all = tokens(&file.text);
        let product = without_tests(&all);
        found.extend(banned(file, &product));
        found.extend(sentences(file, &product));
        for name in numbers_with_unit(&product) {
            numbers.entry(name.to_owned()).or_default().insert(&file.path);
        }
    }
    for (name, places) in numbers.into_iter().filter(|(_, places)| places.len() > 1) {
        let places: Vec<_> = places.into_iter().collect();
        let what = format!(
            "declared in {}; declare it once, or say in the name what sets it apart",
            places.join(", ")
        );
        found.push(fault("number-declared-once", &name, places.len(), what));
    }
    found
}

/// Rows that name a place where no file is any more, as complaints.
pub fn idle_rows(files: &[File]) -> Vec<String> {
    let walls = WALLS.iter().flat_map(|wall| {
        let named = [wall.within, wall.except, wall.never, wall.but];
        named.into_iter().flatten().map(|place| (wall.rule, *place))
    });
    let banned = BANNED.iter().flat_map(|row| {
        let named = [row.within, row.but];
        named.into_iter().flatten().map(|place| (row.rule, *place))
    });
    let is_gone = |place: &str| !files.iter().any(|file| file.path.starts_with(place));
    walls
        .chain(banned)
        .chain([("decisions-say-no-sentence", WORDLESS)])
        .filter(|(_, place)| is_gone(place))
        .map(|(rule, place)| {
            format!("xtask/src/walls.rs: {rule} names {place}, where no file is; let it name where the folder went")
        })
        .collect()
}

fn fault(rule: &'static str, subject: &str, count: usize, what: String) -> Fault {
    Fault {
        rule,
        subject: subject.to_owned(),
        count,
        what,
    }
}

fn begins(path: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| path.starts_with(start))
}

/// True for Rust source of the product: what is installed, so not the simulated driver and no test of its own.
fn is_product(path: &str) -> bool {
    let is_test = begins(path, &["cuda-tests/", "simulator/", "xtask/"]) || path.ends_with("/tests.rs");
    path.ends_with(".rs") && path.contains("/src/") && !is_test
}

fn banned(file: &File, tokens: &[Token<'_>]) -> Vec<Fault> {
    let rows = BANNED
        .iter()
        .filter(|row| begins(&file.path, row.within) && !begins(&file.path, row.but));
    let mut found = Vec::new();
    for row in rows {
        let mut lines = Vec::new();
        for pattern in row.never {
            let words: Vec<_> = pattern.split(' ').collect();
            let runs = tokens.windows(words.len());
            let hits = runs.filter(|run| run.iter().zip(&words).all(|(token, word)| token.text == *word));
            lines.extend(hits.map(|run| format!("`{}` in line {}", pattern.replace(' ', ""), run[0].line)));
        }
        if !lines.is_empty() {
            found.push(fault(
                row.rule,
                &file.path,
                lines.len(),
                format!("{}; {}", lines.join(", "), row.instead),
            ));
        }
    }
    found
}

/// Literals with words in a file of [`WORDLESS`]: those with a blank that a letter touches.
fn sentences(file: &File, tokens: &[Token<'_>]) -> Option<Fault> {
    let is_between = |run: &[char]| run[1] == ' ' && (run[0].is_alphabetic() || run[2].is_alphabetic());
    let says = |token: &&Token<'_>| {
        let text: Vec<char> = token.text.chars().collect();
        token.kind == Kind::Literal && text.windows(3).any(is_between)
    };
    let said = tokens.iter().filter(says).filter(|_| file.path.starts_with(WORDLESS));
    let said: Vec<_> = said
        .map(|token| format!("{} in line {}", token.text, token.line))
        .collect();
    let what = format!("{}; say it as a row of policy/src/views/said/", said.join(", "));
    (!said.is_empty()).then(|| fault("decisions-say-no-sentence", &file.path, said.len(), what))
}

/// Assignments to a field that another file of [`OWN_FIELDS`] declares, and not the file itself.
fn foreign_writes(files: &[File]) -> Vec<Fault> {
    const WRITES: [&str; 8] = ["=", "+=", "-=", "*=", "/=", "%=", "|=", "&="];
    let own = |file: &&File| file.path.starts_with(OWN_FIELDS) && is_product(&file.path);
    let read: Vec<_> = files
        .iter()
        .filter(own)
        .map(|file| (file, tokens(&file.text)))
        .collect();
    let product: Vec<_> = read.iter().map(|(file, all)| (file, without_tests(all))).collect();
    let declared: Vec<_> = product.iter().map(|(_, tokens)| fields(tokens)).collect();
    let mut found = Vec::new();
    for ((file, tokens), own) in product.iter().zip(&declared) {
        let is_anothers = |name: &str| !own.contains(name) && declared.iter().any(|fields| fields.contains(name));
        let writes: Vec<_> = tokens
            .windows(3)
            .filter(|run| run[0].text == "." && run[1].kind == Kind::Word && WRITES.contains(&run[2].text))
            .filter(|run| is_anothers(run[1].text))
            .map(|run| format!("`{}` in line {}", run[1].text, run[1].line))
            .collect();
        if !writes.is_empty() {
            let what = format!(
                "{}; let the type's own file write it, by a method with a name",
                writes.join(", ")
            );
            found.push(fault("writes-own-fields", &file.path, writes.len(), what));
        }
    }
    found
}

/// The fields that the structs and variants of a file declare.
fn fields<'a>(tokens: &[Token<'a>]) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for (at, _) in tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| ["struct", "enum"].contains(&token.text))
    {
        let Some(open) = (at..tokens.len()).find(|i| ["{", ";"].contains(&tokens[*i].text)) else {
            continue;
        };
        let Some(end) = closing(tokens, open).filter(|_| tokens[open].text == "{") else {
            continue;
        };
        let named = tokens[open..end]
            .windows(2)
            .filter(|pair| pair[0].kind == Kind::Word && pair[1].text == ":");
        found.extend(named.map(|pair| pair[0].text));
    }
    found
}

/// Constants of a file whose name ends with a unit.
fn numbers_with_unit<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let named = tokens
        .windows(3)
        .filter(|run| run[0].text == "const" && run[2].text == ":");
    let has_unit = |name: &&str| name.rsplit_once('_').is_some_and(|(_, unit)| UNITS.contains(&unit));
    named.map(|run| run[1].text).filter(has_unit).collect()
}

#[cfg(test)]
mod tests;
