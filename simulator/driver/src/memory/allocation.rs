// SPDX-License-Identifier: Apache-2.0
//! One allocation: how it came about, who reaches it, and what is special about those of graphs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use partage_abi::types::{CuContext, CuMemAccessDesc, CuMemPoolProps};
use partage_abi::values::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

use super::foreign::{Foreign, Sharing};
use super::lock::lock;
use super::physical::Physical;
use super::pool::Pool;
use super::span::Span;
use super::view::{CPU, CPU_READS, EVERYBODY};
use super::windows::Windows;
use crate::context::Context;
use crate::state::driver;

/// How an allocation came about.
#[derive(Debug)]
pub enum AllocationKind {
    /// `cuMemAlloc`, `cuMemAllocPitch`, module globals.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc`, `cuMemAllocHost`.
    Host,
    /// `cuMemHostRegister`: the program's own memory.
    Registered,
    /// `cuMemMap`: an address range that the program manages, with physical memory behind it.
    Mapped(Arc<Physical>),
    /// `cuMemAllocAsync` and the like: from this pool.
    Pooled(Arc<Pool>),
    /// `cuIpcOpenMemHandle`: another process's.
    Opened(Arc<Foreign>),
    /// `cuMemPoolImportPointer`: another process's, of this imported pool.
    Imported(Arc<Foreign>, Arc<Pool>),
    /// `cuExternalMemoryGetMappedBuffer`: another interface's.
    External(#[expect(dead_code, reason = "kept until the allocation goes")] Arc<Foreign>),
    /// A node of a graph.
    Graph(GraphPart),
}

/// One live allocation.
#[derive(Debug)]
pub struct Allocation {
    /// Its first visible address.
    pub address: u64,
    /// The bytes asked for.
    pub bytes: u64,
    /// Device memory it costs.
    pub cost: u64,
    /// How it came about.
    pub kind: AllocationKind,
    /// The machine device it is on, or whose context made it.
    pub device: usize,
    /// That device as the program numbers it.
    pub ordinal: i32,
    /// The context it belongs to; 0 when it belongs to none.
    pub context: u64,
    /// That context's handle.
    pub owner: CuContext,
    /// The flags it was made with.
    pub flags: u32,
    /// Whether the program asked that copies of it always be synchronous.
    pub sync_copies: AtomicBool,
    /// Whether other processes can open it.
    pub(super) sharing: Mutex<Sharing>,
    /// Unique in the process (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
    /// Whose kernels reach it: a bit per machine device, or [`EVERYBODY`].
    pub(super) reach: AtomicU32,
    /// Where the driver reaches the first byte.
    pub(super) alias: usize,
}

// SAFETY: the pointers inside are numbers to us: a handle, and addresses of mappings not bound to a thread.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// An allocation of a context, still without number; who reaches it follows from its kind.
    pub(super) fn new(context: &Context, kind: AllocationKind, address: u64, bytes: u64, alias: usize) -> Self {
        let reach = match kind {
            AllocationKind::Device
            | AllocationKind::Pooled(_)
            | AllocationKind::Opened(_)
            | AllocationKind::External(_) => 1 << context.device,
            AllocationKind::Mapped(_) | AllocationKind::Imported(..) | AllocationKind::Graph(_) => 0,
            _ => EVERYBODY,
        };
        Self {
            address,
            bytes,
            cost: 0,
            kind,
            device: context.device,
            ordinal: context.ordinal,
            context: context.home.0,
            owner: context.home.1,
            flags: 0,
            sync_copies: AtomicBool::new(false),
            sharing: Mutex::default(),
            id: 0,
            reach: AtomicU32::new(reach),
            alias,
        }
    }

    /// Where the driver reaches the byte at a visible address inside.
    pub fn reach(&self, address: u64) -> *mut u8 {
        (self.alias as u64 + (address - self.address)) as *mut u8
    }

    /// Whether it is host memory, the driver's or the program's own.
    pub fn is_host(&self) -> bool {
        matches!(self.kind, AllocationKind::Host | AllocationKind::Registered)
    }

    /// Whether it is managed memory.
    pub fn is_managed(&self) -> bool {
        matches!(self.kind, AllocationKind::Managed)
    }

    /// Whether kernels and copies of a context reach it.
    pub fn is_reached_by(&self, context: &Context) -> bool {
        self.reach.load(Ordering::Acquire) & reach_of(context) != 0
    }

    /// Lets more of the bits of [`View`] reach it. For an allocation that is not in the table yet.
    pub(super) fn let_reach(&self, bits: u32) {
        self.reach.fetch_or(bits, Ordering::AcqRel);
    }

    /// Whether a machine device reaches it.
    pub fn is_reached_from(&self, device: usize) -> bool {
        self.reach.load(Ordering::Acquire) & 1 << device != 0
    }

    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

impl Allocation {
    /// What the CPU may do with it (`CU_MEM_ACCESS_FLAGS_PROT_*`).
    pub fn cpu_access(&self) -> i32 {
        match self.reach.load(Ordering::Acquire) {
            reach if reach & CPU != 0 => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            reach if reach & CPU_READS != 0 => CU_MEM_ACCESS_FLAGS_PROT_READ,
            _ => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        }
    }

    /// Whether the CPU may do anything with it.
    pub(super) fn is_reached_by_cpu(&self) -> bool {
        self.cpu_access() != CU_MEM_ACCESS_FLAGS_PROT_NONE
    }

    /// A mapping of physical memory.
    pub(super) fn mapped(physical: Arc<Physical>, address: u64, bytes: u64, alias: usize) -> Self {
        let (device, ordinal) = (physical.device, physical.ordinal);
        Self::without_context(AllocationKind::Mapped(physical), device, ordinal, address, bytes, alias)
    }

    /// An allocation that belongs to no context and outlives them all; nobody reaches it yet.
    pub(super) fn without_context(
        kind: AllocationKind,
        device: usize,
        ordinal: i32,
        address: u64,
        bytes: u64,
        alias: usize,
    ) -> Self {
        Self {
            address,
            bytes,
            cost: 0,
            kind,
            device,
            ordinal,
            context: 0,
            owner: CuContext(std::ptr::null_mut()),
            flags: 0,
            sync_copies: false.into(),
            sharing: Mutex::default(),
            id: 0,
            reach: 0.into(),
            alias,
        }
    }
}

/// The owners whose memory a context reaches.
pub(super) fn reach_of(context: &Context) -> u32 {
    1 << context.device | context.peers.load(Ordering::Relaxed) | EVERYBODY
}

// ---- allocations of graphs ------------------------------------------------------------------------------------

/// What is special about an allocation of a graph.
#[derive(Debug)]
pub struct GraphPart {
    /// The graph whose node allocates it.
    pub graph: u32,
    /// Where it lies.
    pub span: Arc<Span>,
    /// As asked for.
    pub properties: CuMemPoolProps,
    /// As asked for.
    pub access: Vec<CuMemAccessDesc>,
    /// The graphs that have a node that frees it.
    pub(super) freed_in: Mutex<Vec<u32>>,
    /// Where it is among those that have an address: by address, then by number.
    pub(super) place: (u64, u64),
}

// SAFETY: the pointer in the properties is the program's and is only handed back.
unsafe impl Send for GraphPart {}
// SAFETY: as above.
unsafe impl Sync for GraphPart {}

impl Drop for GraphPart {
    fn drop(&mut self) {
        if driver().is_ok() {
            lock(&PLANNED).remove(&self.place);
        }
    }
}

impl GraphPart {
    /// Whether the graph that allocates it frees it too.
    pub fn is_freed_by_its_graph(&self) -> bool {
        lock(&self.freed_in).contains(&self.graph)
    }
}

impl Allocation {
    /// What is special about it as an allocation of a graph.
    pub fn graph_part(&self) -> Option<&GraphPart> {
        match &self.kind {
            AllocationKind::Graph(part) => Some(part),
            _ => None,
        }
    }
}

impl GraphPart {
    /// Start and end in its span. Precondition: `allocation` is the one that this is a part of.
    pub fn range(&self, windows: &Windows, allocation: &Allocation) -> (u64, u64) {
        let start = allocation.address - windows.space.visible(self.span.offset);
        (start, start + allocation.cost)
    }
}

/// Allocations of graphs that have an address, in use or not.
static PLANNED: Mutex<BTreeMap<(u64, u64), Weak<Allocation>>> = Mutex::new(BTreeMap::new());

/// An allocation of a graph has got its address.
pub(super) fn enter_address(place: (u64, u64), made: &Arc<Allocation>) {
    lock(&PLANNED).insert(place, Arc::downgrade(made));
}

/// The allocations of graphs that hold a range, in use or not; the one made last first.
pub(super) fn all_planned(windows: &Windows, address: u64, bytes: u64) -> Vec<Arc<Allocation>> {
    let is_managed = windows
        .space
        .offset(address)
        .is_some_and(|offset| offset >= windows.space.managed_window().start);
    let Some(end) = address.checked_add(bytes).filter(|_| is_managed) else {
        return Vec::new();
    };
    // All references are let go after the lock: an allocation that ends takes it.
    let near: Vec<Arc<Allocation>> = lock(&PLANNED)
        .range(..=(address, u64::MAX))
        .filter_map(|(_, known)| known.upgrade())
        .collect();
    let mut found: Vec<_> = near.into_iter().filter(|known| end <= known.end()).collect();
    found.sort_by_key(|known| std::cmp::Reverse(known.id));
    found
}

/// An allocation of a graph that holds a range, in use or not.
pub(super) fn find_planned(windows: &Windows, address: u64, bytes: u64) -> Option<Arc<Allocation>> {
    all_planned(windows, address, bytes).into_iter().next()
}
