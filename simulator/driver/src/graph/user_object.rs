// SPDX-License-Identifier: Apache-2.0
//! Counted objects of the program. Graphs, their copies, what is instantiated of them and launches under way hold
//! references; who gives up the last one calls the program's destructor, holding no lock of ours.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::{CuResult, CuUserObject};

use crate::handles::{HandleKind, Handles};
use crate::state::{Answer, driver};

static OBJECTS: Handles<UserObject> = Handles::new(HandleKind::UserObject);

/// One object.
pub struct UserObject {
    handle: CuUserObject,
    data: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
    references: AtomicU32,
}

// SAFETY: the program says by making the object that its destructor may be called on another thread.
unsafe impl Send for UserObject {}
// SAFETY: as above; nothing is read through the pointer here.
unsafe impl Sync for UserObject {}

impl UserObject {
    /// Makes an object with so many references, which are the caller's.
    pub fn create(data: *mut c_void, destroy: unsafe extern "C" fn(*mut c_void), count: u32) -> Answer<CuUserObject> {
        driver()?;
        let made = OBJECTS.insert_with(|handle| {
            Arc::new(Self {
                handle: CuUserObject(handle),
                data,
                destroy,
                references: AtomicU32::new(count),
            })
        });
        made.map(|made| made.handle).ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// The object behind a handle. INVALID_VALUE for one that is null, stale or made up.
    pub fn find(handle: CuUserObject) -> Answer<Arc<Self>> {
        driver()?;
        OBJECTS.get(handle.0).ok_or(CuResult::INVALID_VALUE)
    }

    /// How many references there are.
    pub fn references(&self) -> u32 {
        self.references.load(Ordering::Acquire)
    }

    /// Adds references. INVALID_VALUE when the last is gone already, or for more than a signed number counts.
    pub fn retain(&self, count: u32) -> Answer {
        let more = |held: u32| {
            held.checked_add(count)
                .filter(|&sum| held > 0 && i32::try_from(sum).is_ok())
        };
        let changed = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        changed.map(drop).map_err(|_| CuResult::INVALID_VALUE)
    }

    /// Gives up references, and with the last the object. INVALID_VALUE for more than there are.
    pub fn release(&self, count: u32) -> Answer {
        let less = |held: u32| held.checked_sub(count);
        let before = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        if before.map_err(|_| CuResult::INVALID_VALUE)? == count && OBJECTS.remove(self.handle.0).is_some() {
            // SAFETY: the program passed this function and this argument for each other, and it is called once.
            unsafe { (self.destroy)(self.data) };
        }
        Ok(())
    }
}

/// References that somebody holds. They are given up by [`release`](Self::release), not when it is dropped: that may
/// happen under a lock.
#[derive(Default)]
pub struct Objects(Vec<(Arc<UserObject>, u32)>);

impl Objects {
    /// Takes over references that have been counted.
    pub fn add(&mut self, object: Arc<UserObject>, count: u32) {
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &object)) {
            Some((_, held)) => *held = held.saturating_add(count),
            None => self.0.push((object, count)),
        }
    }

    /// Hands out references of an object. INVALID_VALUE for more than are held.
    pub fn take(&mut self, object: &Arc<UserObject>, count: u32) -> Answer {
        let place = self
            .0
            .iter()
            .position(|(known, held)| Arc::ptr_eq(known, object) && *held >= count);
        let place = place.ok_or(CuResult::INVALID_VALUE)?;
        self.0[place].1 -= count;
        if self.0[place].1 == 0 {
            self.0.remove(place);
        }
        Ok(())
    }

    /// One more reference of each, for another holder.
    pub fn retained(&self) -> Self {
        let more = self.0.iter().filter(|(object, _)| object.retain(1).is_ok());
        Self(more.map(|(object, _)| (Arc::clone(object), 1)).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives all of them up. Precondition: the caller holds no lock of ours.
    pub fn release(self) {
        for (object, count) in self.0 {
            // As many as are held are there.
            let _ = object.release(count);
        }
    }
}
