// SPDX-License-Identifier: Apache-2.0
//! What a machine is made of: `machine.toml`, written once when the machine is made.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::seats::MAX_DEVICES;

/// The file in a machine's folder that says what it is made of.
pub(crate) const FILE: &str = "machine.toml";
/// The greatest factor of durations: more would be hours.
const LONGEST_TIME: f64 = 1000.0;

/// The description of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Distinguishes machines: device UUIDs are made from it. 0 when asking for one means "any".
    pub id: u64,
    /// Feature level by driver branch: 550, 570, 580, 595, 610 or 615.
    pub driver: u32,
    /// Allow programs to reserve more device memory than the file system could hold. A program that then writes to
    /// all of it dies of SIGBUS.
    pub allow_overcommit: bool,
    /// What becomes of kernels that come as machine code, which is not executed.
    #[serde(default)]
    pub machine_code: MachineCode,
    /// How exactly kernels are kept within allocations.
    #[serde(default)]
    pub bounds: Bounds,
    /// Which pairs of devices a restore takes.
    #[serde(default)]
    pub map: MapRule,
    /// How long locking, checkpointing and so on take, as a multiple of what was measured on a GPU; 0: as long as the
    /// work itself.
    #[serde(default)]
    pub checkpoint_time: f64,
    /// The devices, in PCI order.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceSpec>,
}

/// What becomes of kernels that come as machine code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineCode {
    /// Loading them is refused with NO_BINARY_FOR_GPU (209) and a line that says how to get PTX.
    #[default]
    Refuse,
    /// They are loaded and do nothing, in the time that the profile says for their names.
    NoOp,
}

/// How exactly kernels are kept within allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bounds {
    /// An access to the first byte behind an allocation is a fault.
    #[default]
    Exact,
    /// As on a device, what lies behind an allocation in its granule of 512 bytes may be touched.
    Granule,
}

/// Which pairs of devices `cuCheckpointProcessRestore` takes. Without pairs a process comes back to the devices that it
/// left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapRule {
    /// Pairs that name every device of the machine once as the old one and once as the new one, whatever the process
    /// sees of it.
    #[default]
    Machine,
    /// The same, and none at all for a process that `CUDA_VISIBLE_DEVICES` hid a device from.
    Unmasked,
}

/// One device of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Profile name.
    pub profile: String,
    /// Device memory in bytes; the profile's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Device memory that one context costs, in bytes; when absent the profile's, but at most 1/16 of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<u64>,
    /// How much a stream-ordered pool takes of the device at once, in bytes, rounded up to 2 MiB; when absent the
    /// profile's, but at most 1/64 of the memory and at least 2 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_growth_bytes: Option<u64>,
    /// The device's clock keeps pace with the machine's, as a real device's does: where a client is late for want of a
    /// processor the device idles or serves others. Otherwise, the default, it stands still.
    #[serde(default)]
    pub keeps_pace: bool,
    /// The device is in MIG mode, and divided into one instance that has all of it: programs see that instance in its
    /// place.
    #[serde(default)]
    pub mig: bool,
}

impl Spec {
    /// `count` equal devices; `memory` in bytes overrides the profile's.
    pub fn new(count: usize, profile: &str, memory: Option<u64>) -> Self {
        let device = DeviceSpec {
            profile: profile.to_owned(),
            memory,
            context_bytes: None,
            pool_growth_bytes: None,
            keeps_pace: false,
            mig: false,
        };
        Self {
            id: 0,
            driver: 580,
            allow_overcommit: false,
            machine_code: MachineCode::default(),
            bounds: Bounds::default(),
            map: MapRule::default(),
            checkpoint_time: 0.0,
            devices: vec![device; count],
        }
    }

    /// Reads what the machine in `folder` is made of.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(Error::file("reading", &path))?;
        let spec: Self = toml::from_str(&text).map_err(|error| Error::MachineFile {
            path,
            reason: error.message().to_owned(),
        })?;
        spec.check()?;
        Ok(spec)
    }

    /// The version that `cuDriverGetVersion` answers and the text that NVML shows.
    pub fn driver_version(&self) -> Result<(i32, &'static str), Error> {
        FEATURE_LEVELS
            .iter()
            .find(|(branch, _, _)| *branch == self.driver)
            .map(|(_, cuda, text)| (*cuda, *text))
            .ok_or(Error::Driver { asked: self.driver })
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.driver_version()?;
        if self.devices.is_empty() || self.devices.len() > MAX_DEVICES {
            return Err(Error::DeviceCount {
                asked: self.devices.len(),
            });
        }
        if !(0.0..=LONGEST_TIME).contains(&self.checkpoint_time) {
            return Err(Error::CheckpointTime {
                asked: self.checkpoint_time,
            });
        }
        Ok(())
    }
}

impl Default for Spec {
    /// Two H200.
    fn default() -> Self {
        Self::new(2, "h200", None)
    }
}

/// Driver branch, the CUDA version it brings, and its full version text.
pub const FEATURE_LEVELS: &[(u32, i32, &str)] = &[
    (550, 12_040, "550.163.01"),
    (570, 12_080, "570.195.03"),
    (580, 13_000, "580.105.08"),
    (595, 13_020, "595.84"),
    (610, 13_030, "610.43.02"),
    (615, 13_040, "615.36.01"),
];

/// Why a machine could not be made, opened or entered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// `machine.toml` does not say what it should.
    #[error("{}: {reason}", path.display())]
    MachineFile {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        reason: String,
    },
    /// A profile is unknown or wrong.
    #[error("profile `{name}`: {reason}")]
    Profile {
        /// The name asked for.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No such driver branch.
    #[error("driver branch {asked} is not one of 550, 570, 580, 595, 610, 615")]
    Driver {
        /// The branch asked for.
        asked: u32,
    },
    /// Too few or too many devices.
    #[error("{asked} devices asked for; a machine has 1 to {MAX_DEVICES}")]
    DeviceCount {
        /// The number asked for.
        asked: usize,
    },
    /// A factor of durations that is none.
    #[error("checkpoint_time is a factor from 0 to {LONGEST_TIME}, not {asked}")]
    CheckpointTime {
        /// The factor asked for.
        asked: f64,
    },
    /// The folder exists already.
    #[error("{} holds a machine already", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The file system cannot hold even a small machine.
    #[error(
        "{}: the file system has {available} bytes left, a machine of {total} bytes of device memory needs at \
         least {needed}; choose another folder or less memory",
        path.display()
    )]
    FileSystemTooSmall {
        /// The folder.
        path: PathBuf,
        /// Bytes left.
        available: u64,
        /// Bytes of all devices together.
        total: u64,
        /// The least that is accepted.
        needed: u64,
    },
    /// All places in the process table are taken by living processes.
    #[error("{limit} processes use this machine already")]
    TooManyProcesses {
        /// The size of the table.
        limit: usize,
    },
}

impl Error {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }
}
