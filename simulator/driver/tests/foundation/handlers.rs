// SPDX-License-Identifier: Apache-2.0
//! Signal handlers that interrupt a call and make calls themselves: they come back, whatever the call had locked.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use partage_abi::driver::signatures::{cuDevicePrimaryCtxReset_v2, cuDriverGetVersion};
use partage_abi::types::*;

use crate::child::{Cuda, Folder, in_child, ok, role};

static RESET: AtomicUsize = AtomicUsize::new(0);
static VERSION: AtomicUsize = AtomicUsize::new(0);
/// Handlers whose reset was done, and refused, and that answered anything else.
static ANSWERS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
static WRONG: AtomicI32 = AtomicI32::new(0);
/// The handler ends the process once a reset was refused.
static ENDS: AtomicBool = AtomicBool::new(false);
/// More than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interrupted calls that the test waits for.
const ENOUGH: u32 = 30;

extern "C" fn handler(_: c_int) {
    // SAFETY: stored before the first signal, of the type that the table gives the symbol.
    let (reset, version) = unsafe {
        (
            std::mem::transmute::<usize, cuDevicePrimaryCtxReset_v2>(RESET.load(Ordering::Relaxed)),
            std::mem::transmute::<usize, cuDriverGetVersion>(VERSION.load(Ordering::Relaxed)),
        )
    };
    let mut number = 0;
    // SAFETY: as above; the pointer leads to the stack.
    let (code, told) = unsafe { (reset(0), version(&mut number)) };
    if told != CuResult::SUCCESS {
        WRONG.store(told.0, Ordering::Relaxed);
    }
    let place = match code {
        CuResult::SUCCESS => 0,
        CuResult::NOT_PERMITTED => 1,
        _ => 2,
    };
    ANSWERS[place].fetch_add(1, Ordering::Relaxed);
    if place == 1 && ENDS.load(Ordering::Relaxed) {
        // SAFETY: ends the process, with everything that is registered for its end.
        unsafe { libc::exit(0) };
    }
}

/// Works in a context of its own, with a primary context beside it, while signals come in.
fn interrupted(cuda: &Cuda) {
    RESET.store(cuda.symbol::<usize>("cuDevicePrimaryCtxReset_v2"), Ordering::Relaxed);
    VERSION.store(cuda.symbol::<usize>("cuDriverGetVersion"), Ordering::Relaxed);
    let context = cuda.context(0);
    let memory = cuda.allocate(4096).expect("room");
    // SAFETY: an action on the stack, with a handler of ours; it is for this thread, which the number names.
    let this = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        libc::pthread_self()
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: the thread outlives this one.
                unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let begun = Instant::now();
        while ANSWERS[1].load(Ordering::Relaxed) < ENOUGH && begun.elapsed() < PATIENCE {
            let mut primary = CuContext::NULL;
            ok!(cuda, cuDevicePrimaryCtxRetain(&mut primary, 0));
            for _ in 0..50 {
                ok!(cuda, cuMemsetD8Async(memory, 1, 4096, CuStream::NULL));
            }
            ok!(cuda, cuCtxSynchronize());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let [done, refused, other] = ANSWERS.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(
        refused >= ENOUGH && other == 0,
        "{done} done, {refused} refused, {other} other"
    );
    assert_eq!(WRONG.load(Ordering::Relaxed), 0, "constants are told");
    ok!(cuda, cuCtxDestroy_v2(context));
}

#[test]
fn a_reset_in_a_handler_that_interrupts_a_call_is_refused() {
    let test = "handlers::a_reset_in_a_handler_that_interrupts_a_call_is_refused";
    in_child(test, interrupted);
}

#[test]
fn a_handler_that_interrupts_a_call_ends_the_process() {
    if role().is_some() {
        ENDS.store(true, Ordering::Relaxed);
        interrupted(&Cuda::load());
        unreachable!("the handler ends the process");
    }
    let test = "handlers::a_handler_that_interrupts_a_call_ends_the_process";
    Folder::new(1).run(test, "body", &[]);
}
