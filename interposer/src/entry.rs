// SPDX-License-Identifier: Apache-2.0
//! Expands the two tables into what the program calls: exported functions, and a second set for a driver that lives in
//! a `dlmopen` namespace. With `dlsym` these are the library's only exports.
//!
//! A row that is not `pass` becomes a function; its treatment says which body. A `gate` row's operand says what the
//! work is ([`gate`](crate::gate)). Such rows have one body for both sets, which takes the library as its last
//! argument; where programs call them all the time (the word `launch`), each set has two of its own, for an open gate
//! and for everything else, and the hook jumps to one. The bodies of `answer`, `track` and `resolve` rows are functions
//! of the same name in [`hooks`](crate::hooks). That module must not see this one: a missing body would otherwise
//! resolve to the export itself and call itself for ever. What these rows, and those that settle, do around their body
//! is the same for all: a row is a number there, and its arguments are [words](by_words).

mod by_words;
#[macro_use]
mod numbers;
#[macro_use]
mod stub;

use crate::real::{DRIVER, SECOND_DRIVER};

/// One row of the driver table as a function. `$real` is the library it calls.
macro_rules! row {
    ([$($attribute:tt)*] $real:ident pass () $symbol:ident $arguments:tt) => {
        pub(super) use super::not_ours as $symbol;
    };
    ([$($attribute:tt)*] $real:ident gate (launch $work:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        $($attribute)*
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> CuResult {
            let body: partage_abi::signatures::$symbol = if gate::pass() {
                short::$symbol::body
            } else {
                long::$symbol
            };
            // A jump, with the arguments where they are.
            // SAFETY: the program's arguments.
            unsafe { body($($arg),*) }
        }
    };
    ([$($attribute:tt)*] $real:ident gate $operand:tt $symbol:ident($($arg:ident: $type:ty),*)) => {
        by_words! {
            $symbol($($arg),*)
            { numbered! { gated [$($attribute)*] $real $symbol($($arg: $type),*) } }
            { stub! { [$($attribute)*] $real $symbol($($arg: $type),*) } }
        }
    };
    ([$($attribute:tt)*] $real:ident $word:ident $operand:tt $symbol:ident($($arg:ident: $type:ty),*)) => {
        by_words! {
            $symbol($($arg),*)
            { numbered! { called [$($attribute)*] $real $symbol($($arg: $type),*) } }
            { stub! { [$($attribute)*] $real $symbol($($arg: $type),*) } }
        }
    };
}

/// The treatments whose bodies stand in `hooks`; any other word without a rule in `row` is a compile error.
macro_rules! bodied {
    (answer $($call:tt)*) => { $($call)* };
    (track $($call:tt)*) => { $($call)* };
    (resolve $($call:tt)*) => { $($call)* };
}

/// What the hooks of an often called row jump to when the gate was open: a set's own.
macro_rules! short_bodies {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( short_body! { $word ($($($operand)*)?) $symbol($($arg: $type),*) } )*
    };
}

macro_rules! short_body {
    (gate (launch $work:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        pub mod $symbol {
            use super::*;

            /// The driver's function, once it is known: one load, and never null.
            static FUNCTION: AtomicPtr<()> = AtomicPtr::new(find as *const () as *mut ());

            #[cold]
            unsafe extern "C" fn find($($arg: $type),*) -> CuResult {
                let place = const { crate::names::driver_place(partage_abi::Symbol::$symbol) };
                if let Some(address) = REAL.look_up(place) {
                    FUNCTION.store(address.cast_mut(), Ordering::Release);
                }
                crate::real::call!(REAL, $symbol($($arg),*))
            }

            forwards! { FUNCTION $symbol($($arg: $type),*) }
        }
    };
    ($($rest:tt)*) => {};
}

/// What they jump to otherwise.
macro_rules! long_bodies {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( long_body! { $word ($($($operand)*)?) $symbol($($arg: $type),*) } )*
    };
}

macro_rules! long_body {
    (gate (launch $work:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        pub mod $symbol {
            use super::*;

            #[cold]
            #[inline(never)]
            pub unsafe extern "C" fn body($($arg: $type),*) -> CuResult {
                gated!(&REAL, $work, |_| gate::CheckFirst::Nothing, $symbol($($arg),*))
            }
        }
        longer! { $symbol($($arg: $type),*) }
    };
    ($($rest:tt)*) => {};
}

/// What a `gate` row does, where `$first` says where to look first.
macro_rules! gated {
    ($real:expr, $work:expr, $first:expr, $symbol:ident($($arg:ident),*)) => {{
        let is_per_thread = const { gate::is_per_thread(stringify!($symbol)) };
        let (work, look) = gate::read($work, is_per_thread);
        let passage = gate::begin($real, guard::here(), &work, $first(look));
        let result = crate::real::call!($real, $symbol($($arg),*));
        gate::end($real, passage);
        result
    }};
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
        by_words! {
            $symbol($($arg),*)
            {}
            {
                #[inline(never)]
                pub unsafe extern "C" fn $symbol($($arg: $type,)* real: &'static Library) -> CuResult {
                    gated!(real, $work, |look| look, $symbol($($arg),*))
                }
            }
        }
    };
    (pass $($row:tt)*) => {};
    ($word:ident $operand:tt $symbol:ident($($arg:ident: $type:ty),*)) => {
        by_words! { $symbol($($arg),*) {} { own_body! { $symbol($($arg: $type),*) } } }
    };
}

/// The body of a row whose arguments are no words, or too many.
macro_rules! own_body {
    ($symbol:ident($($arg:ident: $type:ty),*)) => {
        #[inline(never)]
        pub unsafe extern "C" fn $symbol($($arg: $type,)* real: &'static Library) -> CuResult {
            let held = hold::begin(guard::here());
            let result = if held.is_outermost() {
                outermost::$symbol($($arg,)* real)
            } else {
                crate::real::call!(real, $symbol($($arg),*))
            };
            hold::end(held);
            result
        }
    };
}

/// What is a row's own: what it does in the outermost hook, or what a `gate` row asks of a device. Functions of their
/// own: see `guard::DEEPEST`.
macro_rules! outermost_bodies {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( outermost_body! { $word ($($($operand)*)?) $symbol($($arg: $type),*) } )*
    };
}

macro_rules! outermost_body {
    (pass $($row:tt)*) => {};
    (gate (launch $($rest:tt)*) $($row:tt)*) => {};
    (gate ($work:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        by_words! {
            $symbol($($arg),*)
            {
                /// What it asks of a device.
                pub extern "C" fn $symbol($($arg: $type,)* asked: &mut MaybeUninit<Asked>) {
                    $( let _ = $arg; )*
                    asked.write(gate::read($work, const { gate::is_per_thread(stringify!($symbol)) }));
                }
            }
            {}
        }
    };
    (settle ($stream:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        #[inline(never)]
        pub extern "C" fn $symbol($($arg: $type,)* real: &'static Library) -> CuResult {
            marks::settle(real, $stream, const { gate::is_per_thread(stringify!($symbol)) });
            crate::real::call!(real, $symbol($($arg),*))
        }
    };
    (charge ($bytes:expr) $symbol:ident($first:ident: $type:ty $(, $arg:ident: $types:ty)*)) => {
        #[inline(never)]
        pub extern "C" fn $symbol($first: $type $(, $arg: $types)*, real: &'static Library) -> CuResult {
            let start = hooks::begin_charge(real, $first, u64::from(Wide::wide($bytes)));
            if let Some(denied) = start.denial() {
                return denied;
            }
            let result = crate::real::call!(real, $symbol($first $(, $arg)*));
            hooks::end_charge(start, $first, result)
        }
    };
    (refund ($pointer:expr) $symbol:ident($($arg:ident: $type:ty),*)) => {
        #[inline(never)]
        pub extern "C" fn $symbol($($arg: $type,)* real: &'static Library) -> CuResult {
            let refund = hooks::begin_refund(u64::from(Wide::wide($pointer)));
            refund.end(crate::real::call!(real, $symbol($($arg),*)))
        }
    };
    ($body:ident () $symbol:ident($($arg:ident: $type:ty),*)) => {
        #[inline(never)]
        pub extern "C" fn $symbol($($arg: $type,)* real: &'static Library) -> CuResult {
            bodied!($body hooks::$symbol(real, $($arg),*))
        }
    };
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
    (pass $symbol:ident $arguments:tt) => {
        pub(super) use super::not_ours as $symbol;
    };
    ($body:ident $symbol:ident($($arg:ident: $type:ty),*)) => {
        pub mod $symbol {
            use super::*;

            pub unsafe extern "C" fn body($($arg: $type),*) -> NvmlReturn {
                let held = hold::nvml::begin(guard::here());
                let result = if held.is_outermost() {
                    bodied!($body hooks::nvml::$symbol($($arg),*))
                } else {
                    crate::real::call_nvml!($symbol($($arg),*))
                };
                hold::nvml::end(held);
                result
            }
        }
        jump! { [#[unsafe(no_mangle)]] $symbol($($arg: $type),*) -> NvmlReturn, "", $symbol::body, }
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
    use super::DRIVER;
    use crate::gate;
    use crate::guard;
    use partage_abi::types::*;
    partage_abi::driver_table! { exports }

    mod short {
        use super::*;
        use crate::real::DRIVER as REAL;
        use core::sync::atomic::{AtomicPtr, Ordering};
        partage_abi::driver_table! { short_bodies }
    }

    mod long {
        use super::*;
        use crate::gate::{Configured, Kernel};
        use crate::real::DRIVER as REAL;
        partage_abi::driver_table! { long_bodies }
    }
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
mod shared {
    use crate::gate::{self, Across, Inside, Kernel};
    use crate::guard;
    use crate::hold;
    use crate::real::Library;
    use partage_abi::types::*;
    partage_abi::driver_table! { shared_bodies }

    pub mod outermost {
        use crate::entry::Wide;
        use crate::entry::by_words::Asked;
        use crate::gate::{self, Across, Inside, Kernel, Shaped, Together, Unified};
        use crate::hooks;
        use crate::marks;
        use crate::real::Library;
        use core::mem::MaybeUninit;
        use partage_abi::types::*;
        partage_abi::driver_table! { outermost_bodies }
    }

    pub mod numbered {
        partage_abi::driver_table! { numbered_bodies }
    }
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
mod second {
    use super::SECOND_DRIVER;
    use crate::gate;
    use crate::guard;
    use partage_abi::types::*;
    partage_abi::driver_table! { second_set }

    mod short {
        use super::*;
        use crate::real::SECOND_DRIVER as REAL;
        use core::sync::atomic::{AtomicPtr, Ordering};
        partage_abi::driver_table! { short_bodies }
    }

    mod long {
        use super::*;
        use crate::gate::{Configured, Kernel};
        use crate::real::SECOND_DRIVER as REAL;
        partage_abi::driver_table! { long_bodies }
    }
}

// Functions bear the driver's own names, and its documentation is theirs.
#[allow(non_snake_case, missing_docs)]
mod exported_nvml {
    use crate::{guard, hold, hooks};
    use partage_abi::nvml::*;
    partage_abi::nvml_table! { nvml_exports }
}

/// Stands in the tables below for the rows that are not ours, and in none of their places.
extern "C" fn not_ours() {}

/// Where the hooked rows' functions are, as distances from the table's start: pointers would be relocated at every
/// exec. [`Library::hook`](crate::real::Library::hook) reads them.
macro_rules! table {
    (
        $table:literal $module:ident
        $( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*
    ) => {
        core::arch::global_asm!(
            ".pushsection .rodata.partage_hooks,\"a\",%progbits",
            ".balign 4",
            concat!(".globl ", $table),
            concat!(".hidden ", $table),
            concat!(".type ", $table, ", %object"),
            concat!($table, ":"),
            $( distance!($word $table), )*
            concat!(".size ", $table, ", . - ", $table),
            ".popsection",
            $( sym $module::$symbol, )*
        );
    };
}

/// One line of a table; a row that is not ours has none.
macro_rules! distance {
    (pass $table:literal) => {
        "/* {} */"
    };
    ($word:ident $table:literal) => {
        concat!(".long {} - ", $table)
    };
}

macro_rules! exported_table {
    ($($rows:tt)*) => { table! { "partage_hooks" exported $($rows)* } };
}
macro_rules! second_table {
    ($($rows:tt)*) => { table! { "partage_second_hooks" second $($rows)* } };
}
macro_rules! nvml_table {
    ($($rows:tt)*) => { table! { "partage_nvml_hooks" exported_nvml $($rows)* } };
}

partage_abi::driver_table! { exported_table }
partage_abi::driver_table! { numbered_table }
partage_abi::driver_table! { second_table }
partage_abi::nvml_table! { nvml_table }
