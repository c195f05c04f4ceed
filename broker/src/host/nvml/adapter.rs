// SPDX-License-Identifier: Apache-2.0
//! The adapter: which helper polls which device, and what an answer, a missed deadline or a dead helper means for the
//! device.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use tracing::{info, warn};

use super::messages::{Answer, Ask};
use super::slot::{NvmlHelper, RESTART_PAUSE_NS, Slot};
use crate::error::Error;
use crate::helper::channel::Request;
use crate::helper::process::{HelperCommand, Killed};
use crate::host::gpu::{DeviceFacts, Driver, Gpu, GpuEvent, Look};

/// The command of this program's own helper. `driver_file` may say where the driver is.
#[must_use]
pub fn helper_command(driver_file: Option<&Path>) -> HelperCommand {
    HelperCommand::own("--nvml-helper", driver_file)
}

/// All helpers.
#[derive(Debug)]
pub struct Nvml {
    command: HelperCommand,
    epoll: Epoll,
    pub(super) main: Slot,
    /// Slow and lost devices, each with the helper that waits for it or tries it.
    pub(super) lost: BTreeMap<String, Slot>,
    /// A helper that waited for a slow device and is free again: the next main one.
    pub(super) spare: Option<NvmlHelper>,
    devices: Vec<DeviceFacts>,
    driver: Option<Driver>,
    /// Every device that is listed is wanted, or will be once they are.
    wants_all: bool,
    /// Devices to be looked at.
    wanted: BTreeSet<String>,
    killed: Killed,
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
            killed: Killed::default(),
        })
    }

    /// Readable when [`Gpu::events`] has something to do.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    fn start(&mut self, slot: &mut Slot, now_ns: u64) {
        match NvmlHelper::start(&self.command, now_ns) {
            Ok(helper) => {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
                if let Err(error) = self.epoll.add(&helper.process.channel, event) {
                    warn!(%error, "helper cannot be watched");
                }
                slot.helper = Some(helper);
            }
            Err(error) => {
                warn!(%error, "NVML helper does not start");
                slot.start.fail(now_ns);
            }
        }
    }

    /// Ends the slot's helper and sets the time of the next. A helper stuck in the driver dies when it can.
    fn end(&mut self, slot: &mut Slot, now_ns: u64) {
        if let Some(helper) = slot.helper.take() {
            let _ = self.epoll.delete(&helper.process.channel);
            self.killed.kill(helper.process);
        }
        slot.start.fail(now_ns);
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
        if slot.helper.is_none() && slot.start.is_over(now_ns) {
            self.start(&mut slot, now_ns);
        }
        while let Some(helper) = &mut slot.helper {
            match helper.process.channel.answer() {
                Ok(Some(answer)) => {
                    let asked = helper.process.channel.finish();
                    if let Err(why) = self.take_main(&mut slot, asked, answer, now_ns, out) {
                        self.fail_main(&mut slot, None, why, now_ns, out);
                    }
                }
                Ok(None) => {
                    if helper.process.channel.is_late(now_ns) {
                        let asked = helper.process.channel.request().cloned();
                        let why = "no answer within the deadline".to_owned();
                        self.fail_main(&mut slot, asked, why, now_ns, out);
                    } else if slot.slow_ns().is_some_and(|slow_ns| now_ns >= slow_ns) {
                        self.set_aside(&mut slot, now_ns, out);
                        continue;
                    }
                    break;
                }
                Err(why) => {
                    let asked = helper.process.channel.finish();
                    self.fail_main(&mut slot, asked, why.to_string(), now_ns, out);
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
        let listed = |helper: &NvmlHelper| helper.places.iter().eq(self.devices.iter().map(|device| &device.uuid));
        let next = self.spare.take().filter(listed).map(NvmlHelper::taken_again);
        let uuid = slot
            .helper
            .as_ref()
            .and_then(|helper| match helper.process.channel.request()?.what {
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
        asked: Option<Request<Ask>>,
        answer: Answer,
        now_ns: u64,
        out: &mut Vec<GpuEvent>,
    ) -> Result<(), String> {
        let (Some(asked), Some(helper)) = (asked, &mut slot.helper) else {
            return Err("helper answered what was not asked".to_owned());
        };
        let answer = match asked.what {
            Ask::Sample(place) => helper.take_xids(place, answer, out),
            Ask::Open => answer,
        };
        match (asked.what, answer) {
            (Ask::Open, Answer::Devices(devices)) => {
                slot.start.succeed();
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
                    asked_ns: asked.asked_ns,
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

    fn fail_main(
        &mut self,
        slot: &mut Slot,
        asked: Option<Request<Ask>>,
        why: String,
        now_ns: u64,
        out: &mut Vec<GpuEvent>,
    ) {
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
            slot.start.start_at(now_ns);
            self.lose(uuid, why, now_ns, out);
        }
    }

    fn lose(&mut self, uuid: String, why: String, now_ns: u64, out: &mut Vec<GpuEvent>) {
        self.lost
            .entry(uuid.clone())
            .or_insert_with(|| Slot::at(now_ns + RESTART_PAUSE_NS.0));
        out.push(GpuEvent::Lost { uuid, why });
    }

    /// The helpers of lost devices: list, look once at the device, and give it back to the main helper if it answers.
    fn drive_lost(&mut self, now_ns: u64, out: &mut Vec<GpuEvent>) {
        for uuid in self.lost.keys().cloned().collect::<Vec<_>>() {
            let Some(mut slot) = self.lost.remove(&uuid) else {
                continue;
            };
            if slot.helper.is_none() && slot.start.is_over(now_ns) {
                self.start(&mut slot, now_ns);
            }
            let Some(helper) = &mut slot.helper else {
                self.lost.insert(uuid, slot);
                continue;
            };
            let is_late = helper.process.channel.is_late(now_ns);
            let last = helper.last;
            let answer = helper.process.channel.answer();
            match answer.map(|answer| answer.map(|answer| helper.take_xids(last, answer, out))) {
                Ok(None) if !is_late => {}
                Ok(Some(Answer::Devices(devices))) => match devices.iter().position(|device| device.uuid == uuid) {
                    Some(place) => {
                        helper.places = devices.iter().map(|device| device.uuid.clone()).collect();
                        helper.process.channel.finish();
                        helper.announce(place, out);
                    }
                    None => self.end(&mut slot, now_ns),
                },
                Ok(Some(Answer::Sample(sample))) => {
                    info!(uuid, "device answers again");
                    let asked_ns = helper.process.channel.finish().map_or(0, |asked| asked.asked_ns);
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
                            Ok(Some(Answer::Lost(why))) => why,
                            Err(error) => error.to_string(),
                            Ok(None) => "no answer within the deadline".to_owned(),
                            Ok(Some(answer)) => format!("helper answered {answer:?}"),
                        };
                        warn!(uuid, why, "NVML helper failed");
                        slot = Slot::at(now_ns + RESTART_PAUSE_NS.0);
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
        self.main.start.hurry(now_ns);
    }

    fn events(&mut self, now_ns: u64) -> Vec<GpuEvent> {
        let mut out = Vec::new();
        self.drive_main(now_ns, &mut out);
        self.drive_lost(now_ns, &mut out);
        if self.spare.as_mut().is_some_and(is_gone) {
            let mut gone = Slot::at(now_ns);
            gone.helper = self.spare.take();
            self.end(&mut gone, now_ns);
        }
        self.killed.reap();
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
        let is_idle = self.main.helper.as_ref().is_some_and(NvmlHelper::is_idle);
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
        // One that is stuck in the driver is left to init.
        self.killed.reap();
    }
}

/// Did a helper end that was asked nothing?
fn is_gone(spare: &mut NvmlHelper) -> bool {
    spare.process.channel.answer::<Answer>().is_err()
}
