// SPDX-License-Identifier: Apache-2.0
//! The mappings of the pages that this process shares with a broker.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use partage_protocol::page::{
    BROKER_MAGIC, BrokerPage, CLIENT_BYTES, CLIENT_MAGIC, ClientFile, ClientPage, LAYOUT, PAGE_BYTES,
};

use crate::guest::descriptor::Kept;
use crate::guest::sys;
use crate::socket::Refusal;

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
