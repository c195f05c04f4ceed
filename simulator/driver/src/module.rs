// SPDX-License-Identifier: Apache-2.0
//! Modules: code and variables that a program loaded into a context.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, PoisonError};

use partage_abi::types::*;
use partage_machine::{Device, MachineCode};
use partage_ptx::{Image, ImageError, Loader, Module, ParseError, Refusal, bytes_at};

use crate::context::Context;
use crate::function::{FUNCTIONS, Function, Traits};
use crate::handles::{HandleKind, Handles};
use crate::memory::{Freeable, memory};
use crate::overhead;
use crate::state::{Answer, driver};

/// Every living module.
pub static MODULES: Handles<LoadedModule> = Handles::new(HandleKind::Module);

/// `CU_MEM_ATTACH_GLOBAL`.
const ATTACH_GLOBAL: u32 = 1;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*`.
const CAPABILITY_MAJOR: i32 = 75;
const CAPABILITY_MINOR: i32 = 76;

/// A variable in memory.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Device address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// True for managed memory.
    pub is_managed: bool,
}

/// A module in a context.
pub struct LoadedModule {
    /// What the program calls it.
    pub handle: CuModule,
    /// The context it is loaded into.
    pub context: Arc<Context>,
    /// True for the module of a library, which only the library can unload.
    pub is_of_library: bool,
    code: Module,
    /// What the image costs of the device, beside the variables.
    cost: u64,
    variables: Vec<Variable>,
    /// Functions that the program has asked for; their handles stay the same.
    functions: Mutex<BTreeMap<String, Arc<Function>>>,
    /// Attributes by kernel, shared with the kernels of a library.
    traits: BTreeMap<String, Arc<Traits>>,
}

/// What a device can load.
pub fn loader(device: &Device) -> Answer<Loader> {
    let value = |attribute| {
        device
            .attribute(attribute)
            .and_then(|value| u32::try_from(value).ok())
            .unwrap_or(0)
    };
    let arch = value(CAPABILITY_MAJOR) * 10 + value(CAPABILITY_MINOR);
    Ok(Loader {
        arch,
        newest_ptx: newest_ptx(driver()?.machine().driver_version()),
        takes_machine_code: driver()?.machine().spec().machine_code == MachineCode::NoOp,
    })
}

/// The newest PTX that a driver reads. Drivers of CUDA 12.0 to 12.5 and from 13.0 on read the version of their own
/// number; in between the two counts drifted apart.
fn newest_ptx(driver_version: i32) -> (u32, u32) {
    let (major, minor) = ((driver_version / 1000) as u32, (driver_version % 1000 / 10) as u32);
    match (major, minor) {
        (12, 0..=5) => (8, minor),
        (12, _) => (8, minor - 1),
        (11, 0..=7) => (7, minor),
        (11, _) => (7, 8),
        _ => (major.saturating_sub(4), minor),
    }
}

/// The bytes behind a pointer that a program calls an image. INVALID_VALUE for null, INVALID_IMAGE for what is none.
pub fn image_bytes<'a>(image: *const c_void) -> Answer<&'a [u8]> {
    if image.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: by the entry points' contract the pointer leads to an image.
    unsafe { bytes_at(image.cast()) }.ok_or(CuResult::INVALID_IMAGE)
}

/// The content of a file. INVALID_VALUE for a null name, FILE_NOT_FOUND.
pub fn read_file(name: *const c_char) -> Answer<Vec<u8>> {
    if name.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry points' contract a text with its terminating zero.
    let name = unsafe { CStr::from_ptr(name) };
    let path = std::path::Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
        name.to_bytes(),
    ));
    std::fs::read(path).map_err(|_| CuResult::FILE_NOT_FOUND)
}

/// A name that a program gave. INVALID_VALUE for null, NOT_FOUND for what cannot be a name.
pub fn name_of<'a>(name: *const c_char) -> Answer<&'a str> {
    if name.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry points' contract a text with its terminating zero.
    unsafe { CStr::from_ptr(name) }
        .to_str()
        .map_err(|_| CuResult::NOT_FOUND)
}

/// The driver's code for an image that cannot be loaded.
pub fn code_of(error: &ImageError) -> CuResult {
    match error {
        ImageError::Unknown | ImageError::Fatbin(_) => CuResult::INVALID_IMAGE,
        ImageError::NoEntry { .. } => CuResult::NO_BINARY_FOR_GPU,
        ImageError::NewerVersion { .. } => CuResult::UNSUPPORTED_PTX_VERSION,
        ImageError::NewerTarget { .. } => CuResult::INVALID_PTX,
        ImageError::MachineCode { arch, .. } => {
            say_once(&format!(
                "{error}: refused with NO_BINARY_FOR_GPU (209). Give PTX: nvcc -gencode \
                 arch=compute_{arch},code=compute_{arch}, nvrtcGetPTX, or partage sim --nvrtc-ptx, which hands out PTX \
                 where a program asks NVRTC for machine code. Where results do not matter: \
                 partage sim --machine-code no-op"
            ));
            CuResult::NO_BINARY_FOR_GPU
        }
        ImageError::Ptx(ParseError {
            refusal: Refusal::Unsupported,
            line,
            reason,
            ..
        }) => {
            // A real driver would have loaded it: say why this one does not.
            eprintln!("partage sim: PTX line {line}: {reason}");
            CuResult::NOT_SUPPORTED
        }
        ImageError::Ptx(_) => CuResult::INVALID_PTX,
    }
}

impl LoadedModule {
    /// Loads code, from an image of so many bytes, into a context. OUT_OF_MEMORY when it or its variables do not fit.
    pub fn load(context: &Arc<Context>, code: Module, image_bytes: usize) -> Answer<Arc<Self>> {
        let target = code.target();
        let traits = code
            .kernels()
            .map(|kernel| Arc::new(Traits::new(Arc::clone(kernel), target)));
        let traits = traits.map(|traits| (traits.kernel.name().to_owned(), traits)).collect();
        Self::load_with(context, code, image_bytes, false, traits)
    }

    /// As [`load`](Self::load), with attributes that are shared with others.
    pub fn load_with(
        context: &Arc<Context>,
        mut code: Module,
        image_bytes: usize,
        is_of_library: bool,
        traits: BTreeMap<String, Arc<Traits>>,
    ) -> Answer<Arc<Self>> {
        let device = &driver()?.at(context.device);
        let cost = overhead::image_cost(device, image_bytes as u64);
        context.overhead.hold(cost)?;
        let variables = place(context, &mut code).inspect_err(|_| context.overhead.let_go(cost))?;
        let made = MODULES.insert_with(|handle| {
            Arc::new(Self {
                handle: CuModule(handle),
                context: Arc::clone(context),
                is_of_library,
                code,
                cost,
                variables: variables.clone(),
                functions: Mutex::default(),
                traits,
            })
        });
        made.ok_or_else(|| {
            free(&variables);
            context.overhead.let_go(cost);
            CuResult::OUT_OF_MEMORY
        })
    }

    /// Forgets the module, its functions and its variables. The caller has waited for the work that may use them.
    pub fn unload(&self) {
        if MODULES.remove(self.handle.0).is_none() {
            return;
        }
        for function in self.functions.lock().unwrap_or_else(PoisonError::into_inner).values() {
            FUNCTIONS.remove(function.handle.0);
        }
        // What belongs to a destroyed context was freed with it, and its addresses may be another's by now.
        if !self.context.is_destroyed() {
            free(&self.variables);
        }
        self.context.overhead.let_go(self.cost);
    }

    /// A function by name; always the same for the same name. NOT_FOUND.
    pub fn function(&self, name: &str) -> Answer<Arc<Function>> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return Ok(Arc::clone(function));
        }
        let kernel = self.code.kernel(name).ok_or(CuResult::NOT_FOUND)?;
        let traits = Arc::clone(self.traits.get(name).ok_or(CuResult::NOT_FOUND)?);
        let made = FUNCTIONS.insert_with(|handle| {
            Arc::new(Function {
                handle: CuFunction(handle),
                kernel,
                traits,
                module: self.handle,
                context: Arc::clone(&self.context),
            })
        });
        let made = made.ok_or(CuResult::OUT_OF_MEMORY)?;
        functions.insert(name.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    /// Names of all kernels in the order of the code.
    pub fn kernel_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.code.kernels().map(|kernel| kernel.name())
    }

    /// A variable by name. NOT_FOUND.
    pub fn variable(&self, name: &str) -> Answer<&Variable> {
        self.variables
            .iter()
            .find(|variable| variable.name == name)
            .ok_or(CuResult::NOT_FOUND)
    }
}

/// Forgets modules whose contexts have ended without unloading them.
pub fn sweep() {
    for module in MODULES.all() {
        if module.context.is_destroyed() {
            module.unload();
        }
    }
}

/// The module behind a handle. INVALID_HANDLE for one that is null, stale or made up.
pub fn lookup(handle: CuModule) -> Answer<Arc<LoadedModule>> {
    let module = MODULES.get(handle.0).ok_or(CuResult::INVALID_HANDLE)?;
    if module.context.is_destroyed() {
        module.unload();
        return Err(CuResult::INVALID_HANDLE);
    }
    Ok(module)
}

/// Gives variables their memory and first values.
fn place(context: &Context, code: &mut Module) -> Answer<Vec<Variable>> {
    let driver = driver()?;
    let mut placed = Vec::new();
    for variable in code.variables() {
        let bytes = variable.bytes.max(1);
        let made = if variable.is_managed {
            memory()?.allocate_managed(context, bytes, ATTACH_GLOBAL)
        } else {
            memory()?.allocate(driver, context, bytes)
        };
        match made {
            Ok(allocation) => placed.push(Variable {
                name: variable.name.clone(),
                address: allocation.address,
                bytes: variable.bytes,
                is_managed: variable.is_managed,
            }),
            Err(code) => {
                free(&placed);
                return Err(code);
            }
        }
    }
    let addresses: Vec<u64> = placed.iter().map(|variable| variable.address).collect();
    let filled = code
        .place(&addresses)
        .map_err(|error| code_of(&ImageError::Ptx(error)))
        .and_then(|()| {
            placed
                .iter()
                .enumerate()
                .try_for_each(|(index, variable)| fill(variable, code.image(index)))
        });
    match filled {
        Ok(()) => Ok(placed),
        Err(code) => {
            free(&placed);
            Err(code)
        }
    }
}

fn fill(variable: &Variable, image: &[u8]) -> Answer {
    if image.is_empty() {
        return Ok(());
    }
    let to = memory()?.resolve(variable.address, image.len() as u64)?;
    // SAFETY: `resolve` found that many bytes of ours.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), to, image.len()) };
    Ok(())
}

fn free(variables: &[Variable]) {
    let (Ok(driver), Ok(memory)) = (driver(), memory()) else {
        return;
    };
    for variable in variables {
        // The program may have freed it already, which is its error.
        let _ = memory.free(driver, variable.address, Freeable::Device);
    }
}

/// Reads the code of an image for a device.
pub fn read(device: &Device, image: &[u8]) -> Result<Module, ImageError> {
    // A device without a capability has no code either.
    let loader = loader(device).map_err(|_| ImageError::NoEntry { arch: 0 })?;
    let chosen = loader.choose(image)?;
    let code = loader.load(std::slice::from_ref(&chosen))?;
    if matches!(chosen, Image::Cubin(_)) {
        note_machine_code(&code);
    }
    Ok(code)
}

/// Says for each name that a kernel exists as machine code only, so that nobody wonders about its results.
fn note_machine_code(code: &Module) {
    for kernel in code.kernels() {
        say_once(&format!(
            "{} is machine code, which is not executed: it does nothing",
            kernel.name()
        ));
    }
}

/// Says a line, each only the first time.
pub fn say_once(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(line.to_owned()) {
        eprintln!("partage sim: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::newest_ptx;

    #[test]
    fn drivers_read_the_ptx_of_their_release() {
        let cases = [
            (11080, (7, 8)),
            (12000, (8, 0)),
            (12040, (8, 4)),
            (12060, (8, 5)),
            (12080, (8, 7)),
            (13000, (9, 0)),
        ];
        for (driver, newest) in cases {
            assert_eq!(newest_ptx(driver), newest, "{driver}");
        }
    }
}
