// SPDX-License-Identifier: Apache-2.0
//! Faults that can be switched on: a call that fails at its n-th time, a copy that fails, a kernel that hangs, a
//! process that cannot die.
//!
//! A fault is a line `KIND:…`; several are separated by `;` or line ends, `#` starts a comment. They come from the
//! environment (`PARTAGE_SIM_FAULTS`, for this process) and from the machine's control file (`faults`, for all its
//! processes, re-read within 20 ms of a change). Counting is per process and starts when a fault is read.
//!
//! | number | fault | effect |
//! |---|---|---|
//! | 1 | `oom:FUNCTION:WHEN` | the call answers OUT_OF_MEMORY and does nothing |
//! | 2 | `code:FUNCTION:WHEN:CODE` | the call answers CODE and does nothing; driver and NVML functions alike |
//! | 3 | `slow:FUNCTION:WHEN:MILLISECONDS` | the call takes longer |
//! | 4 | `copy:WHEN:CODE` | a copy fails with CODE, which then sticks to its context |
//! | 5 | `trap:KERNEL:WHEN:CODE` | a kernel ends with CODE, which then sticks to its context |
//! | 6 | `hang:KERNEL:WHEN` | a kernel never ends |
//! | 7 | `lost:DEVICE` | the device has fallen off the bus: NVML answers GPU_IS_LOST, contexts on it UNKNOWN (999) |
//! | 8 | `linger` | processes that die keep their device memory and their place in NVML's lists, until the line goes |
//! | 9 | `stuck:FUNCTION:WHEN` | the call never returns, whatever becomes of the line; driver and NVML alike |
//! | 10 | `inner:FUNCTION` | `cuGetProcAddress` answers with an address that is no export; FUNCTION may be `*` |
//! | 11 | `version:NUMBER` | the driver says that it is of this CUDA version, as `cuDriverGetVersion` counts |
//! | 12 | `shows:DEVICES` | the driver ignores `CUDA_VISIBLE_DEVICES` and shows DEVICES: indices, commas; `*` for all |
//! | 13 | `spared` | a synchronise that is a thread's first call in a checkpointed process waits: nothing dies of it |
//! | 14 | `heals` | a restore for which there is no room can be tried again |
//! | 15 | `imports` | no process can be restored, as if it had memory of another one |
//! | 16 | `spoils` | at level 595 a checkpoint that managed memory forbids ends the use of all contexts (719) |
//! | 17 | `stale` | after a restore on other devices the driver says the PCI addresses of those from before |
//! | 18 | `late` | NVML shows a process that was checkpointed for a second more |
//! | 19 | `stands:OPERATION` | a process that is asked to do OPERATION stands in it until the line goes |
//! | 20 | `dies:OPERATION:WHEN` | a process that is asked to do OPERATION is killed in it |
//! | 21 | `host:BYTES` | the host's programs have so much more of the memory that they share with a device |
//! | 22 | `untold` | NVML lists processes without their memory |
//! | 23 | `gpu:DEVICE:WHAT:VALUE` | NVML says VALUE of the device: see the table below |
//! | 24 | `xid:DEVICE:NUMBER` | NVML tells this error of the device, once for each such line that is added |
//!
//! WHEN is `3` (the third time), `3+` (from the third on), `%3` (every third) or `*`; FUNCTION is an exported symbol,
//! KERNEL a name or `*`; WHAT and VALUE are
//!
//! | WHAT | VALUE |
//! |---|---|
//! | `busy`, `memory-busy` | percent |
//! | `temperature` | degrees Celsius |
//! | `power` | watts |
//! | `throttle` | bits of NVML, added: 4 power cap, 32 thermal by software, 64 thermal by hardware |
//! | `ecc-corrected`, `ecc-uncorrected` | errors |
//! | `remap-pending`, `remap-failed` | 0 or 1 |
//! | `pcie-sent`, `pcie-received` | KiB a second |
//! | `nvlink-sent`, `nvlink-received` | KiB since the driver was loaded; a device without this line has no NVLink |
//!
//! OPERATION is `state`, `lock`, `checkpoint`, `restore` or `unlock`.

mod read;
mod rule;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

pub use read::check;
use read::read;
pub use rule::{CheckpointFault, KernelFault, Stated};
use rule::{Kind, Rule};

/// Re-reading the control file at most this often keeps `stat` off the path of every driver call.
const RECHECK_MS: u64 = 20;

/// All faults that are on in this process.
#[derive(Debug)]
pub struct Faults {
    environment: Vec<Rule>,
    control_file: RwLock<PathBuf>,
    /// Rules of the control file. Replaced as a whole and never freed: another thread may be reading.
    controlled: AtomicPtr<Vec<Rule>>,
    /// When the control file was last looked at, and what it was then.
    checked_ms: AtomicU64,
    stamp: AtomicU64,
}

impl Faults {
    /// Reads the faults of this process: `environment` is the value of `PARTAGE_SIM_FAULTS`, `folder` the machine's.
    pub fn new(environment: Option<&str>, folder: &Path) -> Self {
        let faults = Self {
            environment: environment.map(read).unwrap_or_default(),
            control_file: RwLock::new(control_file(folder)),
            controlled: AtomicPtr::new(Box::into_raw(Box::default())),
            checked_ms: AtomicU64::new(u64::MAX),
            stamp: AtomicU64::new(0),
        };
        faults.recheck();
        faults
    }

    /// From now on the control file is that of the machine in `folder`.
    pub fn follow(&self, folder: &Path) {
        *self.control_file.write().unwrap_or_else(PoisonError::into_inner) = control_file(folder);
    }

    /// Called at each entry: waits if the call is to be slow, for ever if it is to be stuck, and gives the code if it
    /// is to fail.
    pub fn on_call(&self, function: &str) -> Option<i32> {
        self.recheck();
        let mut code = None;
        for rule in self.rules() {
            match &rule.kind {
                Kind::Code {
                    function: named,
                    code: answer,
                } if named == function && rule.strikes() => {
                    code = Some(*answer);
                }
                Kind::Slow {
                    function: named,
                    milliseconds,
                } if named == function && rule.strikes() => {
                    std::thread::sleep(Duration::from_millis(*milliseconds));
                }
                Kind::Stuck { function: named } if named == function && rule.strikes() => loop {
                    // Parking may end without a reason.
                    std::thread::park();
                },
                _ => {}
            }
        }
        code
    }

    /// Called at each copy that is carried out: the code it is to fail with.
    pub fn on_copy(&self) -> Option<i32> {
        self.recheck();
        self.rules().find_map(|rule| match rule.kind {
            Kind::Copy { code } if rule.strikes() => Some(code),
            _ => None,
        })
    }

    /// Called at each kernel that is carried out.
    pub fn on_kernel(&self, kernel: &str) -> Option<KernelFault> {
        self.recheck();
        self.rules().find_map(|rule| match &rule.kind {
            Kind::Kernel { name, fault } if (name == "*" || name == kernel) && rule.strikes() => Some(*fault),
            _ => None,
        })
    }

    /// Whether a rule speaks of kernels, of those that were there when somebody last looked for new ones.
    pub fn concern_kernels(&self) -> bool {
        self.rules().any(|rule| matches!(rule.kind, Kind::Kernel { .. }))
    }

    /// Whether a device has fallen off the bus.
    pub fn is_lost(&self, device: usize) -> bool {
        self.recheck();
        self.rules().any(|rule| rule.kind == Kind::Lost { device })
    }

    /// The devices that the driver shows whatever the program's environment says: a value as of `CUDA_VISIBLE_DEVICES`,
    /// or none for all of them. The outer none: the environment counts.
    pub fn shown(&self) -> Option<Option<String>> {
        self.recheck();
        self.rules().find_map(|rule| match &rule.kind {
            Kind::Shows { devices } => Some(devices.clone()),
            _ => None,
        })
    }

    /// What the host's programs have of shared memory beyond what the profile says.
    pub fn host_bytes(&self) -> u64 {
        self.recheck();
        let bytes = self.rules().map(|rule| match rule.kind {
            Kind::Host { bytes } => bytes,
            _ => 0,
        });
        bytes.sum()
    }

    /// What NVML is to say of a device; none where it says what is.
    pub fn stated(&self, device: usize, what: Stated) -> Option<u64> {
        self.recheck();
        self.rules().find_map(|rule| match rule.kind {
            Kind::Stated {
                device: of,
                stated,
                value,
            } if of == device && stated == what => Some(value),
            _ => None,
        })
    }

    /// The errors that devices have had: device and number, in the order of their lines.
    pub fn xids(&self) -> Vec<(usize, u32)> {
        self.recheck();
        let xid = |rule: &Rule| match rule.kind {
            Kind::Xid { device, number } => Some((device, number)),
            _ => None,
        };
        self.rules().filter_map(xid).collect()
    }

    /// Whether NVML lists processes without their memory.
    pub fn is_untold(&self) -> bool {
        self.recheck();
        self.rules().any(|rule| rule.kind == Kind::Untold)
    }

    /// Whether dead processes keep what they held.
    pub fn is_lingering(&self) -> bool {
        self.recheck();
        self.rules().any(|rule| rule.kind == Kind::Linger)
    }

    /// Whether `cuGetProcAddress` hides the export of a function.
    pub fn is_inner(&self, symbol: &str) -> bool {
        self.recheck();
        self.rules()
            .any(|rule| matches!(&rule.kind, Kind::Inner { function } if function == "*" || function == symbol))
    }

    /// The CUDA version that the driver claims.
    pub fn version(&self) -> Option<i32> {
        self.recheck();
        self.rules().find_map(|rule| match rule.kind {
            Kind::Version { cuda } => Some(cuda),
            _ => None,
        })
    }

    /// Whether a fault of checkpoints is on.
    pub fn has(&self, fault: CheckpointFault) -> bool {
        self.recheck();
        self.rules().any(|rule| rule.kind == Kind::Checkpoint(fault))
    }

    /// Called in the middle of each operation on this process that another one asks for: stands there, or ends the
    /// process.
    pub fn on_operation(&self, operation: &str) {
        self.recheck();
        let dies = |rule: &Rule| matches!(&rule.kind, Kind::Dies { operation: named } if named == operation);
        if self.rules().any(|rule| dies(rule) && rule.strikes()) {
            // SAFETY: ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        let stands = |rule: &Rule| matches!(&rule.kind, Kind::Stands { operation: named } if named == operation);
        while self.rules().any(stands) {
            std::thread::sleep(Duration::from_millis(RECHECK_MS));
            self.recheck();
        }
    }

    fn rules(&self) -> impl Iterator<Item = &Rule> {
        // SAFETY: always a leaked box of ours, never freed.
        let controlled = unsafe { &*self.controlled.load(Ordering::Acquire) };
        self.environment.iter().chain(controlled)
    }

    fn recheck(&self) {
        let now = coarse_ms();
        let last = self.checked_ms.load(Ordering::Relaxed);
        let is_due = last == u64::MAX || now.saturating_sub(last) >= RECHECK_MS;
        if is_due
            && self
                .checked_ms
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            // The look is not part of what the program called for: a file that is not there must not show in its errno.
            // SAFETY: libc's per-thread variable.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: as above.
            let before = unsafe { *errno };
            self.read_control_file();
            // SAFETY: as above.
            unsafe { *errno = before };
        }
    }

    #[cold]
    fn read_control_file(&self) {
        use std::os::unix::fs::MetadataExt;
        let path = self.control_file.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stamp = std::fs::metadata(&path).map_or(0, |file| {
            // Any of these changes when the file is written or replaced; all zero cannot happen to a file.
            (file.mtime() as u64).rotate_left(32) ^ file.mtime_nsec() as u64 ^ file.ino().rotate_left(20) ^ file.size()
        });
        if self.stamp.swap(stamp, Ordering::Relaxed) == stamp {
            return;
        }
        let rules = std::fs::read_to_string(&path)
            .map(|text| read(&text))
            .unwrap_or_default();
        self.controlled.store(Box::into_raw(Box::new(rules)), Ordering::Release);
    }
}

fn control_file(folder: &Path) -> PathBuf {
    folder.join("faults")
}

fn coarse_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure; the coarse clock is read without a system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_for_the_control_file_leaves_no_errno() {
        let faults = Faults::new(None, Path::new("/nonexistent"));
        // SAFETY: libc's per-thread variable.
        unsafe { *libc::__errno_location() = 77 };
        // Due at the next call.
        faults.checked_ms.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(faults.on_call("cuInit"), None);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
    }

    fn faults(text: &str) -> Faults {
        Faults::new(Some(text), Path::new("/nonexistent"))
    }

    #[test]
    fn a_fault_strikes_at_its_time_only() {
        let faults = faults("oom:cuMemAlloc_v2:3; code:cuCtxSynchronize:2+:999 # later; code:x:*:1");
        let codes: Vec<_> = (0..5).map(|_| faults.on_call("cuMemAlloc_v2")).collect();
        assert_eq!(codes, [None, None, Some(2), None, None]);
        let codes: Vec<_> = (0..3).map(|_| faults.on_call("cuCtxSynchronize")).collect();
        assert_eq!(codes, [None, Some(999), Some(999)]);
        assert_eq!(faults.on_call("x"), None, "commented out");
    }

    #[test]
    fn kernels_copies_and_devices_have_faults_of_their_own() {
        let faults = faults("hang:spin:1;trap:*:%2:700;copy:2:719;lost:1");
        assert_eq!(faults.on_kernel("spin"), Some(KernelFault::Hang));
        assert_eq!(faults.on_kernel("other"), None);
        assert_eq!(faults.on_kernel("other"), Some(KernelFault::Trap(700)));
        assert_eq!(
            [faults.on_copy(), faults.on_copy(), faults.on_copy()],
            [None, Some(719), None]
        );
        assert!(faults.is_lost(1) && !faults.is_lost(0));
    }

    #[test]
    fn what_nvml_says_of_a_device_can_be_told() {
        let faults = faults("gpu:1:temperature:91; gpu:0:throttle:36; xid:0:79; xid:1:13; xid:0:79");
        assert_eq!(faults.stated(1, Stated::Temperature), Some(91));
        assert_eq!(faults.stated(0, Stated::Temperature), None, "it says what is");
        assert_eq!(faults.stated(0, Stated::Throttle), Some(36));
        assert_eq!(faults.xids(), [(0, 79), (1, 13), (0, 79)]);
    }

    #[test]
    fn nonsense_is_refused_with_what_is_expected() {
        for text in [
            "oom",
            "oom:f:0",
            "oom:f:x",
            "code:f:1:",
            "slow:f:1:-1",
            "lost:a",
            "linger:1",
            "stuck:f",
            "shows:",
            "explode:f:1",
            "stands:dump",
            "dies:lock",
            "dies:nothing:1",
            "late:1",
            "gpu:0:mood:1",
            "gpu:0:busy:much",
            "xid:0",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
        check("oom:f:1\n\n# nothing\ncode:f:%2:700;linger;stuck:f:*;dies:lock:1;stands:state").expect("readable");
    }

    #[test]
    fn faults_of_checkpoints_are_on_while_their_lines_stand() {
        let faults = faults("spared;late");
        assert!(faults.has(CheckpointFault::Spared) && faults.has(CheckpointFault::Late));
        assert!(!faults.has(CheckpointFault::Heals));
    }

    #[test]
    fn a_driver_can_be_made_to_show_what_it_likes() {
        assert_eq!(faults("linger").shown(), None, "the environment counts");
        assert_eq!(faults("shows:*").shown(), Some(None), "all");
        assert_eq!(faults("shows:1,0").shown(), Some(Some("1,0".to_owned())));
    }

    #[test]
    fn the_control_file_is_read_again_when_it_changes() {
        let folder = std::env::temp_dir().join(format!("partage-faults-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("folder");
        let faults = Faults::new(None, &folder);
        assert_eq!(faults.on_call("f"), None);
        std::fs::write(folder.join("faults"), "code:f:*:5").expect("write");
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while faults.on_call("f") != Some(5) {
            assert!(
                std::time::Instant::now() < deadline,
                "the new control file was never read"
            );
            std::thread::yield_now();
        }
        std::fs::remove_file(folder.join("faults")).expect("remove");
        while faults.on_call("f").is_some() {
            assert!(std::time::Instant::now() < deadline, "the removal was never seen");
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(&folder).expect("clean up");
    }
}
