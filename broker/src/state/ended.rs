// SPDX-License-Identifier: Apache-2.0
//! Jobs that ended within the last day, in one file: a JSON document a line, the newest last.
//!
//! A job gets a line when its last process is gone, and a second one when it stops lingering; of lines with the same
//! number and start the newest counts. A line is added with one write; a broker killed in the middle of it leaves a cut
//! last line, which the next broker ignores. The file is written anew (beside its place, then renamed) when it is
//! opened and when it holds twice as many lines as are remembered, so its size is bounded. Not synced, for the reason
//! in `ledger.rs`.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use partage_policy::{EndedJob, REMEMBER_COUNT, REMEMBER_NS};

use tracing::warn;

use crate::error::Error;

/// The file.
#[derive(Debug)]
pub struct EndedJobs {
    path: PathBuf,
    lines: usize,
    /// The last write may have left half a line.
    is_torn: bool,
}

impl EndedJobs {
    /// Reads the file; what is older than a day at `unix_ns`, or more than is remembered, is dropped.
    ///
    /// # Errors
    /// [`Error::File`] when the file is there and cannot be read.
    pub fn open(path: &Path, unix_ns: u64) -> Result<(Self, Vec<EndedJob>), Error> {
        let mut store = Self {
            path: path.to_owned(),
            lines: 0,
            is_torn: false,
        };
        let jobs = store.read(unix_ns).map_err(Error::file("read", path))?;
        if path.exists()
            && let Err(error) = store.rewrite(&jobs)
        {
            // A full disk. What stands there stays, perhaps with half a line at its end, and nothing depends on it.
            warn!(%error, path = %path.display(), "the ended jobs are not written anew");
            store.lines = jobs.len();
            store.is_torn = true;
        }
        Ok((store, jobs))
    }

    /// Adds a job.
    ///
    /// # Errors
    /// The system's; the job is not remembered beyond this broker then.
    pub fn add(&mut self, job: &EndedJob) -> std::io::Result<()> {
        if self.lines >= 2 * REMEMBER_COUNT {
            let jobs = self.read(job.ended_unix_ns)?;
            self.rewrite(&jobs)?;
        }
        let mut line = Vec::new();
        if self.is_torn {
            line.push(b'\n');
        }
        line.extend(serde_json::to_vec(job)?);
        line.push(b'\n');
        let mut options = std::fs::OpenOptions::new();
        options
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&self.path)?;
        self.is_torn = true;
        file.write_all(&line)?;
        self.is_torn = false;
        self.lines += 1;
        Ok(())
    }

    fn read(&self, unix_ns: u64) -> std::io::Result<Vec<EndedJob>> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let is_fresh = |job: &EndedJob| unix_ns.saturating_sub(job.ended_unix_ns) < REMEMBER_NS;
        let lines = bytes.split(|byte| *byte == b'\n');
        let mut jobs: Vec<EndedJob> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .filter(is_fresh)
            .collect();
        let mut known = BTreeSet::new();
        jobs.reverse();
        jobs.retain(|job| known.insert((job.job.id, job.job.started_unix_ns)));
        jobs.reverse();
        let excess = jobs.len().saturating_sub(REMEMBER_COUNT);
        jobs.drain(..excess);
        Ok(jobs)
    }

    fn rewrite(&mut self, jobs: &[EndedJob]) -> std::io::Result<()> {
        let mut text = Vec::new();
        for job in jobs {
            text.extend(serde_json::to_vec(job)?);
            text.push(b'\n');
        }
        crate::kept_file::write_whole(&self.path, &text)?;
        self.lines = jobs.len();
        self.is_torn = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use partage_policy::{Denial, EndedSlot, Held, JobRecord, Reason};
    use partage_protocol::admin::DeniedView;

    use super::*;
    use crate::testing::Scratch;

    const DAY: u64 = REMEMBER_NS;

    fn ended(id: u64, unix_ns: u64) -> EndedJob {
        EndedJob {
            job: JobRecord {
                id,
                uid: 1000,
                user: "alice".into(),
                name: Some("train".into()),
                labels: Vec::new(),
                command: vec!["python3".into(), "a\nb".into()],
                first: None,
                token: [0; 32],
                cgroup: None,
                default_scope: None,
                environment: String::new(),
                is_strict: false,
                is_quiet: false,
                devices: Vec::new(),
                terms: partage_policy::Terms::default(),
                asked: partage_policy::Asked::default(),
                started_unix_ns: 9,
                residence: partage_policy::ResidenceRecord::default(),
                registration: None,
            },
            ended_unix_ns: unix_ns,
            reason: "its last process is gone".into(),
            exit_code: Some(0),
            is_over_time: false,
            strangers_seen: 2,
            slots: vec![EndedSlot {
                index: Some(3),
                model: "NVIDIA H200".into(),
                peak: 7,
                denied: DeniedView {
                    limit: 1,
                    ..DeniedView::default()
                },
                last_denial: Some(Denial {
                    unix_ns: 5,
                    pid: 6,
                    asked: 7,
                    limit: 8,
                    used: 9,
                    reason: Reason::CardFull,
                    unfreed: None,
                    rule: None,
                    holders: vec![Held {
                        who: "j1".into(),
                        bytes: 3,
                    }],
                }),
            }],
            notes: vec!["a note".into()],
        }
    }

    fn ids(jobs: &[EndedJob]) -> Vec<u64> {
        jobs.iter().map(|job| job.job.id).collect()
    }

    #[test]
    fn ended_jobs_survive_and_a_cut_line_harms_no_other() {
        let scratch = Scratch::new("ended");
        let path = scratch.path().join("ended.jsonl");
        let (mut store, jobs) = EndedJobs::open(&path, DAY).expect("opened");
        assert!(jobs.is_empty() && !path.exists(), "looking makes nothing");
        store.add(&ended(1, DAY)).expect("added");
        store.add(&ended(2, DAY)).expect("added");
        let whole = std::fs::read(&path).expect("there");
        // Killed within the third write.
        let mut cut = whole.clone();
        cut.extend_from_slice(&whole[..whole.len() / 3]);
        std::fs::write(&path, &cut).expect("written");
        let (mut store, jobs) = EndedJobs::open(&path, DAY).expect("opened");
        assert_eq!(jobs, [ended(1, DAY), ended(2, DAY)]);
        store.add(&ended(3, DAY)).expect("added");
        let (_, jobs) = EndedJobs::open(&path, DAY).expect("opened");
        assert_eq!(ids(&jobs), [1, 2, 3]);
    }

    #[test]
    fn the_newest_line_of_a_job_counts() {
        let scratch = Scratch::new("ended-twice");
        let path = scratch.path().join("ended.jsonl");
        let (mut store, _) = EndedJobs::open(&path, DAY).expect("opened");
        let later = EndedJob {
            exit_code: Some(3),
            ..ended(1, DAY + 5)
        };
        let mut namesake = ended(1, DAY);
        namesake.job.started_unix_ns = 10;
        for job in [&ended(1, DAY), &ended(2, DAY), &namesake, &later] {
            store.add(job).expect("added");
        }
        let (_, jobs) = EndedJobs::open(&path, DAY).expect("opened");
        assert_eq!(jobs, [ended(2, DAY), namesake, later]);
    }

    #[test]
    fn a_day_and_a_thousand_are_the_bounds() {
        let scratch = Scratch::new("ended-many");
        let path = scratch.path().join("ended.jsonl");
        let (mut store, _) = EndedJobs::open(&path, 0).expect("opened");
        store.add(&ended(1, 1)).expect("added");
        store.add(&ended(2, DAY)).expect("added");
        let (mut store, jobs) = EndedJobs::open(&path, DAY + 1).expect("opened");
        assert_eq!(ids(&jobs), [2]);
        let many = 3 * REMEMBER_COUNT as u64;
        for id in 3..many {
            store.add(&ended(id, DAY)).expect("added");
        }
        let lines = std::fs::read(&path).expect("there");
        let lines = lines.iter().filter(|byte| **byte == b'\n').count();
        assert!(lines <= 2 * REMEMBER_COUNT, "{lines} lines");
        let (_, jobs) = EndedJobs::open(&path, DAY).expect("opened");
        assert_eq!(jobs.len(), REMEMBER_COUNT);
        assert_eq!(jobs.last().map(|job| job.job.id), Some(many - 1), "the newest stay");
    }
}
