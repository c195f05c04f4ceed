// SPDX-License-Identifier: Apache-2.0
//! When this process parks, and when it comes back.
//!
//! ```text
//!   broker: hold := hard, the file is there, Park ──► our thread: no device writes to our pages any more
//!                                                          │
//!   dumped, restored or not  ◄── the file is there ── parked, looks every 50 ms
//!                                                          │ the file is gone
//!                                                          ▼
//!                                              hello as a parked one, new pages
//! ```
//! While it is parked this process opens nothing: a dump may come at any moment. Nobody but our thread may end it.

use core::sync::atomic::Ordering;

use partage_protocol::hold::HARD;
use partage_protocol::message::{HELLO_PARKED, PARKING_NAME};

use crate::attachment;
use crate::attachment::parking;
use crate::connection;
use crate::explain;
use crate::guest::sys;
use crate::guest::text::Text;
use crate::hold;
use crate::job_word;
use crate::marks;
use crate::note;
use crate::reach;
use crate::real::DRIVER;
use crate::settings::PATH_BYTES;
use crate::state::State;

/// Between two looks, in nanoseconds.
const PARKED_LOOK_NS: u64 = 50_000_000;
/// The longest wait for a broker's welcome.
const WELCOME_NS: u64 = 1_000_000_000;

/// Parks if a broker wants that, and stays here until one has taken the process in again.
pub fn park_if_asked(state: &'static State) {
    let job = connection::of(state).session.hold().park_for;
    if job == 0 || !park(state, job) {
        return;
    }
    note::say(state, "parked");
    loop {
        sys::sleep_ns(PARKED_LOOK_NS);
        if !is_wanted_parked(state, job) && come_back(state) {
            return;
        }
    }
}

/// `false`: it was not to be, and the broker will miss it.
fn park(state: &'static State, job: u64) -> bool {
    // First: a call of the driver may wait for work without end, and nobody waits for our locks meanwhile.
    marks::let_go(&DRIVER);
    // Ahead of the session's lock, which a thread in NVML may hold.
    let is_quiet = attachment::of(state)
        .client_file()
        .is_some_and(|file| hold::nvml::wait_for_none(state, file));
    let session = &mut *connection::of(state).session.hold();
    // Asked for on this connection, which may be gone.
    let is_asked = core::mem::take(&mut session.park_for) == job;
    let is_hard = |page: &partage_protocol::page::BrokerPage| page.head.hold.load(Ordering::Acquire) & HARD != 0;
    if !is_asked
        || !is_quiet
        || !session.link.is_connected()
        || !attachment::of(state).broker_page().is_some_and(is_hard)
    {
        return false;
    }
    session.start_turn.close();
    // A restored process has another start time, and another boot's.
    job_word::forget(state);
    parking::park(attachment::of(state), &mut session.link)
}

/// Does the broker want the job parked still? One that died may have left its file; the next one removes it.
fn is_wanted_parked(state: &State, job: u64) -> bool {
    let mut path = Text::<PATH_BYTES>::new();
    path.push(state.settings().socket_dir.as_bytes())
        .push("/client/")
        .push(PARKING_NAME);
    sys::exists(path.push_number(job).as_c_str())
}

fn come_back(state: &'static State) -> bool {
    let session = &mut *connection::of(state).session.hold();
    let deadline = sys::now_ns().saturating_add(WELCOME_NS);
    // Of another boot's clock, perhaps.
    session.pause.forget();
    if reach::connect(state, session, HELLO_PARKED, deadline).is_err() {
        // No connection while it waits: it may be dumped again.
        session.lose();
        return false;
    }
    state.forget_clock();
    explain::forget_time(state);
    // What a kernel or a dump may have lost.
    hold::process::join_again();
    true
}
