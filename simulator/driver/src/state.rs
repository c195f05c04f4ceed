// SPDX-License-Identifier: Apache-2.0
//! What the driver knows in this process: the machine, the devices it shows, the contexts, the current one.
//!
//! Made by the first `cuInit` and never freed. A forked child inherits none of it: a page that the kernel wipes at
//! fork says so, and every entry point asks [`driver`] first, so no lock that another thread held at the fork is ever
//! waited for.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use partage_abi::types::*;
use partage_machine::faults::Faults;
use partage_machine::{Device, Machine};

use crate::handles::{HandleKind, Handles};
use crate::memory::Memory;

/// The answer of everything that can fail.
pub type Answer<T = ()> = Result<T, CuResult>;

/// The driver of this process.
pub struct Driver {
    /// The simulated machine.
    pub machine: Machine,
    /// This process's place in the machine's table.
    pub seat: usize,
    /// Faults that are switched on.
    pub faults: Arc<Faults>,
    /// Machine indices of the devices that this process sees: `visible[ordinal]`.
    pub visible: Vec<usize>,
    /// Every living context.
    pub contexts: Handles<Context>,
    /// The primary context of each visible device.
    pub primary: Vec<Mutex<Primary>>,
    /// All memory that this process has from us.
    pub memory: Memory,
    next_context_id: AtomicU64,
}

/// The primary context of one device.
#[derive(Default)]
pub struct Primary {
    /// The context, while it is active.
    pub context: Option<Arc<Context>>,
    /// How often it was retained and not released.
    pub retains: u32,
    /// The flags it is made with.
    pub flags: u32,
}

/// One context.
pub struct Context {
    /// What the program calls it.
    pub handle: CuContext,
    /// Unique in this process, never reused.
    pub id: u64,
    /// The device as the program numbers it.
    pub ordinal: CuDevice,
    /// The device as the machine numbers it.
    pub device: usize,
    /// Whether it is its device's primary context, or that with the resources of a green one.
    pub is_primary: bool,
    /// Number and handle of the context that its memory and code belong to: itself, or the primary one behind a green
    /// one.
    pub home: (u64, CuContext),
    /// Of the primary context with the resources of a green one: which.
    pub green: Option<Green>,
    /// The API version asked for when it was made.
    pub api_version: u32,
    /// Scheduling and mapping flags (`CU_CTX_*`).
    pub flags: AtomicU32,
    /// The cache and bank preferences.
    settings: Mutex<ContextSettings>,
    /// Device memory that it holds beside allocations, and its limits.
    pub overhead: crate::overhead::Overhead,
    /// Machine devices whose memory kernels of this context may reach, one bit each. Its own device is not in it.
    pub peers: AtomicU32,
    /// How often it was made or attached to and not detached from; the last to detach ends it.
    pub attachments: AtomicU32,
    /// Its lanes of operations.
    pub queue: crate::executor::Queue,
    /// 0, the error that ended the context's usefulness, or [`DESTROYED`].
    sticky: AtomicI32,
}

/// What a green context has.
#[derive(Clone, Copy, Debug)]
pub struct Green {
    /// What the program calls it.
    pub handle: CuGreenCtx,
    /// Its part of the multiprocessors.
    pub multiprocessors: u32,
}

/// Settings that a program can change and read back.
#[derive(Debug, Default)]
pub struct ContextSettings {
    /// `CU_FUNC_CACHE_*`.
    pub cache: i32,
    /// `CU_SHARED_MEM_CONFIG_*`.
    pub shared_memory: i32,
}

/// `sticky` of a destroyed context.
const DESTROYED: i32 = CuResult::CONTEXT_IS_DESTROYED.0;

impl Context {
    /// Ends the context's usefulness, as a fault in a kernel does: from now on its calls answer `code`. The first
    /// error stays.
    pub fn stick(&self, code: CuResult) {
        let _ = self
            .sticky
            .compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The error that calls on this context answer, if any.
    pub fn check(&self) -> Answer {
        match self.sticky.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(CuResult(code)),
        }
    }

    /// Whether `cuCtxDestroy` (or a reset of the device) has ended it.
    pub fn is_destroyed(&self) -> bool {
        self.sticky.load(Ordering::Acquire) == DESTROYED
    }

    /// Its settings, locked.
    pub fn settings(&self) -> MutexGuard<'_, ContextSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it destroyed; false when it was already.
    pub fn end(&self) -> bool {
        self.sticky.swap(DESTROYED, Ordering::AcqRel) != DESTROYED
    }
}

// ---- the driver -----------------------------------------------------------------------------------------------

static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
/// A word on a page of its own that reads 1 in the process that made it and 0 in its forked children.
static LIFE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// The driver, or NOT_INITIALIZED before `cuInit` and in a forked child.
#[inline]
pub fn driver() -> Answer<&'static Driver> {
    let driver = DRIVER.load(Ordering::Acquire);
    if driver.is_null() || is_forked() {
        return Err(CuResult::NOT_INITIALIZED);
    }
    // SAFETY: leaked by `install`.
    Ok(unsafe { &*driver })
}

/// Whether this process is a fork of one that had used the driver.
pub fn is_forked() -> bool {
    let life = LIFE.load(Ordering::Acquire);
    // SAFETY: a page mapped for the life of the process.
    !life.is_null() && unsafe { (*life).load(Ordering::Relaxed) } == 0
}

/// The machine's faults, before `cuInit` too; `None` without a machine.
pub fn faults() -> Option<Arc<Faults>> {
    static FAULTS: OnceLock<Option<Arc<Faults>>> = OnceLock::new();
    if let Ok(driver) = driver() {
        return Some(driver.faults.clone());
    }
    let found = FAULTS.get_or_init(|| Some(Machine::from_environment()?.ok()?.faults().clone()));
    found.clone()
}

/// The code that a switched-on fault gives this call instead of carrying it out.
pub fn fault_at(symbol: &str) -> Option<CuResult> {
    driver().ok()?.faults.on_call(symbol).map(CuResult)
}

impl Driver {
    /// The driver over an open machine, showing the devices at the machine indices `visible`.
    pub fn new(machine: Machine, seat: usize, visible: Vec<usize>) -> Answer<Self> {
        let memory = Memory::reserve(machine.devices(), machine.spec().bounds)?;
        let faults = machine.faults().clone();
        let primary = visible.iter().map(|_| Mutex::default()).collect();
        let contexts = Handles::new(HandleKind::Context);
        Ok(Self {
            machine,
            seat,
            faults,
            visible,
            contexts,
            primary,
            memory,
            next_context_id: AtomicU64::new(1),
        })
    }

    /// Makes this the driver of the process, for good.
    pub fn install(self) -> Answer {
        // Before the driver: whoever sees it must be able to tell a fork.
        LIFE.store(life_page()?, Ordering::Release);
        DRIVER.store(Box::into_raw(Box::new(self)), Ordering::Release);
        Ok(())
    }

    /// The device behind an ordinal.
    pub fn device(&self, ordinal: CuDevice) -> Answer<&Device> {
        let index = usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.visible.get(ordinal));
        index
            .map(|&index| &self.machine.devices()[index])
            .ok_or(CuResult::INVALID_DEVICE)
    }

    /// Makes a context, which costs device memory.
    pub fn create_context(
        &self,
        ordinal: CuDevice,
        flags: u32,
        is_primary: bool,
        api_version: u32,
    ) -> Answer<Arc<Context>> {
        let device = self.device(ordinal)?.index;
        self.memory.open_device(self, device)?;
        self.machine
            .open_context(self.seat, device)
            .map_err(|_| CuResult::OUT_OF_MEMORY)?;
        let made = self.enter_context(|handle, id| Context {
            handle,
            id,
            ordinal,
            device,
            is_primary,
            home: (id, handle),
            green: None,
            api_version,
            flags: AtomicU32::new(flags),
            settings: Mutex::default(),
            overhead: crate::overhead::Overhead::default(),
            peers: AtomicU32::new(0),
            attachments: AtomicU32::new(1),
            queue: crate::executor::Queue::default(),
            sticky: AtomicI32::new(0),
        });
        made.inspect_err(|_| self.machine.close_context(self.seat, device))
    }

    /// Makes a primary context with the resources of a green one: the same memory and code, streams of its own.
    pub fn convert_context(&self, primary: &Context, green: Green) -> Answer<Arc<Context>> {
        self.enter_context(|handle, id| Context {
            handle,
            id,
            ordinal: primary.ordinal,
            device: primary.device,
            is_primary: true,
            home: primary.home,
            green: Some(green),
            api_version: primary.api_version,
            flags: AtomicU32::new(primary.flags.load(Ordering::Relaxed)),
            settings: Mutex::default(),
            overhead: crate::overhead::Overhead::default(),
            peers: AtomicU32::new(primary.peers.load(Ordering::Acquire)),
            attachments: AtomicU32::new(1),
            queue: crate::executor::Queue::default(),
            sticky: AtomicI32::new(0),
        })
    }

    fn enter_context(&self, make: impl FnOnce(CuContext, u64) -> Context) -> Answer<Arc<Context>> {
        let id = self.next_context_id.fetch_add(1, Ordering::Relaxed);
        let made = self
            .contexts
            .insert_with(|handle| Arc::new(make(CuContext(handle), id)));
        made.ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// Ends what [`convert_context`](Self::convert_context) made. The memory is the primary context's and stays.
    pub fn end_converted(&self, context: &Context) {
        if context.end() {
            context.queue.end();
            crate::overhead::end(context);
            self.contexts.remove(context.handle.0);
        }
    }

    /// Ends a context with everything that belongs to it. Does nothing when it has ended already.
    pub fn destroy_context(&self, context: &Context) {
        if !context.end() {
            return;
        }
        context.queue.end();
        self.memory.free_all_of(self, context);
        crate::overhead::end(context);
        self.memory.settle_pools(self, |freed| freed.context == context.id);
        self.machine.close_context(self.seat, context.device);
        self.contexts.remove(context.handle.0);
        // Pools and graphs are for those who work on the device: with the last of them goes what they kept.
        let has_others = self.contexts.all().iter().any(|other| other.device == context.device);
        if !has_others {
            self.memory.trim_pools(self, context.device);
            self.memory.end_graphs(self, context.device);
        }
    }

    /// The context behind a handle: INVALID_CONTEXT for one that is null, stale or made up.
    pub fn context(&self, handle: CuContext) -> Answer<Arc<Context>> {
        self.contexts.get(handle.0).ok_or(CuResult::INVALID_CONTEXT)
    }

    /// The lock of a device's primary context.
    pub fn primary(&self, ordinal: CuDevice) -> Answer<MutexGuard<'_, Primary>> {
        self.device(ordinal)?;
        Ok(self.primary[ordinal as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }
}

/// All memory that this process has from the driver.
pub fn memory() -> Answer<&'static Memory> {
    Ok(&driver()?.memory)
}

fn life_page() -> Answer<*mut AtomicU32> {
    // One page for the life of the process, also when `cuInit` fails and is called again.
    static PAGE: OnceLock<usize> = OnceLock::new();
    let page = *PAGE.get_or_init(|| {
        // SAFETY: a fresh private page; nothing else knows it.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page == libc::MAP_FAILED || libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
                return 0;
            }
            (*page.cast::<AtomicU32>()).store(1, Ordering::Relaxed);
            page as usize
        }
    });
    if page == 0 {
        Err(CuResult::OPERATING_SYSTEM)
    } else {
        Ok(page as *mut AtomicU32)
    }
}

// ---- the current context --------------------------------------------------------------------------------------

thread_local! {
    /// The thread's contexts, the current one last. Never dropped: the driver is called from other libraries'
    /// thread-exit handlers too.
    static STACK: ManuallyDrop<RefCell<Vec<Arc<Context>>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Works on the thread's stack of contexts.
pub fn with_stack<T>(work: impl FnOnce(&mut Vec<Arc<Context>>) -> T) -> T {
    STACK.with(|stack| work(&mut stack.borrow_mut()))
}

/// The current context, whatever state it is in; INVALID_CONTEXT when there is none.
pub fn current_as_it_is() -> Answer<Arc<Context>> {
    driver()?;
    with_stack(|stack| stack.last().cloned()).ok_or(CuResult::INVALID_CONTEXT)
}

/// The current context for work on it: its own error when a fault, or its end, has made it useless.
pub fn current() -> Answer<Arc<Context>> {
    let context = current_as_it_is()?;
    context.check()?;
    let driver = driver()?;
    if driver.faults.is_lost(context.device) {
        context.stick(CuResult::UNKNOWN);
        context.check()?;
    }
    Ok(context)
}

/// An answer as the C interface gives it.
pub fn code(answer: Answer) -> CuResult {
    match answer {
        Ok(()) => CuResult::SUCCESS,
        Err(code) => code,
    }
}

/// Stores to a pointer of the program: INVALID_VALUE when it is null.
pub fn store<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the contract of the entry point it leads to room for a `T`. The program need not
    // have aligned it.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
