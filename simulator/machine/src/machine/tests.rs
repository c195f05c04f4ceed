// SPDX-License-Identifier: Apache-2.0
//! A machine is made, opened, filled and refused.

use super::device::growth;
use super::*;
use crate::spec::{Bounds, MachineCode};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("partage-machine-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_machine_keeps_its_identity_and_its_devices_differ() {
    let folder = Folder::new("identity");
    let made = Machine::create(&folder.0, &Spec::new(3, "h200", Some(1 << 30))).expect("made");
    let again = Machine::open(&folder.0).expect("opened");
    let uuids = |machine: &Machine| machine.devices().iter().map(Device::uuid_text).collect::<Vec<_>>();
    assert_eq!(uuids(&made), uuids(&again));
    let mut distinct = uuids(&made);
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 3);
    assert!(matches!(
        Machine::create(&folder.0, &Spec::default()),
        Err(Error::Exists { .. })
    ));
}

#[test]
fn a_machine_with_a_name_has_the_same_devices_each_time() {
    let uuids = |name: &str| {
        let folder = Folder::new(&format!("named-{name}"));
        let mut spec = Spec::new(2, "h200", Some(1 << 30));
        spec.id = id_of(name);
        let made = Machine::create(&folder.0, &spec).expect("made");
        made.devices().iter().map(Device::uuid_text).collect::<Vec<_>>()
    };
    assert_eq!(uuids("default"), uuids("default"));
    assert_ne!(uuids("default"), uuids("default2"));
    assert_ne!(id_of("ab"), id_of("ba"));
    assert!(
        ["", "a", "default"]
            .iter()
            .all(|name| (1..=i64::MAX as u64).contains(&id_of(name)))
    );
}

#[test]
fn how_strict_a_machine_is_stands_in_its_file() {
    let folder = Folder::new("strict");
    let mut spec = Spec::new(1, "h200", Some(1 << 30));
    assert_eq!((spec.machine_code, spec.bounds), (MachineCode::Refuse, Bounds::Exact));
    (spec.machine_code, spec.bounds) = (MachineCode::NoOp, Bounds::Granule);
    let made = Machine::create(&folder.0, &spec).expect("made");
    let text = std::fs::read_to_string(made.folder().join("machine.toml")).expect("it is there");
    assert!(
        text.contains("machine_code = \"no-op\"") && text.contains("bounds = \"granule\""),
        "{text}"
    );
    // A file of an older machine says nothing of either.
    let older: String = text
        .lines()
        .filter(|line| !line.contains("\"no-op\"") && !line.contains("\"granule\""))
        .fold(String::new(), |all, line| all + line + "\n");
    std::fs::write(folder.0.join("machine.toml"), older).expect("writable");
    let opened = Machine::open(&folder.0).expect("opened");
    assert_eq!(
        (opened.spec().machine_code, opened.spec().bounds),
        (MachineCode::Refuse, Bounds::Exact)
    );
}

#[test]
fn memory_is_reserved_whole_or_not_at_all() {
    let folder = Folder::new("reserve");
    let mut spec = Spec::new(2, "l4", Some(1 << 30));
    spec.devices[0].context_bytes = Some(1 << 20);
    let machine = Machine::create(&folder.0, &spec).expect("made");
    let seat = machine.take_seat().expect("a seat");
    machine.open_context(seat, 0).expect("room");
    let rest = (1 << 30) - (1 << 20);
    assert_eq!(
        machine.reserve(seat, 0, rest + 1),
        Err(Shortage::Device(Full { free: rest }))
    );
    machine.reserve(seat, 0, rest).expect("exactly");
    assert_eq!((machine.free(0), machine.free(1)), (0, 1 << 30));
    machine.release(seat, 0, rest);
    machine.close_context(seat, 0);
    assert_eq!((machine.used(0), machine.occupants(0)), (0, vec![]));
    machine.reserve(seat, 1, 5).expect("room");
    machine.leave_seat(seat);
    assert_eq!(machine.used(1), 0);
}

#[test]
fn only_a_device_that_is_to_keep_pace_does() {
    let folder = Folder::new("pace");
    let mut spec = Spec::new(2, "l4", Some(1 << 30));
    spec.devices[1].keeps_pace = true;
    Machine::create(&folder.0, &spec).expect("made");
    let machine = Machine::open(&folder.0).expect("opened");
    let limits = machine
        .devices()
        .iter()
        .map(|device| device::settings(device).wake_limit_ns);
    assert_eq!(limits.collect::<Vec<_>>(), [Settings::default().wake_limit_ns, 0]);
}

#[test]
fn a_profile_file_becomes_part_of_the_machine() {
    let folder = Folder::new("profile");
    let file = Folder::new("profile-file");
    std::fs::create_dir_all(&file.0).expect("folder");
    let path = file.0.join("mine.toml");
    let text = "inherits = \"l4\"\nname = \"Mine\"\nmemory = 1_073_741_824\n[kernel_ns]\nspin = 5\n";
    std::fs::write(&path, text).expect("written");
    let asked = path.to_str().expect("utf-8");
    Machine::create(&folder.0, &Spec::new(1, asked, None)).expect("made");
    std::fs::remove_file(&path).expect("no longer needed");
    let machine = Machine::open(&folder.0).expect("opened");
    let Device { profile, memory, .. } = &machine.devices()[0];
    assert_eq!(
        (profile.name.as_str(), *memory, profile.kernel_ns["spin"]),
        ("Mine", 1 << 30, 5)
    );
    assert_eq!(profile.attribute(16), Some(58), "inherited");
}

#[test]
fn pools_of_small_devices_grow_in_small_steps() {
    let mib = |bytes: u64| bytes << 20;
    assert_eq!(growth(None, mib(32), mib(1 << 17)), mib(32));
    assert_eq!(growth(None, mib(32), mib(1024)), mib(16));
    assert_eq!(growth(None, mib(32), mib(200)), mib(2), "a whole number of pages");
    assert_eq!(growth(None, mib(32), mib(64)), mib(2));
    assert_eq!(growth(Some(1), mib(32), mib(1024)), mib(2));
    assert_eq!(growth(Some(mib(64)), mib(32), mib(1024)), mib(64));
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let folder = Folder::new("refused");
    let refused = |spec: &Spec| Machine::create(&folder.0, spec).err().expect("refused").to_string();
    assert!(refused(&Spec::new(0, "h200", None)).contains("1 to 16"));
    assert!(
        refused(&Spec {
            driver: 999,
            ..Spec::default()
        })
        .contains("550, 570, 580")
    );
    assert!(refused(&Spec::new(1, "h900", None)).contains("h200"));
    assert!(Machine::open(&folder.0).is_err());
}

/// A process that is number 1 of a PID namespace of its own, and takes part in a machine there.
struct Contained {
    outer: libc::pid_t,
    say: File,
    hear: File,
}

impl Contained {
    /// Starts it; `None` where the kernel does not let this user make namespaces. It answers each byte that it is sent
    /// with what `act` makes of it.
    fn start(folder: &Path, act: fn(&Machine, usize, u8) -> u8) -> Option<Self> {
        use std::io::{Read, Write};
        let (mut from_parent, say) = pipe();
        let (hear, mut to_parent) = pipe();
        // SAFETY: the child makes a namespace, forks again into it and ends; the grandchild serves bytes, then ends.
        let outer = unsafe { libc::fork() };
        if outer != 0 {
            drop((from_parent, to_parent));
            let mut made = Self { outer, say, hear };
            return made.hear.read_exact(&mut [0]).is_ok().then_some(made);
        }
        drop((say, hear));
        // SAFETY: as above.
        unsafe {
            let is_made =
                libc::unshare(libc::CLONE_NEWPID) == 0 || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) == 0;
            if !is_made {
                libc::_exit(1);
            }
            let inner = libc::fork();
            if inner != 0 {
                drop((from_parent, to_parent));
                libc::waitpid(inner, std::ptr::null_mut(), 0);
                libc::_exit(0);
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        let Ok(machine) = Machine::open(folder) else { ended() };
        let Ok(seat) = machine.take_seat() else { ended() };
        let mut byte = [b'!'];
        while to_parent.write_all(&byte).is_ok() && from_parent.read_exact(&mut byte).is_ok() {
            byte = [act(&machine, seat, byte[0])];
        }
        ended()
    }

    fn ask(&mut self, byte: u8) -> u8 {
        use std::io::{Read, Write};
        let mut answer = [0];
        self.say.write_all(&[byte]).expect("it listens");
        self.hear.read_exact(&mut answer).expect("it answers");
        answer[0]
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        // SAFETY: our own child; its child ends with it.
        unsafe {
            libc::kill(self.outer, libc::SIGKILL);
            libc::waitpid(self.outer, std::ptr::null_mut(), 0);
        }
    }
}

fn pipe() -> (File, File) {
    use std::os::fd::FromRawFd;
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are ours alone.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

fn ended() -> ! {
    // SAFETY: ends this process without running what belongs to its parent.
    unsafe { libc::_exit(0) }
}

/// Reserves so many MiB (1: it fits), or says whom it sees: for 0 how many occupants without a number, for 255 its own.
fn act(machine: &Machine, seat: usize, asked: u8) -> u8 {
    let occupants = machine.occupants(0);
    match asked {
        0 => occupants.iter().filter(|occupant| occupant.pid == 0).count() as u8,
        255 => occupants.iter().map(|occupant| occupant.pid as u8).max().unwrap_or(0),
        mib => u8::from(machine.reserve(seat, 0, u64::from(mib) << 20).is_ok()),
    }
}

#[test]
fn two_processes_that_are_number_1_of_their_namespaces_share_a_device() {
    let folder = Folder::new("namespaces");
    let machine = Machine::create(&folder.0, &Spec::new(1, "l4", Some(256 << 20))).expect("made");
    let Some(mut first) = Contained::start(&folder.0, act) else {
        println!("skipped: this kernel lets this user make no PID namespace");
        return;
    };
    let mut second = Contained::start(&folder.0, act).expect("as the first");
    assert_eq!(first.ask(200), 1, "there is room");
    assert_eq!(second.ask(100), 0, "and the other sees that it is taken");
    assert_eq!(second.ask(50), 1);
    assert_eq!(
        (first.ask(255), second.ask(255)),
        (1, 1),
        "each sees itself by its own number"
    );
    assert_eq!(
        (first.ask(0), second.ask(0)),
        (1, 1),
        "and that there is another, which has none here"
    );
    let seen = machine.occupants(0);
    assert_eq!(seen.iter().map(|occupant| occupant.used >> 20).sum::<u64>(), 250);
    assert!(
        seen.len() == 2 && seen[0].pid > 1 && seen[1].pid > 1 && seen[0].pid != seen[1].pid,
        "{seen:?}"
    );
    // It dies without a word: only the kernel knows.
    drop(first);
    while second.ask(200) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(machine.occupants(0).len(), 1);
}

#[test]
fn devices_whose_node_is_not_there_cannot_be_reached() {
    let folder = Folder::new("nodes");
    let machine = Machine::create(&folder.0, &Spec::new(3, "l4", Some(256 << 20))).expect("made");
    assert_eq!(machine.reachable(), [0, 1, 2]);
    std::fs::remove_file(node(&folder.0, 1)).expect("it was there");
    assert_eq!(machine.reachable(), [0, 2]);
}

#[test]
fn a_process_without_a_driver_holds_what_was_reserved_for_it_until_it_ends() {
    let folder = Folder::new("seat-for");
    let machine = Machine::create(&folder.0, &Spec::new(1, "h200", Some(1 << 30))).expect("made");
    let mut other = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("cat starts");
    // Its stack has its place for good only once the program runs, which is after `spawn` returns.
    let mut echo = [0];
    std::io::Write::write_all(other.stdin.as_mut().expect("piped"), b"x").expect("it reads");
    std::io::Read::read_exact(other.stdout.as_mut().expect("piped"), &mut echo).expect("it echoes");
    let seat = machine.let_in(other.id()).expect("it runs");
    machine.reserve(seat, 0, 1 << 20).expect("there is room");
    let seen = machine.occupants(0);
    assert_eq!(
        seen.iter().map(|one| (one.pid, one.used)).collect::<Vec<_>>(),
        [(other.id(), 1 << 20)]
    );
    other.kill().expect("ours");
    other.wait().expect("ours");
    assert_eq!((machine.used(0), machine.occupants(0)), (0, vec![]));
    assert_eq!(machine.let_in(other.id()), None, "it is gone");
}
