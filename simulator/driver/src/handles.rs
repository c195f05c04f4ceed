// SPDX-License-Identifier: Apache-2.0
//! Tables behind the opaque handles that programs hold.
//!
//! A handle is a number made of the kind of object, a generation and a place in a table; it is never an address. So
//! a handle that is stale, of another kind or made up is recognised and refused, and never followed.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError, RwLock};

/// What a handle stands for. Zero is no kind, so that no handle is null or one of the special streams 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(dead_code)] // one entry per handle type of the API; those of unbuilt chapters are not used yet
pub enum HandleKind {
    Context = 1,
    Stream,
    Event,
    Module,
    Function,
    Kernel,
    Library,
    LinkState,
    Graph,
    GraphNode,
    GraphExec,
    MemoryPool,
    MemoryAllocation,
    Array,
    MipmappedArray,
    UserObject,
    ExternalMemory,
    GreenContext,
    ResourceDescriptor,
}

const INDEX_SHIFT: u32 = 4; // programs may expect the alignment of a pointer
const INDEX_BITS: u32 = 20;
const GENERATION_SHIFT: u32 = INDEX_SHIFT + INDEX_BITS;
const GENERATION_BITS: u32 = 23;
const KIND_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS; // below bit 56: no sign extension anywhere

/// The objects of one kind, by handle.
#[derive(Debug)]
pub struct Handles<T> {
    kind: HandleKind,
    table: RwLock<Table<T>>,
}

#[derive(Debug)]
struct Table<T> {
    places: Vec<Place<T>>,
    /// Freed places, oldest first: a handle's generation comes round as late as possible.
    free: VecDeque<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

impl<T> Handles<T> {
    /// An empty table.
    pub const fn new(kind: HandleKind) -> Self {
        Self {
            kind,
            table: RwLock::new(Table {
                places: Vec::new(),
                free: VecDeque::new(),
            }),
        }
    }

    /// Adds the object that `make` builds; it is told its handle. `None` when a million objects are alive.
    pub fn insert_with(&self, make: impl FnOnce(*mut c_void) -> Arc<T>) -> Option<Arc<T>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let index = match table.free.pop_front() {
            Some(index) => index,
            None if table.places.len() < 1 << INDEX_BITS => {
                table.places.push(Place {
                    generation: 0,
                    object: None,
                });
                table.places.len() as u32 - 1
            }
            None => return None,
        };
        let place = &mut table.places[index as usize];
        let object = make(handle(self.kind, place.generation, index));
        place.object = Some(object.clone());
        Some(object)
    }

    /// Adds an object and gives its handle; null when a million objects are alive.
    #[allow(dead_code)] // for objects that need not know their handle
    pub fn insert(&self, object: Arc<T>) -> *mut c_void {
        let mut given = std::ptr::null_mut();
        self.insert_with(|handle| {
            given = handle;
            object
        });
        given
    }

    /// The object behind a handle.
    pub fn get(&self, handle: *mut c_void) -> Option<Arc<T>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let (generation, index) = self.parse(handle)?;
        let place = table.places.get(index as usize)?;
        if place.generation == generation {
            place.object.clone()
        } else {
            None
        }
    }

    /// Takes the object behind a handle out of the table; the handle is stale from now on.
    pub fn remove(&self, handle: *mut c_void) -> Option<Arc<T>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let (generation, index) = self.parse(handle)?;
        let place = table.places.get_mut(index as usize)?;
        if place.generation != generation {
            return None;
        }
        let object = place.object.take()?;
        place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
        table.free.push_back(index);
        Some(object)
    }

    /// Takes all objects that `goes` chooses out of the table.
    pub fn remove_if(&self, goes: impl Fn(&T) -> bool) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let Table { places, free } = &mut *table;
        let mut gone = Vec::new();
        for (index, place) in places.iter_mut().enumerate() {
            if place.object.as_ref().is_some_and(|object| goes(object)) {
                gone.extend(place.object.take());
                place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
                free.push_back(index as u32);
            }
        }
        // What dropping an object does may need the table.
        drop(table);
        drop(gone);
    }

    /// The handle of an object that is in the table.
    pub fn handle_of(&self, object: &Arc<T>) -> Option<*mut c_void> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |place: &Place<T>| place.object.as_ref().is_some_and(|known| Arc::ptr_eq(known, object));
        let index = table.places.iter().position(is_it)?;
        Some(handle(self.kind, table.places[index].generation, index as u32))
    }

    /// All living objects, oldest place first.
    pub fn all(&self) -> Vec<Arc<T>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.places.iter().filter_map(|place| place.object.clone()).collect()
    }

    fn parse(&self, handle: *mut c_void) -> Option<(u32, u32)> {
        let raw = handle as u64;
        let generation = (raw >> GENERATION_SHIFT) as u32 & ((1 << GENERATION_BITS) - 1);
        let index = (raw >> INDEX_SHIFT) as u32 & ((1 << INDEX_BITS) - 1);
        (self::handle(self.kind, generation, index) == handle).then_some((generation, index))
    }
}

fn handle(kind: HandleKind, generation: u32, index: u32) -> *mut c_void {
    let raw = (kind as u64) << KIND_SHIFT | u64::from(generation) << GENERATION_SHIFT | u64::from(index) << INDEX_SHIFT;
    raw as *mut c_void
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_foreign_and_made_up_handles_are_refused() {
        let contexts = Handles::new(HandleKind::Context);
        let streams = Handles::new(HandleKind::Stream);
        let context = contexts.insert(Arc::new("context"));
        let stream = streams.insert(Arc::new("stream"));
        assert_eq!(contexts.get(context).as_deref(), Some(&"context"));
        assert!(contexts.get(stream).is_none());
        for made_up in [
            0_usize,
            1,
            2,
            0x10,
            usize::MAX,
            context as usize + 1,
            context as usize | 1 << 60,
        ] {
            assert!(contexts.get(made_up as *mut c_void).is_none(), "{made_up:#x}");
        }
        assert!(contexts.remove(context).is_some());
        assert!(contexts.get(context).is_none() && contexts.remove(context).is_none());
        let again = contexts.insert(Arc::new("again"));
        assert_ne!(again, context);
        assert!(contexts.get(context).is_none());
    }
}
