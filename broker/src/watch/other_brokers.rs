// SPDX-License-Identifier: Apache-2.0
//! Which unmanaged processes are managed by a private broker of another user.
//!
//! Known where two things show that every user may see: such a broker listens, and the process has the library's
//! thread. A process of that user without the library stays one without Partage.

use std::collections::BTreeSet;

use partage_policy::Process;
use partage_protocol::private_broker::LIBRARY_THREAD;
use partage_protocol::units::SECOND_NS;

use crate::host::proc::Processes;

/// How long the list of brokers is new enough: it is in a sentence, nothing hangs on it.
const FRESH_NS: u64 = SECOND_NS;

/// What was found so far.
#[derive(Debug, Default)]
pub struct OtherBrokers {
    /// The user whose private broker this is.
    own: Option<u32>,
    /// Users whose private broker listens.
    listening: BTreeSet<u32>,
    read_ns: Option<u64>,
    /// Processes that have the library's thread: it stays to their end.
    with_library: BTreeSet<Process>,
}

impl OtherBrokers {
    /// For a broker of this user alone, or of the host.
    pub fn new(own: Option<u32>) -> Self {
        Self { own, ..Self::default() }
    }

    /// Does a private broker of its owner manage this process?
    pub fn manage(&mut self, processes: &dyn Processes, process: Process, uid: u32, now_ns: u64) -> bool {
        if self.own == Some(uid) {
            return false;
        }
        if self.read_ns.is_none_or(|at| now_ns >= at.saturating_add(FRESH_NS)) {
            self.listening = processes.private_brokers();
            self.read_ns = Some(now_ns);
            let is_there = |known: &Process| processes.stat(known.pid).is_some_and(|stat| stat.id == *known);
            self.with_library.retain(is_there);
        }
        if !self.listening.contains(&uid) {
            return false;
        }
        if !self.with_library.contains(&process) {
            if !processes.has_thread(process.pid, LIBRARY_THREAD) {
                return false;
            }
            self.with_library.insert(process);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::host::proc::Stat;

    #[derive(Default)]
    struct Table {
        listening: RefCell<BTreeSet<u32>>,
        with_thread: RefCell<BTreeSet<u32>>,
        reads: Cell<u32>,
    }

    fn process(pid: u32) -> Process {
        Process { pid, start: 7 }
    }

    impl Processes for Table {
        fn stat(&self, pid: u32) -> Option<Stat> {
            Some(Stat {
                id: process(pid),
                parent: 1,
                is_exiting: false,
                is_stopped: false,
                image: (0, 0),
                terminal: 0,
            })
        }
        fn uid(&self, _: u32) -> Option<u32> {
            None
        }
        fn name(&self, _: u32) -> Option<String> {
            None
        }
        fn program(&self, _: u32) -> Option<String> {
            None
        }
        fn gid(&self, _: u32) -> Option<u32> {
            None
        }
        fn groups(&self, _: u32) -> Vec<u32> {
            Vec::new()
        }
        fn cgroup(&self, _: u32) -> Option<String> {
            None
        }
        fn all(&self) -> Vec<u32> {
            Vec::new()
        }
        fn has_thread(&self, pid: u32, name: &str) -> bool {
            name == "partage" && self.with_thread.borrow().contains(&pid)
        }
        fn private_brokers(&self) -> BTreeSet<u32> {
            self.reads.set(self.reads.get() + 1);
            self.listening.borrow().clone()
        }
    }

    #[test]
    fn both_the_broker_and_the_librarys_thread_are_needed() {
        let table = Table::default();
        let mut others = OtherBrokers::new(Some(1000));
        let mut manage = |pid, uid, now_ns| others.manage(&table, process(pid), uid, now_ns);
        assert!(!manage(5, 1001, 0), "no broker");
        table.listening.borrow_mut().extend([1000, 1001]);
        assert!(!manage(5, 1001, SECOND_NS), "a broker, and no library in the process");
        table.with_thread.borrow_mut().extend([5, 6]);
        assert!(manage(5, 1001, SECOND_NS + 1));
        assert!(!manage(6, 1000, SECOND_NS + 1), "this broker's own user");
        assert!(!manage(6, 1002, SECOND_NS + 1), "another user without a broker");
        assert_eq!(table.reads.get(), 2, "the table is read once a second");
        table.listening.borrow_mut().clear();
        assert!(!manage(5, 1001, 3 * SECOND_NS), "the broker is gone");
    }

    #[test]
    fn this_process_has_the_threads_that_it_has() {
        use crate::host::proc::Proc;
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("named-thread".to_owned());
        let thread = thread.spawn(move || receiver.recv().is_err()).expect("a thread");
        let pid = std::process::id();
        while !Proc.has_thread(pid, "named-thread") {
            std::thread::yield_now();
        }
        assert!(!Proc.has_thread(pid, "named-threat") && !Proc.has_thread(0, "named-thread"));
        drop(sender);
        assert!(thread.join().expect("it ends"));
        let _ = Proc.private_brokers();
    }
}
