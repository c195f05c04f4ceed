// SPDX-License-Identifier: Apache-2.0
//! Where the built programs are, and the small C clients built on first use.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that holds `partage`, `partaged`, `libpartage.so` and the simulator's libraries: `PARTAGE_TEST_BIN_DIR`,
/// or the build folder this test binary lies in.
pub fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("PARTAGE_TEST_BIN_DIR") {
        return PathBuf::from(dir);
    }
    let exe = std::env::current_exe().expect("the kernel knows this program's path");
    // target/<profile>/deps/cases-<hash>
    exe.parent()
        .and_then(Path::parent)
        .expect("a test binary lies two folders below the build folder")
        .to_owned()
}

/// One built file by name.
///
/// # Panics
/// When it is not there: the suite cannot say anything about a program that was not built.
pub fn built(name: &str) -> PathBuf {
    let path = bin_dir().join(name);
    assert!(
        path.exists(),
        "{} is not built: run `cargo build --workspace` (scripts/test does)",
        path.display()
    );
    path
}

/// This package's folder: where it was built, or `PARTAGE_TEST_SOURCES` on a machine to which the binary was carried.
pub fn package_dir() -> PathBuf {
    std::env::var_os("PARTAGE_TEST_SOURCES").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

fn sources() -> PathBuf {
    package_dir().join("programs")
}

/// The text of the PTX kernels that clients load.
pub fn kernels() -> PathBuf {
    package_dir().join("kernels/test_kernels.ptx")
}

/// A C program of `programs/`, built with the given extra arguments under the given name when it is missing or older
/// than its source. Carried binaries in `bin_dir()/programs` are used as they are.
///
/// # Panics
/// When the compiler refuses it.
pub fn program(name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let folder = bin_dir().join("programs");
    let path = folder.join(name);
    let from = sources().join(source);
    let is_fresh = match (path.metadata().and_then(|m| m.modified()), last_written(&from)) {
        (Ok(built), Some(written)) => built >= written,
        (Ok(_), None) => true,
        _ => false,
    };
    if is_fresh {
        return path;
    }
    std::fs::create_dir_all(&folder).expect("the build folder is writable");
    // Two test threads may build the same program: each writes its own file and renames it.
    let partial = folder.join(format!(
        ".{name}.{:?}.{}",
        std::thread::current().id(),
        std::process::id()
    ));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(&compiler)
        .args(["-O1", "-g", "-Wall", "-Wextra", "-o"])
        .arg(&partial)
        .arg(&from)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(
        output.status.success(),
        "{compiler} {source}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&partial, &path).expect("rename inside one folder");
    path
}

/// When a source, or any of the headers beside it, was last written. `None`: no sources are here.
fn last_written(source: &Path) -> Option<std::time::SystemTime> {
    let headers = std::fs::read_dir(sources()).into_iter().flatten().flatten();
    let headers = headers
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "h"));
    let times = headers
        .chain([source.to_owned()])
        .map(|path| path.metadata().and_then(|file| file.modified()));
    times.collect::<Result<Vec<_>, _>>().ok()?.into_iter().max()
}

/// The steerable client (`client.c`).
pub fn client() -> PathBuf {
    program("client", "client.c", &["-ldl", "-lpthread"])
}
