// SPDX-License-Identifier: Apache-2.0
//! The machine's devices through killable helper processes (`nvml_helper.rs`), without ever waiting for one.
//!
//! ```text
//!             Open                 Devices               look() / period
//!   start ───────────► opening ───────────────► resting ◄──────────────► sampling, one device after the other
//!     ▲                   │ deadline, error,                                │ deadline or error on device X
//!     │ back-off          ▼ death                                           ▼
//!   (none) ◄──────── helper killed ◄──────────────────────────── X is lost; a helper of its own asks for X
//! ```
//!
//! The main helper never asks a lost device again, so that one hung device costs the others one deadline once. A lost
//! device is tried by a helper of its own, with growing pauses, until it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use partage_protocol::units::SECOND_NS;
use tracing::{info, warn};

use super::gpu::{DeviceFacts, Driver, Gpu, GpuEvent, Look};
use super::nvml_helper::{Answer, Ask};
use crate::error::Error;

/// A driver that starts a cold eight-device node without persistence mode needs some 2 s a device.
const OPEN_DEADLINE_NS: u64 = 30 * SECOND_NS;
/// A look takes a few milliseconds; while a device resets, a second.
const SAMPLE_DEADLINE_NS: u64 = 3 * SECOND_NS;
/// First and longest pause before a failed helper is started again.
const PAUSE_NS: (u64, u64) = (SECOND_NS / 2, 30 * SECOND_NS);
/// Longest line a helper may send: thousands of processes fit.
const LONGEST_LINE: usize = 4 << 20;

/// How helpers are started: the program and its arguments.
#[derive(Clone, Debug)]
pub struct HelperCommand {
    /// Program.
    pub program: std::path::PathBuf,
    /// Arguments.
    pub arguments: Vec<String>,
}

impl HelperCommand {
    /// This very program again, even when its file was replaced since.
    #[must_use]
    pub fn own() -> Self {
        Self {
            program: "/proc/self/exe".into(),
            arguments: vec!["--nvml-helper".to_owned()],
        }
    }
}

/// All helpers.
#[derive(Debug)]
pub struct Nvml {
    command: HelperCommand,
    epoll: Epoll,
    main: Slot,
    /// Lost devices, each with the helper that tries it.
    lost: BTreeMap<String, Slot>,
    devices: Vec<DeviceFacts>,
    driver: Option<Driver>,
    /// Every device that is listed is wanted, or will be once they are.
    wants_all: bool,
    /// Devices to be looked at.
    wanted: BTreeSet<String>,
    ended: Vec<Child>,
}

/// One helper or the pause before the next.
#[derive(Debug)]
struct Slot {
    helper: Option<Helper>,
    start_at_ns: u64,
    pause_ns: u64,
}

#[derive(Debug)]
struct Helper {
    child: Child,
    socket: UnixStream,
    line: Vec<u8>,
    places: Vec<String>,
    /// The place that was looked at last: the next one's turn comes first.
    last: usize,
    /// The look that begins with the next `begin`.
    announced: Option<usize>,
    asked: Option<Asked>,
}

#[derive(Clone, Debug)]
struct Asked {
    what: Ask,
    at_ns: u64,
    deadline_ns: u64,
}

impl Slot {
    fn at(start_at_ns: u64) -> Self {
        Self {
            helper: None,
            start_at_ns,
            pause_ns: PAUSE_NS.0,
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        match &self.helper {
            Some(helper) => helper.asked.as_ref().map(|asked| asked.deadline_ns),
            None => Some(self.start_at_ns),
        }
    }
}

impl Helper {
    fn start(command: &HelperCommand, now_ns: u64) -> std::io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut start = Command::new(&command.program);
        start
            .args(&command.arguments)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
        start.stdout(Stdio::null()).stderr(Stdio::null());
        // The helper is no client: a preloaded library would hook its NVML.
        for name in ["LD_PRELOAD", "LD_AUDIT", "PARTAGE_TOKEN"] {
            start.env_remove(name);
        }
        let child = start.spawn()?;
        let mut helper = Self {
            child,
            socket: ours,
            line: Vec::new(),
            places: Vec::new(),
            last: 0,
            announced: None,
            asked: None,
        };
        helper.ask(Ask::Open, now_ns, OPEN_DEADLINE_NS);
        Ok(helper)
    }

    /// Free for another request.
    fn is_idle(&self) -> bool {
        self.asked.is_none() && self.announced.is_none()
    }

    fn announce(&mut self, place: usize, out: &mut Vec<GpuEvent>) {
        if let Some(uuid) = self.places.get(place).cloned() {
            self.announced = Some(place);
            out.push(GpuEvent::Asking { uuid });
        }
    }

    /// Begins the look that was announced.
    fn begin(&mut self, now_ns: u64) {
        if let Some(place) = self.announced.take() {
            self.last = place;
            self.ask(Ask::Sample(place), now_ns, SAMPLE_DEADLINE_NS);
        }
    }

    fn ask(&mut self, what: Ask, now_ns: u64, patience_ns: u64) {
        let mut line = serde_json::to_vec(&what).unwrap_or_default();
        line.push(b'\n');
        // One short request at a time fits the socket's buffer; a write that fails is a helper that is gone, which the
        // next read or the deadline finds.
        let _ = self.socket.write_all(&line);
        self.asked = Some(Asked {
            what,
            at_ns: now_ns,
            deadline_ns: now_ns + patience_ns,
        });
    }

    /// The next whole answer; an error when the helper is gone or talks nonsense.
    fn answer(&mut self) -> Result<Option<Answer>, String> {
        let mut buffer = [0; 65536];
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                let answer = serde_json::from_slice(&line).map_err(|error| format!("helper said nonsense: {error}"))?;
                return Ok(Some(answer));
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err("helper ended".to_owned()),
                Ok(count) if self.line.len() + count <= LONGEST_LINE => self.line.extend_from_slice(&buffer[..count]),
                Ok(_) => return Err("helper talks without end".to_owned()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Nvml {
    /// No helper runs yet; the first [`Gpu::events`] starts one.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn new(command: HelperCommand) -> Result<Self, Error> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::system("make an epoll set"))?;
        Ok(Self {
            command,
            epoll,
            main: Slot::at(0),
            lost: BTreeMap::new(),
            devices: Vec::new(),
            driver: None,
            wants_all: false,
            wanted: BTreeSet::new(),
            ended: Vec::new(),
        })
    }

    /// Readable when [`Gpu::events`] has something to do.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    fn start(&mut self, slot: &mut Slot, now_ns: u64) {
        match Helper::start(&self.command, now_ns) {
            Ok(helper) => {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
                if let Err(error) = self.epoll.add(&helper.socket, event) {
                    warn!(%error, "helper cannot be watched");
                }
                slot.helper = Some(helper);
            }
            Err(error) => {
                warn!(%error, "NVML helper does not start");
                self.pause(slot, now_ns);
            }
        }
    }

    /// Ends the slot's helper and sets the time of the next. A helper stuck in the driver dies when it can.
    fn end(&mut self, slot: &mut Slot, now_ns: u64) {
        if let Some(mut helper) = slot.helper.take() {
            let _ = self.epoll.delete(&helper.socket);
            let _ = helper.child.kill();
            self.ended.push(helper.child);
        }
        self.pause(slot, now_ns);
    }

    fn pause(&mut self, slot: &mut Slot, now_ns: u64) {
        slot.start_at_ns = now_ns + slot.pause_ns;
        slot.pause_ns = (slot.pause_ns * 2).min(PAUSE_NS.1);
    }

    fn set_driver(&mut self, driver: Driver, out: &mut Vec<GpuEvent>) {
        if self.driver.as_ref() != Some(&driver) {
            info!(driver = driver.sentence(), "driver state");
            self.driver = Some(driver.clone());
            out.push(GpuEvent::Driver(driver));
        }
    }

    /// The main helper: lists, then looks at every device that is not lost.
    fn drive_main(&mut self, now_ns: u64, out: &mut Vec<GpuEvent>) {
        let mut slot = std::mem::replace(&mut self.main, Slot::at(0));
        if slot.helper.is_none() && now_ns >= slot.start_at_ns {
            self.start(&mut slot, now_ns);
        }
        while let Some(helper) = &mut slot.helper {
            match helper.answer() {
                Ok(Some(answer)) => {
                    let asked = helper.asked.take();
                    if let Err(why) = self.take_main(&mut slot, asked, answer, now_ns, out) {
                        self.fail_main(&mut slot, None, why, now_ns, out);
                    }
                }
                Ok(None) => {
                    if let Some(asked) = helper.asked.clone().filter(|asked| now_ns >= asked.deadline_ns) {
                        let why = "no answer within the deadline".to_owned();
                        self.fail_main(&mut slot, Some(asked), why, now_ns, out);
                    }
                    break;
                }
                Err(why) => {
                    let asked = helper.asked.take();
                    self.fail_main(&mut slot, asked, why, now_ns, out);
                }
            }
        }
        if let Some(helper) = &mut slot.helper
            && helper.is_idle()
        {
            if std::mem::take(&mut self.wants_all) {
                self.wanted.extend(helper.places.iter().cloned());
            }
            let (lost, wanted) = (&self.lost, &self.wanted);
            let count = helper.places.len();
            let is_next = |place: &usize| {
                let uuid = &helper.places[*place];
                wanted.contains(uuid) && !lost.contains_key(uuid)
            };
            let next = (1..=count).map(|step| (helper.last + step) % count).find(is_next);
            match next {
                Some(place) => {
                    self.wanted.remove(&helper.places[place]);
                    helper.announce(place, out);
                }
                // What is left is lost, or not there.
                None => self.wanted.clear(),
            }
        }
        self.main = slot;
    }

    fn take_main(
        &mut self,
        slot: &mut Slot,
        asked: Option<Asked>,
        answer: Answer,
        now_ns: u64,
        out: &mut Vec<GpuEvent>,
    ) -> Result<(), String> {
        let (Some(asked), Some(helper)) = (asked, &mut slot.helper) else {
            return Err("helper answered what was not asked".to_owned());
        };
        match (asked.what, answer) {
            (Ask::Open, Answer::Devices(devices)) => {
                slot.pause_ns = PAUSE_NS.0;
                helper.places = devices.iter().map(|device| device.uuid.clone()).collect();
                // The first one's turn is next.
                helper.last = helper.places.len().saturating_sub(1);
                self.wants_all = true;
                let is_new = self.driver != Some(Driver::Ok);
                self.set_driver(Driver::Ok, out);
                if is_new || self.devices != devices {
                    self.devices = devices.clone();
                    out.push(GpuEvent::Devices(devices));
                }
            }
            (Ask::Open, Answer::Driver(driver)) => {
                self.set_driver(driver, out);
                self.end(slot, now_ns);
            }
            (Ask::Sample(place), Answer::Sample(sample)) => {
                let uuid = helper.places.get(place).cloned().unwrap_or_default();
                out.push(GpuEvent::Sample {
                    uuid,
                    asked_ns: asked.at_ns,
                    sample,
                });
            }
            (Ask::Sample(place), Answer::Lost(why)) => {
                let uuid = helper.places.get(place).cloned().unwrap_or_default();
                self.lose(uuid, why, now_ns, out);
            }
            (_, answer) => return Err(format!("helper answered {answer:?}")),
        }
        Ok(())
    }

    fn fail_main(&mut self, slot: &mut Slot, asked: Option<Asked>, why: String, now_ns: u64, out: &mut Vec<GpuEvent>) {
        warn!(why, ?asked, "NVML helper failed");
        let place = match asked.map(|asked| asked.what) {
            Some(Ask::Sample(place)) => Some(place),
            Some(Ask::Open) => {
                self.set_driver(Driver::Failed(why.clone()), out);
                None
            }
            None => None,
        };
        let uuid = slot
            .helper
            .as_ref()
            .and_then(|helper| helper.places.get(place?).cloned());
        self.end(slot, now_ns);
        if let Some(uuid) = uuid {
            // The others are fine as far as anyone knows: look at them again at once.
            slot.start_at_ns = now_ns;
            self.lose(uuid, why, now_ns, out);
        }
    }

    fn lose(&mut self, uuid: String, why: String, now_ns: u64, out: &mut Vec<GpuEvent>) {
        self.lost
            .entry(uuid.clone())
            .or_insert_with(|| Slot::at(now_ns + PAUSE_NS.0));
        out.push(GpuEvent::Lost { uuid, why });
    }

    /// The helpers of lost devices: list, look once at the device, and give it back to the main helper if it answers.
    fn drive_lost(&mut self, now_ns: u64, out: &mut Vec<GpuEvent>) {
        for uuid in self.lost.keys().cloned().collect::<Vec<_>>() {
            let Some(mut slot) = self.lost.remove(&uuid) else {
                continue;
            };
            if slot.helper.is_none() && now_ns >= slot.start_at_ns {
                self.start(&mut slot, now_ns);
            }
            let Some(helper) = &mut slot.helper else {
                self.lost.insert(uuid, slot);
                continue;
            };
            let is_late = helper.asked.as_ref().is_some_and(|asked| now_ns >= asked.deadline_ns);
            match helper.answer() {
                Ok(None) if !is_late => {}
                Ok(Some(Answer::Devices(devices))) => match devices.iter().position(|device| device.uuid == uuid) {
                    Some(place) => {
                        helper.places = devices.iter().map(|device| device.uuid.clone()).collect();
                        helper.asked = None;
                        helper.announce(place, out);
                    }
                    None => self.end(&mut slot, now_ns),
                },
                Ok(Some(Answer::Sample(sample))) => {
                    info!(uuid, "device answers again");
                    let asked_ns = helper.asked.as_ref().map_or(0, |asked| asked.at_ns);
                    self.end(&mut slot, now_ns);
                    out.push(GpuEvent::Sample { uuid, asked_ns, sample });
                    continue;
                }
                Ok(_) | Err(_) => self.end(&mut slot, now_ns),
            }
            self.lost.insert(uuid, slot);
        }
    }
}

impl Gpu for Nvml {
    fn look(&mut self, now_ns: u64, look: Look) {
        match look {
            Look::All => self.wants_all = true,
            Look::Device(uuid) if self.lost.contains_key(&uuid) => {}
            Look::Device(uuid) => drop(self.wanted.insert(uuid)),
        }
        if matches!(self.driver, Some(Driver::Ok) | None) {
            return;
        }
        // Somebody waits for a driver that was not there: do not sit out a long pause.
        self.main.start_at_ns = self.main.start_at_ns.min(now_ns + PAUSE_NS.0);
    }

    fn events(&mut self, now_ns: u64) -> Vec<GpuEvent> {
        let mut out = Vec::new();
        self.drive_main(now_ns, &mut out);
        self.drive_lost(now_ns, &mut out);
        self.ended.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        out
    }

    fn begin(&mut self, now_ns: u64) {
        for slot in std::iter::once(&mut self.main).chain(self.lost.values_mut()) {
            if let Some(helper) = &mut slot.helper {
                helper.begin(now_ns);
            }
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        let is_idle = self.main.helper.as_ref().is_some_and(Helper::is_idle);
        let now = (is_idle && (self.wants_all || !self.wanted.is_empty())).then_some(0);
        let slots = std::iter::once(&self.main).chain(self.lost.values());
        slots.filter_map(Slot::deadline_ns).chain(now).min()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        let main = std::mem::replace(&mut self.main, Slot::at(0));
        for mut slot in std::iter::once(main).chain(lost.into_values()) {
            self.end(&mut slot, 0);
        }
        for child in &mut self.ended {
            // One that is stuck in the driver is left to init.
            let _ = child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Helpers that are a shell script.
    fn adapter(script: &str) -> Nvml {
        let program = "/bin/sh".into();
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        Nvml::new(HelperCommand { program, arguments }).expect("an epoll set")
    }

    const TWO_DEVICES: &str = r#"{"devices":[
        {"uuid":"GPU-a","index":0,"model":"m","total":10,"reserved":0},
        {"uuid":"GPU-b","index":1,"model":"m","total":10,"reserved":0}]}"#;

    /// Answers the list and place 0; does `at_one` when asked for place 1.
    fn script(at_one: &str) -> String {
        let list = TWO_DEVICES.replace('\n', " ");
        format!(
            r#"while read ask; do case "$ask" in
                *open*) echo '{list}' >&0 ;;
                *0*) echo '{{"sample":{{"used":1,"free":9,"processes":[]}}}}' >&0 ;;
                *) {at_one} ;;
            esac; done"#
        )
    }

    /// Events in order until one is as wanted. Time is the test's: it jumps to the next deadline when nothing is to be
    /// read for 50 ms.
    fn until(nvml: &mut Nvml, now_ns: &mut u64, is_it: impl Fn(&GpuEvent) -> bool) -> Vec<GpuEvent> {
        let mut seen = Vec::new();
        for _ in 0..200 {
            let events = nvml.events(*now_ns);
            nvml.begin(*now_ns);
            for event in events {
                if matches!(event, GpuEvent::Asking { .. }) {
                    continue;
                }
                let is_last = is_it(&event);
                seen.push(event);
                if is_last {
                    return seen;
                }
            }
            let mut polled = [nix::poll::PollFd::new(nvml.descriptor(), nix::poll::PollFlags::POLLIN)];
            if nix::poll::poll(&mut polled, 50u16) == Ok(0)
                && let Some(deadline) = nvml.deadline_ns()
            {
                *now_ns = deadline.max(*now_ns);
            }
        }
        panic!("never happened; seen {seen:?}");
    }

    fn is_sample_of(uuid: &'static str) -> impl Fn(&GpuEvent) -> bool {
        move |event| matches!(event, GpuEvent::Sample { uuid: of, .. } if of == uuid)
    }

    #[test]
    fn a_hung_device_is_lost_within_its_deadline_and_the_others_go_on() {
        let mut nvml = adapter(&script("exec sleep 1000"));
        let mut now_ns = SECOND_NS;
        nvml.look(now_ns, Look::All);
        let seen = until(&mut nvml, &mut now_ns, |event| matches!(event, GpuEvent::Lost { .. }));
        assert_eq!(seen[0], GpuEvent::Driver(Driver::Ok));
        assert!(matches!(&seen[1], GpuEvent::Devices(list) if list.len() == 2));
        assert!(is_sample_of("GPU-a")(&seen[2]), "{seen:?}");
        assert!(matches!(&seen[3], GpuEvent::Lost { uuid, .. } if uuid == "GPU-b"));
        assert!(
            (SECOND_NS + SAMPLE_DEADLINE_NS..SECOND_NS * 10).contains(&now_ns),
            "{now_ns}"
        );
        // Looks after that meet the healthy device alone, at once.
        for _ in 0..3 {
            let asked = now_ns;
            nvml.look(now_ns, Look::All);
            let seen = until(&mut nvml, &mut now_ns, is_sample_of("GPU-a"));
            assert!(seen.iter().all(|event| !is_sample_of("GPU-b")(event)));
            assert!(now_ns < asked + SAMPLE_DEADLINE_NS);
        }
    }

    #[test]
    fn a_helper_that_crashes_at_a_device_loses_that_device_and_one_that_recovers_comes_back() {
        let folder = crate::testing::Scratch::new("nvml");
        let flag = folder.path().join("works");
        let healthy = r#"echo '{"sample":{"used":2,"free":8,"processes":[{"pid":7,"used":2}]}}' >&0"#;
        let at_one = format!("if [ -e {} ]; then {healthy}; else exit 1; fi", flag.display());
        let mut nvml = adapter(&script(&at_one));
        let mut now_ns = SECOND_NS;
        nvml.look(now_ns, Look::All);
        until(
            &mut nvml,
            &mut now_ns,
            |event| matches!(event, GpuEvent::Lost { uuid, .. } if uuid == "GPU-b"),
        );
        std::fs::write(&flag, "").expect("written");
        let seen = until(&mut nvml, &mut now_ns, is_sample_of("GPU-b"));
        let Some(GpuEvent::Sample { sample, .. }) = seen.last() else {
            panic!("{seen:?}")
        };
        let expected = crate::host::gpu::GpuProcess {
            pid: 7,
            used: Some(2),
            is_graphics_only: false,
        };
        assert_eq!((sample.used, &sample.processes[..]), (2, &[expected][..]));
        // From now on the main helper looks at it again.
        nvml.look(now_ns, Look::All);
        until(&mut nvml, &mut now_ns, is_sample_of("GPU-b"));
        assert!(nvml.lost.is_empty());
    }

    #[test]
    fn a_mismatch_is_a_state_and_nonsense_a_failure() {
        let mismatch = r#"while read ask; do echo '{"driver":{"state":"mismatch","why":"w"}}' >&0; done"#;
        let mut nvml = adapter(mismatch);
        let mut now_ns = SECOND_NS;
        until(&mut nvml, &mut now_ns, |event| {
            *event == GpuEvent::Driver(Driver::Mismatch("w".into()))
        });
        let mut nvml = adapter("while read ask; do echo nonsense >&0; done");
        let seen = until(&mut nvml, &mut now_ns, |event| matches!(event, GpuEvent::Driver(_)));
        assert!(matches!(&seen[0], GpuEvent::Driver(Driver::Failed(_))), "{seen:?}");
    }

    #[test]
    fn helpers_are_killed_with_the_adapter() {
        let mut nvml = adapter("exec sleep 1000");
        nvml.events(0);
        let pid = nvml.main.helper.as_ref().expect("started").child.id();
        let held = crate::host::pidfd::PidFd::open(pid).expect("it runs");
        assert!(!held.has_ended());
        drop(nvml);
        let mut polled = [nix::poll::PollFd::new(held.as_fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut polled, 5000u16), Ok(1), "ended");
    }
}
