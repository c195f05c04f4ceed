// SPDX-License-Identifier: Apache-2.0
//! Commands of jobs that began without `run`: the kernel tells them, to the owner and to administrators.
//!
//! The broker does not read them: a command line lies in the memory of its process, and one whose memory is locked
//! would hold up everybody. The numbers of processes are the broker's, so a command in another pid namespace asks
//! nothing.

use std::fs::File;
use std::io::Read;

use partage_protocol::admin::JobView;
use partage_protocol::shown::shown;

use crate::launch::launch_broker;
use crate::launch::place::Place;
use crate::link::ask;

/// What of a command line is shown, in bytes.
const SHOWN: u64 = 4096;

/// Fills in what the broker does not know of jobs that run.
pub fn fill(place: &Place, jobs: &mut [JobView]) {
    let lacks = |job: &&mut JobView| job.command.is_empty() && job.ended_ns.is_none() && process(job).is_some();
    if !jobs.iter_mut().any(|job| lacks(&job)) {
        return;
    }
    let Ok(status) = ask::status(place) else { return };
    let peer = launch_broker::meet(place).ok().and_then(|connection| connection.peer());
    if peer != Some(status.broker.pid) {
        return;
    }
    let own = nix::unistd::geteuid().as_raw();
    for job in jobs.iter_mut().filter(lacks) {
        if job.uid == own || status.broker.is_admin {
            job.command = process(job).map_or(Vec::new(), command_of);
        }
    }
}

/// Its first process, or the first that uses a GPU.
fn process(job: &JobView) -> Option<u32> {
    let first = Some(job.pid).filter(|pid| *pid > 0);
    first.or_else(|| job.clients.first().map(|client| client.pid))
}

fn command_of(pid: u32) -> Vec<String> {
    let mut text = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        let _ = file.take(SHOWN).read_to_end(&mut text);
    }
    text_of(&text)
}

fn text_of(line: &[u8]) -> Vec<String> {
    // A program that writes its title over its words (Ray's workers) fills the rest of their room with zeros.
    let end = line.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let line = line.get(..end).unwrap_or_default();
    if line.is_empty() {
        return Vec::new();
    }
    let word = |word: &[u8]| shown(&String::from_utf8_lossy(word));
    line.split(|byte| *byte == 0).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_word_by_word() {
        assert_eq!(
            text_of(b"python\0train.py\0\0--x\x1b\0"),
            ["python", "train.py", "", "--x?"]
        );
        assert_eq!(text_of(b"ray::Trainer\0\0\0\0"), ["ray::Trainer"]);
        assert_eq!(text_of(b""), [""; 0]);
        let own = command_of(std::process::id());
        assert!(own.first().is_some_and(|word| word.contains("partage")), "{own:?}");
    }
}
