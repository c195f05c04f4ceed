// SPDX-License-Identifier: Apache-2.0
//! What a name leads to that is not built: it says itself once, and answers the library's code for "not supported".

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::sync::{Mutex, TryLockError};

use partage_abi::types::CuResult;

/// The names that were said.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says once, on stderr, that a function of a library is not built.
pub fn say(name: &str, library: &str, code: c_int) {
    let mut said = match SAID.try_lock() {
        Ok(said) => said,
        Err(TryLockError::Poisoned(said)) => said.into_inner(),
        // Another thread is saying something, or did when this process was forked: the answer matters more.
        Err(TryLockError::WouldBlock) => return,
    };
    if said.insert(format!("{library} {name}")) {
        let line = format!("partage sim: {name} is not built in the stand-in for {library}: answers {code}\n");
        // SAFETY: the line's own bytes. Not `eprintln!`, which waits for a lock that a forked child may lack.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
}

/// Refuses a function of the runtime, or a part of one, that is not built.
#[cold]
pub fn of_runtime(what: &str) -> CuResult {
    say(what, "the CUDA runtime", CuResult::NOT_SUPPORTED.0);
    CuResult::NOT_SUPPORTED
}

/// # Safety
/// Both are texts that end with a zero.
unsafe fn say_c(name: *const c_char, library: *const c_char, code: c_int) {
    // SAFETY: the caller's promise.
    let (name, library) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(library)) };
    say(&name.to_string_lossy(), &library.to_string_lossy(), code);
}

/// For functions that answer a code.
///
/// # Safety
/// As for the stand-ins' own call: both are texts that end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn partage_refuse(name: *const c_char, library: *const c_char, code: c_int) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { say_c(name, library, code) };
    // As wide as a pointer, which some functions answer.
    c_long::from(code)
}

/// For functions that answer a text.
///
/// # Safety
/// As for [`partage_refuse`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn partage_refuse_text(
    name: *const c_char,
    library: *const c_char,
    code: c_int,
) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { say_c(name, library, code) };
    c"not built in Partage's stand-in".as_ptr()
}
