// SPDX-License-Identifier: Apache-2.0
//! Arrays and mipmapped arrays: device memory that programs name by handle and never by address.
//!
//! An array costs its elements, rounded up to 512 bytes once, however many levels or planes it has. The levels of a
//! mipmapped array and the planes of a video format are arrays too, in the same memory: their handles come and go with
//! the whole, which alone can be destroyed.

use std::sync::Arc;

use partage_abi::types::{CuArray, CuContext, CuMipmappedArray, CuResult};

use super::allocations::Memory;
use super::pool::take_physical;
use super::shapes::Shape;
use super::windows::{cost, windows};
use crate::context::Context;
use crate::handles::{HandleKind, Handles};
use crate::state::{Answer, Driver, driver};

/// The handles of a process's arrays.
#[derive(Debug)]
pub struct Arrays {
    single: Handles<Array>,
    mipmapped: Handles<MipmappedArray>,
}

/// One array, or a level or plane of one.
#[derive(Debug)]
pub struct Array {
    /// What it was made as.
    pub shape: Shape,
    /// Its planes, if its format has several.
    pub planes: Vec<CuArray>,
    /// Whether it is a level or a plane.
    is_part: bool,
    /// Where its bytes begin in the memory.
    start: u64,
    memory: Arc<ArrayMemory>,
}

/// An array with smaller versions of itself.
#[derive(Debug)]
pub struct MipmappedArray {
    /// The levels, the largest first.
    pub levels: Vec<CuArray>,
    memory: Arc<ArrayMemory>,
}

/// What arrays lie in.
#[derive(Debug)]
pub struct ArrayMemory {
    /// The machine device.
    pub device: usize,
    /// The context it belongs to.
    pub owner: CuContext,
    /// That context's number.
    context: u64,
    /// Where it is in the device's window.
    offset: u64,
    cost: u64,
}

// SAFETY: the pointers inside are handles: numbers to us.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}
// SAFETY: as above.
unsafe impl Send for MipmappedArray {}
// SAFETY: as above.
unsafe impl Sync for MipmappedArray {}
// SAFETY: as above.
unsafe impl Send for ArrayMemory {}
// SAFETY: as above.
unsafe impl Sync for ArrayMemory {}

impl Drop for ArrayMemory {
    /// With the last array in it the memory goes back to the device.
    fn drop(&mut self) {
        if let (Ok(driver), Ok(windows)) = (driver(), windows()) {
            windows.give_physical(driver, self.device, self.offset, self.cost);
        }
    }
}

impl Array {
    /// What it lies in.
    pub fn memory(&self) -> &ArrayMemory {
        &self.memory
    }
}

impl MipmappedArray {
    /// What its levels lie in.
    pub fn memory(&self) -> &ArrayMemory {
        &self.memory
    }
}

static ARRAYS: Arrays = Arrays {
    single: Handles::new(HandleKind::Array),
    mipmapped: Handles::new(HandleKind::MipmappedArray),
};

impl Arrays {
    /// Enters an array, after its planes.
    fn enter(&self, memory: &Arc<ArrayMemory>, shape: Shape, start: u64, is_part: bool) -> Answer<CuArray> {
        let (mut planes, mut at) = (Vec::new(), start);
        for plane in shape.planes() {
            match self.enter(memory, plane, at, true) {
                Ok(handle) => planes.push(handle),
                Err(code) => {
                    self.remove_all(&planes);
                    return Err(code);
                }
            }
            at += plane.bytes()?;
        }
        let handle = CuArray(self.single.insert(Arc::new(Array {
            shape,
            planes: planes.clone(),
            is_part,
            start,
            memory: memory.clone(),
        })));
        if handle.0.is_null() {
            self.remove_all(&planes);
            return Err(CuResult::OUT_OF_MEMORY);
        }
        Ok(handle)
    }

    /// Takes arrays and their planes out of the table. True if there was one.
    fn remove_all(&self, handles: &[CuArray]) -> bool {
        let mut was_there = false;
        for handle in handles {
            if let Some(array) = self.single.remove(handle.0) {
                was_there = true;
                self.remove_all(&array.planes);
            }
        }
        was_there
    }
}

impl Memory {
    /// Makes an array of this shape, which has been checked. OUT_OF_MEMORY when the device is full.
    pub fn create_array(&self, driver: &Driver, context: &Context, shape: Shape) -> Answer<CuArray> {
        let memory = self.take_for_arrays(driver, context, shape.bytes()?)?;
        ARRAYS.enter(&memory, shape, 0, false)
    }

    /// Makes a mipmapped array of so many levels: at least one, at most as many as halving gives.
    pub fn create_mipmapped_array(
        &self,
        driver: &Driver,
        context: &Context,
        shape: Shape,
        levels: u32,
    ) -> Answer<CuMipmappedArray> {
        let shapes: Vec<_> = (0..levels.clamp(1, shape.most_levels()))
            .map(|level| shape.level(level))
            .collect();
        let bytes = shapes.iter().try_fold(0_u64, |sum, shape| {
            sum.checked_add(shape.bytes()?).ok_or(CuResult::OUT_OF_MEMORY)
        })?;
        let memory = self.take_for_arrays(driver, context, bytes)?;
        let (mut levels, mut start) = (Vec::new(), 0);
        for shape in shapes {
            match ARRAYS.enter(&memory, shape, start, true) {
                Ok(handle) => levels.push(handle),
                Err(code) => {
                    ARRAYS.remove_all(&levels);
                    return Err(code);
                }
            }
            start += shape.bytes()?;
        }
        let made = Arc::new(MipmappedArray {
            levels: levels.clone(),
            memory,
        });
        let handle = CuMipmappedArray(ARRAYS.mipmapped.insert(made));
        if handle.0.is_null() {
            ARRAYS.remove_all(&levels);
            return Err(CuResult::OUT_OF_MEMORY);
        }
        Ok(handle)
    }

    /// The array behind a handle. INVALID_HANDLE for one that is null, stale or made up.
    pub fn array(&self, handle: CuArray) -> Answer<Arc<Array>> {
        ARRAYS.single.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
    }

    /// The mipmapped array behind a handle.
    pub fn mipmapped_array(&self, handle: CuMipmappedArray) -> Answer<Arc<MipmappedArray>> {
        ARRAYS.mipmapped.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
    }

    /// Destroys an array. INVALID_HANDLE for a level or a plane. The caller has waited for the work that may use it.
    pub fn destroy_array(&self, handle: CuArray) -> Answer {
        if self.array(handle)?.is_part || !ARRAYS.remove_all(&[handle]) {
            return Err(CuResult::INVALID_HANDLE);
        }
        Ok(())
    }

    /// Destroys a mipmapped array with its levels. The caller has waited for the work that may use it.
    pub fn destroy_mipmapped_array(&self, handle: CuMipmappedArray) -> Answer {
        let gone = ARRAYS.mipmapped.remove(handle.0).ok_or(CuResult::INVALID_HANDLE)?;
        ARRAYS.remove_all(&gone.levels);
        Ok(())
    }

    /// Destroys the arrays that belong to a context.
    pub(super) fn destroy_arrays_of(&self, context: &Context) {
        ARRAYS.mipmapped.remove_if(|array| array.memory.context == context.id);
        ARRAYS.single.remove_if(|array| array.memory.context == context.id);
    }

    /// Where the driver reaches `bytes` bytes of an array of one plane, from `offset` on. INVALID_VALUE unless it holds
    /// all of them.
    pub fn reach_array(&self, handle: CuArray, offset: u64, bytes: u64) -> Answer<*mut u8> {
        let array = self.array(handle)?;
        let length = array.shape.bytes()?;
        if offset.checked_add(bytes).is_none_or(|end| end > length) {
            return Err(CuResult::INVALID_VALUE);
        }
        let window = self.windows.space.window(array.memory.device).start;
        Ok(self
            .windows
            .space
            .alias(window + array.memory.offset + array.start + offset))
    }

    fn take_for_arrays(&self, driver: &Driver, context: &Context, bytes: u64) -> Answer<Arc<ArrayMemory>> {
        let cost = cost(bytes)?;
        let offset = take_physical(driver, context.device, cost)?;
        Ok(Arc::new(ArrayMemory {
            device: context.device,
            owner: context.home.1,
            context: context.home.0,
            offset,
            cost,
        }))
    }
}
