// SPDX-License-Identifier: Apache-2.0
//! The NVIDIA driver: NVML, libcuda, the device files.
//!
//! A sick driver hangs in its first call, and a library that is loaded cannot be unloaded safely: a child asks, and is
//! killed when it does not answer.

use std::ffi::{c_char, c_int, c_uint};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{AccessFlags, ForkResult, access, fork, pipe2};
use partage_protocol::driver_place;

use super::check::Check;
use crate::launch::preflight::verdict::is_member_of;

/// A healthy driver answers in a second or two, with persistence mode off.
const PATIENCE: Duration = Duration::from_secs(10);

/// Driver and devices.
pub fn checks() -> Vec<Check> {
    let is_simulated = std::env::var_os("PARTAGE_SIM_DIR").is_some();
    let nvml = in_child("NVML", ask_nvml);
    let has_driver = nvml.state == super::check::State::Ok;
    let mut checks = vec![nvml];
    if has_driver {
        checks.push(in_child("libcuda", ask_cuda));
    }
    if is_simulated {
        checks.push(Check::ok("devices", "simulated (PARTAGE_SIM_DIR is set)"));
    } else if has_driver {
        checks.push(device_files(Path::new("/dev")));
    }
    checks
}

/// Runs a check in a child; what it says comes through a pipe as three lines.
fn in_child(name: &'static str, ask: fn() -> Result<String, (String, String)>) -> Check {
    let sick = |what: &str| {
        Check::fail(
            name,
            format!("the driver {what}"),
            "look at `dmesg` for NVRM and Xid lines; then reload the driver or reboot",
        )
    };
    let Ok((reader, writer)) = pipe2(nix::fcntl::OFlag::O_CLOEXEC) else {
        return sick("could not be asked: no pipe");
    };
    // SAFETY: this process has one thread, so the child may use everything that the parent may.
    match unsafe { fork() } {
        Err(_) => sick("could not be asked: no process"),
        Ok(ForkResult::Child) => {
            let text = match ask() {
                Ok(text) => format!("ok\n{text}\n"),
                Err((text, fix)) => format!("fail\n{text}\n{fix}\n"),
            };
            let _ = nix::unistd::write(&writer, text.as_bytes());
            // SAFETY: `_exit` only ends the child, without the driver's own clean-up, which may hang too.
            unsafe { libc::_exit(0) }
        }
        Ok(ForkResult::Parent { child }) => {
            drop(writer);
            let deadline = Instant::now() + PATIENCE;
            let has_answer = loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                match poll(&mut [PollFd::new(reader.as_fd(), PollFlags::POLLIN)], timeout) {
                    Err(nix::errno::Errno::EINTR) => {}
                    answer => break answer == Ok(1),
                }
            };
            if !has_answer {
                let _ = kill(child, Signal::SIGKILL);
                // Not waited for: a process that hangs in the driver does not die either, and init will have it.
                return sick(&format!("does not answer within {} s", PATIENCE.as_secs()));
            }
            let mut said = String::new();
            let _ = std::fs::File::from(reader).read_to_string(&mut said);
            let _ = waitpid(child, None);
            let mut lines = said.lines();
            match (lines.next(), lines.next(), lines.next()) {
                (Some("ok"), Some(text), _) => Check::ok(name, text),
                (Some("fail"), Some(text), Some(fix)) => Check::fail(name, text, fix),
                _ => sick("ended the process that asked it"),
            }
        }
    }
}

/// Opens a library where the broker would; the first failure explains itself best.
fn open(name: &str) -> Result<Library, libloading::Error> {
    let machine = std::env::var_os("PARTAGE_SIM_DIR");
    let folder = crate::launch::launch_broker::driver_folder();
    let mut failed = None;
    for path in driver_place::candidates(name, machine.as_deref(), folder.as_deref()) {
        // SAFETY: loading runs the vendor's constructors, in a child made for that.
        match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok(library),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or(libloading::Error::DlOpenUnknown))
}

/// The loader's own words, without the library's name where they begin with it.
fn reason(error: &libloading::Error, library: &str) -> String {
    let said = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    match said.strip_prefix(library).and_then(|rest| rest.strip_prefix(": ")) {
        Some(rest) => rest.to_owned(),
        None => said,
    }
}

/// That a library does not load, and what mends it.
fn absent(library: &str, error: &libloading::Error, fix: &str) -> (String, String) {
    let text = format!("{library} does not load: {}", reason(error, library));
    (text, fix.to_owned())
}

const NO_DRIVER: &str = "install the NVIDIA driver, or try: partage sim -- partage run ...";

fn ask_nvml() -> Result<String, (String, String)> {
    let library = open(driver_place::NVML).map_err(|error| absent("libnvidia-ml.so.1", &error, NO_DRIVER))?;
    let old = |_| ("libnvidia-ml.so.1 is not NVML".to_owned(), NO_DRIVER.to_owned());
    let failed = |what: &str, code: c_int| (format!("{what} failed with NVML error {code}"), advice(code));
    // SAFETY: the types are those of nvml.h for these names, unchanged since NVML 3.
    let (init, version, count) = unsafe {
        (
            library
                .get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0")
                .map_err(old)?,
            library
                .get::<unsafe extern "C" fn(*mut c_char, c_uint) -> c_int>(b"nvmlSystemGetDriverVersion\0")
                .map_err(old)?,
            library
                .get::<unsafe extern "C" fn(*mut c_uint) -> c_int>(b"nvmlDeviceGetCount_v2\0")
                .map_err(old)?,
        )
    };
    // SAFETY: nvmlInit_v2 takes nothing.
    let code = unsafe { init() };
    if code != 0 {
        return Err(failed("nvmlInit", code));
    }
    let mut text = [0_u8; 96];
    // SAFETY: the length given is the buffer's.
    let code = unsafe { version(text.as_mut_ptr().cast(), text.len() as c_uint) };
    if code != 0 {
        return Err(failed("nvmlSystemGetDriverVersion", code));
    }
    let version = String::from_utf8_lossy(text.split(|&b| b == 0).next().unwrap_or_default()).into_owned();
    let mut devices = 0;
    // SAFETY: the pointer is to a live number.
    let code = unsafe { count(&raw mut devices) };
    match (code, devices) {
        (0, 0) => Err((
            format!("driver {version}, no GPU"),
            "check that the GPU is seen: lspci -d 10de:".to_owned(),
        )),
        (0, _) => Ok(format!(
            "driver {version}, {}",
            crate::show::tables::count(devices as usize, "GPU")
        )),
        _ => Err(failed("nvmlDeviceGetCount", code)),
    }
}

/// What mends the NVML errors that users meet (`nvmlReturn_t`).
fn advice(code: c_int) -> String {
    match code {
        4 => "no permission for /dev/nvidiactl: join the group that owns it",
        9 => "load the kernel module: modprobe nvidia",
        18 => "library and kernel module are of two driver versions: reboot, or reload the module",
        15 => "a GPU fell off the bus: reboot",
        _ => "see nvmlReturn_t in NVIDIA's documentation; try nvidia-smi",
    }
    .to_owned()
}

fn ask_cuda() -> Result<String, (String, String)> {
    let fix = "install the driver's compute libraries (libcuda1, nvidia-driver-cuda), or mount them into the container";
    let missing = |error: libloading::Error| absent("libcuda.so.1", &error, fix);
    let library = open(driver_place::CUDA).map_err(missing)?;
    // SAFETY: the type is that of cuda.h since CUDA 2.2.
    let version = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0") };
    let version = version.map_err(missing)?;
    let mut number = 0;
    // SAFETY: the pointer is to a live number; the call needs no initialisation.
    match unsafe { version(&raw mut number) } {
        0 => {
            // SAFETY: only whether it is there is asked.
            let checkpoint = unsafe { library.get::<unsafe extern "C" fn()>(b"cuCheckpointProcessCheckpoint\0") };
            let suspend = match checkpoint {
                Ok(_) => "jobs can be suspended",
                Err(_) => "jobs cannot be suspended (that needs driver 570 or later)",
            };
            Ok(format!("CUDA {}.{}, {suspend}", number / 1000, number % 1000 / 10))
        }
        code => Err((
            format!("cuDriverGetVersion failed with {code}"),
            "try nvidia-smi".to_owned(),
        )),
    }
}

/// `/dev/nvidia*`: there, and open to the caller?
fn device_files(dev: &Path) -> Check {
    const NAME: &str = "devices";
    let entries = std::fs::read_dir(dev).into_iter().flatten().filter_map(Result::ok);
    let is_device = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()) && !rest.is_empty())
            || ["nvidiactl", "nvidia-uvm"].contains(&name)
    };
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| is_device(&entry.file_name().to_string_lossy()))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_char_device()))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    if files.is_empty() {
        // WSL reaches the GPU through one device of Windows'.
        return if dev.join("dxg").exists() {
            Check::ok(NAME, "/dev/dxg (WSL)")
        } else {
            let fix = "load the module: modprobe nvidia; in a container: start it with its GPUs (--gpus all)";
            Check::fail(NAME, format!("no nvidia devices in {}", dev.display()), fix)
        };
    }
    for file in &files {
        if let Err(errno) = access(file.as_path(), AccessFlags::R_OK | AccessFlags::W_OK) {
            let group = file.metadata().map(|data| data.gid()).unwrap_or(0);
            let fix = if is_member_of(group) {
                format!("chmod g+rw {}", file.display())
            } else {
                format!("join the group that owns it (gid {group}), or ask for it to be opened")
            };
            let text = format!("{}: {}", file.display(), errno.desc().to_lowercase());
            return Check::fail(NAME, text, fix);
        }
    }
    if !files.iter().any(|file| file.ends_with("nvidia-uvm")) {
        let fix = "load the module: modprobe nvidia-uvm";
        return Check::warn(NAME, format!("{} files, nvidia-uvm is missing", files.len()), fix);
    }
    Check::ok(NAME, format!("{} device files, all open to you", files.len()))
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn a_driver_that_hangs_or_dies_is_a_failed_check() {
        let died = in_child("x", || std::process::abort());
        assert_eq!(died.state, State::Fail);
        assert!(died.text.contains("ended the process"), "{}", died.text);
        assert_eq!(in_child("x", || Ok("fine".to_owned())), Check::ok("x", "fine"));
        let failed = in_child("x", || Err(("bad".to_owned(), "mend".to_owned())));
        assert_eq!(failed, Check::fail("x", "bad", "mend"));
    }

    #[test]
    fn a_machine_without_device_files_is_told() {
        let check = device_files(Path::new("/proc/self/fdinfo"));
        assert_eq!(check.state, State::Fail);
        assert!(check.text.contains("no nvidia devices"));
    }
}
