// SPDX-License-Identifier: Apache-2.0
//! Looks at the host's devices, and what its clients ask and say of contexts.

use partage_policy::{Action, Event, Machine, Measurement, ProcessUse};
use partage_protocol::message::{MEASURE_AFTER, MEASURE_BEFORE, VERDICT_GRANTED};
use partage_protocol::reservation::Word;
use partage_protocol::units::{ClientId, DeviceUuid};

use super::Host;
use super::board::MANAGED;

impl Host {
    /// A client's `Ask` for a use of `wanted` bytes; the verdict, if it came at once.
    pub fn say_ask(&mut self, client: ClientId, slot: usize, wanted: u64, request: u64) -> Option<u32> {
        let sequence = 5;
        let commands = self.step(Event::Ask {
            client,
            slot,
            wanted,
            request,
            sequence,
        });
        verdict_of(&commands, sequence)
    }

    /// A client's `Measure`; the verdict, if it came at once.
    pub fn say_measure(&mut self, client: ClientId, slot: usize, stage: u32) -> Option<u32> {
        let sequence = 6;
        let commands = self.step(Event::Measure {
            client,
            slot,
            stage,
            sequence,
        });
        verdict_of(&commands, 6)
    }

    /// A client makes a context of `bytes` as the interposer would have it: announced, made, measured, and destroyed
    /// again when it may not stay. Answers whether it stayed.
    pub fn make_context(&mut self, client: ClientId, slot: usize, bytes: u64) -> bool {
        let announced = self
            .say_measure(client, slot, MEASURE_BEFORE)
            .expect("answered at once");
        if announced != VERDICT_GRANTED {
            return false;
        }
        self.change_beyond(client, slot, |beyond| beyond + bytes);
        if self.measure_now(client, slot) == VERDICT_GRANTED {
            return true;
        }
        self.change_beyond(client, slot, |beyond| beyond - bytes);
        self.measure_now(client, slot);
        false
    }

    pub fn change_beyond(&mut self, client: ClientId, slot: usize, change: impl Fn(u64) -> u64) {
        let program = self.programs.get_mut(&client).expect("attached");
        program.beyond[slot] = change(program.beyond[slot]);
    }

    /// `MEASURE_AFTER`, and the look that it asks for.
    pub fn measure_now(&mut self, client: ClientId, slot: usize) -> u32 {
        let device = self.programs[&client].devices[slot];
        if let Some(verdict) = self.say_measure(client, slot, MEASURE_AFTER) {
            return verdict;
        }
        assert!(self.commands.contains(&Action::Look(device)));
        self.step(Event::Asking(device));
        let from = self.commands.len();
        self.answer_look(device);
        verdict_of(&self.commands[from..], 6).expect("a quiet client is answered by the first look")
    }

    /// A look at every device; nobody allocates meanwhile.
    pub fn measure(&mut self) {
        for device in self.devices.clone() {
            self.step(Event::Asking(device.uuid));
            self.answer_look(device.uuid);
        }
    }

    /// NVML's view of a device.
    pub fn answer_look(&mut self, uuid: DeviceUuid) {
        for device in self.devices.clone().into_iter().filter(|device| device.uuid == uuid) {
            let mut processes = Vec::new();
            for program in self.programs.values() {
                let slot = program.devices.iter().position(|uuid| *uuid == device.uuid);
                let held = |slot| {
                    let managed = self.board.value(program.client, slot, MANAGED);
                    // Wrapping: a client may lie about either.
                    let charged = self.used(program.client, slot).wrapping_sub(managed);
                    charged.wrapping_add(program.beyond[slot])
                };
                // What is away is not the device's.
                let is_away = |slot: &usize| {
                    let words = self.board.words(program.client, *slot);
                    words.is_some_and(|words| Word::load(words.owed) != 0)
                };
                let bytes = slot.filter(|slot| !is_away(slot)).map_or(0, held);
                if bytes > 0 {
                    let pid = program.process.pid;
                    processes.push(ProcessUse {
                        pid,
                        uid: None,
                        other_broker: None,
                        bytes: Some(bytes),
                        start: Some(program.process.start),
                        is_graphics_only: false,
                        busy_ppm: self.busy.get(&pid).copied(),
                        descends_from: Some(program.job),
                    });
                }
            }
            for (pid, (place, bytes, descends_from)) in &self.strangers {
                if *place == device.uuid {
                    let descends_from = *descends_from;
                    processes.push(ProcessUse {
                        pid: *pid,
                        uid: Some(2),
                        other_broker: self.other_brokers.get(pid).cloned(),
                        bytes: Some(*bytes),
                        start: Some(u64::from(*pid)),
                        is_graphics_only: false,
                        busy_ppm: self.busy.get(pid).copied(),
                        descends_from,
                    });
                }
            }
            let used_bytes = processes.iter().filter_map(|process| process.bytes).sum::<u64>();
            let free_bytes = device.total_bytes.saturating_sub(used_bytes);
            self.step(Event::Measured(Measurement {
                device: device.uuid,
                used_bytes,
                free_bytes,
                processes,
                telemetry: self.telemetry.get(&device.uuid).cloned().unwrap_or_default(),
            }));
        }
    }
}

pub fn verdict_of(commands: &[Action], asked: u32) -> Option<u32> {
    commands.iter().find_map(|command| match command {
        Action::Answer { verdict, sequence, .. } if *sequence == asked => Some(*verdict),
        _ => None,
    })
}
