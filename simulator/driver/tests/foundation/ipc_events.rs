// SPDX-License-Identifier: Apache-2.0
//! Events that one process makes and others wait for and record.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use partage_abi::types::*;

use crate::child::{Cuda, Folder, Partner, code, in_child, listen, ok, refused, role, say};

const DONE: u8 = 0xf1;
const YES: u8 = 0xf2;
const NO: u8 = 0xf3;
/// Records the event behind work that waits for a word.
const RECORD: u8 = 0xf4;
/// Writes the word.
const RELEASE: u8 = 0xf5;
/// Asks whether the event was reached.
const QUERY: u8 = 0xf6;
/// Has a stream wait for the event.
const WAIT: u8 = 0xf7;
/// Asks whether that stream is idle.
const IS_IDLE: u8 = 0xf8;
/// Waits for the event.
const SYNCHRONIZE: u8 = 0xf9;
const DESTROY: u8 = 0xfa;
const OPEN: u8 = 0xfb;
/// `CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING`.
const FOR_OTHERS: c_uint = 6;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

fn handle_file() -> PathBuf {
    PathBuf::from(std::env::var_os("PARTAGE_SIM_DIR").expect("set by the test")).join("handle")
}

fn open(cuda: &Cuda, handle: CuIpcEventHandle) -> Result<CuEvent, CuResult> {
    let mut event = CuEvent::NULL;
    match code!(cuda, cuIpcOpenEventHandle(&mut event, handle)) {
        CuResult::SUCCESS => Ok(event),
        code => Err(code),
    }
}

/// Two streams and a word that the first one waits for.
struct Work {
    cuda: Cuda,
    held: CuStream,
    free: CuStream,
    word: u64,
    turn: u32,
}

impl Work {
    fn new() -> Self {
        let cuda = Cuda::load();
        cuda.context(0);
        let (mut held, mut free) = (CuStream::NULL, CuStream::NULL);
        ok!(cuda, cuStreamCreate(&mut held, NON_BLOCKING));
        ok!(cuda, cuStreamCreate(&mut free, NON_BLOCKING));
        let word = cuda.allocate(512).expect("room");
        Self {
            cuda,
            held,
            free,
            word,
            turn: 0,
        }
    }

    fn record(&mut self, event: CuEvent) {
        self.turn += 1;
        ok!(self.cuda, cuStreamWaitValue32_v2(self.held, self.word, self.turn, 1));
        ok!(self.cuda, cuEventRecord(event, self.held));
    }

    fn release(&self) {
        ok!(self.cuda, cuStreamWriteValue32_v2(self.free, self.word, self.turn, 0));
        ok!(self.cuda, cuStreamSynchronize(self.held));
    }

    /// Whether what a stream or an event is asked for is over.
    fn answer(&self, code: CuResult) {
        match code {
            CuResult::SUCCESS => say(YES),
            CuResult::NOT_READY => say(NO),
            other => panic!("{other:?}"),
        }
    }

    fn serve(&mut self, mut event: CuEvent, handle: CuIpcEventHandle) {
        while let Some(what) = listen() {
            match what {
                OPEN => match open(&self.cuda, handle) {
                    Ok(opened) => event = opened,
                    Err(CuResult::INVALID_HANDLE) => {
                        say(NO);
                        continue;
                    }
                    Err(code) => panic!("{code:?}"),
                },
                RECORD => self.record(event),
                RELEASE => self.release(),
                QUERY => {
                    self.answer(code!(self.cuda, cuEventQuery(event)));
                    continue;
                }
                WAIT => {
                    ok!(self.cuda, cuStreamWaitEvent(self.held, event, 0));
                    // Nobody else waits for it.
                    ok!(self.cuda, cuMemsetD8Async(self.word + 256, 1, 16, self.free));
                    ok!(self.cuda, cuStreamSynchronize(self.free));
                }
                IS_IDLE => {
                    self.answer(code!(self.cuda, cuStreamQuery(self.held)));
                    continue;
                }
                SYNCHRONIZE => ok!(self.cuda, cuEventSynchronize(event)),
                DESTROY => ok!(self.cuda, cuEventDestroy_v2(event)),
                _ => unreachable!("{what}"),
            }
            say(DONE);
        }
    }
}

fn exporter() {
    let mut work = Work::new();
    let (mut event, mut handle) = (CuEvent::NULL, CuIpcEventHandle { reserved: [0; 64] });
    ok!(work.cuda, cuEventCreate(&mut event, FOR_OTHERS));
    // As a framework does: recorded first, shared then.
    work.record(event);
    ok!(work.cuda, cuIpcGetEventHandle(&mut handle, event));
    let first = handle.reserved;
    ok!(work.cuda, cuIpcGetEventHandle(&mut handle, event));
    assert_eq!(first, handle.reserved);
    assert_eq!(
        open(&work.cuda, handle).err(),
        Some(CuResult::INVALID_CONTEXT),
        "its own"
    );
    std::fs::write(handle_file(), handle.reserved.map(|byte| byte as u8)).expect("a file can be written");
    say(DONE);
    work.serve(event, handle);
}

fn importer() {
    let mut work = Work::new();
    let raw = std::fs::read(handle_file()).expect("the exporter wrote it");
    let mut handle = CuIpcEventHandle { reserved: [0; 64] };
    for (to, from) in handle.reserved.iter_mut().zip(raw) {
        *to = from as c_char;
    }
    say(DONE);
    work.serve(CuEvent::NULL, handle);
}

fn run_role() -> bool {
    match role().as_deref() {
        Some("exporter") => exporter(),
        Some("importer") => importer(),
        Some(other) => unreachable!("{other}"),
        None => return false,
    }
    true
}

fn ask(partner: &mut Partner, what: u8) -> u8 {
    partner.tell(what);
    partner.hear_one_of([DONE, YES, NO])
}

fn start(folder: &Folder, test: &str) -> (Partner, Partner) {
    let [exporter, mut importer] = ["exporter", "importer"].map(|role| {
        let mut partner = folder.start(test, role);
        partner.hear(DONE);
        partner
    });
    assert_eq!(ask(&mut importer, OPEN), DONE);
    (exporter, importer)
}

/// Processor time of a process so far.
fn processor_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let of_first: u64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("it lives")
        .flatten();
    let of_all = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(of_all.sum::<u64>().max(of_first))
}

#[test]
fn an_event_of_another_process_is_waited_for() {
    if run_role() {
        return;
    }
    let folder = Folder::new(1);
    let (mut exporter, mut importer) = start(&folder, "ipc_events::an_event_of_another_process_is_waited_for");
    assert_eq!(ask(&mut importer, QUERY), NO);
    assert_eq!(ask(&mut importer, WAIT), DONE, "another stream goes on");
    assert_eq!(ask(&mut importer, IS_IDLE), NO);
    let (before, begun) = (processor_time(importer.child.id()), Instant::now());
    std::thread::sleep(Duration::from_millis(400));
    let spent = processor_time(importer.child.id()) - before;
    assert!(spent < begun.elapsed() / 4, "{spent:?}: a wait sleeps");
    assert_eq!(ask(&mut importer, IS_IDLE), NO);
    importer.tell(SYNCHRONIZE);
    assert_eq!(ask(&mut exporter, RELEASE), DONE);
    importer.hear(DONE);
    assert_eq!(ask(&mut importer, QUERY), YES);
    // What the stream waited for is over too, within the time of a glance.
    while ask(&mut importer, IS_IDLE) == NO {}
    // Recorded again, it is waited for again.
    assert_eq!(ask(&mut exporter, RECORD), DONE);
    assert_eq!(ask(&mut importer, QUERY), NO);
    assert_eq!(ask(&mut exporter, RELEASE), DONE);
    assert_eq!(ask(&mut importer, QUERY), YES);
    exporter.finish();
    importer.finish();
}

#[test]
fn the_opener_records_for_the_maker() {
    if run_role() {
        return;
    }
    let folder = Folder::new(1);
    let (mut exporter, mut importer) = start(&folder, "ipc_events::the_opener_records_for_the_maker");
    assert_eq!(ask(&mut exporter, RELEASE), DONE);
    assert_eq!(ask(&mut importer, RECORD), DONE);
    assert_eq!(ask(&mut exporter, QUERY), NO);
    assert_eq!(ask(&mut exporter, WAIT), DONE);
    assert_eq!(ask(&mut exporter, IS_IDLE), NO);
    exporter.tell(SYNCHRONIZE);
    assert_eq!(ask(&mut importer, RELEASE), DONE);
    exporter.hear(DONE);
    assert_eq!(ask(&mut exporter, QUERY), YES);
    importer.finish();
    exporter.finish();
}

#[test]
fn nobody_waits_for_a_dead_process() {
    if run_role() {
        return;
    }
    const TEST: &str = "ipc_events::nobody_waits_for_a_dead_process";
    let folder = Folder::new(1);
    let (exporter, mut importer) = start(&folder, TEST);
    assert_eq!(ask(&mut importer, WAIT), DONE);
    assert_eq!(ask(&mut importer, QUERY), NO);
    importer.tell(SYNCHRONIZE);
    exporter.kill();
    importer.hear(DONE);
    while ask(&mut importer, IS_IDLE) == NO {}
    assert_eq!(ask(&mut importer, QUERY), YES);
    let mut late = folder.start(TEST, "importer");
    late.hear(DONE);
    assert_eq!(ask(&mut late, OPEN), NO, "there is nobody to ask for it");
    late.finish();
    importer.finish();
}

#[test]
fn a_destroyed_event_is_reached_by_who_has_it_and_opened_by_nobody() {
    if run_role() {
        return;
    }
    const TEST: &str = "ipc_events::a_destroyed_event_is_reached_by_who_has_it_and_opened_by_nobody";
    let folder = Folder::new(1);
    let (mut exporter, mut importer) = start(&folder, TEST);
    assert_eq!(ask(&mut exporter, DESTROY), DONE);
    assert_eq!(ask(&mut importer, QUERY), NO, "a recording under way is still reached");
    assert_eq!(ask(&mut exporter, RELEASE), DONE);
    assert_eq!(ask(&mut importer, SYNCHRONIZE), DONE);
    assert_eq!(ask(&mut importer, OPEN), NO);
    exporter.finish();
    importer.finish();
}

#[test]
fn only_events_for_other_processes_have_handles() {
    in_child("ipc_events::only_events_for_other_processes_have_handles", |cuda| {
        cuda.context(0);
        let (mut event, mut handle) = (CuEvent::NULL, CuIpcEventHandle { reserved: [3; 64] });
        assert_eq!(open(cuda, handle).err(), Some(CuResult::INVALID_HANDLE), "made up");
        ok!(cuda, cuEventCreate(&mut event, 2));
        refused!(INVALID_HANDLE: cuda, cuIpcGetEventHandle(&mut handle, event));
        refused!(INVALID_VALUE: cuda, cuEventCreate(&mut event, 4));
        ok!(cuda, cuEventCreate(&mut event, FOR_OTHERS));
        refused!(INVALID_VALUE: cuda, cuIpcGetEventHandle(std::ptr::null_mut(), event));
        ok!(cuda, cuIpcGetEventHandle(&mut handle, event));
        refused!(INVALID_VALUE: cuda, cuIpcOpenEventHandle(std::ptr::null_mut(), handle));
        handle.reserved[9] ^= 1;
        assert_eq!(
            open(cuda, handle).err(),
            Some(CuResult::INVALID_HANDLE),
            "a bit of it is wrong"
        );
        let mut milliseconds = 0.0;
        refused!(INVALID_HANDLE: cuda, cuEventElapsedTime(&mut milliseconds, event, event));
        ok!(cuda, cuEventDestroy_v2(event));
    });
}
