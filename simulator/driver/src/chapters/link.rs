// SPDX-License-Identifier: Apache-2.0
//! The linker: joins PTX inputs into one image. The image is a container of the simulator, which loads it again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use partage_abi::types::*;
use partage_ptx::{Image, ImageError, join};

use crate::context::current;
use crate::handles::{HandleKind, Handles};
use crate::jit::Options;
use crate::module::{self, read_file};
use crate::state::{Answer, code, driver, store};

/// `CU_JIT_INPUT_*`: cubin, PTX, fat binary; objects and archives of machine code; intermediate code.
const INPUT_CUBIN: c_int = 0;
const INPUT_PTX: c_int = 1;
const INPUT_FATBINARY: c_int = 2;
const INPUT_OBJECT: c_int = 3;
const INPUT_LIBRARY: c_int = 4;

/// A linker at work.
struct Link {
    options: Options,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    inputs: Vec<Image>,
    /// What was made; the program reads it until it destroys the linker.
    result: Option<Vec<u8>>,
}

static LINKS: Handles<Link> = Handles::new(HandleKind::LinkState);

fn lookup(state: CuLinkState) -> Answer<Arc<Link>> {
    LINKS.get(state.0).ok_or(CuResult::INVALID_HANDLE)
}

pub fn cuLinkCreate_v2(
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
    state_out: *mut CuLinkState,
) -> CuResult {
    code(current().and_then(|_| {
        if state_out.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let options = Options::new(num_options, options, option_values)?;
        let handle = LINKS.insert(Arc::new(Link {
            options,
            state: Mutex::default(),
        }));
        if handle.is_null() {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        store(state_out, CuLinkState(handle))
    }))
}

pub fn cuLinkCreate(
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
    state_out: *mut CuLinkState,
) -> CuResult {
    cuLinkCreate_v2(num_options, options, option_values, state_out)
}

pub fn cuLinkAddData_v2(
    state: CuLinkState,
    kind: c_int,
    data: *mut c_void,
    size: usize,
    _: *const c_char,
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
) -> CuResult {
    code(current().and_then(|_| {
        let link = lookup(state)?;
        Options::new(num_options, options, option_values)?;
        if data.is_null() || size == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the entry point's contract `size` bytes.
        link.add(kind, unsafe { std::slice::from_raw_parts(data.cast(), size) })
    }))
}

pub fn cuLinkAddData(
    state: CuLinkState,
    kind: c_int,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
) -> CuResult {
    cuLinkAddData_v2(state, kind, data, size, name, num_options, options, option_values)
}

pub fn cuLinkAddFile_v2(
    state: CuLinkState,
    kind: c_int,
    path: *const c_char,
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
) -> CuResult {
    code(current().and_then(|_| {
        let link = lookup(state)?;
        Options::new(num_options, options, option_values)?;
        link.add(kind, &read_file(path)?)
    }))
}

pub fn cuLinkAddFile(
    state: CuLinkState,
    kind: c_int,
    path: *const c_char,
    num_options: c_uint,
    options: *mut c_int,
    option_values: *mut *mut c_void,
) -> CuResult {
    cuLinkAddFile_v2(state, kind, path, num_options, options, option_values)
}

impl Link {
    fn add(&self, kind: c_int, data: &[u8]) -> Answer {
        match kind {
            INPUT_CUBIN | INPUT_PTX | INPUT_FATBINARY => {}
            // Machine code cannot be linked here, and an archive of it is nothing else.
            INPUT_OBJECT | INPUT_LIBRARY => return Err(CuResult::NOT_SUPPORTED),
            _ => return Err(CuResult::INVALID_VALUE),
        }
        let begun = Instant::now();
        let context = current()?;
        let loader = module::loader(&driver()?.at(context.device))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.result.is_some() {
            return Err(CuResult::INVALID_VALUE);
        }
        let chosen = loader.choose(data).and_then(|image| match (&image, kind) {
            (Image::Ptx(text), _) => check_syntax(text).map(|()| image),
            (Image::Cubin(_), INPUT_PTX) => Err(ImageError::Unknown),
            _ => Ok(image),
        });
        match chosen {
            Ok(image) => {
                state.inputs.push(image);
                Ok(())
            }
            Err(error) => {
                self.options.report(begun, Some(&error.to_string()));
                // What is said to be PTX and has not even a version is bad PTX, not an unknown image.
                let is_text = kind == INPUT_PTX && error == ImageError::Unknown;
                Err(if is_text {
                    CuResult::INVALID_PTX
                } else {
                    module::code_of(&error)
                })
            }
        }
    }

    fn complete(&self) -> Answer<(*mut c_void, usize)> {
        let begun = Instant::now();
        let context = current()?;
        let device = &driver()?.at(context.device);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.inputs.is_empty() {
            return Err(CuResult::INVALID_VALUE);
        }
        let result = match &state.inputs[..] {
            // A single cubin stays what it is.
            [Image::Cubin(data)] => data.clone(),
            inputs => {
                let mut texts = Vec::new();
                for input in inputs {
                    match input {
                        Image::Ptx(text) => texts.push(text.clone()),
                        Image::Joined(parts) => texts.extend_from_slice(parts),
                        Image::Cubin(_) => return Err(CuResult::NOT_SUPPORTED),
                    }
                }
                join(&texts)
            }
        };
        let checked = module::read(device, &result);
        self.options
            .report(begun, checked.as_ref().err().map(ToString::to_string).as_deref());
        checked.map_err(|error| module::code_of(&error))?;
        let kept = state.result.insert(result);
        Ok((kept.as_mut_ptr().cast(), kept.len()))
    }
}

/// Refuses text that is not PTX; names that are missing may still come with another input.
fn check_syntax(text: &str) -> Result<(), ImageError> {
    partage_ptx::check_syntax(text).map_err(ImageError::Ptx)
}

pub fn cuLinkComplete(state: CuLinkState, cubin_out: *mut *mut c_void, size_out: *mut usize) -> CuResult {
    code(current().and_then(|_| {
        let link = lookup(state)?;
        if cubin_out.is_null() || size_out.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let (data, size) = link.complete()?;
        store(cubin_out, data).and(store(size_out, size))
    }))
}

pub fn cuLinkDestroy(state: CuLinkState) -> CuResult {
    code(driver().and_then(|_| LINKS.remove(state.0).map(|_| ()).ok_or(CuResult::INVALID_HANDLE)))
}
