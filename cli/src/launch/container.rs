// SPDX-License-Identifier: Apache-2.0
//! What this process is shut into, and which GPUs it was given there.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A runtime's container, or namespaces of whatever origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// In words: `a container of podman (3f2a…)`, `a pid namespace of its own`.
    pub what: String,
    /// Its cgroup is one that a runtime made. A file in the root may be of the image that a virtual machine runs.
    pub is_of_runtime: bool,
}

/// The number of the first pid namespace on every kernel (`PID_NS_INIT_INO` of <linux/nsfs.h>).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What this process is in. `None`: on the host, as far as it can tell.
pub fn here() -> Option<Container> {
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let pid_namespace = std::fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino());
    found(
        &cgroup,
        |mark| Path::new(mark).exists(),
        pid_namespace.is_ok_and(|number| number != FIRST_PID_NAMESPACE),
    )
}

/// What runtimes leave in a container, with their names: files in its root, and what its cgroup is called.
const FILES: [(&str, &str); 2] = [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")];
const CGROUPS: [(&str, &str); 4] = [
    ("libpod-", "podman"),
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("crio-", "CRI-O"),
];

fn found(cgroup: &str, exists: impl Fn(&str) -> bool, has_pid_namespace: bool) -> Option<Container> {
    let by_cgroup = cgroup.split(['/', '\n']).find_map(|part| {
        let (prefix, runtime) = CGROUPS.iter().find(|(prefix, _)| part.starts_with(prefix))?;
        let id: String = part[prefix.len()..]
            .chars()
            .take_while(char::is_ascii_hexdigit)
            .take(12)
            .collect();
        (id.len() == 12).then(|| format!("a container of {runtime} ({id})"))
    });
    let by_file = || {
        let (_, runtime) = FILES.iter().find(|(file, _)| exists(file))?;
        Some(format!("a container of {runtime}"))
    };
    let is_of_runtime = by_cgroup.is_some();
    let made = by_cgroup.or_else(by_file);
    let by_namespace = || has_pid_namespace.then(|| "a pid namespace of its own".to_owned());
    let what = made.or_else(by_namespace)?;
    Some(Container { what, is_of_runtime })
}

/// [`openable_nodes`] of a container, which may have been given some of the machine's GPUs only; 0 on the host.
pub fn given_nodes() -> u32 {
    here().map_or(0, |_| openable_nodes())
}

/// Bit N for the node `/dev/nvidiaN` that this process may read and write; 0 where there is none.
pub fn openable_nodes() -> u32 {
    // A simulated machine has its nodes in its own folder.
    let root = std::env::var_os("PARTAGE_SIM_DIR").map_or(PathBuf::from("/"), PathBuf::from);
    let can_open = |number: &u32| {
        let path = root.join("dev").join(format!("nvidia{number}"));
        let Ok(path) = CString::new(path.into_os_string().into_vec()) else {
            return false;
        };
        // SAFETY: a C string that lives during the call. The kernel asks the device cgroup, too.
        unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
    };
    (0..32).filter(can_open).fold(0, |found, number| found | 1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_cgroup_its_files_or_its_namespace() {
        let what = |cgroup: &str, file: &str, is_own: bool| {
            found(cgroup, |mark| mark == file, is_own).map(|container| container.what)
        };
        let id = "3f2a91c0d4e55f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8";
        for (path, runtime) in [
            (format!("0::/libpod_parent/libpod-{id}\n"), "podman"),
            (format!("0::/system.slice/docker-{id}.scope\n"), "docker"),
            (
                format!("0::/kubepods.slice/x.slice/cri-containerd-{id}.scope\n"),
                "containerd",
            ),
            (format!("1:name=systemd:/kubepods/crio-{id}/init\n"), "CRI-O"),
        ] {
            let expected = format!("a container of {runtime} (3f2a91c0d4e5)");
            assert_eq!(what(&path, "", true), Some(expected), "{path}");
        }
        assert_eq!(
            what("0::/\n", "/.dockerenv", true).as_deref(),
            Some("a container of docker")
        );
        assert_eq!(what("0::/\n", "", true).as_deref(), Some("a pid namespace of its own"));
        assert_eq!(what("0::/user.slice/session-1.scope/docker-compose\n", "", false), None);
    }
}
