// SPDX-License-Identifier: Apache-2.0
//! Faults of processes: one that cannot die, and a call that never returns.

use partage_abi::types::CuResult;

use crate::child::{Cuda, Folder, MIB, code, listen, ok, role, say};

const DONE: u8 = 0xf1;

#[test]
fn a_process_that_cannot_die_keeps_its_memory_until_the_line_goes() {
    const TEST: &str = "faults::a_process_that_cannot_die_keeps_its_memory_until_the_line_goes";
    match role().as_deref() {
        Some("holder") => {
            let cuda = Cuda::load();
            cuda.context(0);
            cuda.allocate(600 * MIB).expect("room");
            say(DONE);
            listen();
            return;
        }
        Some(_) => {
            let cuda = Cuda::load();
            cuda.context(0);
            assert_eq!(cuda.used(), (600 + 2 * 16) * MIB);
            assert_eq!(cuda.allocate(500 * MIB), Err(CuResult::OUT_OF_MEMORY));
            return;
        }
        None => {}
    }
    let folder = Folder::new(1);
    let mut holder = folder.start(TEST, "holder");
    holder.hear(DONE);
    let (pid, line) = (holder.child.id(), folder.path().join("faults"));
    std::fs::write(&line, "linger\n").expect("a file can be written");
    let machine = folder.machine();
    holder.kill();
    let held = || -> Vec<(u32, u64, u32)> {
        let occupants = machine.occupants(0);
        occupants
            .iter()
            .map(|process| (process.pid, process.used, process.contexts))
            .collect()
    };
    assert_eq!(held(), [(pid, 616 * MIB, 1)]);
    folder.run(TEST, "other", &[]);
    // The other one has ended too, and lingers with its context.
    assert_eq!(machine.used(0), 632 * MIB);
    std::fs::remove_file(&line).expect("it is there");
    assert_eq!(folder.machine().used(0), 0, "whoever looks sweeps");
    assert_eq!(held(), []);
}

#[test]
fn a_stuck_call_never_returns_and_stops_nobody_else() {
    const TEST: &str = "faults::a_stuck_call_never_returns_and_stops_nobody_else";
    if role().is_some() {
        let cuda: &'static Cuda = Box::leak(Box::new(Cuda::load()));
        cuda.context(0);
        let first = cuda.allocate(MIB).expect("room");
        ok!(cuda, cuMemFree_v2(first));
        let second = cuda.allocate(MIB).expect("room");
        let mut context = partage_abi::types::CuContext::NULL;
        ok!(cuda, cuCtxGetCurrent(&mut context));
        let context = context.0 as usize;
        let (begins, begun) = std::sync::mpsc::channel();
        let stuck = std::thread::spawn(move || {
            ok!(cuda, cuCtxSetCurrent(partage_abi::types::CuContext(context as *mut _)));
            begins.send(()).expect("heard");
            code!(cuda, cuMemFree_v2(second))
        });
        begun.recv().expect("said");
        // Others go on meanwhile.
        for _ in 0..800 {
            cuda.allocate(MIB).expect("room");
        }
        assert!(!stuck.is_finished());
        assert!(cuda.used() == 817 * MIB, "the stuck call has freed nothing");
        say(DONE);
        listen();
        return;
    }
    let folder = Folder::new(1);
    std::fs::write(folder.path().join("faults"), "stuck:cuMemFree_v2:2").expect("a file can be written");
    let mut client = folder.start(TEST, "client");
    client.hear(DONE);
    client.kill();
    assert_eq!(folder.machine().used(0), 0);
}
