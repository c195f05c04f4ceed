// SPDX-License-Identifier: Apache-2.0
//! One simulated machine: made once in a folder, then opened by every process that uses it.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::entry_counts::{EntryCounts, Table};
use crate::faults::Faults;
use crate::profile::Profile;
use crate::ranges::{self, RangeId};
use crate::seats::{self, Dead, Full, Occupant, Seats};
use crate::shared::Shared;
use crate::spec::{Error, Spec};
use crate::timeline::{Settings, Timeline};
use crate::{backing, seats::MAX_SEATS};

/// The variable that names the folder of the machine.
pub const FOLDER_VARIABLE: &str = "PARTAGE_SIM_DIR";
/// The variable that names faults of this process.
const FAULTS_VARIABLE: &str = "PARTAGE_SIM_FAULTS";
const SPEC_FILE: &str = "machine.toml";
/// The page size of a device's address translation.
const PAGE: u64 = 2 << 20;
/// Room that any machine needs: its tables, and something to work with.
const LEAST_ROOM: u64 = 256 << 20;

/// One device of an open machine.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its place in PCI order.
    pub index: usize,
    /// Its model.
    pub profile: Profile,
    /// Its memory in bytes.
    pub memory: u64,
    /// What one context costs, in bytes.
    pub context_bytes: u64,
    /// How much a stream-ordered pool takes at once, in bytes: a multiple of 2 MiB.
    pub pool_growth_bytes: u64,
    /// It waits for no client.
    pub keeps_pace: bool,
    /// Its identity, as `cuDeviceGetUuid` gives it.
    pub uuid: [u8; 16],
    /// PCI bus number; domain, device and function are 0.
    pub pci_bus: u32,
}

impl Device {
    /// How its engines are shared.
    fn settings(&self) -> Settings {
        Settings {
            slice_ns: self.profile.speed.quantum_ns,
            switch_tax_ns: self.profile.speed.switch_ns,
            ..if self.keeps_pace {
                Settings::KEEPS_PACE
            } else {
                Settings::default()
            }
        }
    }

    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "GPU-{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// An attribute by number, with the ones that depend on the slot. `None` for an unknown number.
    pub fn attribute(&self, number: i32) -> Option<i32> {
        match number {
            33 => Some(self.pci_bus as i32),
            34 | 50 => Some(0),
            139 => Some(self.profile.pci_device as i32),
            140 => Some(self.profile.pci_subsystem as i32),
            _ => self.profile.attribute(number),
        }
    }
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
        let path = folder.join(SPEC_FILE);
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
        for inner in ["memory", "broker", "lib"] {
            builder
                .create(folder.join(inner))
                .map_err(Error::file("creating", folder))?;
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

    /// Opens the machine in `folder`.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(SPEC_FILE);
        let text = std::fs::read_to_string(&path).map_err(Error::file("reading", &path))?;
        let spec: Spec = toml::from_str(&text).map_err(|error| Error::MachineFile {
            path,
            reason: error.message().to_owned(),
        })?;
        spec.check()?;
        let devices = devices(&spec, folder)?;
        let seats_path = folder.join("seats");
        let seats = Shared::open(&seats_path, |_| ()).map_err(Error::file("opening", &seats_path))?;
        let counts_path = folder.join("unbuilt");
        let entry_counts = Shared::open(&counts_path, |_| ()).map_err(Error::file("opening", &counts_path))?;
        let faults = Faults::new(std::env::var(FAULTS_VARIABLE).ok().as_deref(), folder);
        Ok(Self {
            folder: folder.to_owned(),
            spec,
            devices,
            seats,
            entry_counts,
            faults: Arc::new(faults),
        })
    }

    /// Opens the machine that the environment names; `None` when it names none.
    pub fn from_environment() -> Option<Result<Self, Error>> {
        let folder = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty())?;
        Some(Self::open(Path::new(&folder)))
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
        let path = folder.join(SPEC_FILE);
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

    /// Opens the timelines of the devices, with the slices that their profiles say.
    pub fn timeline(&self) -> Result<Timeline, Error> {
        let settings: Vec<Settings> = self.devices.iter().map(Device::settings).collect();
        Timeline::open(&self.folder, &settings).map_err(Error::file("opening the timelines in", &self.folder))
    }

    /// Makes the calling process a user of the machine. Its seat is freed by itself when the process ends.
    pub fn take_seat(&self) -> Result<usize, Error> {
        seats::take(&self.seats, self.dead()).ok_or(Error::TooManyProcesses { limit: MAX_SEATS })
    }

    /// Gives a seat back, with everything it holds.
    pub fn leave_seat(&self, seat: usize) {
        seats::leave(&self.seats, seat);
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
        let capacity = self.devices[device].memory;
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
        ranges::share(&self.seats.lock(), seat, device, bytes, self.dead())
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
        if ranges::join(&seats, seat, known, None, self.dead()) {
            return Ok(known);
        }
        let capacity = self.devices[device].memory;
        let made = ranges::adopt(&seats, seat, device, bytes, capacity, self.dead()).map_err(Shortage::Device)?;
        write(made);
        Ok(made)
    }

    /// Makes the seat a holder of a range. False when the seat `of` holds it no more.
    pub fn join(&self, seat: usize, id: RangeId, of: usize) -> bool {
        ranges::join(&self.seats.lock(), seat, id, Some(of), self.dead())
    }

    /// Lets the seat go of a range. True when nobody living holds it any more: its bytes are free.
    pub fn let_go(&self, seat: usize, id: RangeId) -> bool {
        ranges::let_go(&self.seats.lock(), seat, id, self.dead())
    }

    /// Whether anybody living holds a range.
    pub fn is_held(&self, id: RangeId) -> bool {
        ranges::is_held(&self.seats.lock(), id, self.dead())
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

    /// What becomes of what dead processes held.
    fn dead(&self) -> Dead {
        if self.faults.is_lingering() {
            Dead::Linger
        } else {
            Dead::Leave
        }
    }

    /// Bytes of a device that living processes hold, exactly.
    pub fn used(&self, device: usize) -> u64 {
        let seats = self.seats.lock();
        seats::sweep(&seats, self.dead());
        seats.used(device)
    }

    /// Bytes of a device that are free.
    pub fn free(&self, device: usize) -> u64 {
        self.devices[device].memory.saturating_sub(self.used(device))
    }

    /// The living processes that use a device.
    pub fn occupants(&self, device: usize) -> Vec<Occupant> {
        let seats = self.seats.lock();
        seats::sweep(&seats, self.dead());
        seats.occupants(device)
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
        let needed = promised.saturating_sub(self.seats.resident());
        if needed <= available {
            return Ok(());
        }
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if !IS_SAID.swap(true, Ordering::Relaxed) {
            eprintln!(
                "partage sim: out of device memory because the file system of {} has {available} bytes left and \
                 {needed} are promised; use another folder, smaller devices, or allow_overcommit",
                self.folder.display()
            );
        }
        Err(Shortage::FileSystem { available, needed })
    }
}

/// Copies profiles that are named by file into the machine's folder, so that it depends on nothing outside.
fn adopt_profiles(spec: &mut Spec, folder: &Path) -> Result<(), Error> {
    for device in &mut spec.devices {
        let file = Path::new(&device.profile);
        let is_file = file.extension().is_some_and(|extension| extension == "toml");
        let Some(name) = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .filter(|_| is_file)
            .map(str::to_owned)
        else {
            continue;
        };
        let own = folder.join("profiles");
        std::fs::create_dir_all(&own).map_err(Error::file("creating", &own))?;
        std::fs::copy(file, own.join(format!("{name}.toml"))).map_err(Error::file("copying the profile", file))?;
        device.profile = name;
    }
    Ok(())
}

fn devices(spec: &Spec, folder: &Path) -> Result<Vec<Device>, Error> {
    let device = |(index, given): (usize, &crate::spec::DeviceSpec)| {
        let profile = Profile::find(&given.profile, folder)?;
        let memory = given.memory.unwrap_or(profile.memory);
        let context_bytes = given.context_bytes.unwrap_or(profile.context_bytes.min(memory / 16));
        Ok(Device {
            index,
            memory,
            context_bytes,
            pool_growth_bytes: growth(given.pool_growth_bytes, profile.pool_growth_bytes, memory),
            keeps_pace: given.keeps_pace,
            uuid: uuid(spec.id, index as u64),
            // Spread as in a server; 16 devices stay below 256.
            pci_bus: 0x10 + 0x0d * index as u32,
            profile,
        })
    };
    spec.devices.iter().enumerate().map(device).collect()
}

/// What a pool takes at once: what is asked for, else the model's in proportion to a small memory.
fn growth(asked: Option<u64>, of_model: u64, memory: u64) -> u64 {
    let bytes = asked.unwrap_or_else(|| of_model.min(memory / 64 / PAGE * PAGE));
    bytes.max(PAGE).next_multiple_of(PAGE)
}

/// The same for the same machine and index, different for all others.
fn uuid(machine: u64, index: u64) -> [u8; 16] {
    let high = mix(machine ^ mix(index + 1));
    let low = mix(high ^ machine.rotate_left(32));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    // A random (version 4) UUID of the usual variant, as real devices have.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The id of a machine with a name: its devices have the same UUIDs whenever a machine of that name is made.
pub fn id_of(name: &str) -> u64 {
    let id = name.bytes().fold(0, |id, byte| mix(id ^ u64::from(byte)));
    // As a random one.
    (id >> 1).max(1)
}

fn random_id() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    // TOML integers are signed, and 0 means "none".
    Ok((u64::from_ne_bytes(bytes) >> 1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Bounds, MachineCode};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("partage-machine-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_machine_keeps_its_identity_and_its_devices_differ() {
        let folder = Folder::new("identity");
        let made = Machine::create(&folder.0, &Spec::new(3, "h200", Some(1 << 30))).expect("made");
        let again = Machine::open(&folder.0).expect("opened");
        let uuids = |machine: &Machine| machine.devices().iter().map(Device::uuid_text).collect::<Vec<_>>();
        assert_eq!(uuids(&made), uuids(&again));
        let mut distinct = uuids(&made);
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 3);
        assert!(matches!(
            Machine::create(&folder.0, &Spec::default()),
            Err(Error::Exists { .. })
        ));
    }

    #[test]
    fn a_machine_with_a_name_has_the_same_devices_each_time() {
        let uuids = |name: &str| {
            let folder = Folder::new(&format!("named-{name}"));
            let mut spec = Spec::new(2, "h200", Some(1 << 30));
            spec.id = id_of(name);
            let made = Machine::create(&folder.0, &spec).expect("made");
            made.devices().iter().map(Device::uuid_text).collect::<Vec<_>>()
        };
        assert_eq!(uuids("default"), uuids("default"));
        assert_ne!(uuids("default"), uuids("default2"));
        assert_ne!(id_of("ab"), id_of("ba"));
        assert!(
            ["", "a", "default"]
                .iter()
                .all(|name| (1..=i64::MAX as u64).contains(&id_of(name)))
        );
    }

    #[test]
    fn how_strict_a_machine_is_stands_in_its_file() {
        let folder = Folder::new("strict");
        let mut spec = Spec::new(1, "h200", Some(1 << 30));
        assert_eq!((spec.machine_code, spec.bounds), (MachineCode::Refuse, Bounds::Exact));
        (spec.machine_code, spec.bounds) = (MachineCode::NoOp, Bounds::Granule);
        let made = Machine::create(&folder.0, &spec).expect("made");
        let text = std::fs::read_to_string(made.folder().join("machine.toml")).expect("it is there");
        assert!(
            text.contains("machine_code = \"no-op\"") && text.contains("bounds = \"granule\""),
            "{text}"
        );
        // A file of an older machine says nothing of either.
        let older: String = text
            .lines()
            .filter(|line| !line.contains("\"no-op\"") && !line.contains("\"granule\""))
            .fold(String::new(), |all, line| all + line + "\n");
        std::fs::write(folder.0.join("machine.toml"), older).expect("writable");
        let opened = Machine::open(&folder.0).expect("opened");
        assert_eq!(
            (opened.spec().machine_code, opened.spec().bounds),
            (MachineCode::Refuse, Bounds::Exact)
        );
    }

    #[test]
    fn memory_is_reserved_whole_or_not_at_all() {
        let folder = Folder::new("reserve");
        let mut spec = Spec::new(2, "l4", Some(1 << 30));
        spec.devices[0].context_bytes = Some(1 << 20);
        let machine = Machine::create(&folder.0, &spec).expect("made");
        let seat = machine.take_seat().expect("a seat");
        machine.open_context(seat, 0).expect("room");
        let rest = (1 << 30) - (1 << 20);
        assert_eq!(
            machine.reserve(seat, 0, rest + 1),
            Err(Shortage::Device(Full { free: rest }))
        );
        machine.reserve(seat, 0, rest).expect("exactly");
        assert_eq!((machine.free(0), machine.free(1)), (0, 1 << 30));
        machine.release(seat, 0, rest);
        machine.close_context(seat, 0);
        assert_eq!((machine.used(0), machine.occupants(0)), (0, vec![]));
        machine.reserve(seat, 1, 5).expect("room");
        machine.leave_seat(seat);
        assert_eq!(machine.used(1), 0);
    }

    #[test]
    fn only_a_device_that_is_to_keep_pace_does() {
        let folder = Folder::new("pace");
        let mut spec = Spec::new(2, "l4", Some(1 << 30));
        spec.devices[1].keeps_pace = true;
        Machine::create(&folder.0, &spec).expect("made");
        let machine = Machine::open(&folder.0).expect("opened");
        let limits = machine.devices().iter().map(|device| device.settings().wake_limit_ns);
        assert_eq!(limits.collect::<Vec<_>>(), [Settings::default().wake_limit_ns, 0]);
    }

    #[test]
    fn a_profile_file_becomes_part_of_the_machine() {
        let folder = Folder::new("profile");
        let file = Folder::new("profile-file");
        std::fs::create_dir_all(&file.0).expect("folder");
        let path = file.0.join("mine.toml");
        let text = "inherits = \"l4\"\nname = \"Mine\"\nmemory = 1_073_741_824\n[kernel_ns]\nspin = 5\n";
        std::fs::write(&path, text).expect("written");
        let asked = path.to_str().expect("utf-8");
        Machine::create(&folder.0, &Spec::new(1, asked, None)).expect("made");
        std::fs::remove_file(&path).expect("no longer needed");
        let machine = Machine::open(&folder.0).expect("opened");
        let Device { profile, memory, .. } = &machine.devices()[0];
        assert_eq!(
            (profile.name.as_str(), *memory, profile.kernel_ns["spin"]),
            ("Mine", 1 << 30, 5)
        );
        assert_eq!(profile.attribute(16), Some(58), "inherited");
    }

    #[test]
    fn pools_of_small_devices_grow_in_small_steps() {
        let mib = |bytes: u64| bytes << 20;
        assert_eq!(growth(None, mib(32), mib(1 << 17)), mib(32));
        assert_eq!(growth(None, mib(32), mib(1024)), mib(16));
        assert_eq!(growth(None, mib(32), mib(200)), mib(2), "a whole number of pages");
        assert_eq!(growth(None, mib(32), mib(64)), mib(2));
        assert_eq!(growth(Some(1), mib(32), mib(1024)), mib(2));
        assert_eq!(growth(Some(mib(64)), mib(32), mib(1024)), mib(64));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let folder = Folder::new("refused");
        let refused = |spec: &Spec| Machine::create(&folder.0, spec).err().expect("refused").to_string();
        assert!(refused(&Spec::new(0, "h200", None)).contains("1 to 16"));
        assert!(
            refused(&Spec {
                driver: 999,
                ..Spec::default()
            })
            .contains("550, 570, 580")
        );
        assert!(refused(&Spec::new(1, "h900", None)).contains("h200"));
        assert!(Machine::open(&folder.0).is_err());
    }
}
