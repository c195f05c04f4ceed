// SPDX-License-Identifier: Apache-2.0
//! A client from the inside: its pages, what it asks, and what it charges.

use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use partage_machine::Machine;
use partage_protocol::admin::{Reply, Request};
use partage_protocol::message::{
    Answer, Ask, ENVIRONMENT_BYTES, Hello, MEASURE_AFTER, MEASURE_BEFORE, Measure, ToClient, VERDICT_GRANTED,
    VERDICT_RETRY, Welcome,
};
use partage_protocol::page::{BrokerPage, ClientPage, PAGE_BYTES};
use partage_protocol::reservation::{AskAnswer, ClientWords, Denial, refund, reserve};
use zerocopy::IntoBytes;

use crate::rig::Wire;

pub struct Pages {
    pub id: u64,
    pub broker: NonNull<BrokerPage>,
    pub client: NonNull<ClientPage>,
    pub descriptors: [OwnedFd; 2],
}

impl Pages {
    pub fn map(id: u64, descriptors: [OwnedFd; 2]) -> Self {
        let length = NonZeroUsize::new(PAGE_BYTES).expect("not zero");
        let map = |fd: &OwnedFd, protection| {
            // SAFETY: a fresh shared mapping of a whole page file.
            unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, fd, 0) }.expect("mapped")
        };
        let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        Self {
            id,
            broker: map(&descriptors[0], ProtFlags::PROT_READ).cast(),
            client: map(&descriptors[1], writable).cast(),
            descriptors,
        }
    }

    pub fn words(&self, slot: usize) -> ClientWords<'static, std::sync::atomic::AtomicU64> {
        // SAFETY: mapped until the process ends, made of atomics only.
        let (broker, client) = unsafe { (&*self.broker.as_ptr(), &*self.client.as_ptr()) };
        ClientWords {
            used: &client.devices[slot].used,
            granted: &broker.devices[slot].granted,
            settled: &client.devices[slot].settled,
        }
    }
}

/// One of the counters around an operation.
#[derive(Clone, Copy)]
pub enum Counter {
    Started,
    Finished,
}

pub struct Client {
    pub socket: PathBuf,
    pub token: [u8; 32],
    pub wire: Option<Wire>,
    pub pages: Option<Pages>,
    pub seat: Option<(Machine, usize)>,
    pub sequence: u32,
    pub contexts: u32,
}

impl Client {
    pub fn hello(&mut self) -> String {
        let Ok(wire) = Wire::connect(&self.socket) else {
            return "no broker".to_owned();
        };
        let hello = Hello {
            header: Hello::header(0),
            token: self.token,
            client: self.pages.as_ref().map_or(0, |pages| pages.id),
            environment_limit: 0,
            pid: std::process::id(),
            flags: 0,
            environment_length: 0,
            nodes: 0,
            environment: [0; ENVIRONMENT_BYTES],
        };
        let pages = self.pages.as_ref();
        let fds: Vec<&OwnedFd> = pages.map_or(Vec::new(), |pages| pages.descriptors.iter().collect());
        if wire.send(hello.as_bytes(), &fds).is_err() {
            return "no broker".to_owned();
        }
        let Some((packet, descriptors)) = wire.receive() else {
            return "no broker".to_owned();
        };
        match ToClient::decode(&packet) {
            Ok(ToClient::Welcome(Welcome { client, job, .. })) => {
                if let Ok(fds) = <[OwnedFd; 2]>::try_from(descriptors) {
                    self.pages = Some(Pages::map(client, fds));
                }
                self.wire = Some(wire);
                format!("attached j{job}")
            }
            Ok(ToClient::Refused(refused)) => {
                let text = &refused.text[..refused.text_length as usize];
                format!("refused {} {}", refused.code, String::from_utf8_lossy(text))
            }
            other => panic!("{other:?}"),
        }
    }

    /// One ask; comes back to the next broker when this one is gone.
    pub fn ask(&mut self, slot: u32, wanted: u64, request: u64) -> AskAnswer {
        for _ in 0..2000 {
            self.sequence += 1;
            let ask = Ask {
                header: Ask::header(self.sequence),
                slot,
                reserved: 0,
                wanted,
                request,
            };
            let wire = self.wire.as_ref();
            let is_sent = wire.is_some_and(|wire| wire.send(ask.as_bytes(), &[]).is_ok());
            if is_sent && let Some((packet, _)) = wire.and_then(Wire::receive) {
                let Ok(ToClient::Answer(Answer { header, verdict, .. })) = ToClient::decode(&packet) else {
                    panic!("not an answer");
                };
                assert_eq!(header.sequence, self.sequence);
                return match verdict {
                    VERDICT_GRANTED => AskAnswer::Granted,
                    VERDICT_RETRY => AskAnswer::Retry,
                    1 => AskAnswer::Denied(Denial::Limit),
                    2 => AskAnswer::Denied(Denial::CardFull),
                    _ => AskAnswer::Denied(Denial::Invalid),
                };
            }
            self.wire = None;
            std::thread::sleep(std::time::Duration::from_millis(2));
            self.hello();
        }
        AskAnswer::Denied(Denial::NoBroker)
    }

    pub fn count(&self, slot: usize, counter: Counter) {
        let Some(pages) = &self.pages else { return };
        // SAFETY: mapped until the process ends, made of atomics only.
        let line = unsafe { &(*pages.client.as_ptr()).devices[slot] };
        let word = match counter {
            Counter::Started => &line.started,
            Counter::Finished => &line.finished,
        };
        word.fetch_add(1, Ordering::SeqCst);
    }

    /// Charges, then takes the memory from the simulated device, as a hook calls the driver.
    pub fn reserve(&mut self, slot: usize, bytes: u64) -> String {
        self.count(slot, Counter::Started);
        let result = self.reserve_counted(slot, bytes);
        self.count(slot, Counter::Finished);
        result
    }

    pub fn reserve_counted(&mut self, slot: usize, bytes: u64) -> String {
        let words = self.pages.as_ref().expect("attached").words(slot);
        match reserve(&words, bytes, |wanted| self.ask(slot as u32, wanted, bytes)) {
            Ok(()) => match self.hold(slot, bytes) {
                true => "ok".to_owned(),
                false => {
                    refund(words.used, bytes).expect("charged");
                    "device full".to_owned()
                }
            },
            Err(denial) => format!("{denial:?}"),
        }
    }

    /// One `Measure`. Answers the verdict.
    pub fn measure(&mut self, slot: usize, stage: u32) -> u32 {
        self.sequence += 1;
        let measure = Measure {
            header: Measure::header(self.sequence),
            slot: slot as u32,
            stage,
        };
        let wire = self.wire.as_ref().expect("attached");
        wire.send(measure.as_bytes(), &[]).expect("sent");
        let (packet, _) = wire.receive().expect("answered");
        match ToClient::decode(&packet) {
            Ok(ToClient::Answer(answer)) if answer.header.sequence == self.sequence => answer.verdict,
            other => panic!("{other:?}"),
        }
    }

    /// Makes a context as a hook does: announced, made, measured, and destroyed again where it may not stay.
    pub fn context(&mut self, slot: usize) -> String {
        let before = self.measure(slot, MEASURE_BEFORE);
        if before != VERDICT_GRANTED {
            return format!("refused {before}");
        }
        let (machine, seat) = self.seat();
        if machine.open_context(seat, slot).is_err() {
            return "device full".to_owned();
        }
        let after = self.measure(slot, MEASURE_AFTER);
        if after == VERDICT_GRANTED {
            self.contexts |= 1 << slot;
            return "ok".to_owned();
        }
        let (machine, seat) = self.seat();
        machine.close_context(seat, slot);
        assert_eq!(self.measure(slot, MEASURE_AFTER), VERDICT_GRANTED);
        format!("destroyed {after}")
    }

    pub fn seat(&mut self) -> (&Machine, usize) {
        let (machine, seat) = self.seat.get_or_insert_with(|| {
            let machine = Machine::from_environment().expect("a machine").expect("opened");
            let seat = machine.take_seat().expect("a seat");
            (machine, seat)
        });
        (machine, *seat)
    }

    /// Takes memory of the simulated device; the first time on each it opens a context, which is what NVML lists.
    pub fn hold(&mut self, device: usize, bytes: u64) -> bool {
        let has_context = self.contexts & (1 << device) != 0;
        self.contexts |= 1 << device;
        let (machine, seat) = self.seat();
        if !has_context && machine.open_context(seat, device).is_err() {
            return false;
        }
        machine.reserve(seat, device, bytes).is_ok()
    }

    pub fn free(&mut self, slot: usize, bytes: u64) -> String {
        self.count(slot, Counter::Started);
        let (machine, seat) = self.seat();
        machine.release(seat, slot, bytes);
        let words = self.pages.as_ref().expect("attached").words(slot);
        let result = refund(words.used, bytes).map_or("underflow".to_owned(), |_| "ok".to_owned());
        self.count(slot, Counter::Finished);
        result
    }

    /// Writes a word of its page, as a client that lies.
    pub fn write(&mut self, word: &str, slot: usize, value: u64) -> String {
        let pages = self.pages.as_ref().expect("attached");
        // SAFETY: mapped until the process ends, made of atomics only.
        let line = unsafe { &(*pages.client.as_ptr()).devices[slot] };
        let word = match word {
            "used" => &line.used,
            "managed" => &line.managed,
            "started" => &line.started,
            "finished" => &line.finished,
            other => panic!("{other}"),
        };
        word.store(value, Ordering::SeqCst);
        "ok".to_owned()
    }

    /// Takes and gives back pseudo-random amounts up to `most`; answers how often each came out.
    pub fn hammer(&mut self, rounds: u64, most: u64, mut seed: u64) -> String {
        let (mut held, mut done, mut denied) = (Vec::new(), 0u64, 0u64);
        for _ in 0..rounds {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if seed >> 63 == 0 && !held.is_empty() {
                self.free(0, held.swap_remove((seed >> 33) as usize % held.len()));
                continue;
            }
            let bytes = (seed >> 16) % most + 1;
            match self.reserve(0, bytes).as_str() {
                "ok" => {
                    held.push(bytes);
                    done += 1;
                }
                "Limit" => denied += 1,
                other => return format!("failed {other}"),
            }
        }
        for bytes in held {
            self.free(0, bytes);
        }
        format!("hammered {} {}", done > 0, denied > 0)
    }

    pub fn set_token(&mut self, text: &str) {
        for (byte, digits) in self.token.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).expect("digits");
            *byte = u8::from_str_radix(digits, 16).expect("digits");
        }
    }

    pub fn run(&mut self, request: &str) -> String {
        let request: Request = serde_json::from_str(request).expect("a request");
        let wire = Wire::connect(&self.socket).expect("connected");
        wire.request(&request);
        loop {
            match wire.reply() {
                Some(Reply::Waiting(waiting)) => println!("@waiting {}", waiting.reason),
                Some(reply) => {
                    if let Reply::Admitted(admitted) = &reply {
                        self.set_token(&admitted.token);
                    }
                    return serde_json::to_string(&reply).expect("encodes");
                }
                None => return "closed".to_owned(),
            }
        }
    }

    pub fn can_connect(&self, socket: &str) -> String {
        let folder = self.socket.parent().and_then(Path::parent).expect("a folder");
        Wire::connect(&folder.join(socket)).map_or_else(|error| format!("{error:?}"), |_| "yes".to_owned())
    }

    pub fn can_write_grants(&self) -> &'static str {
        let fd = self.pages.as_ref().expect("attached").descriptors[0].as_raw_fd();
        let opened = std::fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/self/fd/{fd}"));
        if opened.is_ok() { "yes" } else { "no" }
    }
}
