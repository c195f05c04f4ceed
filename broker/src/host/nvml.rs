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
//! A look that takes longer than [`SLOW_NS`] keeps its helper to itself, and another one goes on with the other devices:
//! no device waits for another's answer. The main helper never asks a lost device again; it is tried by a helper of its
//! own, with growing pauses, until it answers.

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
/// A device that takes longer is waited for by a helper of its own.
const SLOW_NS: u64 = SECOND_NS / 5;
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
    pub arguments: Vec<std::ffi::OsString>,
}

impl HelperCommand {
    /// This very program again, even when its file was replaced since. `driver_file` may say where the driver is.
    #[must_use]
    pub fn own(driver_file: Option<&std::path::Path>) -> Self {
        let mut arguments: Vec<std::ffi::OsString> = vec!["--nvml-helper".into()];
        if let Some(file) = driver_file {
            arguments.extend(["--driver-file".into(), file.into()]);
        }
        Self {
            program: "/proc/self/exe".into(),
            arguments,
        }
    }
}

/// All helpers.
#[derive(Debug)]
pub struct Nvml {
    command: HelperCommand,
    epoll: Epoll,
    main: Slot,
    /// Slow and lost devices, each with the helper that waits for it or tries it.
    lost: BTreeMap<String, Slot>,
    /// A helper that waited for a slow device and is free again: the next main one.
    spare: Option<Helper>,
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
    /// The device that it is for has been told lost; else it is slow.
    is_lost: bool,
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
            is_lost: true,
        }
    }

    /// When the look that is under way is a slow one.
    fn slow_ns(&self) -> Option<u64> {
        let asked = self.helper.as_ref()?.asked.as_ref()?;
        matches!(asked.what, Ask::Sample(_)).then_some(asked.at_ns + SLOW_NS)
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
            spare: None,
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
                    } else if slot.slow_ns().is_some_and(|slow_ns| now_ns >= slow_ns) {
                        self.set_aside(&mut slot, now_ns, out);
                        continue;
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
                // What is left is lost, or not there; a slow device's turn comes when it has answered.
                None => self
                    .wanted
                    .retain(|uuid| lost.get(uuid).is_some_and(|slot| !slot.is_lost)),
            }
        }
        self.main = slot;
    }

    /// The device that is being looked at keeps this helper; another one becomes the main helper.
    fn set_aside(&mut self, slot: &mut Slot, now_ns: u64, out: &mut Vec<GpuEvent>) {
        let listed = |helper: &Helper| helper.places.iter().eq(self.devices.iter().map(|device| &device.uuid));
        let next = self.spare.take().filter(listed);
        let uuid = slot
            .helper
            .as_ref()
            .and_then(|helper| match helper.asked.as_ref()?.what {
                Ask::Sample(place) => helper.places.get(place).cloned(),
                Ask::Open => None,
            });
        let Some(uuid) = uuid else { return };
        let mut aside = Slot::at(now_ns);
        aside.is_lost = false;
        aside.helper = std::mem::replace(&mut slot.helper, next);
        if slot.helper.is_none() {
            self.start(slot, now_ns);
        }
        self.lost.insert(uuid.clone(), aside);
        out.push(GpuEvent::Slow { uuid });
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
                    let asked_ns = helper.asked.take().map_or(0, |asked| asked.at_ns);
                    if slot.is_lost || self.spare.is_some() {
                        self.end(&mut slot, now_ns);
                    } else {
                        self.spare = slot.helper.take();
                    }
                    out.push(GpuEvent::Sample { uuid, asked_ns, sample });
                    continue;
                }
                answer => {
                    self.end(&mut slot, now_ns);
                    if !std::mem::replace(&mut slot.is_lost, true) {
                        let why = match answer {
                            Ok(Some(Answer::Lost(why))) | Err(why) => why,
                            Ok(None) => "no answer within the deadline".to_owned(),
                            Ok(Some(answer)) => format!("helper answered {answer:?}"),
                        };
                        warn!(uuid, why, "NVML helper failed");
                        slot = Slot::at(now_ns + PAUSE_NS.0);
                        out.push(GpuEvent::Lost {
                            uuid: uuid.clone(),
                            why,
                        });
                    }
                }
            }
            self.lost.insert(uuid, slot);
        }
    }
}

impl Gpu for Nvml {
    fn look(&mut self, now_ns: u64, look: Look) {
        match look {
            Look::All => self.wants_all = true,
            Look::Device(uuid) if self.lost.get(&uuid).is_some_and(|slot| slot.is_lost) => {}
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
        if self.spare.as_mut().is_some_and(|spare| spare.answer().is_err()) {
            let mut gone = Slot::at(now_ns);
            gone.helper = self.spare.take();
            self.end(&mut gone, now_ns);
        }
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
        let is_wanted = self.wants_all || self.wanted.iter().any(|uuid| !self.lost.contains_key(uuid));
        let now = (is_idle && is_wanted).then_some(0);
        let slots = std::iter::once(&self.main).chain(self.lost.values());
        let slots = slots.filter_map(Slot::deadline_ns);
        slots.chain(self.main.slow_ns()).chain(now).min()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        let main = std::mem::replace(&mut self.main, Slot::at(0));
        let mut spare = Slot::at(0);
        spare.helper = self.spare.take();
        for mut slot in [main, spare].into_iter().chain(lost.into_values()) {
            self.end(&mut slot, 0);
        }
        for child in &mut self.ended {
            // One that is stuck in the driver is left to init.
            let _ = child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests;
