// SPDX-License-Identifier: Apache-2.0
//! Libraries of the vendor's that are loaded beside the stand-ins: they were found first, and will not work here.
//!
//! Looked for when a program registers a fat binary, at its first call and at its end: so one that comes later is named
//! too. The loader counts what it loads; while that count stands, a look costs one question.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

/// File names of libraries that have a stand-in begin so.
const KINDS: [&str; 14] = [
    "libcudart.so",
    "libcublas.so",
    "libcublasLt.so",
    "libcudnn",
    "libcufft.so",
    "libcufile.so",
    "libcurand.so",
    "libcusolver.so",
    "libcusparse.so",
    "libcusparseLt.so",
    "libnccl.so",
    "libcupti.so",
    "libnvToolsExt.so",
    "libnvshmem_host.so",
];

/// The paths that were said.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// How many libraries the loader had loaded at the last look.
static LOADED: AtomicU64 = AtomicU64::new(0);
/// The process that looked first. A child that it forked may lack the thread that holds the loader's lock.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Libraries that were loaded after the last call are named at the end.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = {
    extern "C" fn at_the_end() {
        if PROCESS.load(Ordering::Relaxed) != 0 {
            tell();
        }
    }
    at_the_end
};

/// Says which loaded libraries are not the stand-ins, once for each.
pub fn tell() {
    let own = std::process::id();
    let first = PROCESS.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|process| process != own) {
        return;
    }
    // Another thread is looking, or a call that this one interrupts.
    let Ok(mut said) = SAID.try_lock() else { return };
    let mut loaded: Vec<String> = Vec::new();
    // SAFETY: the callback gets what it was given, while this call lasts.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut loaded).cast()) };
    for (path, stand_in) in foreign(&loaded) {
        if !said.insert(path.to_owned()) {
            continue;
        }
        let line = match stand_in {
            Some(stand_in) => format!(
                "partage sim: {path} was loaded beside its stand-in {stand_in}: a program may call either, and this \
                 one needs a real GPU\n"
            ),
            None => format!(
                "partage sim: {path} was loaded in the place of its stand-in: it needs a real GPU. It lies before the \
                 machine's folder on a library path, or beside the program (PyTorch's wheel: install it with \
                 --no-deps)\n"
            ),
        };
        // SAFETY: the line's own bytes.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
}

/// The paths among these that are of a library with a stand-in and lie in another folder than the stand-ins, each with
/// the stand-in of its name where that is loaded as well.
fn foreign(loaded: &[String]) -> Vec<(&str, Option<&str>)> {
    // This file lies in the folder of the stand-ins, under the name of its link.
    let own = loaded.iter().find(|path| path.ends_with("/libpartage_sim_runtime.so"));
    let own = own.and_then(|path| Path::new(path).parent());
    let name = |path: &str| {
        Path::new(path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let is_own = |path: &str| Path::new(path).parent() == own;
    let is_foreign = |path: &&String| KINDS.iter().any(|kind| name(path).starts_with(kind)) && !is_own(path);
    let stand_in = |path: &String| {
        let same = |other: &&String| is_own(other) && name(other) == name(path);
        loaded.iter().find(same).map(String::as_str)
    };
    let found = loaded.iter().filter(is_foreign);
    found.map(|path| (path.as_str(), stand_in(path))).collect()
}

extern "C" fn take(info: *mut libc::dl_phdr_info, _size: usize, into: *mut c_void) -> c_int {
    // SAFETY: the loader's own entry, and the list that `tell` gave.
    let (info, into) = unsafe { (&*info, &mut *into.cast::<Vec<String>>()) };
    if into.is_empty() && LOADED.swap(info.dlpi_adds, Ordering::Relaxed) == info.dlpi_adds {
        return 1;
    }
    let path = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: the loader's text, which ends with a zero.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    into.push(path);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_from_elsewhere_is_found() {
        let loaded = [
            "/m/cuda/libcudart.so.12",
            "/m/cuda/libpartage_sim_runtime.so",
            "/site/nvidia/libcublas.so.12",
            "/site/nvidia/libcudart.so.12",
        ];
        let mut loaded: Vec<String> = loaded.map(str::to_owned).to_vec();
        let beside = Some("/m/cuda/libcudart.so.12");
        assert_eq!(
            foreign(&loaded),
            [
                ("/site/nvidia/libcublas.so.12", None),
                ("/site/nvidia/libcudart.so.12", beside)
            ]
        );
        loaded.truncate(2);
        assert!(foreign(&loaded).is_empty());
    }

    #[test]
    fn every_library_with_a_stand_in_is_looked_for() {
        for library in partage_stand_ins::libraries() {
            for (_, file) in library.files() {
                assert!(KINDS.iter().any(|kind| file.starts_with(kind)), "{file}");
            }
        }
    }
}
