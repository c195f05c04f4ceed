// SPDX-License-Identifier: Apache-2.0
//! One JSON file per job, so that the next broker knows what each job was promised.
//!
//! A file is written beside its place and renamed: a broker killed at any instant leaves the old or the new record. Not
//! synced, for the reason in `ledger.rs`. A record that cannot be read is set aside, never guessed at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use partage_policy::JobRecord;
use partage_protocol::units::JobId;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The format of a record. It rises when an older broker could misread a newer record, not with each new field.
const FORMAT: u64 = 1;

/// What every format of a record has.
#[derive(Deserialize)]
struct Head {
    #[serde(default = "first_format")]
    format: u64,
    boot: [u8; 16],
}

const fn first_format() -> u64 {
    1
}

/// A record and the boot it belongs to: processes of another boot are gone, and so are their jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    #[serde(default = "first_format")]
    format: u64,
    boot: [u8; 16],
    job: JobRecord,
}

/// The folder of records.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    boot: [u8; 16],
}

/// What lay in the folder.
#[derive(Debug, Default)]
pub struct Found {
    /// Jobs of this boot by number.
    pub jobs: BTreeMap<JobId, JobRecord>,
    /// The highest number of any job found, of earlier boots too.
    pub last_job: u64,
    /// Files that could not be read; they are renamed to `*.bad`.
    pub bad: usize,
}

impl Store {
    /// Reads the folder. Records of another boot are removed.
    ///
    /// # Errors
    /// [`Error::File`] when the folder cannot be listed, or a newer Partage wrote a record of this boot, which stays
    /// as it is.
    pub fn open(folder: &Path, boot: [u8; 16]) -> Result<(Self, Found), Error> {
        let mut found = Found::default();
        for entry in std::fs::read_dir(folder).map_err(Error::file("list", folder))? {
            let path = entry.map_err(Error::file("list", folder))?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => {}
                Some("new") => {
                    // A write that was cut short; the record proper is whole.
                    let _ = std::fs::remove_file(&path);
                    continue;
                }
                _ => continue,
            }
            let bytes = std::fs::read(&path).ok();
            let head = bytes
                .as_deref()
                .and_then(|bytes| serde_json::from_slice::<Head>(bytes).ok());
            if let Some(head) = head.filter(|head| head.format > FORMAT && head.boot == boot) {
                return Err(Error::file("read", path)(super::newer(head.format, FORMAT)));
            }
            match bytes.and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok()) {
                Some(kept) => {
                    found.last_job = found.last_job.max(kept.job.id);
                    if kept.boot == boot {
                        found.jobs.insert(JobId(kept.job.id), kept.job);
                    } else {
                        let _ = std::fs::remove_file(&path);
                    }
                }
                None => {
                    found.bad += 1;
                    let _ = std::fs::rename(&path, path.with_extension("bad"));
                }
            }
        }
        let folder = folder.to_owned();
        Ok((Self { folder, boot }, found))
    }

    /// Writes a record in place of the old one.
    ///
    /// # Errors
    /// The system's; the old record stands then.
    pub fn save(&self, job: &JobRecord) -> std::io::Result<()> {
        let kept = Kept {
            format: FORMAT,
            boot: self.boot,
            job: job.clone(),
        };
        crate::kept_file::write_whole(&self.path(JobId(job.id)), &serde_json::to_vec(&kept)?)
    }

    /// Forgets a job.
    pub fn remove(&self, job: JobId) {
        // A record that is missing already is what was wanted.
        let _ = std::fs::remove_file(self.path(job));
    }

    fn path(&self, job: JobId) -> PathBuf {
        self.folder.join(format!("{job}.json"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use partage_policy::{Origin, Placement, Process};
    use partage_protocol::units::DeviceUuid;

    use super::*;
    use crate::testing::Scratch;

    pub fn record(id: u64) -> JobRecord {
        JobRecord {
            id,
            uid: 1000,
            user: "alice".into(),
            name: Some("train".into()),
            labels: vec![("a".into(), "b".into())],
            command: vec!["python3".into()],
            first: Some(Process { pid: 1, start: 2 }),
            token: [7; 32],
            cgroup: None,
            default_scope: None,
            environment: String::new(),
            is_strict: true,
            is_quiet: false,
            devices: vec![Placement {
                device: DeviceUuid::parse("GPU-00000000-0000-0000-0000-00000000000a").expect("a UUID"),
                limit: Some(5),
                request: 4,
                origin: Origin {
                    limit: "--mem 5B".into(),
                    request: String::new(),
                    process: String::new(),
                },
                asked: None,
                process: None,
                own: Vec::new(),
            }],
            terms: partage_policy::Terms::default(),
            asked: partage_policy::Asked::default(),
            started_unix_ns: 9,
            residence: partage_policy::ResidenceRecord::default(),
            registration: None,
        }
    }

    #[test]
    fn a_record_of_a_newer_partage_is_left_as_it_is() {
        let scratch = Scratch::new("newer-record");
        let path = scratch.path().join("j1.json");
        let boot = serde_json::to_string(&[3_u8; 16]).expect("plain");
        let text = format!("{{\"format\":2,\"boot\":{boot},\"job\":{{\"another\":\"form\"}}}}");
        std::fs::write(&path, &text).expect("written");
        let error = Store::open(scratch.path(), [3; 16]).expect_err("refused").to_string();
        assert!(
            error.contains("a newer Partage wrote it (format 2, this one knows 1)"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
        // Of another boot it is of no job that lives.
        let (_, found) = Store::open(scratch.path(), [4; 16]).expect("opened");
        assert!(found.jobs.is_empty());
    }

    #[test]
    fn records_survive_and_a_cut_write_or_garbage_harms_no_other() {
        let scratch = Scratch::new("records");
        let (store, found) = Store::open(scratch.path(), [3; 16]).expect("opened");
        assert!(found.jobs.is_empty());
        store.save(&record(1)).expect("saved");
        store.save(&record(2)).expect("saved");
        let mut changed = record(2);
        changed.name = None;
        store.save(&changed).expect("saved again");
        std::fs::write(scratch.path().join("j2.new"), "{\"id\":").expect("written");
        std::fs::write(scratch.path().join("j3.json"), "{\"id\":3").expect("written");
        store.remove(JobId(9));

        let (_, found) = Store::open(scratch.path(), [3; 16]).expect("opened");
        assert_eq!(found.bad, 1);
        assert_eq!(found.jobs.values().cloned().collect::<Vec<_>>(), [record(1), changed]);
        let (_, found) = Store::open(scratch.path(), [4; 16]).expect("opened");
        assert_eq!(
            (found.bad, found.last_job, found.jobs.len()),
            (0, 2, 0),
            "set aside once; another boot"
        );
        let (_, found) = Store::open(scratch.path(), [3; 16]).expect("opened");
        assert!(found.jobs.is_empty(), "removed");
    }
}
