// SPDX-License-Identifier: Apache-2.0
//! How a text of faults is read.

use std::sync::atomic::AtomicU64;

use super::rule::{CheckpointFault, KernelFault, Kind, Rule, Stated, When};

const OUT_OF_MEMORY: i32 = 2;
/// What one process asks of another.
const OPERATIONS: [&str; 5] = ["state", "lock", "checkpoint", "restore", "unlock"];

/// Whether a text of faults can be read, and if not, why: for the command line, before a program is started.
pub fn check(text: &str) -> Result<(), String> {
    lines(text).try_for_each(|line| rule(line).map(drop))
}

pub(super) fn read(text: &str) -> Vec<Rule> {
    lines(text)
        .filter_map(|line| {
            rule(line)
                .inspect_err(|reason| eprintln!("partage sim: fault `{line}` ignored: {reason}"))
                .ok()
        })
        .collect()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split_once('#').map_or(line, |(line, _)| line))
        .flat_map(|line| line.split(';'))
        .map(str::trim)
        .filter(|line| !line.is_empty())
}

fn rule(line: &str) -> Result<Rule, String> {
    let parts: Vec<&str> = line.split(':').map(str::trim).collect();
    let found = match counted(&parts)? {
        Some((kind, at)) => Some((kind, when(at)?)),
        None => lasting(&parts)?.map(|kind| (kind, When::From(1))),
    };
    let (kind, when) = found.ok_or(
        "expected oom:FUNCTION:WHEN, code:FUNCTION:WHEN:CODE, slow:FUNCTION:WHEN:MILLISECONDS, \
         copy:WHEN:CODE, trap:KERNEL:WHEN:CODE, hang:KERNEL:WHEN, lost:DEVICE, linger, \
         stuck:FUNCTION:WHEN, inner:FUNCTION, version:NUMBER, shows:DEVICES, spared, heals, imports, \
         spoils, stale, late, stands:OPERATION, dies:OPERATION:WHEN, host:BYTES, untold, \
         gpu:DEVICE:WHAT:VALUE or xid:DEVICE:NUMBER",
    )?;
    Ok(Rule {
        kind,
        when,
        seen: AtomicU64::new(0),
    })
}

/// A fault that befalls some of the times, with its WHEN.
fn counted<'a>(parts: &[&'a str]) -> Result<Option<(Kind, &'a str)>, String> {
    Ok(Some(match *parts {
        ["oom", function, at] => (of_function(function, OUT_OF_MEMORY), at),
        ["code", function, at, code] => (of_function(function, number(code, "CODE")?), at),
        ["slow", function, at, time] => {
            let (function, milliseconds) = (function.to_owned(), number(time, "MILLISECONDS")?);
            (Kind::Slow { function, milliseconds }, at)
        }
        ["copy", at, code] => {
            let code = number(code, "CODE")?;
            (Kind::Copy { code }, at)
        }
        ["trap", kernel, at, code] => (of_kernel(kernel, KernelFault::Trap(number(code, "CODE")?)), at),
        ["hang", kernel, at] => (of_kernel(kernel, KernelFault::Hang), at),
        ["stuck", function, at] => {
            let function = function.to_owned();
            (Kind::Stuck { function }, at)
        }
        ["dies", operation, at] => {
            let operation = named(operation)?;
            (Kind::Dies { operation }, at)
        }
        _ => return Ok(None),
    }))
}

fn of_function(function: &str, code: i32) -> Kind {
    let function = function.to_owned();
    Kind::Code { function, code }
}

fn of_kernel(kernel: &str, fault: KernelFault) -> Kind {
    let name = kernel.to_owned();
    Kind::Kernel { name, fault }
}

/// The name of an operation that one process asks of another.
fn named(operation: &str) -> Result<String, String> {
    if OPERATIONS.contains(&operation) {
        Ok(operation.to_owned())
    } else {
        Err(format!(
            "OPERATION is one of {}, not `{operation}`",
            OPERATIONS.join(", ")
        ))
    }
}

/// What NVML is to say.
fn stated(what: &str) -> Result<Stated, String> {
    let known = Stated::ALL.iter().find(|(word, _)| *word == what);
    known.map(|(_, told)| *told).ok_or_else(|| {
        let words = Stated::ALL.map(|(word, _)| word).join(", ");
        format!("WHAT is one of {words}, not `{what}`")
    })
}

/// A fault that is there as long as its line.
fn lasting(parts: &[&str]) -> Result<Option<Kind>, String> {
    Ok(Some(match *parts {
        ["lost", device] => Kind::Lost {
            device: number(device, "DEVICE")?,
        },
        ["linger"] => Kind::Linger,
        ["untold"] => Kind::Untold,
        ["gpu", device, what, value] => Kind::Stated {
            device: number(device, "DEVICE")?,
            stated: stated(what)?,
            value: number(value, "VALUE")?,
        },
        ["xid", device, xid] => Kind::Xid {
            device: number(device, "DEVICE")?,
            number: number(xid, "NUMBER")?,
        },
        ["host", bytes] => Kind::Host {
            bytes: number(bytes, "BYTES")?,
        },
        ["inner", function] => Kind::Inner {
            function: function.to_owned(),
        },
        ["version", cuda] => Kind::Version {
            cuda: number(cuda, "NUMBER")?,
        },
        ["shows", devices] if !devices.is_empty() => Kind::Shows {
            devices: (devices != "*").then(|| devices.to_owned()),
        },
        ["spared"] => Kind::Checkpoint(CheckpointFault::Spared),
        ["heals"] => Kind::Checkpoint(CheckpointFault::Heals),
        ["imports"] => Kind::Checkpoint(CheckpointFault::Imports),
        ["spoils"] => Kind::Checkpoint(CheckpointFault::Spoils),
        ["stale"] => Kind::Checkpoint(CheckpointFault::Stale),
        ["late"] => Kind::Checkpoint(CheckpointFault::Late),
        ["stands", operation] => Kind::Stands {
            operation: named(operation)?,
        },
        _ => return Ok(None),
    }))
}

fn when(text: &str) -> Result<When, String> {
    let parsed = match (text.strip_suffix('+'), text.strip_prefix('%')) {
        _ if text == "*" => Some(When::From(1)),
        (Some(from), _) => from.parse().ok().map(When::From),
        (_, Some(every)) => every.parse().ok().map(When::Every),
        _ => text.parse().ok().map(When::Nth),
    };
    match parsed {
        Some(When::Nth(0) | When::Every(0)) | None => Err(format!("WHEN is 3, 3+, %3 or *, not `{text}`")),
        Some(when) => Ok(when),
    }
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{what} is not a number: `{text}`"))
}
