// SPDX-License-Identifier: Apache-2.0
//! One simulated machine: made once in a folder, then opened by every process that uses it.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::entry_counts::{EntryCounts, Table};
use crate::faults::{CheckpointFault, Faults};
use crate::presence::Presence;
use crate::process::{self, ProcessId};
use crate::ranges::{MAX_SEATS, RangeId};
use crate::seats::{self, Dead, Full, Occupant, Seats};
use crate::shared::Shared;
use crate::spec::{self, Error, Spec};
use crate::tickets;
use crate::timeline::{Settings, Timeline};
use crate::{backing, events, sharing};

mod books;
mod device;
mod identity;

pub use books::Books;
use books::{SEATS, UNBUILT, dead};
pub use device::Device;
use device::{adopt_profiles, devices};
pub use identity::id_of;
pub(crate) use identity::random_id;

/// The folder of the machine that the environment names now.
pub fn folder_of_environment() -> Option<PathBuf> {
    let folder = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty())?;
    Some(folder.into())
}

/// The faults that the environment names, before a machine is opened.
pub fn faults_of_environment() -> Option<Faults> {
    let text = std::env::var(FAULTS_VARIABLE).ok();
    Some(Faults::new(text.as_deref(), &folder_of_environment()?))
}

/// The variable that names the folder of the machine.
pub const FOLDER_VARIABLE: &str = "PARTAGE_SIM_DIR";
/// The variable that names faults of this process.
const FAULTS_VARIABLE: &str = "PARTAGE_SIM_FAULTS";
/// How long a process that has left is shown under fault 18.
const LATE_MS: u64 = 1000;
/// Room that any machine needs: its tables, and something to work with.
const LEAST_ROOM: u64 = 256 << 20;

/// The folder of the devices' nodes, in the machine's folder.
pub const NODES: &str = "dev";

/// The node of a device, as `/dev/nvidiaN` is on a real machine: who can open it has the device.
pub fn node(folder: &Path, device: usize) -> PathBuf {
    folder.join(NODES).join(format!("nvidia{device}"))
}

/// Why device memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The device is full.
    Device(Full),
    /// The device has room, the file system behind it has not.
    FileSystem {
        /// Bytes left on the file system.
        available: u64,
        /// Bytes that all processes of the machine could still come to write.
        needed: u64,
    },
}

/// An open machine.
pub struct Machine {
    folder: PathBuf,
    spec: Spec,
    devices: Vec<Device>,
    seats: Shared<Seats>,
    entry_counts: Shared<EntryCounts>,
    faults: Arc<Faults>,
    /// That the calling process takes part, once it does.
    presence: Mutex<Option<Presence>>,
}

impl Machine {
    /// Makes a machine in `folder` (created, mode 0700, if it is not there) and opens it.
    pub fn create(folder: &Path, spec: &Spec) -> Result<Self, Error> {
        spec.check()?;
        let mut spec = spec.clone();
        if spec.id == 0 {
            spec.id = random_id().map_err(Error::file("reading", Path::new("/dev/urandom")))?;
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(Error::file("creating", folder))?;
        let path = folder.join(spec::FILE);
        if path.exists() {
            return Err(Error::Exists {
                path: folder.to_owned(),
            });
        }
        adopt_profiles(&mut spec, folder)?;
        let total = devices(&spec, folder)?.iter().map(|device| device.memory).sum::<u64>();
        let available = backing::available(folder).map_err(Error::file("looking at", folder))?;
        let needed = total.min(LEAST_ROOM);
        if available < needed && !spec.allow_overcommit {
            return Err(Error::FileSystemTooSmall {
                path: folder.to_owned(),
                available,
                total,
                needed,
            });
        }
        for inner in ["memory", "broker", "lib", NODES, tickets::FOLDER] {
            builder
                .create(folder.join(inner))
                .map_err(Error::file("creating", folder))?;
        }
        for device in 0..spec.devices.len() {
            let node = node(folder, device);
            File::create(&node).map_err(Error::file("creating", &node))?;
        }
        let text = toml::to_string(&spec).map_err(|error| Error::MachineFile {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        // Written beside and renamed: the file is there as a whole or not at all.
        let draft = folder.join(".machine.toml");
        std::fs::write(&draft, text).map_err(Error::file("writing", &draft))?;
        std::fs::rename(&draft, &path).map_err(Error::file("writing", &path))?;
        Self::open(folder)
    }

    /// Lets processes of every user take part: those of a container with other users, for example.
    pub fn open_to_all(&self) -> Result<(), Error> {
        use std::os::unix::fs::PermissionsExt;
        // Whoever came first would make them for himself alone.
        self.timeline()?;
        let own = |path: &Path| path.ends_with("broker");
        let mut left = vec![self.folder.clone()];
        while let Some(path) = left.pop() {
            let facts = std::fs::symlink_metadata(&path).map_err(Error::file("looking at", &path))?;
            if facts.is_symlink() || own(&path) {
                continue;
            }
            let mode = if facts.is_dir() { 0o777 } else { 0o666 };
            let open = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
            open.map_err(Error::file("opening up", &path))?;
            if facts.is_dir() {
                let entries = std::fs::read_dir(&path).map_err(Error::file("looking into", &path))?;
                left.extend(entries.flatten().map(|entry| entry.path()));
            }
        }
        Ok(())
    }

    /// Opens the machine in `folder`.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let faults = Faults::new(std::env::var(FAULTS_VARIABLE).ok().as_deref(), folder);
        Self::open_again(folder, Arc::new(faults))
    }

    /// Opens the machine in `folder` for a process that has faults already: they count on, and follow its control file.
    pub fn open_again(folder: &Path, faults: Arc<Faults>) -> Result<Self, Error> {
        let spec = Spec::read(folder)?;
        let devices = devices(&spec, folder)?;
        let seats_path = folder.join(SEATS);
        let seats = Shared::open(&seats_path, |_| ()).map_err(Error::file("opening", &seats_path))?;
        let counts_path = folder.join(UNBUILT);
        let entry_counts = Shared::open(&counts_path, |_| ()).map_err(Error::file("opening", &counts_path))?;
        faults.follow(folder);
        Ok(Self {
            folder: folder.to_owned(),
            spec,
            devices,
            seats,
            entry_counts,
            faults,
            presence: Mutex::new(None),
        })
    }

    /// Opens the machine that the environment names; `None` when it names none.
    pub fn from_environment() -> Option<Result<Self, Error>> {
        Some(Self::open(&folder_of_environment()?))
    }

    /// Leaves the machine: nothing of its folder is mapped any more, and what this held is free. To come back takes
    /// [`open_again`](Self::open_again).
    ///
    /// Fails with the operating system's error; the seat is given up all the same.
    ///
    /// `held`: what its process takes along into the host's memory, by device. Where the two are one memory, it stays
    /// taken.
    pub fn leave(&mut self, seat: usize, held: &[u64]) -> std::io::Result<()> {
        if self.faults.has(CheckpointFault::Late) {
            seats::leave_late(&self.seats, seat, LATE_MS);
        } else {
            self.give_up(seat, held);
        }
        // A lock and its file are nothing that a saved process may have.
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.seats.lay_bare()?;
        self.entry_counts.lay_bare()
    }

    /// Makes `lib/` lead to the simulated libraries, under the names that programs load.
    pub fn link_libraries(folder: &Path, driver: &Path, nvml: &Path) -> Result<PathBuf, Error> {
        let lib = folder.join("lib");
        let names = [
            ("libcuda.so.1", driver),
            ("libcuda.so", driver),
            ("libnvidia-ml.so.1", nvml),
            ("libnvidia-ml.so", nvml),
        ];
        for (name, target) in names {
            let link = lib.join(name);
            match std::fs::remove_file(&link) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::file("replacing", &link)(error));
                }
                _ => symlink(target, &link).map_err(Error::file("linking", &link))?,
            }
        }
        Ok(lib)
    }

    /// Removes the machine in `folder`. Processes that still use it keep what they have mapped.
    pub fn remove(folder: &Path) -> Result<(), Error> {
        let path = folder.join(spec::FILE);
        std::fs::metadata(&path).map_err(Error::file("not a machine:", folder))?;
        std::fs::remove_dir_all(folder).map_err(Error::file("removing", folder))
    }

    /// Where the machine is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it was made from.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its devices, in PCI order.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Faults that are switched on.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// The version that `cuDriverGetVersion` answers, and the driver's own version text.
    pub fn driver_version(&self) -> (i32, &'static str) {
        // `open` has checked the spec, so the level is known.
        self.spec.driver_version().unwrap_or((13_000, "580.105.08"))
    }

    /// The calling process, as the machine's tables know it.
    pub fn own_id(&self) -> ProcessId {
        let presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        presence.as_ref().map_or_else(ProcessId::current, Presence::id)
    }

    /// The devices whose node the calling process can open, by their places in PCI order: in a container, those that it
    /// was given.
    pub fn reachable(&self) -> Vec<usize> {
        let can_open = |device: &usize| {
            let node = node(&self.folder, *device);
            File::options().read(true).write(true).open(node).is_ok()
        };
        (0..self.devices.len()).filter(can_open).collect()
    }

    /// Opens the timelines of the devices, with the slices that their profiles say.
    pub fn timeline(&self) -> Result<Timeline, Error> {
        let settings: Vec<Settings> = self.devices.iter().map(device::settings).collect();
        Timeline::open(&self.folder, &settings, self.own_id())
            .map_err(Error::file("opening the timelines in", &self.folder))
    }

    /// Makes the calling process a user of the machine. Its seat is freed by itself when the process ends.
    pub fn take_seat(&self) -> Result<usize, Error> {
        process::read_clock();
        let id = {
            let mut presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
            if presence.is_none() {
                let folder = self.folder.join(tickets::FOLDER);
                *presence = Some(Presence::take(&self.folder).map_err(Error::file("making a file in", &folder))?);
            }
            presence.as_ref().map_or_else(ProcessId::current, Presence::id)
        };
        events::sweep(&self.folder, &id);
        seats::take(&self.seats, id, self.dead()).ok_or(Error::TooManyProcesses { limit: MAX_SEATS })
    }

    /// Makes another process of this PID namespace a user of the machine: one that reaches a GPU by no library, as a
    /// static program does. Its seat is freed when the process ends or executes another program. `None`: there is no
    /// such process, or no seat for it.
    pub fn let_in(&self, pid: u32) -> Option<usize> {
        seats::take(&self.seats, ProcessId::of(pid)?, self.dead())
    }

    /// Gives a seat back, with everything it holds.
    pub fn leave_seat(&self, seat: usize) {
        seats::leave(&self.seats, seat);
    }

    /// Gives a seat back; what its process has in the host's memory, `held` by device, stays taken where the two are
    /// one memory.
    pub fn give_up(&self, seat: usize, held: &[u64]) {
        let away = |(device, bytes): (&Device, &u64)| device.host_bytes.map_or(0, |_| *bytes);
        let away: Vec<u64> = self.devices.iter().zip(held).map(away).collect();
        if away.iter().any(|bytes| *bytes > 0) {
            seats::leave_for_host(&self.seats, seat, &away);
        } else {
            seats::leave(&self.seats, seat);
        }
    }

    /// Makes the file behind the memory of a device in this process, `bytes` long.
    pub fn create_backing(&self, seat: usize, device: usize, bytes: u64) -> Result<File, Error> {
        let folder = self.folder.join("memory");
        let file = backing::create(&folder, bytes).map_err(Error::file("creating a file in", &folder))?;
        let inode = file
            .metadata()
            .map_err(Error::file("looking at a file in", &folder))?
            .ino();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as u32;
        seats::note_backing(&self.seats, seat, device, fd, inode);
        Ok(file)
    }

    /// Reserves `bytes` of a device for a seat: all of them or none.
    pub fn reserve(&self, seat: usize, device: usize, bytes: u64) -> Result<(), Shortage> {
        let capacity = self.capacity(device);
        seats::reserve(&self.seats, seat, device, bytes, capacity, self.dead()).map_err(Shortage::Device)?;
        self.check_file_system()
            .inspect_err(|_| self.release(seat, device, bytes))
    }

    /// Gives back `bytes` that the seat reserved.
    pub fn release(&self, seat: usize, device: usize, bytes: u64) {
        seats::release(&self.seats, seat, device, bytes);
    }

    /// Makes `bytes` that the seat has reserved ready for other processes to hold. `None` when a machine has no room
    /// for more such ranges.
    pub fn share(&self, seat: usize, device: usize, bytes: u64) -> Option<RangeId> {
        sharing::share(&self.seats.lock(), seat, device, bytes, self.dead())
    }

    /// Makes the seat a holder of the range that `read` names, or of a new one that `write` is told, when nobody living
    /// holds that. Other processes wait meanwhile.
    pub fn join_or_adopt(
        &self,
        seat: usize,
        device: usize,
        bytes: u64,
        read: impl FnOnce() -> RangeId,
        write: impl FnOnce(RangeId),
    ) -> Result<RangeId, Shortage> {
        let seats = self.seats.lock();
        let known = read();
        if sharing::join(&seats, seat, known, None, self.dead()) {
            return Ok(known);
        }
        let capacity = self.capacity(device);
        let made = sharing::adopt(&seats, seat, device, bytes, capacity, self.dead()).map_err(Shortage::Device)?;
        write(made);
        Ok(made)
    }

    /// Makes the seat a holder of a range. False when the seat `of` holds it no more.
    pub fn join(&self, seat: usize, id: RangeId, of: usize) -> bool {
        sharing::join(&self.seats.lock(), seat, id, Some(of), self.dead())
    }

    /// Lets the seat go of a range. True when nobody living holds it any more: its bytes are free.
    pub fn let_go(&self, seat: usize, id: RangeId) -> bool {
        sharing::let_go(&self.seats.lock(), seat, id, self.dead())
    }

    /// Whether anybody living holds a range.
    pub fn is_held(&self, id: RangeId) -> bool {
        sharing::is_held(&self.seats.lock(), id, self.dead())
    }

    /// Reserves what a new context costs on a device, and counts it.
    pub fn open_context(&self, seat: usize, device: usize) -> Result<(), Shortage> {
        self.reserve(seat, device, self.devices[device].context_bytes)?;
        seats::count_context(&self.seats, seat, device, true);
        Ok(())
    }

    /// Gives back what a context cost.
    pub fn close_context(&self, seat: usize, device: usize) {
        seats::count_context(&self.seats, seat, device, false);
        self.release(seat, device, self.devices[device].context_bytes);
    }

    /// What a seat holds of a device for itself: bytes, contexts included, and contexts.
    pub fn held(&self, seat: usize, device: usize) -> (u64, u32) {
        self.seats.lock().held(seat, device)
    }

    /// Reserves for a seat what its process held of a device before it left: all or nothing.
    pub fn hold_again(&self, seat: usize, device: usize, bytes: u64, contexts: u32) -> Result<(), Shortage> {
        self.reserve(seat, device, bytes)?;
        for _ in 0..contexts {
            seats::count_context(&self.seats, seat, device, true);
        }
        Ok(())
    }

    fn dead(&self) -> Dead {
        dead(&self.faults)
    }

    /// Its tables, for who does not want them mapped all the time.
    pub fn books(&self) -> Books {
        Books::of(&self.folder, Arc::clone(&self.faults))
    }

    /// Bytes of a device that living processes hold, exactly.
    pub fn used(&self, device: usize) -> u64 {
        seats::used(&self.seats, device, self.dead())
    }

    /// Bytes of a device that are free.
    pub fn free(&self, device: usize) -> u64 {
        seats::left(&self.seats, device, self.capacity(device), self.dead())
    }

    /// What processes can hold of a device: all of its memory but what the host's own programs have of it.
    fn capacity(&self, device: usize) -> u64 {
        device::capacity(&self.devices[device], &self.faults)
    }

    /// Bytes of the host's memory that are available, where a device shares it: of all such devices together. `None`:
    /// the machine has no such device.
    pub fn host_available(&self) -> Option<u64> {
        let shared = self.devices.iter().filter(|device| device.host_bytes.is_some());
        shared.map(|device| self.free(device.index)).reduce(u64::saturating_add)
    }

    /// The living processes that use a device.
    pub fn occupants(&self, device: usize) -> Vec<Occupant> {
        seats::occupants(&self.seats, device, self.dead())
    }

    /// Counts a call of an entry point that is not built.
    pub fn count_unbuilt(&self, table: Table, row: usize, symbol: &str) {
        self.entry_counts.count(&self.folder, table, row, symbol);
    }

    /// Rows of a table that were called although they are not built, and how often.
    pub fn unbuilt(&self, table: Table) -> Vec<(usize, u64)> {
        self.entry_counts.called(table)
    }

    /// A write to a sparse file on a full file system kills with SIGBUS, so memory that could not be written in the
    /// end is refused now.
    fn check_file_system(&self) -> Result<(), Shortage> {
        if self.spec.allow_overcommit {
            return Ok(());
        }
        let Ok(available) = backing::available(&self.folder) else {
            return Ok(());
        };
        let promised = self.seats.used_in_all();
        if promised <= available {
            return Ok(());
        }
        // Slower and exact: what is written already is no longer needed.
        let needed = promised.saturating_sub(seats::resident(&self.seats));
        if needed <= available {
            return Ok(());
        }
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if !IS_SAID.swap(true, Ordering::Relaxed) {
            eprintln!(
                "partage sim: out of device memory because the file system of {} has {available} bytes left and \
                 {needed} are promised; make room, or use smaller devices or overcommit (`partage sim --memory 8GiB`, \
                 `--overcommit`)",
                self.folder.display()
            );
        }
        Err(Shortage::FileSystem { available, needed })
    }
}

#[cfg(test)]
mod tests;
