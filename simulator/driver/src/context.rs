// SPDX-License-Identifier: Apache-2.0
//! Contexts: what a context handle stands for, the primary context of each device, and the context that is current in
//! a thread. [`life`] makes and ends them.

pub mod life;

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partage_abi::types::*;
use partage_machine::seats::MAX_DEVICES;

use crate::executor::Queue;
use crate::handles::{HandleKind, Handles};
use crate::overhead::Overhead;
use crate::state::{Answer, driver};

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
    pub overhead: Overhead,
    /// Machine devices whose memory kernels of this context may reach, one bit each. Its own device is not in it.
    pub peers: AtomicU32,
    /// How often it was made or attached to and not detached from; the last to detach ends it.
    pub attachments: AtomicU32,
    /// Its lanes of operations.
    pub queue: Queue,
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

/// Every living context.
static CONTEXTS: Handles<Context> = Handles::new(HandleKind::Context);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// By the ordinal of the device.
static PRIMARY: [Mutex<Primary>; MAX_DEVICES] = [const {
    Mutex::new(Primary {
        context: None,
        retains: 0,
        flags: 0,
    })
}; MAX_DEVICES];

/// What a new context is made with.
pub struct Beginning {
    /// The device as the program numbers it.
    pub ordinal: CuDevice,
    /// The device as the machine numbers it.
    pub device: usize,
    /// Whether it is its device's primary context, or that with the resources of a green one.
    pub is_primary: bool,
    /// Of the primary context with the resources of a green one: which.
    pub green: Option<Green>,
    /// Number and handle of the context that its memory and code belong to; `None` for itself.
    pub home: Option<(u64, CuContext)>,
    /// The API version asked for.
    pub api_version: u32,
    /// Scheduling and mapping flags.
    pub flags: u32,
    /// Machine devices whose memory its kernels may reach.
    pub peers: u32,
}

impl Context {
    /// Makes a context and enters it among the living.
    pub fn begin(with: Beginning) -> Answer<Arc<Self>> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let made = CONTEXTS.insert_with(|handle| {
            let handle = CuContext(handle);
            Arc::new(Self {
                handle,
                id,
                ordinal: with.ordinal,
                device: with.device,
                is_primary: with.is_primary,
                home: with.home.unwrap_or((id, handle)),
                green: with.green,
                api_version: with.api_version,
                flags: AtomicU32::new(with.flags),
                settings: Mutex::default(),
                overhead: Overhead::new(with.device),
                peers: AtomicU32::new(with.peers),
                attachments: AtomicU32::new(1),
                queue: Queue::default(),
                sticky: AtomicI32::new(0),
            })
        });
        made.ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// The context behind a handle: INVALID_CONTEXT for one that is null, stale or made up.
    pub fn find(handle: CuContext) -> Answer<Arc<Self>> {
        driver()?;
        CONTEXTS.get(handle.0).ok_or(CuResult::INVALID_CONTEXT)
    }

    /// Takes its handle away.
    pub fn forget(&self) {
        CONTEXTS.remove(self.handle.0);
    }

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

/// Every living context.
pub fn all() -> Vec<Arc<Context>> {
    CONTEXTS.all()
}

/// Whether a machine device has a living context of this process.
pub fn is_in_use(device: usize) -> bool {
    CONTEXTS.all().iter().any(|context| context.device == device)
}

/// The lock of a device's primary context.
pub fn primary(ordinal: CuDevice) -> Answer<MutexGuard<'static, Primary>> {
    driver()?.device(ordinal)?;
    let primary = PRIMARY.get(ordinal as usize).ok_or(CuResult::INVALID_DEVICE)?;
    Ok(primary.lock().unwrap_or_else(PoisonError::into_inner))
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
    if driver.is_lost(context.device) {
        context.stick(CuResult::UNKNOWN);
        context.check()?;
    }
    Ok(context)
}
