// SPDX-License-Identifier: Apache-2.0
//! Reads facts about processes from /proc. Only files that the kernel answers without the process's memory lock are
//! read: a process stuck in the driver must not stop the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use partage_policy::{Cgroup, Process};
use partage_protocol::private_broker;

use super::{cgroups, tasks, user_namespaces};

/// The parts of `/proc/PID/stat` that decide something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Which process.
    pub id: Process,
    /// Its parent's number.
    pub parent: u32,
    /// It has ended, or is ending. One whose first thread has ended lives as long as another of its threads.
    pub is_exiting: bool,
    /// A signal stopped it.
    pub is_stopped: bool,
    /// Where its program's code and stack begin; `exec` changes both. Zeros where we may not look.
    pub image: (u64, u64),
    /// Device number of its controlling terminal, 0 without one.
    pub terminal: u64,
}

/// Looks at processes; the real one reads /proc, tests bring a table.
pub trait Processes {
    /// One process, `None` when there is none.
    fn stat(&self, pid: u32) -> Option<Stat>;
    /// Real uid.
    fn uid(&self, pid: u32) -> Option<u32>;
    /// The name of its program, cut to 15 bytes by the kernel.
    fn name(&self, pid: u32) -> Option<String>;
    /// The name of its program's file; of one that cannot be read, `None`.
    fn program(&self, pid: u32) -> Option<String>;
    /// Its real group.
    fn gid(&self, pid: u32) -> Option<u32>;
    /// Its groups: real, effective and supplementary.
    fn groups(&self, pid: u32) -> Vec<u32>;
    /// Path of its cgroup in the unified hierarchy (or systemd's own), `None` where the kernel shows none.
    fn cgroup(&self, pid: u32) -> Option<String>;
    /// Its control group in each hierarchy.
    fn cgroups(&self, pid: u32) -> Vec<Cgroup> {
        let unified = |path| Cgroup {
            hierarchy: String::new(),
            path,
        };
        self.cgroup(pid).map(unified).into_iter().collect()
    }
    /// Is it in a user namespace that this user owns?
    fn is_in_namespace_of(&self, _pid: u32, _uid: u32) -> bool {
        false
    }
    /// Could this user, who is not root, signal it? As kill(2): by its real or saved user, or as the owner of the user
    /// namespace that it is in.
    fn may_be_signalled_by(&self, pid: u32, uid: u32) -> bool {
        self.uid(pid).is_none_or(|own| own == uid)
    }
    /// Numbers of all processes.
    fn all(&self) -> Vec<u32>;
    /// Has it a thread of this name, beside its first one?
    fn has_thread(&self, pid: u32, name: &str) -> bool;
    /// Can it reach this file of ours, by the same path? One in another root may not; where we lack it ourselves, or
    /// may not look, nobody can tell, and it counts as there.
    fn has_file(&self, _pid: u32, _path: &str) -> bool {
        true
    }
    /// Users whose private broker listens.
    fn private_brokers(&self) -> BTreeSet<u32>;
}

/// A process's number in its own pid namespace.
#[must_use]
pub fn inner_number(pid: u32) -> Option<u32> {
    inner(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "NSpid:")
}

/// A process's pid namespace, as the kernel names it.
#[must_use]
pub fn namespace(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(tasks::folder(pid).join("ns/pid")).ok()
}

/// The number here of the process that another one knows by a number of its own pid namespace. `None`: they share this
/// one's, or there is no such process.
#[must_use]
pub fn outer_number(inner: u32, of: u32, processes: &dyn Processes) -> Option<u32> {
    let theirs = namespace(of).filter(|theirs| Some(theirs) != namespace(std::process::id()).as_ref())?;
    let is_it = |pid: &u32| namespace(*pid).as_ref() == Some(&theirs) && inner_number(*pid) == Some(inner);
    processes.all().into_iter().find(is_it)
}

/// Does a process see the files, processes and users that this one sees? A name that it says means the same here only
/// then.
#[must_use]
pub fn shares_namespaces(pid: u32) -> bool {
    ["mnt", "pid", "user"].iter().all(|kind| {
        let of = |process: &Path| std::fs::read_link(process.join("ns").join(kind)).ok();
        let own = of(Path::new("/proc/self"));
        own.is_some() && own == of(&tasks::folder(pid))
    })
}

/// Is a process one of this broker's helpers: its child, of this very program?
#[must_use]
pub fn is_own_helper(pid: u32) -> bool {
    let parent = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let parent = parent.and_then(|text| Some(parse_stat(pid, &text)?.parent));
    let program = |process: &str| {
        let facts = std::fs::metadata(format!("/proc/{process}/exe")).ok()?;
        Some((facts.dev(), facts.ino()))
    };
    parent == Some(std::process::id()) && program("self").is_some_and(|own| program(&pid.to_string()) == Some(own))
}

/// Does a process belong to a session whose leader its own pid namespace does not show? CRIU saves no such process
/// (`item->sid == 0` in its `cr-dump.c`): it could not say at a restore whose session that was.
#[must_use]
pub fn session_began_outside(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|text| inner(&text, "NSsid:") == Some(0))
}

/// The last number in a line of `/proc/PID/status` with one for each pid namespace: that of the process's own.
fn inner(status: &str, line: &str) -> Option<u32> {
    let line = status.lines().find_map(|found| found.strip_prefix(line))?;
    line.split_whitespace().last()?.parse().ok()
}

/// The file of a process's namespace (`pid`, `mnt`) that is not this process's too.
#[must_use]
pub fn foreign_namespace(pid: u32, kind: &str) -> Option<PathBuf> {
    let path = tasks::folder(pid).join("ns").join(kind);
    let own = std::fs::read_link(format!("/proc/self/ns/{kind}")).ok();
    std::fs::read_link(&path)
        .ok()
        .filter(|theirs| own.as_ref() != Some(theirs))
        .map(|_| path)
}

/// What a process has open that CRIU is known to refuse, in words.
#[must_use]
pub fn undumpable(pid: u32) -> Option<&'static str> {
    const REFUSED: [(&str, &str); 4] = [
        ("anon_inode:[io_uring]", "an io_uring"),
        ("anon_inode:[perf_event]", "a performance counter"),
        ("/dev/fuse", "a file system of its own (/dev/fuse)"),
        ("/dev/gdrdrv", "GPU memory mapped by gdrcopy (/dev/gdrdrv)"),
    ];
    let entries = ["fd", "map_files"].map(|folder| std::fs::read_dir(format!("/proc/{pid}/{folder}")));
    let mut entries = entries
        .into_iter()
        .flatten()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    entries.find_map(|entry| {
        let link = std::fs::read_link(&entry).ok()?;
        let link = link.to_string_lossy();
        let listed = REFUSED.iter().find(|(name, _)| *name == link).map(|(_, what)| *what);
        listed.or_else(|| has_lost_its_name(pid, &entry, &link).then_some(LOST_ITS_NAME))
    })
}

/// Where POSIX has semaphores and shared memory on Linux.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// CRIU saves the name that such a file still has by a link beside it, which it removes when the processes go on. In
/// `/dev/shm` we save what it links to ourselves ([`shared`](crate::snapshot::shared)).
const LOST_ITS_NAME: &str = "a file under a name that was removed while it has another one (outside /dev/shm)";

/// [`SHARED_MEMORY`] as a process has it: a restored job has its own.
#[must_use]
pub fn shared_memory_of(pid: u32) -> PathBuf {
    tasks::folder(pid).join("root").join(&SHARED_MEMORY[1..])
}

fn has_lost_its_name(pid: u32, entry: &Path, link: &str) -> bool {
    let place = || std::fs::metadata(shared_memory_of(pid));
    let is_shared = |facts: &std::fs::Metadata| place().is_ok_and(|place| place.dev() == facts.dev());
    let is_lost = |facts: std::fs::Metadata| facts.is_file() && facts.nlink() > 0 && !is_shared(&facts);
    link.ends_with(" (deleted)") && std::fs::metadata(entry).is_ok_and(is_lost)
}

/// The machine's /proc.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proc;

/// A user of a process, by its place in the line of `/proc/PID/status`: real, effective, saved.
fn uid_in(status: &str, place: usize) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(place)?.parse().ok()
}

impl Processes for Proc {
    fn stat(&self, pid: u32) -> Option<Stat> {
        let of = |folder: &Path| parse_stat(pid, &std::fs::read_to_string(folder.join("stat")).ok()?);
        let process = PathBuf::from(format!("/proc/{pid}"));
        let first = of(&process)?;
        let other = first.is_exiting.then(|| tasks::living_thread(&process)).flatten();
        // A thread has a start time of its own.
        let other = other.and_then(|thread| of(&thread)).filter(|other| !other.is_exiting);
        Some(other.map_or(first, |other| Stat { id: first.id, ..other }))
    }

    fn uid(&self, pid: u32) -> Option<u32> {
        uid_in(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, 0)
    }

    fn may_be_signalled_by(&self, pid: u32, uid: u32) -> bool {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
            // It has ended.
            return true;
        };
        let (real, saved) = (uid_in(&status, 0), uid_in(&status, 2));
        real == Some(uid) || saved == Some(uid) || user_namespaces::is_in_one_of(pid, uid)
    }

    fn name(&self, pid: u32) -> Option<String> {
        let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
        Some(String::from_utf8_lossy(&name).trim_end().to_owned())
    }

    fn program(&self, pid: u32) -> Option<String> {
        // A link, which the kernel answers without the process's memory lock (`get_task_exe_file`).
        let path = std::fs::read_link(tasks::folder(pid).join("exe")).ok()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        // A file that was removed since, as the kernel marks it.
        Some(name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned))
    }

    fn gid(&self, pid: u32) -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Gid:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    fn groups(&self, pid: u32) -> Vec<u32> {
        std::fs::read_to_string(format!("/proc/{pid}/status")).map_or_else(|_| Vec::new(), |text| parse_groups(&text))
    }

    fn cgroup(&self, pid: u32) -> Option<String> {
        parse_cgroup(&std::fs::read_to_string(tasks::folder(pid).join("cgroup")).ok()?)
    }

    fn cgroups(&self, pid: u32) -> Vec<Cgroup> {
        let text = std::fs::read_to_string(tasks::folder(pid).join("cgroup"));
        text.map_or_else(|_| Vec::new(), |text| cgroups::parse(&text))
    }

    fn is_in_namespace_of(&self, pid: u32, uid: u32) -> bool {
        user_namespaces::is_in_one_of(pid, uid)
    }

    fn has_file(&self, pid: u32, path: &str) -> bool {
        let its = std::fs::symlink_metadata(tasks::folder(pid).join("root").join(path.trim_start_matches('/')));
        let is_missing = its.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        !is_missing || std::fs::symlink_metadata(path).is_err()
    }

    fn all(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect()
    }

    fn has_thread(&self, pid: u32, name: &str) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        let mut others = threads
            .into_iter()
            .flatten()
            .flatten()
            .filter(|thread| thread.file_name().to_str() != Some(pid.to_string().as_str()));
        others.any(|thread| {
            std::fs::read(thread.path().join("comm")).is_ok_and(|comm| comm.trim_ascii_end() == name.as_bytes())
        })
    }

    fn private_brokers(&self) -> BTreeSet<u32> {
        // Any user may bind a name that is no text.
        let table = std::fs::read(private_broker::SOCKETS).unwrap_or_default();
        let mut found = private_broker::listening(&String::from_utf8_lossy(&table));
        // Anybody may make a directory of that name, or a socket with that path in another mount namespace.
        found.retain(|uid| {
            let dir = std::fs::symlink_metadata(format!("{}{uid}", private_broker::PREFIX));
            dir.is_ok_and(|dir| dir.is_dir() && dir.uid() == *uid)
        });
        found
    }
}

/// The process's parents, nearest first; ends at init, at a vanished parent or after 256 steps.
pub fn ancestors(processes: &dyn Processes, pid: u32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut next = processes.stat(pid).map_or(0, |stat| stat.parent);
    while next > 1 && found.len() < 256 {
        let Some(stat) = processes.stat(next) else { break };
        // A parent is older than its child; a reused number is not.
        if found.last().is_some_and(|child: &Process| child.start < stat.id.start) {
            break;
        }
        found.push(stat.id);
        next = stat.parent;
    }
    found
}

/// The given processes and all their living descendants.
pub fn with_descendants(processes: &dyn Processes, roots: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in processes.all() {
        if let Some(stat) = processes.stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = roots.clone();
    let mut open: Vec<u32> = roots.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// The scope that a default-class job covers: the nearest enclosing `.scope`, `.service` or container of a cgroup path.
#[must_use]
pub fn login_scope(cgroup: &str) -> &str {
    let mut end = 0;
    let mut scope = None;
    for part in cgroup.split('/') {
        end += part.len();
        let is_container = part.len() >= 32 && part.bytes().filter(u8::is_ascii_hexdigit).count() >= 32;
        if part.ends_with(".scope") || part.ends_with(".service") || is_container {
            scope = Some(end);
        }
        end += 1;
    }
    scope.map_or(cgroup, |end| &cgroup[..end])
}

/// Identifies this boot: start times of another boot mean nothing.
#[must_use]
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut id = [0; 16];
    let mut digits = text.chars().filter_map(|digit| digit.to_digit(16));
    for byte in &mut id {
        let (Some(high), Some(low)) = (digits.next(), digits.next()) else {
            break;
        };
        *byte = (high * 16 + low) as u8;
    }
    id
}

fn parse_stat(pid: u32, text: &str) -> Option<Stat> {
    // The name may hold spaces and parentheses; the last one closes it.
    let rest = text.get(text.rfind(')')? + 2..)?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Numbered from 1 in proc(5); the first after the name is 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let state = fields.first()?.bytes().next()?;
    Some(Stat {
        id: Process { pid, start: field(22)? },
        parent: u32::try_from(field(4)?).ok()?,
        is_exiting: tasks::is_exiting(text),
        is_stopped: state == b'T',
        image: image(field(26).unwrap_or(0), field(28).unwrap_or(0)),
        terminal: field(7).unwrap_or(0),
    })
}

/// A reader without rights is shown code at 1 and a stack at 0 (`do_task_stat` in Linux's `fs/proc/array.c`).
fn image(code: u64, stack: u64) -> (u64, u64) {
    if stack == 0 { (0, 0) } else { (code, stack) }
}

fn parse_groups(status: &str) -> Vec<u32> {
    let lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("Gid:").or(line.strip_prefix("Groups:")));
    let mut groups: Vec<u32> = lines
        .flat_map(str::split_whitespace)
        .filter_map(|gid| gid.parse().ok())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn parse_cgroup(text: &str) -> Option<String> {
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    let systemd = text
        .lines()
        .find_map(|line| line.split_once(":name=systemd:").map(|(_, path)| path));
    // On hybrid hosts the unified entry exists but may say `/` while systemd's names the scope.
    let path = match (unified, systemd) {
        (Some("/") | None, Some(path)) => path,
        (Some(path), _) => path,
        (None, None) => return None,
    };
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_that_of_the_processes_own_namespace() {
        assert_eq!(
            inner("Name:\tNSsid: 1\nNSpid:\t9\t4\nNSsid:\t8\t0\n", "NSsid:"),
            Some(0)
        );
        assert_eq!(inner("Name:\tsh\nNSsid:\t5\n", "NSsid:"), Some(5));
        assert_eq!(inner("Name:\tsh\n", "NSsid:"), None);
        // SAFETY: getsid only asks.
        let own = unsafe { libc::getsid(0) };
        assert_eq!(session_began_outside(std::process::id()), own == 0);
    }

    #[test]
    fn own_process_and_its_parents_are_seen() {
        let me = std::process::id();
        let stat = Proc.stat(me).expect("we run");
        assert_eq!(stat.id.pid, me);
        assert!(!stat.is_exiting && stat.id.start > 0);
        assert_eq!(
            ancestors(&Proc, me).first().map(|id| id.pid),
            Some(std::os::unix::process::parent_id())
        );
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1234 0 0 0 11 12 13 0 0";
        let stat = parse_stat(7, text).expect("parsed");
        assert_eq!((stat.parent, stat.id.start, stat.is_exiting), (3, 1234, false));
        assert_eq!(stat.image, (11, 13));
        assert!(parse_stat(7, "7 (cut").is_none());
    }

    #[test]
    fn an_image_that_we_may_not_see_is_no_image() {
        let hidden = "7 (a) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1234 0 0 0 1 1 0 0 0";
        assert_eq!(parse_stat(7, hidden).expect("parsed").image, (0, 0));
    }

    #[test]
    fn descendants_include_a_grandchild() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut output, &mut line).expect("a number");
        let grandchild: u32 = line.trim().parse().expect("a number");
        let found = with_descendants(&Proc, &BTreeSet::from([std::process::id()]));
        assert!(found.contains(&child.id()) && found.contains(&grandchild));
        for pid in [grandchild, child.id()] {
            crate::host::pidfd::PidFd::open(pid)
                .expect("alive")
                .signal(libc::SIGKILL);
        }
        child.wait().expect("reaped");
    }

    #[test]
    fn groups_are_real_and_supplementary_ones() {
        let status = "Name:\tcat\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nGroups:\t27 100 1001 \n";
        assert_eq!(parse_groups(status), [27, 100, 1001]);
        assert_eq!(parse_groups("Name:\tcat\n"), Vec::<u32>::new());
    }

    #[test]
    fn scopes_are_cut_at_the_login_or_container() {
        let session = "/user.slice/user-1000.slice/session-4.scope/deeper";
        assert_eq!(login_scope(session), "/user.slice/user-1000.slice/session-4.scope");
        let container = format!("/system.slice/docker-{}.scope/init", "ab".repeat(32));
        assert_eq!(login_scope(&container), &container[..container.len() - 5]);
        let pod = format!("/kubepods/burstable/pod1/{}", "0f".repeat(32));
        assert_eq!(login_scope(&format!("{pod}/x")), pod);
        assert_eq!(login_scope("/"), "/");
    }
}
