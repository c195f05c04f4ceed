// SPDX-License-Identifier: Apache-2.0
//! The table of live allocations, and how an address is found in it.
//!
//! Lock order in this module: leaving, then table, then ranges; none is held across anything that waits.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use partage_abi::types::{CuContext, CuResult};
use partage_machine::{Bounds, Device};
use partage_ptx::Region;

use super::arrays::Arrays;
use super::foreign::{Foreign, Sharing};
use super::graph_pool::GraphPool;
use super::mapping::{Physical, Reservations};
use super::planned::{GraphPart, Planned};
use super::pool::Pool;
use super::ranges::Ranges;
use super::shared::Shared;
use super::space::Space;
use super::view::{EVERYBODY, Piece, View};
use crate::context::Context;
use crate::state::{Answer, Driver, driver};

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
    Imported(
        #[expect(dead_code, reason = "kept until the allocation goes")] Arc<Foreign>,
        Arc<Pool>,
    ),
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

/// All memory of the process.
#[derive(Debug)]
pub struct Memory {
    pub(super) space: Space,
    bounds: Bounds,
    /// Free parts of each device's window; offsets in the window are offsets in its file.
    pub(super) ranges: Vec<Mutex<Ranges>>,
    /// The file behind each device, made when it is first used.
    backing: Vec<OnceLock<File>>,
    opening: Mutex<()>,
    /// What programs did with the window that they manage.
    pub(super) reservations: Mutex<Reservations>,
    /// Memory that has handles and no addresses.
    pub(super) arrays: Arrays,
    /// What other processes hold too.
    pub(super) shared: Shared,
    /// Taken while memory of other processes is opened or closed.
    pub(super) opening_exports: Mutex<()>,
    table: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    /// No longer the program's, but still reached by what it submitted before it freed them in a stream. New
    /// allocations may lie in the same addresses.
    leaving: Mutex<Vec<Arc<Allocation>>>,
    /// Every pool.
    pub(super) pools: Mutex<Vec<Weak<Pool>>>,
    /// Physical memory of graphs.
    pub(super) graph_pool: Mutex<GraphPool>,
    /// Allocations of graphs, live or not.
    pub(super) planned: Mutex<Planned>,
    /// Changes with the table.
    version: AtomicU64,
    /// The pieces of the table, and of which version.
    pieces: Mutex<(u64, Arc<Vec<Piece>>)>,
    next_id: AtomicU64,
}

// SAFETY: the pointers inside lead to mappings of the process; all changes are under locks.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves addresses for the memory of these devices, in which kernels are kept within such bounds.
    fn reserve(devices: &[Device], bounds: Bounds) -> Answer<Self> {
        let space = Space::reserve(devices)?;
        let ranges = (0..devices.len())
            .map(|device| Mutex::new(Ranges::new(space.window(device).bytes)))
            .collect();
        let reservations = Mutex::new(Reservations::new(space.managed_window().bytes));
        Ok(Self {
            space,
            bounds,
            ranges,
            backing: devices.iter().map(|_| OnceLock::new()).collect(),
            opening: Mutex::new(()),
            reservations,
            arrays: Arrays::default(),
            shared: Shared::default(),
            opening_exports: Mutex::default(),
            table: RwLock::default(),
            leaving: Mutex::default(),
            pools: Mutex::default(),
            graph_pool: Mutex::default(),
            planned: Mutex::default(),
            version: AtomicU64::new(1),
            pieces: Mutex::default(),
            next_id: AtomicU64::new(1),
        })
    }

    /// Makes a device's memory reachable, if it is not yet, and gives the file behind it.
    pub fn open_device(&self, driver: &Driver, device: usize) -> Answer<&File> {
        let _one_at_a_time = lock(&self.opening);
        if let Some(file) = self.backing[device].get() {
            return Ok(file);
        }
        let window = self.space.window(device);
        let file = driver
            .machine
            .create_backing(driver.seat, device, window.bytes)
            .map_err(|_| CuResult::OPERATING_SYSTEM)?;
        self.space.map(window.start, &file, 0, window.bytes)?;
        Ok(self.backing[device].get_or_init(|| file))
    }

    // ---- the table --------------------------------------------------------------------------------------------

    /// Numbers an allocation and enters it.
    pub(super) fn enter(&self, mut made: Allocation) -> Arc<Allocation> {
        made.id = self.next_id();
        let made = Arc::new(made);
        self.change(|table| table.insert(made.address, made.clone()));
        made
    }

    /// A number for an allocation.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// As [`enter`](Self::enter), unless another allocation lies in the same addresses: then false.
    pub(super) fn enter_if_free(&self, mut made: Allocation) -> bool {
        made.id = self.next_id();
        self.change(|table| {
            let last = table.range(..made.end()).next_back();
            if last.is_some_and(|(_, last)| last.end() > made.address) {
                return false;
            }
            table.insert(made.address, Arc::new(made));
            true
        })
    }

    /// Takes the allocation that starts at `address` out of the table, if `is_it` says so.
    pub(super) fn take(&self, address: u64, is_it: impl FnOnce(&Allocation) -> bool) -> Option<Arc<Allocation>> {
        self.change(|table| {
            if is_it(table.get(&address)?) {
                table.remove(&address)
            } else {
                None
            }
        })
    }

    /// Takes all that `is_it` chooses out of the table.
    pub(super) fn take_all(&self, is_it: impl Fn(&Allocation) -> bool) -> Vec<Arc<Allocation>> {
        let mut gone = Vec::new();
        self.change(|table| {
            table.retain(|_, allocation| {
                let goes = is_it(allocation);
                if goes {
                    gone.push(allocation.clone());
                }
                !goes
            });
        });
        gone
    }

    /// Works on the table and lets snapshots of it expire.
    pub(super) fn change<T>(&self, work: impl FnOnce(&mut BTreeMap<u64, Arc<Allocation>>) -> T) -> T {
        let mut table: RwLockWriteGuard<'_, _> = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let answer = work(&mut table);
        self.version.fetch_add(1, Ordering::Release);
        answer
    }

    /// The allocations that lie in `address..end`, in order.
    pub(super) fn between(&self, address: u64, end: u64) -> Vec<Arc<Allocation>> {
        let table = self.table();
        let before = table
            .range(..address)
            .next_back()
            .filter(|(_, last)| last.end() > address);
        before
            .into_iter()
            .chain(table.range(address..end))
            .map(|(_, found)| found.clone())
            .collect()
    }

    /// The first answer that `look` has to an allocation.
    pub(super) fn look_for<T>(&self, look: impl FnMut(&Allocation) -> Option<T>) -> Option<T> {
        self.table().values().map(|found| &**found).find_map(look)
    }

    // ---- finding ----------------------------------------------------------------------------------------------

    /// The allocation that an address is in: a live one, else one that is leaving or that a graph has planned.
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        self.find_live(address)
            .or_else(|| self.find_leaving(address, 1))
            .or_else(|| self.find_planned(address, 1))
    }

    /// Whether an allocation of a graph holds a range of addresses. Work on it may be submitted before it is there.
    pub fn is_planned(&self, address: u64, bytes: u64) -> bool {
        self.find_planned(address, bytes).is_some()
    }

    /// The last allocation that begins at an address or before it, and the first behind.
    pub(super) fn neighbours(&self, address: u64) -> (Option<Arc<Allocation>>, Option<Arc<Allocation>>) {
        let table = self.table();
        let before = table.range(..=address).next_back().map(|(_, found)| found.clone());
        let after = table.range(address.saturating_add(1)..).next();
        (before, after.map(|(_, found)| found.clone()))
    }

    pub(super) fn find_live(&self, address: u64) -> Option<Arc<Allocation>> {
        let table = self.table();
        let (_, last) = table.range(..=address).next_back()?;
        (address < last.end()).then(|| last.clone())
    }

    fn find_leaving(&self, address: u64, bytes: u64) -> Option<Arc<Allocation>> {
        let end = address.checked_add(bytes)?;
        let holds = |found: &Arc<Allocation>| found.address <= address && end <= found.end();
        self.leaving().iter().find(|found| holds(found)).cloned()
    }

    /// Where the driver reaches `bytes` bytes at an address of device, managed or host memory of ours; INVALID_VALUE
    /// unless one allocation holds all of them, or mappings that follow each other do.
    pub fn resolve(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        self.resolve_live(address, bytes).or_else(|code| {
            let found = self.find_leaving(address, bytes).ok_or(code)?;
            Ok(found.reach(address))
        })
    }

    fn resolve_live(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        let end = address.checked_add(bytes).ok_or(CuResult::INVALID_VALUE)?;
        let table = self.table();
        let (_, first) = table.range(..=address).next_back().ok_or(CuResult::INVALID_VALUE)?;
        let mut reached = first.end();
        for (_, next) in table.range(address + 1..).take_while(|(start, _)| **start < end) {
            let is_joined = next.address == reached
                && matches!(
                    (&first.kind, &next.kind),
                    (AllocationKind::Mapped(_), AllocationKind::Mapped(_))
                );
            if !is_joined {
                break;
            }
            reached = next.end();
        }
        if address >= first.end() && bytes > 0 || end > reached {
            return Err(CuResult::INVALID_VALUE);
        }
        Ok(first.reach(address))
    }

    /// As [`resolve`](Self::resolve), but memory that the driver does not know is taken to be the program's own and
    /// reached where it is. INVALID_VALUE for an address in our windows that is not allocated.
    pub fn resolve_any(&self, address: u64, bytes: u64) -> Answer<*mut u8> {
        let is_known = self
            .find_live(address)
            .is_some_and(|found| found.end() - address >= bytes);
        if is_known || self.space.offset(address).is_some() {
            return self.resolve(address, bytes);
        }
        if address == 0 {
            Err(CuResult::INVALID_VALUE)
        } else {
            Ok(address as *mut u8)
        }
    }

    /// What kernels of a context may reach now.
    pub fn view(&self, context: &Context) -> View {
        let version = self.version.load(Ordering::Acquire);
        let mut pieces = lock(&self.pieces);
        if pieces.0 != version {
            *pieces = (version, Arc::new(self.pieces()));
        }
        View::new(pieces.1.clone(), reach_of(context))
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut was_mapped = false;
        let leaving = self.leaving().clone();
        let mut all: Vec<Arc<Allocation>> = self.table().values().cloned().collect();
        if !leaving.is_empty() {
            all.extend(leaving);
            all.sort_by_key(|allocation| allocation.address);
        }
        for allocation in all {
            let owner = allocation.reach.load(Ordering::Acquire);
            let is_mapped = matches!(allocation.kind, AllocationKind::Mapped(_));
            // Mappings that follow each other are one piece to a kernel; separate allocations never are.
            if let Some(last) = pieces.last_mut()
                && is_mapped
                && was_mapped
                && last.owner == owner
                && last.region.address + last.region.bytes == allocation.address
            {
                last.region.bytes += allocation.bytes;
                continue;
            }
            was_mapped = is_mapped;
            // What is leaving may overlap what came after it: one piece, for a kernel may belong to either.
            if let Some(last) = pieces.last_mut()
                && last.region.address + last.region.bytes > allocation.address
            {
                let end = allocation.end().max(last.region.address + last.region.bytes);
                last.region.bytes = end - last.region.address;
                last.owner |= owner;
                continue;
            }
            let host = allocation.alias as *mut u8;
            let is_rounded = self.bounds == Bounds::Granule && matches!(allocation.kind, AllocationKind::Device);
            let region = Region {
                address: allocation.address,
                // What it costs is its own: whole granules.
                bytes: if is_rounded { allocation.cost } else { allocation.bytes },
                host,
            };
            pieces.push(Piece { region, owner });
        }
        pieces
    }

    /// Lock before the table.
    pub(super) fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Allocation>>> {
        lock(&self.leaving)
    }

    fn table(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Arc<Allocation>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }
}

static MEMORY: OnceLock<Memory> = OnceLock::new();

/// All memory that this process has from the driver.
pub fn memory() -> Answer<&'static Memory> {
    driver()?;
    MEMORY.get().ok_or(CuResult::NOT_INITIALIZED)
}

/// Reserves addresses for the memory of these devices, once for the process; see [`Memory::reserve`].
pub fn install(devices: &[Device], bounds: Bounds) -> Answer {
    if MEMORY.get().is_none() {
        // One thread initialises at a time.
        let _ = MEMORY.set(Memory::reserve(devices, bounds)?);
    }
    Ok(())
}

/// The owners whose memory a context reaches.
fn reach_of(context: &Context) -> u32 {
    1 << context.device | context.peers.load(Ordering::Relaxed) | EVERYBODY
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
