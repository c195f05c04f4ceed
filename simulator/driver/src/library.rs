// SPDX-License-Identifier: Apache-2.0
//! Libraries: code that is loaded once and enters each context when a kernel of it is first used there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use partage_abi::types::*;
use partage_ptx::Module;

use crate::context::{Context, current};
use crate::function::{FUNCTIONS, Function, Traits};
use crate::handles::{HandleKind, Handles};
use crate::module::{self, LoadedModule};
use crate::state::{Answer, driver};

/// Every living library.
pub static LIBRARIES: Handles<Library> = Handles::new(HandleKind::Library);
/// Every living kernel of a library.
pub static KERNELS: Handles<Kernel> = Handles::new(HandleKind::Kernel);

/// A library.
pub struct Library {
    /// What the program calls it.
    pub handle: CuLibrary,
    image: Vec<u8>,
    /// The code as the first device takes it: names and parameters are the same for all.
    code: Module,
    /// The code for each machine device that used it.
    per_device: Mutex<BTreeMap<usize, Module>>,
    /// Modules by context.
    modules: Mutex<BTreeMap<u64, Arc<LoadedModule>>>,
    kernels: Mutex<BTreeMap<String, Arc<Kernel>>>,
}

/// A kernel of a library, the same in all contexts.
pub struct Kernel {
    /// What the program calls it.
    pub handle: CuKernel,
    /// The library it belongs to.
    pub library: CuLibrary,
    owner: Weak<Library>,
    /// As the first device takes it.
    pub general: Arc<Traits>,
    /// Attributes by machine device.
    traits: Mutex<BTreeMap<usize, Arc<Traits>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    /// Makes a library of an image whose code has been read for machine device `device`.
    pub fn load(image: Vec<u8>, code: Module, device: usize) -> Answer<Arc<Self>> {
        let made = LIBRARIES.insert_with(|handle| {
            Arc::new(Self {
                handle: CuLibrary(handle),
                image,
                per_device: Mutex::new(BTreeMap::from([(device, code.clone())])),
                code,
                modules: Mutex::default(),
                kernels: Mutex::default(),
            })
        });
        made.ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// Forgets the library with its kernels and modules. The caller has waited for the work that may use them.
    pub fn unload(&self) {
        if LIBRARIES.remove(self.handle.0).is_none() {
            return;
        }
        for kernel in lock(&self.kernels).values() {
            KERNELS.remove(kernel.handle.0);
        }
        for module in lock(&self.modules).values() {
            module.unload();
        }
    }

    /// Contexts that it has entered.
    pub fn contexts(&self) -> Vec<Arc<Context>> {
        lock(&self.modules)
            .values()
            .map(|module| Arc::clone(&module.context))
            .collect()
    }

    /// A kernel by name; always the same for the same name. NOT_FOUND.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Answer<Arc<Kernel>> {
        let mut kernels = lock(&self.kernels);
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let code = self.code.kernel(name).ok_or(CuResult::NOT_FOUND)?;
        let made = KERNELS.insert_with(|handle| {
            Arc::new(Kernel {
                handle: CuKernel(handle),
                library: self.handle,
                owner: Arc::downgrade(self),
                general: Arc::new(Traits::new(code, self.code.target())),
                traits: Mutex::default(),
            })
        });
        let made = made.ok_or(CuResult::OUT_OF_MEMORY)?;
        kernels.insert(name.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    /// Names of all kernels in the order of the code.
    pub fn kernel_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.code.kernels().map(|kernel| kernel.name())
    }

    /// Its module in a context, loaded when there is none yet.
    pub fn module_in(self: &Arc<Self>, context: &Arc<Context>) -> Answer<Arc<LoadedModule>> {
        if let Some(module) = lock(&self.modules).get(&context.home.0) {
            return Ok(Arc::clone(module));
        }
        let code = self.code_for(context.device)?;
        let mut traits = BTreeMap::new();
        for name in self.kernel_names() {
            traits.insert(name.to_owned(), self.kernel(name)?.traits_on(context.device)?);
        }
        let made = LoadedModule::load_with(context, code, self.image.len(), true, traits)?;
        let mut modules = lock(&self.modules);
        modules.retain(|_, module| !module.context.is_destroyed());
        // Another thread may have been faster; then its module is the one.
        if let Some(first) = modules.get(&context.home.0) {
            made.unload();
            return Ok(Arc::clone(first));
        }
        modules.insert(context.home.0, Arc::clone(&made));
        Ok(made)
    }

    fn code_for(&self, device: usize) -> Answer<Module> {
        let mut per_device = lock(&self.per_device);
        if let Some(code) = per_device.get(&device) {
            return Ok(code.clone());
        }
        let code = module::read(&driver()?.at(device), &self.image).map_err(|error| module::code_of(&error))?;
        per_device.insert(device, code.clone());
        Ok(code)
    }
}

impl Kernel {
    /// The library; INVALID_HANDLE when it has been unloaded.
    pub fn owner(&self) -> Answer<Arc<Library>> {
        self.owner.upgrade().ok_or(CuResult::INVALID_HANDLE)
    }

    /// The kernel as a function of a context.
    pub fn function_in(&self, context: &Arc<Context>) -> Answer<Arc<Function>> {
        self.owner()?.module_in(context)?.function(self.general.kernel.name())
    }

    /// Attributes on a machine device.
    pub fn traits_on(&self, device: usize) -> Answer<Arc<Traits>> {
        if let Some(traits) = lock(&self.traits).get(&device) {
            return Ok(Arc::clone(traits));
        }
        let code = self.owner()?.code_for(device)?;
        let kernel = code.kernel(self.general.kernel.name()).ok_or(CuResult::NOT_FOUND)?;
        let made = Arc::new(Traits::new(kernel, code.target()));
        Ok(Arc::clone(lock(&self.traits).entry(device).or_insert(made)))
    }
}

/// The library behind a handle. INVALID_HANDLE.
pub fn lookup(handle: CuLibrary) -> Answer<Arc<Library>> {
    LIBRARIES.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
}

/// The kernel behind a handle. INVALID_HANDLE.
pub fn lookup_kernel(handle: CuKernel) -> Answer<Arc<Kernel>> {
    KERNELS.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
}

/// The function behind a handle, which may also be a kernel's: then the one in the current context. INVALID_HANDLE
/// for one that is null, stale or made up.
pub fn lookup_function(handle: CuFunction) -> Answer<Arc<Function>> {
    if let Some(function) = FUNCTIONS.get(handle.0) {
        return Ok(function);
    }
    KERNELS
        .get(handle.0)
        .ok_or(CuResult::INVALID_HANDLE)?
        .function_in(&current()?)
}
