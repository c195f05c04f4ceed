// SPDX-License-Identifier: Apache-2.0
//! Functions: kernels of a module in a context, and what can be asked of and set on them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partage_abi::types::*;
use partage_machine::Device;
use partage_ptx::Parameter;

use crate::context::Context;
use crate::handles::{HandleKind, Handles};
use crate::state::Answer;

/// Every living function.
pub static FUNCTIONS: Handles<Function> = Handles::new(HandleKind::Function);

/// Dynamic shared memory that needs no permission, static included.
const USUAL_SHARED: u32 = 48 << 10;
/// Registers that a kernel is said to use at most. PTX has virtual registers, whose number says little about those of
/// the machine code; with this many, 1024 threads fit a multiprocessor, as compilers see to.
const MOST_REGISTERS: u32 = 64;
const FEWEST_REGISTERS: u32 = 16;
/// `CU_DEVICE_ATTRIBUTE_*`: most threads of a block, its most shared memory when asked for, capability.
const DEVICE_THREADS: i32 = 1;
const DEVICE_SHARED_OPTIN: i32 = 97;
const DEVICE_CAPABILITY_MAJOR: i32 = 75;
const DEVICE_CAPABILITY_MINOR: i32 = 76;
/// `CU_FUNC_ATTRIBUTE_*` that can be set.
const MAX_DYNAMIC_SHARED: i32 = 8;
const CARVEOUT: i32 = 9;
const CLUSTER_WIDTH: i32 = 11;
const CLUSTER_DEPTH: i32 = 13;
const CLUSTER_NON_PORTABLE: i32 = 14;
const CLUSTER_POLICY: i32 = 15;
/// Our own numbers for what has no attribute.
const CACHE_CONFIG: i32 = -1;
const SHARED_CONFIG: i32 = -2;

/// A kernel with its settings for one device.
pub struct Traits {
    /// The kernel.
    pub kernel: Arc<partage_ptx::Kernel>,
    /// Its name for programs.
    pub name: CString,
    /// Architecture of its PTX; 0 for machine code.
    target: u32,
    settings: Mutex<BTreeMap<i32, i32>>,
}

/// A kernel of a module.
pub struct Function {
    /// What the program calls it.
    pub handle: CuFunction,
    /// The kernel.
    pub kernel: Arc<partage_ptx::Kernel>,
    /// Attributes.
    pub traits: Arc<Traits>,
    /// The module it belongs to.
    pub module: CuModule,
    /// The context it belongs to.
    pub context: Arc<Context>,
}

impl Traits {
    /// A kernel with the settings that every kernel begins with.
    pub fn new(kernel: Arc<partage_ptx::Kernel>, target: u32) -> Self {
        let name = CString::new(kernel.name()).unwrap_or_default();
        Self {
            kernel,
            name,
            target,
            settings: Mutex::default(),
        }
    }

    fn settings(&self) -> MutexGuard<'_, BTreeMap<i32, i32>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most threads that a block of it may have.
    pub fn max_threads(&self, device: &Device) -> u32 {
        let most = value(device, DEVICE_THREADS);
        match self.kernel.max_threads() {
            0 => most,
            own => own.min(most),
        }
    }

    /// The most dynamic shared memory that a block of it may have, in bytes.
    pub fn max_dynamic_shared(&self) -> u32 {
        let set = self.settings().get(&MAX_DYNAMIC_SHARED).copied();
        set.map_or_else(
            || USUAL_SHARED.saturating_sub(self.kernel.shared_bytes()),
            |bytes| bytes as u32,
        )
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        if self.kernel.is_opaque() {
            return self.kernel.registers();
        }
        let most = match self.kernel.max_registers() {
            0 => MOST_REGISTERS,
            said => said.max(FEWEST_REGISTERS),
        };
        self.kernel.registers().clamp(FEWEST_REGISTERS, most)
    }

    /// The value of an attribute. INVALID_VALUE for one that there is not.
    pub fn attribute(&self, device: &Device, number: i32) -> Answer<i32> {
        let capability = value(device, DEVICE_CAPABILITY_MAJOR) * 10 + value(device, DEVICE_CAPABILITY_MINOR);
        let set = |otherwise| Ok(self.settings().get(&number).copied().unwrap_or(otherwise));
        match number {
            0 => Ok(self.max_threads(device) as i32),
            1 => Ok(self.kernel.shared_bytes() as i32),
            2 => Ok(i32::try_from(self.kernel.constant_bytes()).unwrap_or(i32::MAX)),
            3 => Ok(self.kernel.local_bytes() as i32),
            4 => Ok(self.registers() as i32),
            5 if self.target != 0 => Ok(self.target as i32),
            5 | 6 => Ok(capability as i32),
            7 => Ok(0),
            MAX_DYNAMIC_SHARED => Ok(self.max_dynamic_shared() as i32),
            CARVEOUT => set(-1),
            10..=15 => set(0),
            _ => Err(CuResult::INVALID_VALUE),
        }
    }

    /// Sets an attribute. INVALID_VALUE for one that cannot be set, or not to this.
    pub fn set_attribute(&self, device: &Device, number: i32, to: i32) -> Answer {
        let most = value(device, DEVICE_SHARED_OPTIN).saturating_sub(self.kernel.shared_bytes());
        let is_allowed = match number {
            MAX_DYNAMIC_SHARED => to >= 0 && to as u32 <= most,
            CARVEOUT => (-1..=100).contains(&to),
            CLUSTER_WIDTH..=CLUSTER_DEPTH => to >= 0,
            CLUSTER_NON_PORTABLE => matches!(to, 0 | 1),
            CLUSTER_POLICY => (0..=2).contains(&to),
            _ => false,
        };
        if !is_allowed {
            return Err(CuResult::INVALID_VALUE);
        }
        self.settings().insert(number, to);
        Ok(())
    }

    /// Notes a preference for cache (`CU_FUNC_CACHE_*`) over shared memory.
    pub fn set_cache(&self, preference: i32) -> Answer {
        self.note(CACHE_CONFIG, preference, 0..=3)
    }

    /// Notes a preference for the banks of shared memory (`CU_SHARED_MEM_CONFIG_*`).
    pub fn set_banks(&self, preference: i32) -> Answer {
        self.note(SHARED_CONFIG, preference, 0..=2)
    }

    fn note(&self, number: i32, preference: i32, allowed: std::ops::RangeInclusive<i32>) -> Answer {
        if !allowed.contains(&preference) {
            return Err(CuResult::INVALID_VALUE);
        }
        self.settings().insert(number, preference);
        Ok(())
    }

    /// A parameter by its place. INVALID_VALUE beyond the last.
    pub fn parameter(&self, index: usize) -> Answer<Parameter> {
        self.kernel
            .parameters()
            .get(index)
            .copied()
            .ok_or(CuResult::INVALID_VALUE)
    }
}

fn value(device: &Device, attribute: i32) -> u32 {
    device
        .attribute(attribute)
        .and_then(|value| u32::try_from(value).ok())
        .unwrap_or(0)
}

impl Function {
    /// What the program calls it.
    pub fn handle(&self) -> CuFunction {
        self.handle
    }

    /// The context it belongs to; `None` once that has ended.
    pub fn context(&self) -> Option<Arc<Context>> {
        (!self.context.is_destroyed()).then(|| Arc::clone(&self.context))
    }

    /// Name of the kernel.
    pub fn name(&self) -> &str {
        self.kernel.name()
    }

    /// Parameters of the kernel in order.
    pub fn parameters(&self) -> &[Parameter] {
        self.kernel.parameters()
    }

    /// Bytes of the parameter buffer.
    pub fn parameter_bytes(&self) -> u32 {
        self.kernel.parameter_bytes()
    }

    /// INVALID_HANDLE unless the function belongs to this context.
    pub fn check_context(&self, context: &Arc<Context>) -> Answer {
        if self.context.home == context.home {
            Ok(())
        } else {
            Err(CuResult::INVALID_HANDLE)
        }
    }

    /// The most threads that a block of it may have.
    pub fn max_threads(&self, device: &Device) -> u32 {
        self.traits.max_threads(device)
    }

    /// The most dynamic shared memory that a block of it may have, in bytes.
    pub fn max_dynamic_shared(&self, _: &Device) -> u32 {
        self.traits.max_dynamic_shared()
    }

    /// Static shared memory of a block in bytes.
    pub fn static_shared(&self) -> u32 {
        self.kernel.shared_bytes()
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        self.traits.registers()
    }
}
