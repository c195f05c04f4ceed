// SPDX-License-Identifier: Apache-2.0
//! Kernels: how long one takes on the device, and what it does there.

use std::sync::Arc;
use std::time::Duration;

use partage_abi::types::CuResult;
use partage_machine::faults::KernelFault;
use partage_machine::timeline::{Engine, FULL};
use partage_ptx::{Fault, FaultKind, Launch, Stats};

use super::Place;
use crate::function::Function;
use crate::state::{Answer, Context, driver, memory};

/// A kernel of this name with one 64-bit parameter takes as many nanoseconds as that says, and does nothing else.
const SPIN: &str = "spin_ns";
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
            Some(KernelFault::Hang) => {
                while context.check().is_ok() {
                    std::thread::sleep(HUNG_NAP);
                }
                Some(0)
            }
            None if self.spins() => None,
            None => self.carry_out(need.is_none()),
        })
    }

    fn spins(&self) -> bool {
        self.function.name() == SPIN && self.arguments.len() == 8
    }

    /// Its length in nanoseconds if that is known before it runs.
    fn known_length(&self) -> Option<u64> {
        if self.spins() {
            return self.arguments[..].try_into().ok().map(u64::from_le_bytes);
        }
        let device = &driver().ok()?.machine.devices()[self.context.device];
        device.profile.kernel_ns.get(self.function.name()).copied()
    }

    /// The part of the device that its threads fill.
    fn demand(&self) -> Option<u64> {
        let device = &driver().ok()?.machine.devices()[self.context.device];
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
            .map_err(|fault| code_of(&fault))?;
        if !stats.printed.is_empty() {
            print(&stats.printed);
        }
        Ok(stats)
    }
}

/// The driver's code for what a kernel did wrong.
fn code_of(fault: &Fault) -> CuResult {
    if fault.kind != FaultKind::Stopped {
        report(fault);
    }
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
fn report(fault: &Fault) {
    if std::env::var_os("PARTAGE_SIM_VERBOSE").is_some() {
        eprintln!("partage sim: {fault}");
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
