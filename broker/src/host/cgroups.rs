// SPDX-License-Identifier: Apache-2.0
//! Control groups as `/proc/PID/cgroup` names them, and the containers that their paths tell of.
//!
//! The file has a line for each hierarchy: `ID:CONTROLLERS:PATH`. The unified hierarchy (cgroup v2) is `0::PATH`; a
//! hybrid host has it beside those of v1, often with the path `/`. A runtime makes a container's path in each hierarchy
//! that it uses, and writes the container's id into one part of it:
//!
//! | runtime | cgroupfs driver | systemd driver |
//! |---|---|---|
//! | podman | `/libpod_parent/libpod-ID` | `/machine.slice/libpod-ID.scope[/container]` |
//! | docker | `/docker/ID` | `/system.slice/docker-ID.scope` |
//! | containerd | `/kubepods/burstable/podUID/ID` | `/kubepods.slice/…/cri-containerd-ID.scope` |
//! | nerdctl | `/default/ID` | `/system.slice/nerdctl-ID.scope` |
//! | CRI-O | `/kubepods/…/crio-ID` | `/kubepods.slice/…/crio-ID.scope[/container]` |
//!
//! A containerd that is told a systemd path without the systemd driver makes
//! `…/kubepods-podUID.slice:cri-containerd:ID` of it. An id has 64 hexadecimal digits. The monitors of podman and CRI-O
//! (`libpod-conmon-ID.scope`, `crio-conmon-ID.scope`) are no containers.

use std::collections::BTreeSet;

use partage_policy::Cgroup;

/// Digits of an id.
const DIGITS: usize = 64;

/// What stands before the id, without the dash; nothing for a runtime that writes the id alone.
const RUNTIMES: [&str; 7] = [
    "libpod",
    "docker",
    "cri-containerd",
    "nerdctl",
    "crio",
    "containerd",
    "buildkit",
];

/// A container that a path tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// The control group that its runtime made for it: the path up to the part with the id.
    pub cgroup: Cgroup,
}

/// The lines of `/proc/PID/cgroup`; what is no line of it is left out.
#[must_use]
pub fn parse(text: &str) -> Vec<Cgroup> {
    let line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        // A path may have colons, a list of controllers has none.
        let (hierarchy, path) = rest.split_once(':')?;
        let is_line = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        (is_line && path.starts_with('/')).then(|| Cgroup {
            hierarchy: hierarchy.to_owned(),
            path: path.to_owned(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// The container that a process in these groups is in: of nested ones the innermost.
#[must_use]
pub fn container(cgroups: &[Cgroup]) -> Option<Container> {
    ordered(cgroups).into_iter().find_map(container_of)
}

/// The group that a process has of its own beside another one's groups: of its container, else its whole path. None
/// where it is in no other group than that process.
#[must_use]
pub fn own(cgroups: &[Cgroup], beside: &[Cgroup]) -> Option<Cgroup> {
    if let Some(found) = container(cgroups)
        && !beside.iter().any(|other| found.cgroup.holds(other))
    {
        return Some(found.cgroup);
    }
    let is_own = |group: &&Cgroup| group.path != "/" && !beside.iter().any(|other| group.holds(other));
    ordered(cgroups).into_iter().find(is_own).cloned()
}

/// The group of a process with this path; none where it is in none.
#[must_use]
pub fn of_path(cgroups: &[Cgroup], path: &str) -> Option<Cgroup> {
    let named = |group: &Cgroup| Cgroup {
        hierarchy: group.hierarchy.clone(),
        path: path.to_owned(),
    };
    let holds = |group: &&Cgroup| named(group).holds(group);
    ordered(cgroups).into_iter().find(holds).map(named)
}

/// The paths of a process that are another one than its path in the unified hierarchy, or systemd's. Rules read them:
/// under cgroup v1 a manager of jobs may use one hierarchy alone (Slurm the freezer's).
#[must_use]
pub fn others(main: Option<&str>, groups: Vec<Cgroup>) -> Vec<String> {
    let paths = groups.into_iter().map(|group| group.path);
    let paths: BTreeSet<String> = paths
        .filter(|path| Some(path.as_str()) != main && path != "/")
        .collect();
    paths.into_iter().collect()
}

/// The unified hierarchy first, then systemd's own, then the others as they come: all that have containers' paths have
/// the same.
fn ordered(cgroups: &[Cgroup]) -> Vec<&Cgroup> {
    let mut sorted: Vec<&Cgroup> = cgroups.iter().collect();
    sorted.sort_by_key(|group| match group.hierarchy.as_str() {
        "" => 0,
        "name=systemd" => 1,
        _ => 2,
    });
    sorted
}

fn container_of(group: &Cgroup) -> Option<Container> {
    let mut end = group.path.len();
    loop {
        let start = group.path[..end].rfind('/')?;
        if let Some(id) = id_in(&group.path[start + 1..end]) {
            let path = group.path[..end].to_owned();
            let hierarchy = group.hierarchy.clone();
            return Some(Container {
                id: id.to_owned(),
                cgroup: Cgroup { hierarchy, path },
            });
        }
        end = start;
    }
}

/// The id in one part of a path.
fn id_in(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let start = part.len().checked_sub(DIGITS)?;
    let (before, id) = (part.get(..start)?, part.get(start..)?);
    let is_id = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let runtime = before.strip_suffix(['-', ':']).unwrap_or(before);
    // `kubepods-podUID.slice:cri-containerd:ID`.
    let runtime = runtime.rsplit(':').next().unwrap_or(runtime);
    (is_id && (before.is_empty() || RUNTIMES.contains(&runtime))).then_some(id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

    fn group(hierarchy: &str, path: &str) -> Cgroup {
        Cgroup {
            hierarchy: hierarchy.into(),
            path: path.into(),
        }
    }

    /// Files as processes in containers have them; `|` stands behind the container's own group.
    const FILES: [&str; 17] = [
        // podman, v2: root and rootless, runc and crun (which adds a group below), in a pod.
        "0::/machine.slice/libpod-ID.scope|",
        "0::/machine.slice/libpod-ID.scope|/container/x",
        "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope|/container",
        "0::/libpod_parent/libpod-ID|",
        "0::/machine.slice/machine-libpod_pod_OTHER.slice/libpod-ID.scope|",
        // docker: v1 with either driver, v2, hybrid.
        "12:memory:/docker/ID\n11:cpu,cpuacct:/docker/ID\n1:name=systemd:/docker/ID|",
        "5:devices:/system.slice/docker-ID.scope|\n",
        "0::/system.slice/docker-ID.scope|",
        "2:pids:/docker/ID|\n0::/",
        // containerd under Kubernetes, and what it makes of a systemd path without the systemd driver.
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope|",
        "4:freezer:/kubepods/burstable/pod2f1e0c33-0b0e-4a2b-9d4f-7c0d3a2b1c00/ID|",
        "4:cpu:/system.slice/containerd.service/kubepods-burstable-podUID.slice:cri-containerd:ID|",
        "0::/default/ID|",
        "0::/system.slice/nerdctl-ID.scope|",
        // CRI-O.
        "0::/kubepods.slice/kubepods-podUID.slice/crio-ID.scope|/container",
        "8:memory:/kubepods/besteffort/pod2f1e0c33-0b0e-4a2b-9d4f-7c0d3a2b1c00/crio-ID|",
        // A container in a container: the inner one.
        "0::/system.slice/docker-OTHER.scope/docker/ID|/init.scope",
    ];

    /// The text with ids in place of their words.
    fn with_ids(text: &str) -> String {
        let uid = "2f1e0c33_0b0e_4a2b_9d4f_7c0d3a2b1c00";
        let text = text.replace("podUID", &format!("pod{uid}"));
        text.replace("OTHER", OTHER).replace("ID", ID)
    }

    #[test]
    fn the_other_paths_are_those_of_the_other_hierarchies_once_each() {
        let text = "9:freezer:/slurm_n1/uid_7/job_3\n8:pids:/user.slice\n7:cpu:/user.slice\n6:memory:/\n0::/a.scope\n";
        let paths = ["/slurm_n1/uid_7/job_3", "/user.slice"];
        assert_eq!(others(Some("/a.scope"), parse(text)), paths);
        assert_eq!(others(None, parse("0::/\n")), Vec::<String>::new());
    }

    #[test]
    fn containers_of_every_runtime_driver_and_hierarchy_are_found() {
        for file in FILES {
            let file = with_ids(file);
            let (line, _) = file.split_once('|').expect("a group is marked");
            let line = line.rsplit('\n').next().expect("a line");
            let wanted = Container {
                id: ID.to_owned(),
                cgroup: parse(line).remove(0),
            };
            assert_eq!(container(&parse(&file.replace('|', ""))), Some(wanted), "{file}");
        }
    }

    #[test]
    fn what_is_no_container_is_none() {
        for text in [
            "",
            "0::/",
            "0::/user.slice/user-1000.slice/session-4.scope",
            "0::/machine.slice/libpod-conmon-ID.scope",
            "0::/kubepods.slice/crio-conmon-ID.scope",
            "0::/machine.slice/libpod-payload.scope",
            "0::/system.slice/other-ID.scope",
            "0::/docker/0123456789abcdef",
            "0::/docker/ID0",
            "0::docker/ID",
            "x::/docker/ID",
            "0:/docker/ID",
            "4:freezer:/slurm_node/uid_1000/job_7/step_0",
        ] {
            assert_eq!(container(&parse(&with_ids(text))), None, "{text}");
        }
    }

    #[test]
    fn a_group_of_its_own_is_one_that_the_other_is_not_in() {
        let container = format!("/libpod_parent/libpod-{ID}");
        let theirs = parse(&format!("2:pids:{container}\n1:cpu:/shared\n0::/"));
        let ours = parse("2:pids:/libpod_parent/conmon\n1:cpu:/shared\n0::/");
        assert_eq!(own(&theirs, &ours), Some(group("pids", &container)));
        let below = parse(&format!("2:pids:{container}/x"));
        assert_eq!(own(&below, &ours), Some(group("pids", &container)));
        assert_eq!(
            own(&below, &theirs),
            Some(group("pids", &format!("{container}/x"))),
            "both inside it"
        );
        let plain = parse("2:pids:/made/by/hand\n0::/");
        assert_eq!(own(&plain, &ours), Some(group("pids", "/made/by/hand")));
        for other in ["2:pids:/made/by/hand\n0::/", "2:pids:/made/by/hand/below\n0::/"] {
            assert_eq!(own(&plain, &parse(other)), None, "{other}");
        }
        assert_eq!(of_path(&below, &container), Some(group("pids", &container)));
        assert_eq!(of_path(&below, "/libpod_parent"), Some(group("pids", "/libpod_parent")));
        assert_eq!(of_path(&below, "/elsewhere"), None);
    }

    proptest! {
        #[test]
        fn no_text_stops_the_parser(
            text in "([0-9]{0,2}:[a-z=,]{0,8}:(/(libpod-|docker-|:|é)?[0-9a-f]{0,70}(\\.scope)?){0,4}\n?){0,4}",
            noise in any::<String>(),
        ) {
            for text in [text, noise] {
                let cgroups = parse(&text);
                if let Some(found) = container(&cgroups) {
                    prop_assert_eq!(found.id.len(), DIGITS);
                    prop_assert!(found.cgroup.path.contains(&found.id));
                    prop_assert!(cgroups.iter().any(|group| found.cgroup.holds(group)));
                }
                let _ = own(&cgroups, &cgroups);
                let _ = of_path(&cgroups, &text);
            }
        }
    }
}
