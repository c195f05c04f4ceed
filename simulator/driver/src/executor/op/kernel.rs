// SPDX-License-Identifier: Apache-2.0
//! Kernels: how long one takes on the device, and what it does there.

use std::sync::Arc;
use std::time::Duration;

use partage_abi::types::CuResult;
use partage_machine::faults::KernelFault;
use partage_machine::timeline::{Ask, Engine, FULL};
use partage_ptx::{Fault, FaultKind, Launch, Stats};

use super::words::{Until, await_word};
use crate::context::Context;
use crate::executor::place::Place;
use crate::function::Function;
use crate::memory::memory;
use crate::state::{Answer, driver};

/// A kernel of this name with one 64-bit parameter takes as many nanoseconds as that says, and does nothing else.
const SPIN: &str = "spin_ns";
/// A kernel of this name with two 64-bit parameters, an address and a value, ends when the word there has reached the
/// value, as `cuStreamWaitValue64` compares.
const SPIN_UNTIL: &str = "spin_until";
/// A kernel of this name without parameters never ends.
const SPIN_FOR_EVER: &str = "spin_for_ever";
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` and `..._MAX_THREADS_PER_MULTIPROCESSOR`.
const MULTIPROCESSORS: i32 = 16;
const THREADS_PER_MULTIPROCESSOR: i32 = 39;
/// How often a hung kernel looks whether its context has ended.
const HUNG_NAP: Duration = Duration::from_millis(2);

/// One launch of a kernel, with everything it needs: the program may change its arguments at once.
#[derive(Clone)]
pub struct KernelLaunch {
    /// The kernel.
    pub function: Arc<Function>,
    /// Whose memory it works on.
    pub context: Arc<Context>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
    /// The parameter buffer, as the kernel lays it out.
    pub arguments: Arc<[u8]>,
    /// All blocks must be resident at once.
    pub is_cooperative: bool,
    /// Overrides the stream's priority.
    pub priority: Option<i32>,
}

impl KernelLaunch {
    /// Carries it out; a fault becomes the context's.
    pub fn run(&self, place: &mut Place<'_>) -> u64 {
        let Ok(driver) = driver() else {
            return place.seat.clock();
        };
        if let Some(priority) = self.priority {
            place.priority = priority;
        }
        let name = self.function.name();
        let fault = driver.faults.on_kernel(name);
        // One that never ends has no length: it takes its turns for ever.
        let need = self.known_length().filter(|_| fault.is_none());
        let context = Arc::clone(&self.context);
        let demand = self.demand().unwrap_or(FULL);
        place.occupy(Engine::Compute, need, demand, || match fault {
            Some(KernelFault::Trap(code)) => {
                context.stick(CuResult(code));
                Some(0)
            }
            Some(KernelFault::Hang) => hang(&context),
            None => match self.spin() {
                Some(Spin::For(_)) => None,
                Some(Spin::Until { address, value }) => spin_until(&context, address, value),
                Some(Spin::ForEver) => hang(&context),
                None => self.carry_out(need.is_none()),
            },
        })
    }

    /// What it will ask of the device in a stream of a priority, if it takes a known time, does nothing there, and no
    /// fault may befall it.
    pub fn ask(&self, priority: i32) -> Option<Ask> {
        let Some(Spin::For(length)) = self.spin() else {
            return None;
        };
        let is_safe = !driver().ok()?.faults.concern_kernels();
        is_safe.then(|| Ask {
            engine: Engine::Compute,
            need_ns: Some(length),
            demand: self.demand().unwrap_or(FULL) as u32,
            priority: self.priority.unwrap_or(priority),
        })
    }

    /// What it does if it only occupies the device.
    fn spin(&self) -> Option<Spin> {
        let word = |index: usize| {
            let bytes = self.arguments.get(8 * index..8 * index + 8)?;
            bytes.try_into().ok().map(u64::from_le_bytes)
        };
        match (self.function.name(), self.arguments.len()) {
            (SPIN, 8) => Some(Spin::For(word(0)?)),
            (SPIN_UNTIL, 16) => Some(Spin::Until {
                address: word(0)?,
                value: word(1)?,
            }),
            (SPIN_FOR_EVER, 0) => Some(Spin::ForEver),
            _ => None,
        }
    }

    /// Its length in nanoseconds if that is known before it runs.
    fn known_length(&self) -> Option<u64> {
        if let Some(spin) = self.spin() {
            return match spin {
                Spin::For(length) => Some(length),
                Spin::Until { .. } | Spin::ForEver => None,
            };
        }
        let device = &driver().ok()?.at(self.context.device);
        device.profile.kernel_ns.get(self.function.name()).copied()
    }

    /// The part of the device that its threads fill.
    fn demand(&self) -> Option<u64> {
        let device = &driver().ok()?.at(self.context.device);
        let capacity = u64::try_from(device.attribute(MULTIPROCESSORS)?).ok()?
            * u64::try_from(device.attribute(THREADS_PER_MULTIPROCESSOR)?).ok()?;
        let blocks: u64 = self
            .grid
            .iter()
            .map(|&size| u64::from(size))
            .fold(1, u64::saturating_mul);
        let threads: u64 = self
            .block
            .iter()
            .map(|&size| u64::from(size))
            .fold(blocks, u64::saturating_mul);
        Some(threads.saturating_mul(FULL).div_ceil(capacity.max(1)).clamp(1, FULL))
    }

    /// Interprets it. Returns how long that took, if asked.
    fn carry_out(&self, measures: bool) -> Option<u64> {
        let before = thread_time();
        match self.interpret() {
            Ok(stats) => {
                // Alone, the thread's own time is exact however busy the machine is.
                let own = Duration::from_nanos(thread_time().saturating_sub(before));
                let took = if stats.workers <= 1 { own } else { stats.elapsed };
                measures.then_some(took.as_nanos() as u64)
            }
            Err(code) => {
                self.context.stick(code);
                measures.then_some(0)
            }
        }
    }

    fn interpret(&self) -> Answer<Stats> {
        let view = memory()?.view(&self.context);
        let launch = Launch {
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared,
            parameters: &self.arguments,
            stop: Some(self.context.queue.stop()),
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let stats = self
            .function
            .kernel
            .run(&launch, &view, threads)
            .map_err(|fault| code_of(&fault, &self.context))?;
        if !stats.printed.is_empty() {
            print(&stats.printed);
        }
        Ok(stats)
    }
}

/// How a kernel that only occupies the device ends.
enum Spin {
    /// After so many nanoseconds.
    For(u64),
    /// When a word has reached a value.
    Until { address: u64, value: u64 },
    /// Never.
    ForEver,
}

/// Occupies the device until the context ends.
fn hang(context: &Context) -> Option<u64> {
    while context.check().is_ok() {
        std::thread::sleep(HUNG_NAP);
    }
    Some(0)
}

/// Occupies the device until the word has reached the value. That it needs no more than it got by then ends it at once.
fn spin_until(context: &Context, address: u64, value: u64) -> Option<u64> {
    let code = match address.is_multiple_of(8) {
        true => await_word(address, 8, context, |found| Until::AtLeast.holds(found, value, 8)).err(),
        false => Some(CuResult::MISALIGNED_ADDRESS),
    };
    if let Some(code) = code {
        let is_address = code == CuResult::INVALID_VALUE;
        context.stick(if is_address { CuResult::ILLEGAL_ADDRESS } else { code });
    }
    Some(0)
}

/// The driver's code for what a kernel did wrong.
fn code_of(fault: &Fault, context: &Context) -> CuResult {
    report(fault, context);
    match fault.kind {
        FaultKind::IllegalAddress(_) => CuResult::ILLEGAL_ADDRESS,
        FaultKind::MisalignedAddress(_) => CuResult::MISALIGNED_ADDRESS,
        FaultKind::IllegalSpace(_) => CuResult::INVALID_ADDRESS_SPACE,
        FaultKind::IllegalInstruction => CuResult::ILLEGAL_INSTRUCTION,
        FaultKind::IllegalCall(_) => CuResult::INVALID_PC,
        FaultKind::StackOverflow => CuResult::HARDWARE_STACK_ERROR,
        FaultKind::Assert(_) => CuResult::ASSERT,
        FaultKind::BadLaunch(_) => CuResult::LAUNCH_OUT_OF_RESOURCES,
        FaultKind::Trap | FaultKind::Stopped => CuResult::LAUNCH_FAILED,
    }
}

/// Says what happened where the program asked for it: a real driver gives the code alone, which tells little.
fn report(fault: &Fault, context: &Context) {
    match fault.kind {
        FaultKind::IllegalAddress(address) => {
            let place = memory().map_or_else(|_| String::new(), |memory| memory.describe_place(address, context));
            eprintln!("partage sim: {fault}, {place}");
        }
        FaultKind::Stopped => {}
        _ if std::env::var_os("PARTAGE_SIM_VERBOSE").is_some() => eprintln!("partage sim: {fault}"),
        _ => {}
    }
}

/// Device-side output goes to the program's standard output, as the driver's does.
fn print(text: &[u8]) {
    // SAFETY: writes bytes we own to a descriptor; a short or failed write loses output, as on a real device.
    unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
}

/// Processor time of the calling thread in nanoseconds.
fn thread_time() -> u64 {
    // SAFETY: a plain structure to be filled in; the clock always exists.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
