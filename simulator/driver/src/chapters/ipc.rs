// SPDX-License-Identifier: Apache-2.0
//! Linear device memory and events that one process makes and others use.

use partage_abi::types::*;
use partage_abi::values::*;

use crate::context::current;
use crate::event::Event;
use crate::memory::{Export, memory};
use crate::state::{code, driver, store};
use crate::submission::before_free;

/// First bytes of a handle of an event; its number follows, and the number again with all bits turned.
const EVENT_MAGIC: u64 = u64::from_le_bytes(*b"simevent");

pub fn cuIpcGetEventHandle(handle: *mut CuIpcEventHandle, event: CuEvent) -> CuResult {
    code(current().and_then(|_| {
        if handle.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let id = Event::find(event)?.share()?;
        let mut reserved = [0; 64];
        let words = [EVENT_MAGIC, id, !id];
        for (to, from) in reserved
            .iter_mut()
            .zip(words.iter().flat_map(|word| word.to_le_bytes()))
        {
            *to = from as c_char;
        }
        store(handle, CuIpcEventHandle { reserved })
    }))
}

/// INVALID_HANDLE for what is none, or whose event is gone; INVALID_CONTEXT for one of this process.
pub fn cuIpcOpenEventHandle(event: *mut CuEvent, handle: CuIpcEventHandle) -> CuResult {
    code(current().and_then(|_| {
        if event.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let bytes = handle.reserved.map(|byte| byte as u8);
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        if word(0) != EVENT_MAGIC || word(2) != !word(1) {
            return Err(CuResult::INVALID_HANDLE);
        }
        let shared = driver()?
            .machine()
            .open_event(word(1))
            .ok_or(CuResult::INVALID_HANDLE)?;
        if shared.is_own() {
            return Err(CuResult::INVALID_CONTEXT);
        }
        store(event, Event::open(shared)?.handle)
    }))
}

pub fn cuIpcGetMemHandle(handle: *mut CuIpcMemHandle, dptr: CuDevicePtr) -> CuResult {
    code(current().and_then(|_| {
        if handle.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let driver = driver()?;
        let export = memory()?.export(driver, dptr)?;
        let reserved = export.encode().map(|byte| byte as c_char);
        store(handle, CuIpcMemHandle { reserved })
    }))
}

pub fn cuIpcOpenMemHandle(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint) -> CuResult {
    cuIpcOpenMemHandle_v2(dptr, handle, flags)
}

pub fn cuIpcOpenMemHandle_v2(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint) -> CuResult {
    code(current().and_then(|context| {
        if dptr.is_null() || flags & !(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint) != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let export = Export::decode(&handle.reserved.map(|byte| byte as u8)).ok_or(CuResult::INVALID_HANDLE)?;
        let driver = driver()?;
        store(dptr, memory()?.open_export(driver, &context, &export)?)
    }))
}

pub fn cuIpcCloseMemHandle(dptr: CuDevicePtr) -> CuResult {
    code(current().and_then(|context| {
        before_free(dptr)?;
        memory()?.close_export(&context, dptr)
    }))
}
