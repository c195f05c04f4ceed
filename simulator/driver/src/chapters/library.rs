// SPDX-License-Identifier: Apache-2.0
//! Library management: code that belongs to no context, and its kernels.

use std::sync::Arc;
use std::time::Instant;

use partage_abi::types::*;

use super::module::store_either;
use crate::context::{current, current_as_it_is};
use crate::jit::Options;
use crate::library::{self, Kernel, Library};
use crate::module::{self, image_bytes, name_of, read_file};
use crate::state::{Answer, code, driver, store};
use crate::submission::synchronize_context;

/// `CU_LIBRARY_*` options: host function table (unused by us), and that the program keeps the image.
const LAST_OPTION: c_int = 1;

pub fn cuLibraryLoadData(
    library: *mut CuLibrary,
    image: *const c_void,
    jit_options: *mut c_int,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    library_options: *mut c_int,
    _: *mut *mut c_void,
    num_library_options: c_uint,
) -> CuResult {
    code(driver().and_then(|_| {
        check_options(library_options, num_library_options)?;
        let options = Options::new(num_jit_options, jit_options, jit_options_values)?;
        load(library, image_bytes(image)?, options)
    }))
}

pub fn cuLibraryLoadFromFile(
    library: *mut CuLibrary,
    file_name: *const c_char,
    jit_options: *mut c_int,
    jit_options_values: *mut *mut c_void,
    num_jit_options: c_uint,
    library_options: *mut c_int,
    _: *mut *mut c_void,
    num_library_options: c_uint,
) -> CuResult {
    code(driver().and_then(|_| {
        check_options(library_options, num_library_options)?;
        let options = Options::new(num_jit_options, jit_options, jit_options_values)?;
        load(library, &read_file(file_name)?, options)
    }))
}

fn check_options(options: *const c_int, count: c_uint) -> Answer {
    if count > 0 && options.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry point's contract an array of `count` numbers.
    let is_known = |index| (0..=LAST_OPTION).contains(&unsafe { options.add(index).read_unaligned() });
    if (0..count as usize).all(is_known) {
        Ok(())
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

/// Reads the code for the current context's device, or else for the first one.
fn load(to: *mut CuLibrary, image: &[u8], options: Options) -> Answer {
    if to.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let driver = driver()?;
    let index = match current_as_it_is() {
        Ok(context) => context.device,
        Err(_) => *driver.visible.first().ok_or(CuResult::NO_DEVICE)?,
    };
    let begun = Instant::now();
    let found = module::read(&driver.at(index), image);
    options.report(begun, found.as_ref().err().map(ToString::to_string).as_deref());
    let found = found.map_err(|error| module::code_of(&error))?;
    store(to, Library::load(image.to_vec(), found, index)?.handle)
}

pub fn cuLibraryUnload(library: CuLibrary) -> CuResult {
    code(driver().and_then(|_| {
        let library = library::lookup(library)?;
        for context in library.contexts() {
            if context.check().is_ok() {
                synchronize_context(&context)?;
            }
        }
        library.unload();
        Ok(())
    }))
}

pub fn cuLibraryGetKernel(kernel: *mut CuKernel, library: CuLibrary, name: *const c_char) -> CuResult {
    code(driver().and_then(|_| {
        let found = library::lookup(library)?.kernel(name_of(name)?)?;
        store(kernel, found.handle)
    }))
}

pub fn cuLibraryGetKernelCount(count: *mut c_uint, lib: CuLibrary) -> CuResult {
    code(driver().and_then(|_| store(count, library::lookup(lib)?.kernel_names().len() as c_uint)))
}

pub fn cuLibraryEnumerateKernels(kernels: *mut CuKernel, num_kernels: c_uint, lib: CuLibrary) -> CuResult {
    code(driver().and_then(|_| {
        let library = library::lookup(lib)?;
        if kernels.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        for (index, name) in library.kernel_names().take(num_kernels as usize).enumerate() {
            store(kernels.wrapping_add(index), library.kernel(name)?.handle)?;
        }
        Ok(())
    }))
}

pub fn cuLibraryGetModule(module: *mut CuModule, library: CuLibrary) -> CuResult {
    code(current().and_then(|context| {
        let library = library::lookup(library)?;
        store(module, library.module_in(&context)?.handle)
    }))
}

pub fn cuKernelGetFunction(func: *mut CuFunction, kernel: CuKernel) -> CuResult {
    code(current().and_then(|context| {
        let kernel = library::lookup_kernel(kernel)?;
        store(func, kernel.function_in(&context)?.handle)
    }))
}

pub fn cuKernelGetLibrary(lib: *mut CuLibrary, kernel: CuKernel) -> CuResult {
    code(driver().and_then(|_| store(lib, library::lookup_kernel(kernel)?.library)))
}

pub fn cuLibraryGetGlobal(
    dptr: *mut CuDevicePtr,
    bytes: *mut usize,
    library: CuLibrary,
    name: *const c_char,
) -> CuResult {
    code(variable(library, name, false, dptr, bytes))
}

pub fn cuLibraryGetManaged(
    dptr: *mut CuDevicePtr,
    bytes: *mut usize,
    library: CuLibrary,
    name: *const c_char,
) -> CuResult {
    code(variable(library, name, true, dptr, bytes))
}

fn variable(
    library: CuLibrary,
    name: *const c_char,
    must_be_managed: bool,
    dptr: *mut CuDevicePtr,
    bytes: *mut usize,
) -> Answer {
    let context = current()?;
    let module = library::lookup(library)?.module_in(&context)?;
    let found = module.variable(name_of(name)?)?;
    if must_be_managed && !found.is_managed {
        return Err(CuResult::NOT_FOUND);
    }
    store_either(dptr, found.address, bytes, found.bytes as usize)
}

/// No host can call the simulated device's functions, so none is unified.
pub fn cuLibraryGetUnifiedFunction(_: *mut *mut c_void, library: CuLibrary, symbol: *const c_char) -> CuResult {
    code(driver().and_then(|_| {
        library::lookup(library)?;
        name_of(symbol)?;
        Err(CuResult::NOT_FOUND)
    }))
}

/// A kernel, and the machine device behind an ordinal.
fn found(kernel: CuKernel, ordinal: CuDevice) -> Answer<(Arc<Kernel>, usize)> {
    let device = driver()?.device(ordinal)?.index;
    Ok((library::lookup_kernel(kernel)?, device))
}

pub fn cuKernelGetAttribute(value: *mut c_int, attrib: c_int, kernel: CuKernel, dev: CuDevice) -> CuResult {
    code(found(kernel, dev).and_then(|(kernel, device)| {
        let traits = kernel.traits_on(device)?;
        store(value, traits.attribute(&driver()?.at(device), attrib)?)
    }))
}

pub fn cuKernelSetAttribute(attrib: c_int, val: c_int, kernel: CuKernel, dev: CuDevice) -> CuResult {
    code(found(kernel, dev).and_then(|(kernel, device)| {
        let traits = kernel.traits_on(device)?;
        traits.set_attribute(&driver()?.at(device), attrib, val)
    }))
}

pub fn cuKernelSetCacheConfig(kernel: CuKernel, config: c_int, dev: CuDevice) -> CuResult {
    code(found(kernel, dev).and_then(|(kernel, device)| kernel.traits_on(device)?.set_cache(config)))
}

pub fn cuKernelGetName(name: *mut *const c_char, function: CuKernel) -> CuResult {
    // The text lives as long as the library does, which holds the kernel.
    code(driver().and_then(|_| store(name, library::lookup_kernel(function)?.general.name.as_ptr())))
}

pub fn cuKernelGetParamInfo(
    kernel: CuKernel,
    param_index: usize,
    param_offset: *mut usize,
    param_size: *mut usize,
) -> CuResult {
    code(driver().and_then(|_| {
        let parameter = library::lookup_kernel(kernel)?.general.parameter(param_index)?;
        store_either(
            param_offset,
            parameter.offset as usize,
            param_size,
            parameter.size as usize,
        )
    }))
}

pub fn cuKernelGetParamCount(kernel: CuKernel, param_count: *mut usize) -> CuResult {
    code(driver().and_then(|_| {
        store(
            param_count,
            library::lookup_kernel(kernel)?.general.kernel.parameters().len(),
        )
    }))
}
