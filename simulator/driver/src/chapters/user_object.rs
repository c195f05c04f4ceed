// SPDX-License-Identifier: Apache-2.0
//! User objects: what a program gives graphs to keep, destroyed when nobody refers to it any more.

use partage_abi::types::*;

use crate::graph::Graph;
use crate::graph::user_object::UserObject;
use crate::state::{Answer, code, store};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: the only flag, and it must be given.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the graph takes over references of the caller's.
const MOVE: c_uint = 1;

pub fn cuUserObjectCreate(
    object_out: *mut CuUserObject,
    ptr: *mut c_void,
    destroy: CuHostFn,
    initial_refcount: c_uint,
    flags: c_uint,
) -> CuResult {
    code(check(initial_refcount).and_then(|count| {
        let destroy = destroy.filter(|_| flags == NO_DESTRUCTOR_SYNC && !object_out.is_null());
        let made = UserObject::create(ptr, destroy.ok_or(CuResult::INVALID_VALUE)?, count)?;
        store(object_out, made)
    }))
}

pub fn cuUserObjectRetain(object: CuUserObject, count: c_uint) -> CuResult {
    code(check(count).and_then(|count| UserObject::find(object)?.retain(count)))
}

pub fn cuUserObjectRelease(object: CuUserObject, count: c_uint) -> CuResult {
    code(check(count).and_then(|count| UserObject::find(object)?.release(count)))
}

pub fn cuGraphRetainUserObject(graph: CuGraph, object: CuUserObject, count: c_uint, flags: c_uint) -> CuResult {
    code(check(count).and_then(|count| {
        let (graph, object) = (Graph::find(graph)?, UserObject::find(object)?);
        match flags {
            0 => object.retain(count)?,
            // The caller must have as many: they are the graph's from now on.
            MOVE if object.references() >= count => {}
            _ => return Err(CuResult::INVALID_VALUE),
        }
        graph.objects().add(object, count);
        Ok(())
    }))
}

pub fn cuGraphReleaseUserObject(graph: CuGraph, object: CuUserObject, count: c_uint) -> CuResult {
    code(check(count).and_then(|count| {
        let (graph, object) = (Graph::find(graph)?, UserObject::find(object)?);
        graph.objects().take(&object, count)?;
        // Not under the graph's lock: the destructor is the program's.
        object.release(count)
    }))
}

/// At least one reference, and no more than a signed number counts.
fn check(count: c_uint) -> Answer<c_uint> {
    let is_count = (1..=c_int::MAX as c_uint).contains(&count);
    is_count.then_some(count).ok_or(CuResult::INVALID_VALUE)
}
