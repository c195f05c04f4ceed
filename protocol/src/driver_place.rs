// SPDX-License-Identifier: Apache-2.0
//! Where the driver's libraries are looked for: one rule for the broker, `run` and `doctor`.
//!
//! A broker is started without the caller's `LD_LIBRARY_PATH`, which belongs to a job. Where only that variable leads
//! to the driver (cloud images, environment modules, conda), a command writes the folder into the file [`FILE`] of its
//! own broker's directory, and the broker reads it each time it looks for the driver.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// In the directory of a private broker: the folder of the driver's libraries, as the last command found it.
pub const FILE: &str = "driver";
/// NVML.
pub const NVML: &str = "libnvidia-ml.so.1";
/// The driver.
pub const CUDA: &str = "libcuda.so.1";

/// Where distributions without the driver in the loader's path keep it.
const KNOWN: [&str; 2] = ["/run/opengl-driver/lib", "/usr/lib/wsl/lib"];

/// What to hand to the loader for a library, in this order: a simulated machine's own and nothing else; else what the
/// loader finds by name; the folder that a command found; the known folders.
#[must_use]
pub fn candidates(library: &str, machine: Option<&OsStr>, found: Option<&Path>) -> Vec<PathBuf> {
    if let Some(machine) = machine {
        return vec![Path::new(machine).join("lib").join(library)];
    }
    let folders = found.into_iter().chain(KNOWN.map(Path::new));
    std::iter::once(PathBuf::from(library))
        .chain(folders.map(|folder| folder.join(library)))
        .collect()
}

/// The first folder of a value of `LD_LIBRARY_PATH` that has the library. A relative folder is none: a broker has
/// another working folder.
#[must_use]
pub fn in_search_path(library: &str, value: &OsStr, is_file: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    value
        .as_bytes()
        .split(|byte| *byte == b':' || *byte == b';')
        .map(|folder| Path::new(OsStr::from_bytes(folder)))
        .find(|folder| folder.is_absolute() && is_file(&folder.join(library)))
        .map(Path::to_path_buf)
}

/// The folder in the bytes of [`FILE`]; none when they are no absolute path.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(bytes));
    (path.is_absolute() && !bytes.contains(&0)).then(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_its_own_and_a_host_what_the_loader_finds_first() {
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(
            candidates(NVML, Some(OsStr::new("/m")), Some(Path::new("/opt/d"))),
            [path("/m/lib/libnvidia-ml.so.1")]
        );
        let of = candidates(CUDA, None, Some(Path::new("/opt/d")));
        assert_eq!(of[..2], [path("libcuda.so.1"), path("/opt/d/libcuda.so.1")]);
        assert_eq!(candidates(CUDA, None, None).len(), 3);
    }

    #[test]
    fn the_first_absolute_folder_that_has_it_counts() {
        let has = |path: &Path| path == Path::new("/b/libcuda.so.1") || path == Path::new("c/libcuda.so.1");
        let find = |value: &str| in_search_path(CUDA, OsStr::new(value), has);
        assert_eq!(find("/a:/b:/c"), Some("/b".into()));
        assert_eq!(find("c:"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn what_is_no_absolute_path_is_not_read() {
        assert_eq!(read(b"/opt/driver"), Some("/opt/driver".into()));
        for bytes in [&b""[..], b"opt", b"/a\0b"] {
            assert_eq!(read(bytes), None);
        }
    }
}
