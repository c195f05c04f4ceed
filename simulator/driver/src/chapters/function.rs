// SPDX-License-Identifier: Apache-2.0
//! Functions: attributes, names and parameters.

use std::sync::Arc;

use partage_abi::types::*;
use partage_machine::Device;

use super::module::{module_of, store_either};
use crate::context::current;
use crate::function::Function;
use crate::library;
use crate::state::{Answer, code, driver, store};

/// `CU_FUNCTION_LOADING_STATE_LOADED`.
const LOADED: c_int = 1;

/// A function and the device of its context.
fn found(handle: CuFunction) -> Answer<(Arc<Function>, Arc<Device>)> {
    current()?;
    let function = library::lookup_function(handle)?;
    let device = driver()?.at(function.context.device);
    Ok((function, device))
}

pub fn cuFuncGetAttribute(value: *mut c_int, attrib: c_int, function: CuFunction) -> CuResult {
    code(found(function).and_then(|(function, device)| store(value, function.traits.attribute(&device, attrib)?)))
}

pub fn cuFuncSetAttribute(function: CuFunction, attrib: c_int, value: c_int) -> CuResult {
    code(found(function).and_then(|(function, device)| function.traits.set_attribute(&device, attrib, value)))
}

pub fn cuFuncSetCacheConfig(function: CuFunction, config: c_int) -> CuResult {
    code(found(function).and_then(|(function, _)| function.traits.set_cache(config)))
}

pub fn cuFuncSetSharedMemConfig(function: CuFunction, config: c_int) -> CuResult {
    code(found(function).and_then(|(function, _)| function.traits.set_banks(config)))
}

pub fn cuFuncGetModule(module: *mut CuModule, function: CuFunction) -> CuResult {
    code(found(function).and_then(|(function, _)| store(module, module_of(function.module)?.handle)))
}

pub fn cuFuncGetName(name: *mut *const c_char, function: CuFunction) -> CuResult {
    // The text lives as long as the module does, which holds the function.
    code(found(function).and_then(|(function, _)| store(name, function.traits.name.as_ptr())))
}

pub fn cuFuncGetParamInfo(
    func: CuFunction,
    param_index: usize,
    param_offset: *mut usize,
    param_size: *mut usize,
) -> CuResult {
    code(found(func).and_then(|(function, _)| {
        let parameter = function.traits.parameter(param_index)?;
        store_either(
            param_offset,
            parameter.offset as usize,
            param_size,
            parameter.size as usize,
        )
    }))
}

pub fn cuFuncGetParamCount(func: CuFunction, param_count: *mut usize) -> CuResult {
    code(found(func).and_then(|(function, _)| store(param_count, function.parameters().len())))
}

pub fn cuFuncIsLoaded(state: *mut c_int, function: CuFunction) -> CuResult {
    code(found(function).and_then(|_| store(state, LOADED)))
}

pub fn cuFuncLoad(function: CuFunction) -> CuResult {
    code(found(function).map(|_| ()))
}
