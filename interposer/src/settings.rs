// SPDX-License-Identifier: Apache-2.0
//! What `partage run` and the user say through the environment, read once per process.

use core::ffi::CStr;

use partage_protocol::aliases::{self, TimeVariable, Variable};
use partage_protocol::message::{ENVIRONMENT_BYTES, MAX_DEVICES, TOKEN_BYTES};

use crate::carried::{self, Carried};
use crate::guest::sys;
use crate::guest::text::{self, Text};

/// Longest path taken from the environment, with its zero.
pub const PATH_BYTES: usize = 1024;

/// Where a user's private broker has its folder: followed by the uid.
const PRIVATE_DIR: &str = "/tmp/partage-";
/// The folder of a managed host's broker.
const SYSTEM_DIR: &CStr = c"/run/partage";

/// The environment as read. All-zero memory is "nothing set".
pub struct Settings {
    /// `PARTAGE_TOKEN`, else what the library's path carries: proves that this process belongs to a job; zeros without
    /// one.
    pub token: [u8; TOKEN_BYTES],
    /// A token was there.
    pub has_token: bool,
    /// `PARTAGE_SOCKET_DIR`, or the default folder of this user or host.
    pub socket_dir: Text<PATH_BYTES>,
    /// The folder was named, not guessed: whoever listens there is meant.
    pub is_socket_dir_named: bool,
    /// It is a managed host's own folder, which only root makes.
    pub is_system_dir: bool,
    /// The limit while no broker has answered: `PARTAGE_MEM_BYTES`, or for a process that was put into no job the
    /// lowest that other tools' variables give; `None` is no limit.
    pub memory_limit: Option<u64>,
    /// Those variables and `CUDA_VISIBLE_DEVICES`, packed for the broker, which knows the devices; empty in a job.
    pub environment: Text<{ ENVIRONMENT_BYTES + 1 }>,
    /// `PARTAGE_DEVICES`: the job's devices in job order while no broker has answered.
    pub devices: [[u8; 16]; MAX_DEVICES],
    /// Which of them are MIG instances, one bit each.
    pub mig: u32,
    /// Devices in use in `devices`.
    pub device_count: usize,
    /// `PARTAGE_BROKER`: the program to start when a private broker is gone; empty on managed hosts.
    pub broker: Text<PATH_BYTES>,
    /// `PARTAGE_TIME_FAIL=closed`: a closed gate stays closed while no broker looks after it.
    pub time_fails_closed: bool,
    /// `PARTAGE_LOG`: `stderr`, a path, or empty for no log.
    pub log: Text<PATH_BYTES>,
    /// `PARTAGE_LAZY_REQUEST` is there: this process's job is admitted when it first uses a GPU ([`lazy_request`]).
    pub is_lazy: bool,
    /// `PARTAGE_STDERR`: device and inode of the standard error of `partage run`, unless it was told to be quiet.
    pub standard_error: Option<(u64, u64)>,
    /// `PARTAGE_STDERR=quiet` (`partage run -q`): nobody wants to hear of denials.
    pub is_quiet: bool,
}

impl Settings {
    /// Reads the environment.
    pub fn read() -> Self {
        let mut settings = Self {
            token: [0; TOKEN_BYTES],
            has_token: false,
            socket_dir: Text::new(),
            is_socket_dir_named: false,
            is_system_dir: false,
            memory_limit: text::parse_number(variable(c"PARTAGE_MEM_BYTES")),
            environment: Text::new(),
            devices: [[0; 16]; MAX_DEVICES],
            mig: 0,
            device_count: 0,
            broker: Text::new(),
            time_fails_closed: variable(c"PARTAGE_TIME_FAIL") == b"closed",
            log: Text::new(),
            is_lazy: !lazy_request().is_empty(),
            standard_error: identity(variable(c"PARTAGE_STDERR")),
            is_quiet: variable(c"PARTAGE_STDERR") == b"quiet",
        };
        settings.read_token(variable(c"PARTAGE_TOKEN"));
        let carried = if settings.has_token { None } else { carried::read() };
        if let Some(carried) = carried {
            (settings.token, settings.has_token) = (carried.token, true);
        }
        settings.read_devices(variable(c"PARTAGE_DEVICES"));
        settings.read_aliases();
        settings.find_socket_dir(carried);
        for (to, name) in [
            (&mut settings.broker, c"PARTAGE_BROKER"),
            (&mut settings.log, c"PARTAGE_LOG"),
        ] {
            if !to.push(variable(name)).is_complete() {
                // A path cut short would name something else.
                to.clear();
            }
        }
        settings
    }

    fn read_token(&mut self, digits: &[u8]) {
        if digits.len() != 2 * TOKEN_BYTES {
            return;
        }
        let mut nibbles = digits.iter().map(|digit| text::hex_digit(*digit));
        let mut token = [0; TOKEN_BYTES];
        for byte in &mut token {
            let (Some(Some(high)), Some(Some(low))) = (nibbles.next(), nibbles.next()) else {
                return;
            };
            *byte = high << 4 | low;
        }
        self.token = token;
        self.has_token = true;
    }

    /// Other tools' variables, where `run` said nothing. What cannot be read leaves no memory until a broker said
    /// otherwise: it is never "no limit".
    fn read_aliases(&mut self) {
        if self.has_token || self.memory_limit.is_some() {
            return;
        }
        let (mut is_any, mut is_memory) = (false, false);
        sys::each_variable(|entry| {
            let name = entry.split(|byte| *byte == b'=').next().unwrap_or(&[]);
            let is_set = entry.len() > name.len() + 1;
            let limits_memory = is_set && Variable::of(name).is_some();
            // The broker reads those about time; without one, time is open.
            let is_alias = limits_memory || (is_set && TimeVariable::of(name).is_some());
            if is_alias || name == b"CUDA_VISIBLE_DEVICES" {
                is_any |= is_alias;
                is_memory |= limits_memory;
                self.environment.push(entry).push([0]);
            }
        });
        if !is_any {
            self.environment.clear();
        }
        if !is_memory {
            return;
        }
        self.memory_limit = match aliases::lowest(self.environment.as_bytes()) {
            Some(Ok(limit)) if self.environment.is_complete() => Some(limit),
            _ => Some(1),
        };
    }

    fn read_devices(&mut self, list: &[u8]) {
        for name in list.split(|byte| *byte == b',') {
            let Some(uuid) = text::parse_uuid(name) else { return };
            let Some(place) = self.devices.get_mut(self.device_count) else {
                return;
            };
            *place = uuid;
            if name.starts_with(b"MIG-") {
                self.mig |= 1 << (self.device_count & 31);
            }
            self.device_count += 1;
        }
    }

    /// As the command line chooses it: named, else the one that holds the library of a job, else the system's where the
    /// host is managed, else the user's.
    fn find_socket_dir(&mut self, carried: Option<Carried>) {
        let is_managed = sys::exists(SYSTEM_DIR);
        let mut named = variable(c"PARTAGE_SOCKET_DIR");
        let holder = carried.and_then(|carried| carried.folder.strip_suffix(b"/lib"));
        // A user's own folder holds the library of the host's jobs too, beside what a private broker left there.
        let holder = holder.filter(|holder| is_socket_dir(holder) && !(is_managed && is_private_dir(holder)));
        if let Some(holder) = holder.filter(|_| named.is_empty()) {
            named = holder;
        }
        if !named.is_empty() && self.socket_dir.push(named).is_complete() {
            self.is_socket_dir_named = true;
            self.is_system_dir = named == SYSTEM_DIR.to_bytes();
            return;
        }
        self.socket_dir.clear();
        if is_managed {
            self.socket_dir.push(SYSTEM_DIR.to_bytes());
            // Only root makes folders in /run.
            (self.is_socket_dir_named, self.is_system_dir) = (true, true);
        } else {
            self.socket_dir
                .push(PRIVATE_DIR)
                .push_number(u64::from(sys::effective_uid()));
        }
    }

    /// Somebody put this process under a limit or into a job, so a broker is worth waiting for.
    pub fn expects_broker(&self) -> bool {
        self.has_token || self.memory_limit.is_some()
    }
}

/// Do brokers serve in this folder, or did one?
fn is_socket_dir(folder: &[u8]) -> bool {
    let mut path = Text::<PATH_BYTES>::new();
    path.push(folder).push("/client");
    path.is_complete() && sys::exists(path.as_c_str())
}

/// Is this the folder of somebody's private broker?
fn is_private_dir(folder: &[u8]) -> bool {
    let uid = folder.strip_prefix(PRIVATE_DIR.as_bytes());
    uid.is_some_and(|uid| text::parse_number(uid).is_some())
}

/// `PARTAGE_LAZY_REQUEST`: what `run --lazy` asks of the broker, as a document. To be used at once.
pub fn lazy_request() -> &'static [u8] {
    variable(c"PARTAGE_LAZY_REQUEST")
}

/// `DEVICE:INODE`.
fn identity(text: &[u8]) -> Option<(u64, u64)> {
    let mut parts = text.split(|byte| *byte == b':');
    Some((text::parse_number(parts.next()?)?, text::parse_number(parts.next()?)?))
}

/// A variable's value; empty when unset, and in a program that has more rights than whoever started it (setuid), which
/// `/etc/ld.so.preload` reaches: a user's words would name the broker that it trusts, or starts.
fn variable(name: &CStr) -> &'static [u8] {
    // SAFETY: a plain question.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return &[];
    }
    // SAFETY: `getenv` answers null or a string of the environment, which libc keeps while nobody changes it; the
    // callers copy at once.
    unsafe { text::bytes_of(libc::getenv(name.as_ptr())) }
}
