// SPDX-License-Identifier: Apache-2.0
//! Expands the two tables into what the program calls: exported functions, and a second set for a driver that lives in
//! a `dlmopen` namespace. With `dlsym` these are the library's only exports.
//!
//! A row that is not `pass` becomes a function; its treatment says which body. A `gate` row's operand says what the work
//! is ([`time`](crate::time)), after the word `launch` where programs call it all the time; the others have one body for
//! both sets, which takes the library as its last argument. The bodies of `answer`, `track` and `resolve` rows are
//! functions of the same name in [`hooks`](crate::hooks). That module must not see this one: a missing body would
//! otherwise resolve to the export itself and call itself for ever.

use partage_abi::{HOOKED, ROWS, Row, nvml};

use crate::real::{DRIVER, Library, NVML, SECOND_DRIVER};

/// A symbol as a C string.
macro_rules! c_name {
    ($symbol:ident) => {
        const {
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        }
    };
}
pub(crate) use c_name;

/// Calls the real function of a row; the library's "not there" answer where it has none.
macro_rules! call {
    ($real:expr, $symbol:ident($($argument:expr),*)) => {
        match $real.address(partage_abi::Symbol::$symbol as usize, crate::entry::c_name!($symbol)) {
            // SAFETY: the address of the function of that name, whose type the table declares; the arguments are the
            // program's, or ours of the same types.
            Some(address) => unsafe {
                core::mem::transmute::<*const (), partage_abi::signatures::$symbol>(address)($($argument),*)
            },
            None => partage_abi::types::CuResult::STUB_LIBRARY,
        }
    };
}
pub(crate) use call;

/// [`call`] for NVML.
macro_rules! call_nvml {
    ($symbol:ident($($argument:expr),*)) => {
        match crate::real::NVML.address(partage_abi::nvml::Symbol::$symbol as usize, crate::entry::c_name!($symbol)) {
            // SAFETY: as for the driver.
            Some(address) => unsafe {
                core::mem::transmute::<*const (), partage_abi::nvml::signatures::$symbol>(address)($($argument),*)
            },
            None => partage_abi::nvml::NvmlReturn::LIBRARY_NOT_FOUND,
        }
    };
}
pub(crate) use call_nvml;

/// One row of the driver table as a function. `$real` is the library it calls.
macro_rules! row {
    ([$($attribute:tt)*] $real:ident pass $($rest:tt)*) => {};
    (
        [$($attribute:tt)*] $real:ident
        charge ($bytes:expr) $symbol:ident($first:ident: $type:ty $(, $arg:ident: $types:ty)*)
    ) => {
        $($attribute)*
        pub unsafe extern "C" fn $symbol($first: $type $(, $arg: $types)*) -> CuResult {
            match guard::enter() {
                Some(_outermost) => hooks::charge(&$real, $first, u64::from(Wide::wide($bytes)), || {
                    call!($real, $symbol($first $(, $arg)*))
                }),
                None => call!($real, $symbol($first $(, $arg)*)),
            }
        }
    };
    ([$($attribute:tt)*] $real:ident refund ($pointer:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        $($attribute)*
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> CuResult {
            match guard::enter() {
                Some(_outermost) => hooks::refund(u64::from(Wide::wide($pointer)), || call!($real, $symbol($($arg),*))),
                None => call!($real, $symbol($($arg),*)),
            }
        }
    };
    ([$($attribute:tt)*] $real:ident gate (launch $work:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        $($attribute)*
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> CuResult {
            let outermost = guard::enter();
            let is_per_thread = const { time::is_per_thread(stringify!($symbol)) };
            time::around(&$real, outermost.is_some(), is_per_thread, || $work, || call!($real, $symbol($($arg),*)))
        }
    };
    ([$($attribute:tt)*] $real:ident gate ($work:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        $($attribute)*
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> CuResult {
            // SAFETY: the program's arguments.
            unsafe { super::shared::$symbol($($arg,)* &$real) }
        }
    };
    ([$($attribute:tt)*] $real:ident settle ($stream:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        $($attribute)*
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> CuResult {
            // SAFETY: the program's arguments.
            unsafe { super::shared::$symbol($($arg,)* &$real) }
        }
    };
    ([$($attribute:tt)*] $real:ident $body:ident () $symbol:ident($($arg:ident: $type:ty),*)) => {
        $($attribute)*
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> CuResult {
            match guard::enter() {
                Some(_outermost) => bodied!($body hooks::$symbol(&$real, $($arg),*)),
                None => call!($real, $symbol($($arg),*)),
            }
        }
    };
}

/// The treatments whose bodies stand in `hooks`; any other word without a rule in `row` is a compile error.
macro_rules! bodied {
    (answer $($call:tt)*) => { $($call)* };
    (track $($call:tt)*) => { $($call)* };
    (resolve $($call:tt)*) => { $($call)* };
}

/// The bodies that both sets share.
macro_rules! shared_bodies {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( shared_body! { $word ($($($operand)*)?) $symbol($($arg: $type),*) } )*
    };
}

macro_rules! shared_body {
    (gate (launch $($rest:tt)*) $($row:tt)*) => {};
    (gate ($work:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        #[inline(never)]
        pub unsafe extern "C" fn $symbol($($arg: $type,)* real: &'static Library) -> CuResult {
            let is_per_thread = const { time::is_per_thread(stringify!($symbol)) };
            let (work, is_always) = time::read($work, is_per_thread);
            let passage = time::begin(real, guard::here(), &work, is_always);
            let result = call!(real, $symbol($($arg),*));
            time::end(real, passage);
            result
        }
    };
    (settle ($stream:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        #[inline(never)]
        pub unsafe extern "C" fn $symbol($($arg: $type,)* real: &'static Library) -> CuResult {
            time::settle(real, $stream, const { time::is_per_thread(stringify!($symbol)) });
            call!(real, $symbol($($arg),*))
        }
    };
    ($($rest:tt)*) => {};
}

macro_rules! exports {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( row! { [#[unsafe(no_mangle)]] DRIVER $word ($($($operand)*)?) $symbol($($arg: $type),*) } )*
    };
}

macro_rules! second_set {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( row! { [] SECOND_DRIVER $word ($($($operand)*)?) $symbol($($arg: $type),*) } )*
    };
}

macro_rules! nvml_row {
    (pass $($rest:tt)*) => {};
    ($body:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> NvmlReturn {
            match guard::enter() {
                Some(_outermost) => bodied!($body hooks::nvml::$symbol($($arg),*)),
                None => call_nvml!($symbol($($arg),*)),
            }
        }
    };
}

macro_rules! nvml_exports {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( nvml_row! { $word $symbol($($arg: $type),*) } )*
    };
}

/// What a `charge` or `refund` operand may be: an unsigned number of any width the driver's old and new ABI use.
trait Wide {
    fn wide(self) -> u64;
}
impl Wide for u32 {
    fn wide(self) -> u64 {
        u64::from(self)
    }
}
impl Wide for u64 {
    fn wide(self) -> u64 {
        self
    }
}
impl Wide for usize {
    fn wide(self) -> u64 {
        self as u64
    }
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
mod exported {
    use super::{DRIVER, Wide};
    use crate::time::{self, Configured, Kernel};
    use crate::{guard, hooks};
    use partage_abi::types::*;
    partage_abi::driver_table! { exports }
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
mod shared {
    use crate::guard;
    use crate::real::Library;
    use crate::time::{self, Across, Inside, Kernel, Shaped, Together, Unified};
    use partage_abi::types::*;
    partage_abi::driver_table! { shared_bodies }
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
mod second {
    use super::{SECOND_DRIVER, Wide};
    use crate::time::{self, Configured, Kernel};
    use crate::{guard, hooks};
    use partage_abi::types::*;
    partage_abi::driver_table! { second_set }
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
mod exported_nvml {
    use crate::{guard, hooks};
    use partage_abi::nvml::*;
    partage_abi::nvml_table! { nvml_exports }
}

/// A function's address, or null for a `pass` row.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Address(*const ());
// SAFETY: an address of code, the same for every thread.
unsafe impl Sync for Address {}

macro_rules! address_of {
    ($module:ident pass $symbol:ident) => {
        Address(core::ptr::null())
    };
    ($module:ident $word:ident $symbol:ident) => {
        Address($module::$symbol as *const ())
    };
}

macro_rules! addresses {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        [$( address_of!(exported $word $symbol) ),*]
    };
}

macro_rules! second_addresses {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        [$( address_of!(second $word $symbol) ),*]
    };
}

macro_rules! nvml_addresses {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        [$( address_of!(exported_nvml $word $symbol) ),*]
    };
}

/// Keeps the entries of hooked rows, in the table's order: the loader relocates what is not null at every exec, and
/// touches the pages of the rest.
const fn hooked_only<const ALL: usize, const SOME: usize>(rows: &[Row], all: [Address; ALL]) -> [Address; SOME] {
    let mut some = [Address(core::ptr::null()); SOME];
    let (mut from, mut to) = (0, 0);
    while from < ALL {
        if rows[from].treatment.is_hooked() {
            some[to] = all[from];
            to += 1;
        }
        from += 1;
    }
    some
}

static HOOKS: [Address; HOOKED.len()] = hooked_only(ROWS, partage_abi::driver_table! { addresses });
static SECOND_HOOKS: [Address; HOOKED.len()] = hooked_only(ROWS, partage_abi::driver_table! { second_addresses });
static NVML_HOOKS: [Address; nvml::HOOKED.len()] = hooked_only(nvml::ROWS, partage_abi::nvml_table! { nvml_addresses });

/// The function to hand out for a library's hooked row, by its position among them.
pub fn hook(library: &Library, position: usize) -> Option<*const ()> {
    let hooks: &[Address] = if core::ptr::eq(library, &NVML) {
        &NVML_HOOKS
    } else if core::ptr::eq(library, &DRIVER) {
        &HOOKS
    } else {
        &SECOND_HOOKS
    };
    hooks.get(position).map(|address| address.0)
}
