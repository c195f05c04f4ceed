// SPDX-License-Identifier: Apache-2.0
//! The driver's nodes that a process has open (`/dev/nvidiactl`, `/dev/nvidia0`).

use std::path::{Path, PathBuf};

/// One of them, by its path; none where it has none.
#[must_use]
pub fn open_of(pid: u32) -> Option<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    let links = entries.into_iter().flatten().flatten();
    first(links.filter_map(|entry| std::fs::read_link(entry.path()).ok()))
}

fn first(mut links: impl Iterator<Item = PathBuf>) -> Option<String> {
    let is_node = |link: &PathBuf| {
        let name = link.strip_prefix("/dev").unwrap_or(Path::new("")).to_string_lossy();
        name.starts_with("nvidia")
    };
    links.find(is_node).map(|link| link.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_nodes_are_told_from_other_files() {
        let of = |links: &[&str]| first(links.iter().map(PathBuf::from));
        assert_eq!(
            of(&["/dev/null", "/tmp/dev/nvidia0", "socket:[4]", "/home/nvidia"]),
            None
        );
        assert_eq!(of(&["/dev/null", "/dev/nvidiactl"]).as_deref(), Some("/dev/nvidiactl"));
        assert_eq!(
            of(&["/dev/nvidia-caps/nvidia-cap1"]).as_deref(),
            Some("/dev/nvidia-caps/nvidia-cap1")
        );
    }
}
