// SPDX-License-Identifier: Apache-2.0
//! Libraries of the vendor's that are loaded beside the stand-ins: they were found first, and will not work here.

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;

/// File names of libraries that have a stand-in begin so.
const KINDS: [&str; 12] = [
    "libcudart.so",
    "libcublas.so",
    "libcublasLt.so",
    "libcudnn",
    "libcufft.so",
    "libcurand.so",
    "libcusolver.so",
    "libcusparse.so",
    "libcusparseLt.so",
    "libnccl.so",
    "libcupti.so",
    "libnvshmem_host.so",
];

/// Says which libraries are not the stand-ins, once for each.
pub fn warn() {
    let mut loaded: Vec<String> = Vec::new();
    // SAFETY: the callback gets what it was given, while this call lasts.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut loaded).cast()) };
    for path in foreign(&loaded) {
        let line = format!(
            "partage sim: {path} was loaded in the place of its stand-in: it needs a real GPU. It lies before the \
             machine's folder on a library path, or beside the program (PyTorch's wheel: install it with --no-deps)\n"
        );
        // SAFETY: the line's own bytes.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
}

/// The paths among these that are of a library with a stand-in and lie in another folder than the stand-ins.
fn foreign(loaded: &[String]) -> Vec<&String> {
    // This file lies in the folder of the stand-ins, under the name of its link.
    let own = loaded.iter().find(|path| path.ends_with("/libpartage_sim_runtime.so"));
    let own = own.and_then(|path| Path::new(path).parent());
    let is_foreign = |path: &&String| {
        let path = Path::new(path.as_str());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        KINDS.iter().any(|kind| name.starts_with(kind)) && path.parent() != own
    };
    loaded.iter().filter(is_foreign).collect()
}

extern "C" fn take(info: *mut libc::dl_phdr_info, _size: usize, into: *mut c_void) -> c_int {
    // SAFETY: the loader's own entry, and the list that `warn` gave.
    let (info, into) = unsafe { (&*info, &mut *into.cast::<Vec<String>>()) };
    if !info.dlpi_name.is_null() {
        // SAFETY: the loader's text, which ends with a zero.
        into.push(unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned());
    }
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
        ];
        let mut loaded: Vec<String> = loaded.map(str::to_owned).to_vec();
        assert_eq!(foreign(&loaded), ["/site/nvidia/libcublas.so.12"]);
        loaded.truncate(2);
        assert!(foreign(&loaded).is_empty());
    }
}
