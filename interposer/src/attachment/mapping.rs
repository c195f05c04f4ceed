// SPDX-License-Identifier: Apache-2.0
//! The mappings of the pages that this process shares with a broker.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use partage_protocol::page::{
    BROKER_MAGIC, BrokerPage, CLIENT_BYTES, CLIENT_MAGIC, ClientFile, ClientPage, LAYOUT, PAGE_BYTES,
};
use partage_records::exchange::{Exchanged, Filled, Kernel, exchange};

use crate::guest::descriptor::Kept;
use crate::guest::sys;
use crate::socket::Refusal;

/// Between two attempts to get memory that the kernel did not have, in nanoseconds.
const REFILL_NS: u64 = 1_000_000;

/// Maps both pages, for the life of the process.
///
/// # Errors
/// No room for them, or a layout that this library does not know.
pub fn map(broker: &Kept, client: &Kept) -> Result<(*mut BrokerPage, *mut ClientFile), Refusal> {
    let broker = Mapping::of(broker, PAGE_BYTES, libc::PROT_READ).ok_or(Refusal::Unable)?;
    let client = Mapping::of(client, CLIENT_BYTES, libc::PROT_READ | libc::PROT_WRITE).ok_or(Refusal::Unable)?;
    if !are_understood(&broker, &client) {
        return Err(Refusal::Final);
    }
    Ok((broker.keep().cast(), client.keep().cast()))
}

/// Are both pages of the layout that this library knows? Only their heads are read.
fn are_understood(broker: &Mapping, client: &Mapping) -> bool {
    // SAFETY: mapped; the broker sealed the files against shrinking. Only the first page of each is looked at.
    let (broker, client) = unsafe {
        (
            &*broker.memory.cast::<BrokerPage>(),
            &*client.memory.cast::<ClientPage>(),
        )
    };
    broker.head.magic.load(Ordering::Acquire) == BROKER_MAGIC
        && broker.head.layout.load(Ordering::Relaxed) == LAYOUT
        && client.head.magic.load(Ordering::Relaxed) == CLIENT_MAGIC
        && client.head.layout.load(Ordering::Relaxed) == LAYOUT
}

/// A private copy of shared memory, to be [put in its place](move_over).
///
/// # Errors
/// No room for it.
pub fn copy<T>(shared: &T) -> Result<*mut c_void, Refusal> {
    let memory = sys::map_private(size_of::<T>()).ok_or(Refusal::Unable)?;
    sys::advise(memory, size_of::<T>(), libc::MADV_DONTFORK);
    // SAFETY: just mapped, as long as `T`, and nobody else's.
    copy_words(shared, unsafe { &*memory.cast::<T>() });
    Ok(memory)
}

/// Copies what is not zero over memory that was all zero.
pub fn copy_words<T>(from: &T, to: &T) {
    let words = size_of::<T>() / size_of::<u64>();
    let from = core::ptr::from_ref(from).cast::<AtomicU64>();
    let to = core::ptr::from_ref(to).cast::<AtomicU64>();
    for index in 0..words {
        // SAFETY: within both values, which are pages of atomics.
        let (from, to) = unsafe { (&*from.add(index), &*to.add(index)) };
        let word = from.load(Ordering::Relaxed);
        if word != 0 {
            to.store(word, Ordering::Relaxed);
        }
    }
}

/// Puts pages in the place of others of the same kind, for whoever looks there.
pub fn move_over<T>(pages: *mut c_void, to: &T) -> Exchanged {
    exchange(&mut Exchange { pages, to })
}

/// Pages of one kind, and their place.
struct Exchange<'a, T> {
    pages: *mut c_void,
    to: &'a T,
}

impl<T> Exchange<'_, T> {
    const fn place(&self) -> *mut c_void {
        core::ptr::from_ref(self.to).cast_mut().cast()
    }
}

impl<T> Kernel for Exchange<'_, T> {
    fn has_room(&mut self) -> bool {
        let proof = sys::map_private(size_of::<T>());
        proof.is_some_and(|proof| {
            discard::<T>(proof);
            true
        })
    }

    fn remap(&mut self) -> bool {
        // SAFETY: both are pages of atomics, used by address; whoever reads there reads the new ones from now on.
        unsafe { sys::move_over(self.pages, size_of::<T>(), self.place()) }
    }

    fn is_whole(&mut self) -> bool {
        sys::is_mapped(self.place(), size_of::<T>())
    }

    fn fill(&mut self) -> Filled {
        match sys::map_private_at(self.place(), size_of::<T>()) {
            None => Filled::Taken,
            Some(false) => Filled::Short,
            Some(true) => {
                sys::advise(self.place(), size_of::<T>(), libc::MADV_DONTFORK);
                // SAFETY: pages of atomics like those that they are copied to, mapped until they are discarded.
                copy_words(unsafe { &*self.pages.cast::<T>() }, self.to);
                Filled::Done
            }
        }
    }

    fn rest(&mut self) {
        sys::sleep_ns(REFILL_NS);
    }
}

/// Gives up pages that nobody has seen.
pub fn discard<T>(pages: *mut c_void) {
    // SAFETY: the caller made them and has shown them to nobody.
    unsafe { sys::unmap(pages, size_of::<T>()) };
}

/// Pages that are unmapped again unless somebody keeps them.
struct Mapping {
    memory: *mut c_void,
    length: usize,
}

impl Mapping {
    fn of(file: &Kept, length: usize, protection: c_int) -> Option<Self> {
        let memory = sys::map(length, protection, libc::MAP_SHARED, file.fd()?)?;
        sys::advise(memory, length, libc::MADV_DONTFORK);
        Some(Self { memory, length })
    }

    fn keep(self) -> *mut c_void {
        let memory = self.memory;
        core::mem::forget(self);
        memory
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody has seen what is not kept.
        unsafe { sys::unmap(self.memory, self.length) };
    }
}
