// SPDX-License-Identifier: Apache-2.0
//! What `manifest.json` of a snapshot says: from what it was made, what it needs, and what each of its files holds.
//!
//! A manifest is believed only as a whole ([`Manifest::parse`]): its format is one that this program reads, its sum is
//! that of its text, and what its fields say can be. Whatever else is refused by the name of the field.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::message::MAX_DEVICES;

mod open_files;
mod world;

pub use open_files::{END_BYTES, FILES_MAX, FilesAnswer, FilesMode, FilesOrder, OpenFile, OpenFiles, Writes};
use world::is_zero;
pub use world::{BoundThread, Carries, Outside, SavedSocket, SavedSockets};

/// The format that this program writes. A reader that knows less refuses it; this one reads all before it. 2: the
/// driver's version, the library's protocol, what a job has of `/dev/shm`. 3: the machine's devices. 4: the rest of
/// what the job asked for ([`SavedTerms`]). 5: where the processes look for the broker. 6: files that it writes,
/// sockets, the first process's parent, the processors of each thread.
pub const FORMAT: u32 = 6;
/// The manifest's name in a generation's folder.
pub const MANIFEST: &str = "manifest.json";
/// The folder of CRIU's images in it.
pub const IMAGES: &str = "criu";
/// The folder of other files in it.
pub const FILES: &str = "files";
/// The file that names the newest generation.
pub const LATEST: &str = "LATEST";
/// The file whose lock is the right to write.
pub const LOCK: &str = ".lock";
/// The oldest CRIU that will do: 4.1.1 silently loses `MADV_WIPEONFORK`, by which the library tells a forked child from
/// its parent.
pub const LEAST_CRIU: (u32, u32) = (4, 2);
/// Processes and devices beyond any real job's.
const MOST: usize = 65_536;

/// Is this version of CRIU (`4.2.1`) at least [`LEAST_CRIU`]?
#[must_use]
pub fn will_do(criu_version: &str) -> bool {
    let mut parts = criu_version.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || parts.next()?.parse().ok();
    number()
        .zip(number())
        .is_some_and(|found: (u32, u32)| found >= LEAST_CRIU)
}

/// A snapshot of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// Sum of the rest: [`Manifest::text`].
    pub sum: u64,
    /// Its number, 1 the first.
    pub generation: u64,
    /// Unix time in nanoseconds.
    pub made_unix_ns: u64,
    /// The version that made it.
    pub partage: String,
    /// CRIU's version.
    pub criu: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processors' model and features, as the kernel lists them: a program may have chosen its code by them.
    pub processor: String,
    /// The job.
    pub job: SavedJob,
    /// The job's devices, slot 0 first.
    pub devices: Vec<SavedDevice>,
    /// Every device that the kernel showed to the job, its own among them: a driver's map has to name them all. None in
    /// formats 1 and 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<SavedDevice>,
    /// The first process, as the processes number themselves.
    pub root: u32,
    /// What standard input, output and error of the first process were; as `/proc/PID/fd` names them.
    pub streams: Vec<String>,
    /// The clients.
    pub clients: Vec<SavedClient>,
    /// Our library as the processes have it mapped.
    pub library: String,
    /// The folder in which they look for the broker's sockets; nothing in formats 1 to 4.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub socket_dir: String,
    /// The driver's version, as NVML says it; empty where it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// The protocol that the library speaks ([`MAJOR`](crate::message::MAJOR)); none in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u16>,
    /// What they have of `/dev/shm`.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    pub shared: Shared,
    /// The files that they have open for writing or mapped to write; nothing in formats 1 to 5.
    #[serde(default, skip_serializing_if = "OpenFiles::is_empty")]
    pub open_files: OpenFiles,
    /// What becomes of their sockets.
    #[serde(default, skip_serializing_if = "SavedSockets::is_empty")]
    pub sockets: SavedSockets,
    /// The parent of the first process, as that one numbers it; 0 where it sees none, and in formats 1 to 5.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parent: u32,
    /// Threads that may not use every processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound: Vec<BoundThread>,
    /// Every file but the manifest, by its path in the generation's folder.
    pub files: Vec<SavedFile>,
}

/// What is needed to admit the job again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedJob {
    /// `j42`.
    pub id: String,
    /// Its owner.
    pub uid: u32,
    /// 64 hexadecimal digits.
    pub token: String,
    /// Its name.
    pub name: Option<String>,
    /// Its command.
    pub command: Vec<String>,
    /// Limit on each device in bytes; none is the whole card.
    pub limit_bytes: Option<u64>,
    /// Promise on each device in bytes.
    pub request_bytes: u64,
    /// Promised part of each device's time, in millionths.
    pub promise_ppm: u32,
    /// Part never exceeded, in millionths.
    pub cap_ppm: Option<u32>,
    /// Weight.
    pub weight: u32,
    /// Class.
    pub class: String,
    /// The rest; nothing in formats 1 to 3.
    #[serde(default, skip_serializing_if = "SavedTerms::is_empty")]
    pub terms: SavedTerms,
}

/// What else a job asked for, where it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SavedTerms {
    /// What each process may hold on each device at most, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<u64>,
    /// What was left of its time limit, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_left_ns: Option<u64>,
    /// May it be suspended for a job of a higher class?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// After how long without work its memory leaves, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_release_ns: Option<u64>,
    /// Is a process killed that uses a GPU without being managed?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Its labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(String, String)>,
}

impl SavedTerms {
    /// Nothing at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A device of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedDevice {
    /// `GPU-…`.
    pub uuid: String,
    /// Its model.
    pub name: String,
    /// Its whole memory in bytes.
    pub total_bytes: u64,
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedClient {
    /// Its process, as it numbers itself.
    pub pid: u32,
    /// Its id, by which it says hello.
    pub client: u64,
    /// What it has to get back, slot 0 first, in bytes.
    pub owed: Vec<u64>,
}

/// A file of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFile {
    /// Its path.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// XXH3 of its content, 64 bits: it tells damage, not malice; the folder is its owner's alone.
    pub sum: u64,
}

/// What a job has of `/dev/shm`: a restored one gets its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Folders, each after the one that it lies in.
    pub folders: Vec<SavedFolder>,
    /// Files.
    pub files: Vec<SavedShared>,
}

impl Shared {
    /// Nothing at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.files.is_empty()
    }

    fn check(&self, files: &[&str]) -> Result<(), Unfit> {
        let unfit = |why: String| Err(Unfit::new("shared", why));
        let folders = self.folders.iter().map(|folder| &folder.name);
        let names: Vec<&String> = self.files.iter().flat_map(|file| &file.names).chain(folders).collect();
        if let Some(name) = names.iter().find(|name| !is_inside(name)) {
            return unfit(format!("{name:?} is no name in /dev/shm"));
        }
        if let Some(file) = self.files.iter().find(|file| !files.contains(&file.file.as_str())) {
            return unfit(format!("{:?} is no file of the snapshot", file.file));
        }
        match self.files.iter().all(|file| !file.names.is_empty()) {
            true => Ok(()),
            false => unfit("a file has no name".to_owned()),
        }
    }
}

/// A folder of `/dev/shm`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFolder {
    /// Its path there.
    pub name: String,
    /// Its permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// A file of `/dev/shm`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedShared {
    /// Its content: one of [`Manifest::files`].
    pub file: String,
    /// All its names there, one at least.
    pub names: Vec<String>,
    /// Its permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Why a manifest or a snapshot is none that can be restored: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The field's name.
    pub field: &'static str,
    /// A clause about it.
    pub why: String,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.field, self.why)
    }
}

impl Unfit {
    /// This is wrong with that field.
    pub fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self { field, why: why.into() }
    }
}

#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`Unfit`], with the field.
    pub fn parse(text: &[u8]) -> Result<Self, Unfit> {
        let unreadable = |error: serde_json::Error| Unfit::new("manifest", format!("cannot be read: {error}"));
        // First: what follows may be of a shape that nobody here knows.
        let head: Head = serde_json::from_slice(text).map_err(unreadable)?;
        if !(1..=FORMAT).contains(&head.format) {
            let why = format!(
                "{}, and this version of Partage reads formats 1 to {FORMAT}",
                head.format
            );
            return Err(Unfit::new("format", why));
        }
        let manifest: Self = serde_json::from_slice(text).map_err(unreadable)?;
        if manifest.sum != manifest.own_sum() {
            return Err(Unfit::new(
                "sum",
                "is not that of the manifest, which was changed or damaged",
            ));
        }
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), Unfit> {
        let devices = self.devices.len();
        if devices > MAX_DEVICES {
            return Err(Unfit::new(
                "devices",
                format!("{devices}, and a job has {MAX_DEVICES} at most"),
            ));
        }
        if self.machine.len() > MOST {
            return Err(Unfit::new("machine", format!("{} devices", self.machine.len())));
        }
        if self.generation == 0 {
            return Err(Unfit::new("generation", "0, and the first is 1"));
        }
        if self.root <= 1 {
            return Err(Unfit::new("root", format!("{} is no process of a job", self.root)));
        }
        if self.clients.len() > MOST || self.clients.iter().any(|client| client.owed.len() > devices) {
            return Err(Unfit::new("clients", "they have memory on more devices than the job"));
        }
        let mut paths: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        if let Some(path) = paths.iter().find(|path| !is_inside(path)) {
            return Err(Unfit::new(
                "files",
                format!("{path:?} is no path in the snapshot's folder"),
            ));
        }
        paths.sort_unstable();
        if paths.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Unfit::new("files", "one is named twice"));
        }
        self.shared.check(&paths)?;
        self.open_files
            .check(&paths)
            .map_err(|why| Unfit::new("open_files", why))
    }

    /// As it is written, with its sum.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let whole = Self {
            sum: self.own_sum(),
            ..self.clone()
        };
        // A structure of numbers and texts has a text.
        serde_json::to_vec_pretty(&whole).unwrap_or_default()
    }

    fn own_sum(&self) -> u64 {
        let bare = Self { sum: 0, ..self.clone() };
        let mut sum = Sum::default();
        sum.add(&serde_json::to_vec(&bare).unwrap_or_default());
        sum.finish()
    }
}

/// A relative path of names, none of which leads out.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|name| !matches!(name, "" | "." | "..")) && path != MANIFEST
}

/// The sum of a file's content, piece by piece.
#[derive(Default)]
pub struct Sum(Xxh3);

impl Sum {
    /// The next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all pieces so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Sum({:016x})", self.finish())
    }
}

/// The folder of a generation.
#[must_use]
pub fn generation_name(generation: u64) -> String {
    format!("gen-{generation:04}")
}

/// The generation that a folder's name means.
#[must_use]
pub fn generation_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("gen-")?.parse().ok()?;
    (generation_name(number) == name).then_some(number)
}

/// A job that is saved again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedEvery {
    /// From the end of one save to the next, in nanoseconds.
    pub every_ns: u64,
    /// The snapshot's folder: an absolute path.
    pub out: String,
    /// Generations to keep.
    pub keep: u64,
    /// CRIU's program, as the caller found it.
    pub criu: Option<String>,
    /// What is copied of files that are written in place, in bytes; none: [`FILES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_max: Option<u64>,
    /// What is to become of connections to outside.
    #[serde(default, skip_serializing_if = "Outside::is_default")]
    pub outside: Outside,
}

/// What a snapshot needs of the machine that it is restored on, as far as the broker knows that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// [`Manifest::devices`].
    pub devices: Vec<SavedDevice>,
    /// [`Manifest::driver`].
    pub driver: String,
    /// [`Manifest::root`].
    pub root: u32,
    /// [`Manifest::machine`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<SavedDevice>,
    /// The index or UUID of the device here that takes each one's place, slot 0 first. Empty: each its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub onto: Vec<String>,
}

/// What a caller that restores a snapshot asks of the broker, once its job is admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// The job that was saved, for people.
    pub saved_job: String,
    /// The devices.
    pub devices: Vec<SavedDevice>,
    /// [`Manifest::machine`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<SavedDevice>,
    /// The clients that will say hello.
    pub clients: Vec<SavedClient>,
    /// For how long they are waited for, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ns: Option<u64>,
    /// What became of the files that they write, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}
