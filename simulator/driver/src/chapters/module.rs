// SPDX-License-Identifier: Apache-2.0
//! Module management: loading, functions and global variables.

use std::sync::Arc;
use std::time::Instant;

use partage_abi::types::*;

use crate::context::current;
use crate::jit::Options;
use crate::module::{self, LoadedModule, MODULES, image_bytes, name_of, read_file};
use crate::state::{Answer, code, driver, store};
use crate::submission::synchronize_context;

/// `CU_MODULE_EAGER_LOADING` and `CU_MODULE_LAZY_LOADING`.
const EAGER: c_int = 1;
const LAZY: c_int = 2;

pub fn cuModuleLoad(module: *mut CuModule, fname: *const c_char) -> CuResult {
    code(current().and_then(|_| {
        let image = read_file(fname)?;
        load(module, &image, Options::new(0, std::ptr::null(), std::ptr::null_mut())?)
    }))
}

pub fn cuModuleLoadData(module: *mut CuModule, image: *const c_void) -> CuResult {
    cuModuleLoadDataEx(module, image, 0, std::ptr::null_mut(), std::ptr::null_mut())
}

pub fn cuModuleLoadDataEx(
    module: *mut CuModule,
    image: *const c_void,
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
) -> CuResult {
    code(current().and_then(|_| {
        let options = Options::new(num_options, options, option_values)?;
        load(module, image_bytes(image)?, options)
    }))
}

pub fn cuModuleLoadFatBinary(module: *mut CuModule, fat_cubin: *const c_void) -> CuResult {
    cuModuleLoadData(module, fat_cubin)
}

fn load(to: *mut CuModule, image: &[u8], options: Options) -> Answer {
    let context = current()?;
    if to.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    module::sweep();
    let begun = Instant::now();
    let device = &driver()?.at(context.device);
    let found = module::read(device, image);
    options.report(begun, found.as_ref().err().map(ToString::to_string).as_deref());
    let found = found.map_err(|error| module::code_of(&error))?;
    store(to, LoadedModule::load(&context, found, image.len())?.handle)
}

pub fn cuModuleUnload(module: CuModule) -> CuResult {
    code(current().and_then(|_| {
        let module = module::lookup(module)?;
        if module.is_of_library {
            return Err(CuResult::NOT_PERMITTED);
        }
        synchronize_context(&module.context)?;
        module.unload();
        Ok(())
    }))
}

pub fn cuModuleGetLoadingMode(mode: *mut c_int) -> CuResult {
    // The default since 12.2; the variable chooses as with the vendor's driver.
    let eager = std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|value| value == "EAGER");
    code(driver().and_then(|_| store(mode, if eager { EAGER } else { LAZY })))
}

pub fn cuModuleGetFunction(function: *mut CuFunction, module: CuModule, name: *const c_char) -> CuResult {
    code(current().and_then(|_| {
        let found = module::lookup(module)?.function(name_of(name)?)?;
        store(function, found.handle)
    }))
}

pub fn cuModuleGetFunctionCount(count: *mut c_uint, module: CuModule) -> CuResult {
    code(current().and_then(|_| store(count, module::lookup(module)?.kernel_names().len() as c_uint)))
}

pub fn cuModuleEnumerateFunctions(functions: *mut CuFunction, num_functions: c_uint, module: CuModule) -> CuResult {
    code(current().and_then(|_| {
        let module = module::lookup(module)?;
        if functions.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        for (index, name) in module.kernel_names().take(num_functions as usize).enumerate() {
            store(functions.wrapping_add(index), module.function(name)?.handle)?;
        }
        Ok(())
    }))
}

pub fn cuModuleGetGlobal_v2(
    dptr: *mut CuDevicePtr,
    bytes: *mut usize,
    module: CuModule,
    name: *const c_char,
) -> CuResult {
    code(current().and_then(|_| {
        let module = module::lookup(module)?;
        let found = module.variable(name_of(name)?)?;
        store_either(dptr, found.address, bytes, found.bytes as usize)
    }))
}

pub fn cuModuleGetGlobal(
    dptr: *mut CuDevicePtrV1,
    bytes: *mut c_uint,
    module: CuModule,
    name: *const c_char,
) -> CuResult {
    code(current().and_then(|_| {
        let module = module::lookup(module)?;
        let found = module.variable(name_of(name)?)?;
        // The first ABI has 32 bits; an address beyond cannot be told.
        let address = CuDevicePtrV1::try_from(found.address).map_err(|_| CuResult::NOT_SUPPORTED)?;
        store_either(dptr, address, bytes, found.bytes as c_uint)
    }))
}

/// Stores two answers, either of which the program may not want; INVALID_VALUE when it wants neither.
pub(super) fn store_either<A, B>(first: *mut A, a: A, second: *mut B, b: B) -> Answer {
    if first.is_null() && second.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    if !first.is_null() {
        store(first, a)?;
    }
    if second.is_null() { Ok(()) } else { store(second, b) }
}

/// Textures are not simulated, so no module has one.
pub fn cuModuleGetTexRef(_: *mut CuTexref, module: CuModule, name: *const c_char) -> CuResult {
    code(nothing_called(module, name))
}

pub fn cuModuleGetSurfRef(_: *mut CuSurfref, module: CuModule, name: *const c_char) -> CuResult {
    code(nothing_called(module, name))
}

fn nothing_called(module: CuModule, name: *const c_char) -> Answer {
    current()?;
    module::lookup(module)?;
    name_of(name)?;
    Err(CuResult::NOT_FOUND)
}

/// The module behind a handle that a function holds, for `cuFuncGetModule`.
pub(super) fn module_of(handle: CuModule) -> Answer<Arc<LoadedModule>> {
    MODULES.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
}
